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
//! Content that may not change (`EPERM`) is different. Its change isn't missing, so no later sync fails. But
//! the kernel would go on to show the change to programs, and send it again with each append to the same page;
//! so it has to drop those pages.
//!
//! # Locking
//!
//! One lock, taken only if there is something to find. It ranks after that of a file's writers, and
//! nothing is taken under it.

use super::ranges::Ranges;
use super::{NodeId, Operations, WriteFlags};
use drystone_sync::atomic::{AtomicUsize, Ordering};
use drystone_sync::{LockClass, Mutex};
use drystone_vfs::{Errno, InodeNumber};
use std::collections::HashMap;
use std::ops::Range;

static REFUSALS: LockClass = LockClass::new("refused writes", 6);

/// Free space from which a refusal for lack of space no longer holds: the longest write of one request.
const FULL_BYTES: u64 = 1 << 20;

/// The refused writes of a file.
#[derive(Debug, Default)]
struct Refused {
    /// The newest reason, while no writer has been told.
    untold: Option<Errno>,
    /// The bytes that are missing, and the newest reason for that.
    missing: Option<(Errno, Ranges)>,
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
        let refused = files.entry(inode).or_default();
        refused.untold = Some(error);
        if error != Errno::EPERM {
            let (newest, missing) = refused.missing.get_or_insert((error, Ranges::default()));
            *newest = error;
            missing.add(bytes);
        }
        self.count.store(files.len(), Ordering::Relaxed);
    }

    /// The error with which a sync of the file has to fail.
    pub(super) fn of(&self, inode: InodeNumber) -> Option<Errno> {
        // A sync comes after the writes that were sent for it, and sees the count that came with them.
        if self.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let files = self.files.lock();
        files.get(&inode)?.missing.as_ref().map(|(error, _)| *error)
    }

    /// The error to report to the next writer of the file, and to no other.
    fn take_untold(&self, inode: InodeNumber) -> Option<Errno> {
        self.change(inode, |refused| refused.untold.take()).flatten()
    }

    /// These bytes of the file have been written again or no longer exist.
    pub(super) fn settle(&self, inode: InodeNumber, bytes: Range<u64>) {
        self.change(inode, |refused| {
            if let Some((_, missing)) = &mut refused.missing {
                missing.remove(bytes);
                if missing.is_empty() {
                    *refused = Refused::default();
                }
            }
        });
    }

    /// The writers of the file have been told.
    pub(super) fn told(&self, inode: InodeNumber) {
        self.change(inode, |refused| refused.untold = None);
    }

    /// Forgets a file that is empty or no longer open for writing.
    pub(super) fn forget(&self, inode: InodeNumber) {
        self.change(inode, |refused| *refused = Refused::default());
    }

    fn change<T>(&self, inode: InodeNumber, change: impl FnOnce(&mut Refused) -> T) -> Option<T> {
        if self.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let mut files = self.files.lock();
        let refused = files.get_mut(&inode)?;
        let result = change(refused);
        if refused.untold.is_none() && refused.missing.is_none() {
            files.remove(&inode);
            self.count.store(files.len(), Ordering::Relaxed);
        }
        Some(result)
    }
}

/// What the kernel has to drop of its cache after a write that was refused with `error`: changes of content
/// that may not change.
pub(crate) fn outdated_by_refusal(
    bytes: Range<u64>,
    flags: WriteFlags,
    error: Errno,
) -> Option<Range<u64>> {
    (flags.cached && error == Errno::EPERM).then_some(bytes)
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
