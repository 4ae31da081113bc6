//! The bytes between a file's end and the end of its last block.
//!
//! # State
//! An inode whose tail may hold old bytes is marked and kept in [`UnclearedTails`](crate::content::UnclearedTails).
//! Growing clears at once what it grows over. The rest is cleared when the cut is durable: by a sync of the
//! file or the image, or by the thread that writes what waits, after the commit interval.
//!
//! # Crash
//! A tail that a crash leaves uncleared is behind the end of the file: nobody reads it before something
//! grows the file. Drystone clears it then; Linux takes it to be zeros, as it writes them with the cut.

use super::blocks::zero;
use super::{block_of, is_inline};
use crate::content::ContentStore;
use crate::error::Result;
use crate::inode::Inode;
use crate::mapping;
use drystone_sync::Arc;

/// Marks an inode that was cut inside a block. The content lock is held exclusively.
pub(super) fn mark(fs: &ContentStore, inode: &Arc<Inode>) {
    let size = inode.size_bytes();
    let partial = !size.is_multiple_of(fs.volume.block_size() as u64);
    if partial && !inode.set_tail_pending(true) {
        wait(fs, inode);
    }
}

/// Clears the tail up to `end`, before the file grows over it. What is behind stays: a crash may bring
/// the file back as it was before a cut that isn't durable. The content lock is held exclusively.
pub(super) fn clear(fs: &ContentStore, inode: &Inode, end: u64) -> Result<()> {
    let size = inode.size_bytes();
    let block_size = fs.volume.block_size() as u64;
    let block_end = size.next_multiple_of(block_size);
    let end = end.min(block_end);
    if end > size && !is_inline(inode) {
        let mapped = mapping::map(fs, inode, block_of(fs, size), 1)?;
        if !mapped.unwritten {
            zero(fs, &mapped, size % block_size, end - size)?;
        }
    }
    if end == block_end {
        inode.set_tail_pending(false);
    }
    Ok(())
}

/// Clears the tail if the cut is durable. The content lock is held exclusively.
pub(super) fn clear_durable(fs: &ContentStore, inode: &Inode) -> Result<()> {
    // A later growth may have cleared it.
    if inode.is_tail_pending() && fs.volume.journal.is_committed(inode.last_transaction()) {
        clear(fs, inode, u64::MAX)?;
    }
    Ok(())
}

/// Clears all tails whose cuts are durable, unless the image is frozen: called after a commit, without
/// locks. Those that are left wait for the next time.
pub(crate) fn clear_all(fs: &ContentStore) -> Result<()> {
    if !fs.volume.takes_changes() {
        return Ok(());
    }
    let mut result = Ok(());
    for inode in fs.tails.take() {
        let _content = inode.content.write();
        result = result.and(clear_durable(fs, &inode));
        if inode.is_tail_pending() {
            wait(fs, &inode);
        }
    }
    result
}

fn wait(fs: &ContentStore, inode: &Arc<Inode>) {
    fs.tails.push(inode);
    fs.delayed_allocation.note_tail();
}

/// The inode is freed: nothing of its data matters any more. The content lock is held exclusively.
pub(crate) fn drop_pending(_: &ContentStore, inode: &Inode) {
    inode.set_tail_pending(false);
}
