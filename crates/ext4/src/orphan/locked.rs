//! The orphan file as it was first published: one spinlock for all blocks.
//!
//! # Locking
//! The lock is taken twice for each orphan: around the search for a block with a free slot, from the
//! first block on, and around the search for that slot.

use super::file::OrphanFile;
use crate::error::Result;
use crate::lock_classes;
use drystone_ext4_format::InodeNumber;
use drystone_jbd2::Handle;
use drystone_sync::SpinLock;

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

    /// Takes a slot for `inode`; nothing if the file is full.
    pub fn add(&self, handle: &mut Handle<'_>, inode: InodeNumber) -> Result<Option<u64>> {
        let found = {
            let _lock = self.lock.lock();
            (0..self.file.block_count()).find(|&index| self.file.slots(index).take_free())
        };
        let Some(index) = found else { return Ok(None) };
        if let Err(error) = self.file.access(handle, index) {
            self.file.slots(index).give_free();
            return Err(error);
        }
        let _lock = self.lock.lock();
        Ok(self.file.claim(index, inode))
    }

    /// Frees the slot that [`add`](LockedFile::add) took.
    pub fn remove(&self, handle: &mut Handle<'_>, slot: u64, inode: InodeNumber) -> Result<()> {
        self.file.access(handle, self.file.block_of(slot))?;
        let _lock = self.lock.lock();
        self.file.release(slot, inode);
        Ok(())
    }
}
