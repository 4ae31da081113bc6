//! The bytes between a file's end and the end of its last block.
//!
//! # State
//! An inode whose tail may hold old bytes is marked and kept in [`UnclearedTails`](crate::content::UnclearedTails).
//! Growing clears at once what it grows over; the next sync clears the rest, when the cut is durable.
//!
//! # Crash
//! A tail that a crash leaves uncleared is behind the end of the file: nobody reads it before
//! something grows the file, and that clears it.

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
        fs.tails.push(inode);
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

/// Clears all tails whose cuts are durable: called after a commit, without locks.
pub(super) fn clear_all(fs: &ContentStore) -> Result<()> {
    for inode in fs.tails.take() {
        let _content = inode.content.write();
        // A later growth may have cleared it; a later cut is durable at the next sync.
        if !inode.is_tail_pending() {
            continue;
        }
        if fs.volume.journal.is_committed(inode.last_transaction()) {
            clear(fs, &inode, u64::MAX)?;
        } else {
            fs.tails.push(&inode);
        }
    }
    Ok(())
}

/// The inode is freed: nothing of its data matters any more. The content lock is held exclusively.
pub(crate) fn drop_pending(_: &ContentStore, inode: &Inode) {
    inode.set_tail_pending(false);
}
