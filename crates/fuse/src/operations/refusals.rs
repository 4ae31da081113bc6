//! Writes that were refused after the program that wrote had gone on.
//!
//! If the kernel gathers writes, a write that finds the image full or the disk failing is refused only
//! when its pages are sent. From then on the kernel takes the pages for written: it reports the error
//! to the next sync of each open file description and to a close, and forgets it. This module adds two things.
//!
//! A program that fills the disk and doesn't sync would write forever. But before a write the kernel
//! asks for the file's attributes, through the file's handle, if its cached ones are outdated. So a
//! refusal makes them outdated, and the request is answered once with the error if the cause still
//! holds.
//!
//! A sync after the kernel has forgotten the error would say that everything is durable. So refused
//! bytes are remembered while the file is open for writing, and each sync fails until they are
//! written again or cut off.
//!
//! # Locking
//!
//! One lock, taken only if there is something to find. It ranks after that of a file's writers, and
//! nothing is taken under it.

use super::ranges::Ranges;
use super::{NodeId, Operations};
use drystone_sync::atomic::{AtomicUsize, Ordering};
use drystone_sync::{LockClass, Mutex};
use drystone_vfs::{Errno, InodeNumber};
use std::collections::HashMap;
use std::ops::Range;

static REFUSALS: LockClass = LockClass::new("refused writes", 6);

/// Free space from which a refusal for lack of space no longer holds: the longest write of one request.
const FULL_BYTES: u64 = 1 << 20;

/// The refused writes of a file.
#[derive(Debug)]
struct Refused {
    /// The newest reason.
    error: Errno,
    /// No writer has been told yet.
    is_untold: bool,
    /// The bytes that are missing.
    missing: Ranges,
}

/// The files with bytes that were refused.
pub(super) struct Refusals {
    files: Mutex<HashMap<InodeNumber, Refused>>,
    /// How many there are. Usually none, and then no request takes the lock.
    count: AtomicUsize,
}

impl Refusals {
    pub(super) fn new() -> Refusals {
        Refusals { files: Mutex::new(&REFUSALS, HashMap::new()), count: AtomicUsize::new(0) }
    }

    /// A write of these bytes that the kernel had gathered was refused.
    pub(super) fn add(&self, inode: InodeNumber, bytes: Range<u64>, error: Errno) {
        let mut files = self.files.lock();
        let missing = Ranges::default();
        let refused = files.entry(inode).or_insert(Refused { error, is_untold: true, missing });
        (refused.error, refused.is_untold) = (error, true);
        refused.missing.add(bytes);
        self.count.store(files.len(), Ordering::Relaxed);
    }

    /// The error with which a sync of the file has to fail.
    pub(super) fn of(&self, inode: InodeNumber) -> Option<Errno> {
        // A sync comes after the writes that were sent for it, and sees the count that came with them.
        if self.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        self.files.lock().get(&inode).map(|refused| refused.error)
    }

    /// The error to report to the next writer of the file, and to no other.
    fn take_untold(&self, inode: InodeNumber) -> Option<Errno> {
        self.of(inode)?;
        let mut files = self.files.lock();
        let refused = files.get_mut(&inode)?;
        std::mem::take(&mut refused.is_untold).then_some(refused.error)
    }

    /// These bytes of the file have been written again or no longer exist.
    pub(super) fn settle(&self, inode: InodeNumber, bytes: Range<u64>) {
        self.change(inode, |refused| refused.missing.remove(bytes));
    }

    /// The writers of the file have been told.
    pub(super) fn told(&self, inode: InodeNumber) {
        self.change(inode, |refused| refused.is_untold = false);
    }

    /// Forgets a file that is empty or no longer open for writing.
    pub(super) fn forget(&self, inode: InodeNumber) {
        self.settle(inode, 0..u64::MAX);
    }

    fn change(&self, inode: InodeNumber, change: impl FnOnce(&mut Refused)) {
        if self.count.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut files = self.files.lock();
        let Some(refused) = files.get_mut(&inode) else { return };
        change(refused);
        if refused.missing.is_empty() {
            files.remove(&inode);
            self.count.store(files.len(), Ordering::Relaxed);
        }
    }
}

impl Operations {
    /// A gathered write was refused: the kernel's next request for attributes gets the error.
    pub(super) fn refused(&self, node: NodeId, bytes: Range<u64>, error: Errno) {
        self.refusals.add(self.inode(node), bytes, error);
        self.notices.outdate_attributes(node);
    }

    /// Fails with the error of a gathered write, if it wasn't reported yet and still holds: a program
    /// that learned of it from a sync may have made room.
    pub(super) fn tell_refusal(&self, inode: InodeNumber) -> Result<(), Errno> {
        let Some(error) = self.refusals.take_untold(inode) else { return Ok(()) };
        let has_room = error == Errno::ENOSPC
            && self.file_system.statistics_at(inode).is_ok_and(|space| {
                space.blocks_available * u64::from(space.block_size) >= FULL_BYTES
            });
        if has_room { Ok(()) } else { Err(error) }
    }
}
