//! Writes that were refused after the program that wrote had gone on.
//!
//! Where the kernel gathers writes, one that finds the image full fails when its pages are sent. The
//! kernel keeps the error for a sync or a close, and takes more meanwhile: a program that fills the
//! disk would write for ever. But it asks for the attributes of a file before it takes a write,
//! through the file's handle, if those it has are outdated. So they are outdated after a refusal, and
//! the question is answered with the error, once, if it still holds.
//!
//! # Locking
//!
//! One lock, taken where there is something to find; nothing is taken under it.

use super::{NodeId, Operations};
use drystone_sync::atomic::{AtomicUsize, Ordering};
use drystone_sync::{LockClass, Mutex};
use drystone_vfs::{Errno, InodeNumber};
use std::collections::HashMap;

static REFUSALS: LockClass = LockClass::new("refused writes", 5);

/// Who could not have so much, which is what one request brings, could not have it again.
const FULL_BYTES: u64 = 1 << 20;

/// The newest error of each file whose writers don't know it yet.
pub(super) struct Refusals {
    errors: Mutex<HashMap<InodeNumber, Errno>>,
    /// How many there are: mostly none, and then nobody takes the lock.
    count: AtomicUsize,
}

impl Refusals {
    pub(super) fn new() -> Refusals {
        Refusals { errors: Mutex::new(&REFUSALS, HashMap::new()), count: AtomicUsize::new(0) }
    }

    /// A write that the kernel had gathered was refused.
    pub(super) fn add(&self, inode: InodeNumber, error: Errno) {
        let mut errors = self.errors.lock();
        errors.insert(inode, error);
        self.count.store(errors.len(), Ordering::Relaxed);
    }

    /// What is to be told of a file; nothing is left to tell then.
    pub(super) fn take(&self, inode: InodeNumber) -> Option<Errno> {
        // Who asks because of a refusal asks after it, and sees the count that came with it.
        if self.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let mut errors = self.errors.lock();
        let error = errors.remove(&inode);
        self.count.store(errors.len(), Ordering::Relaxed);
        error
    }
}

impl Operations {
    /// A write that the kernel had gathered was refused: its next question is answered so.
    pub(super) fn refused(&self, node: NodeId, error: Errno) {
        self.refusals.add(self.inode(node), error);
        self.notices.outdate_attributes(node);
    }

    /// Fails with what a gathered write was refused with, if nobody has been told and it still holds:
    /// a program that was told by a sync may have made room.
    pub(super) fn tell_refusal(&self, inode: InodeNumber) -> Result<(), Errno> {
        let Some(error) = self.refusals.take(inode) else { return Ok(()) };
        let has_room = error == Errno::ENOSPC
            && self.file_system.statistics_at(inode).is_ok_and(|space| {
                space.blocks_available * u64::from(space.block_size) >= FULL_BYTES
            });
        if has_room { Ok(()) } else { Err(error) }
    }
}
