//! Tails: the bytes between a file's end and the end of its last block.
//!
//! # State
//! An inode whose tail may hold old data is marked and listed in
//! [`UnclearedTails`](crate::content::UnclearedTails). A file that grows first zeroes the part that
//! it grows over. The rest is zeroed once the truncation is durable: by a sync of the file or the
//! image, or by the write-back thread after the commit interval.
//!
//! # Crash
//! A tail that a crash leaves uncleared is past the end of the file, so it can be read only after
//! the file has grown. Drystone zeroes it when the file grows; Linux doesn't, because it zeroes
//! tails when it truncates.

use super::blocks::zero;
use super::{block_of, is_inline};
use crate::content::ContentStore;
use crate::error::Result;
use crate::inode::Inode;
use crate::mapping;
use drystone_sync::Arc;

/// Marks an inode that was truncated inside a block. The content lock is held exclusively.
pub(super) fn mark(fs: &ContentStore, inode: &Arc<Inode>) {
    let size = inode.size_bytes();
    let partial = !size.is_multiple_of(fs.volume.block_size() as u64);
    if partial && !inode.set_tail_pending(true) {
        wait(fs, inode);
    }
}

/// Zeroes the tail up to `end`, before the file grows over it. The rest stays: after a truncation
/// that isn't durable, a crash may bring back the file as it was before. The content lock is held
/// exclusively.
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

/// Zeroes the tail if the truncation is durable. The content lock is held exclusively.
pub(super) fn clear_durable(fs: &ContentStore, inode: &Inode) -> Result<()> {
    // The tail may have been zeroed since, when the file grew.
    if inode.is_tail_pending() && fs.volume.journal.is_committed(inode.last_transaction()) {
        clear(fs, inode, u64::MAX)?;
    }
    Ok(())
}

/// Zeroes all tails whose truncation is durable, unless the image is frozen. Called after a commit,
/// without locks. The others wait for the next call.
pub(crate) fn clear_all(fs: &ContentStore) -> Result<()> {
    if !fs.volume.freeze.takes_changes() {
        return Ok(());
    }
    let mut result = Ok(());
    for inode in fs.tails.take() {
        let _content = inode.content().write();
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

/// Removes the mark of an inode that is freed, whose data no longer matters. The content lock is
/// held exclusively.
pub(crate) fn drop_pending(_: &ContentStore, inode: &Inode) {
    inode.set_tail_pending(false);
}
