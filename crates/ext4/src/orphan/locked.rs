//! The orphan file as it was first published: one spinlock for all blocks (`orphans=file-locked`).
//!
//! # Locking
//! The lock is taken twice to record an orphan: for the search, from the first block on, for a block
//! with a free slot, and for the search for that slot. It is taken once to free the slot. Under the
//! lock, counters and slots change by plain loads and stores.

use super::file::OrphanFile;
use super::slots::OrphanSlots;
use crate::error::Result;
use crate::lock_classes;
use drystone_ext4_format::InodeNumber;
use drystone_jbd2::Handle;
use drystone_sync::SpinLock;
use drystone_sync::atomic::Ordering;

/// The orphan file under one lock.
#[derive(Debug)]
pub(super) struct LockedFile {
    file: OrphanFile,
    lock: SpinLock<()>,
}

impl LockedFile {
    pub fn new(file: OrphanFile) -> LockedFile {
        LockedFile { file, lock: SpinLock::new(&lock_classes::ORPHAN_FILE, ()) }
    }

    pub fn file(&self) -> &OrphanFile {
        &self.file
    }

    /// Takes a slot for `inode`; `None` if the file is full.
    pub fn add(&self, handle: &mut Handle<'_>, inode: InodeNumber) -> Result<Option<u64>> {
        let found = {
            let _lock = self.lock.lock();
            (0..self.file.block_count()).find(|&index| self.file.slots(index).take_free_locked())
        };
        let Some(index) = found else { return Ok(None) };
        if let Err(error) = self.file.access(handle, index) {
            let _lock = self.lock.lock();
            self.file.slots(index).give_free_locked();
            return Err(error);
        }
        let _lock = self.lock.lock();
        let slot = self.file.slots(index).claim_locked(inode);
        Ok(Some(OrphanFile::slot_number(index, slot)))
    }

    /// Frees the slot that [`add`](LockedFile::add) took.
    pub fn remove(&self, handle: &mut Handle<'_>, slot: u64, inode: InodeNumber) -> Result<()> {
        let (index, place) = OrphanFile::place(slot);
        self.file.access(handle, index)?;
        let _lock = self.lock.lock();
        self.file.slots(index).clear(place, inode);
        self.file.slots(index).give_free_locked();
        Ok(())
    }
}

/// Operations for a thread that holds the lock of the file.
impl OrphanSlots {
    fn take_free_locked(&self) -> bool {
        let free = self.free.load(Ordering::Relaxed);
        if free > 0 {
            self.free.store(free - 1, Ordering::Relaxed);
        }
        free > 0
    }

    fn give_free_locked(&self) {
        self.free.store(self.free.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Takes the first slot that is zero.
    fn claim_locked(&self, inode: InodeNumber) -> usize {
        match self.slots.iter().position(|slot| slot.load(Ordering::Relaxed) == 0) {
            Some(place) => {
                self.slots[place].store(inode.get(), Ordering::Release);
                place
            }
            None => unreachable!("the counter promised a slot"),
        }
    }
}
