//! Orphans: inodes that the next mount must clean up if this one ends in a crash.
//!
//! An inode is an orphan while it is being cut, and from the loss of its last name until it is
//! freed. It is recorded in the orphan file where the image has one with room, else in the list
//! that starts in the superblock.
//!
//! # Locking
//! Callers hold the inode's content lock exclusively, or are alone with it (new, or without users);
//! so an inode is not added and removed at once.
//!
//! # Crash
//! Adding and removing are part of the handle that makes the inode an orphan or ends it.
//!
//! # Reference
//! "Orphan file" and "s_last_orphan" in the kernel's ext4 documentation.

mod file;
mod list;
mod recovery;

pub(crate) use file::OrphanFile;

use crate::error::Result;
use crate::file_system::Ext4;
use crate::inode::Inode;
use drystone_jbd2::Handle;
use drystone_sync::Arc;
use drystone_sync::atomic::{AtomicU64, Ordering};
use list::OrphanList;

/// Where an inode is recorded, as one number: in memory only.
#[derive(Debug, Default)]
pub(crate) struct OrphanRecord(AtomicU64);

/// Not recorded.
const NONE: u64 = 0;
/// In the list.
const LIST: u64 = 1;
/// In the orphan file, at the slot of this number less this constant.
const SLOT: u64 = 2;

/// All orphans of a mounted image.
#[derive(Debug)]
pub(crate) struct Orphans {
    file: Option<OrphanFile>,
    list: OrphanList,
}

impl Orphans {
    /// Nothing recorded; with the image's orphan file, if it has one that is usable.
    pub fn new(file: Option<OrphanFile>) -> Orphans {
        Orphans { file, list: OrphanList::new() }
    }

    /// True if any inode is recorded.
    pub fn is_any(&self) -> bool {
        !self.list.is_empty() || self.file.as_ref().is_some_and(|file| !file.orphans().is_empty())
    }

    /// Records an inode, unless it is already.
    pub fn add(&self, fs: &Ext4, handle: &mut Handle<'_>, inode: &Arc<Inode>) -> Result<()> {
        if inode.orphan.0.load(Ordering::Relaxed) != NONE {
            return Ok(());
        }
        let slot = match &self.file {
            Some(file) => file.add(handle, inode.number)?,
            None => None,
        };
        let record = match slot {
            Some(slot) => SLOT + slot,
            None => {
                self.list.add(fs, handle, inode)?;
                LIST
            }
        };
        inode.orphan.0.store(record, Ordering::Relaxed);
        Ok(())
    }

    /// Takes an inode off the record, if it is on it.
    pub fn remove(&self, fs: &Ext4, handle: &mut Handle<'_>, inode: &Arc<Inode>) -> Result<()> {
        match (inode.orphan.0.load(Ordering::Relaxed), &self.file) {
            (NONE, _) => return Ok(()),
            (LIST, _) => self.list.remove(fs, handle, inode)?,
            (slot, Some(file)) => file.remove(handle, slot - SLOT, inode.number)?,
            (slot, None) => unreachable!("orphan slot {} without an orphan file", slot - SLOT),
        }
        inode.orphan.0.store(NONE, Ordering::Relaxed);
        Ok(())
    }
}
