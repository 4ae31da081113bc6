//! Orphans: inodes that the next mount must clean up if this one ends in a crash.
//!
//! An inode is an orphan while it is being truncated, and while it has no name but is in use or has
//! blocks or attributes. It is recorded in the orphan file if the image has one with room, else in the
//! list that starts in the superblock. All variants (`orphans=…`) are asked to record the same inodes;
//! they differ in where and how they do it.
//!
//! # Locking
//! A caller holds the inode's content lock exclusively, or is the only thread with the inode (it is new,
//! or unused). So no inode is added and removed at the same time.
//!
//! # Crash
//! Adding and removing are part of the handle that makes the inode an orphan or ends it.
//!
//! # Reference
//! "Orphan file" and "s_last_orphan" in the kernel's ext4 documentation.

mod file;
mod kept;
mod list;
mod locked;
mod per_core;
mod recovery;
mod slots;
#[cfg(all(test, not(loom)))]
mod tests;

pub(crate) use file::OrphanFile;

use crate::error::{Error, Result};
use crate::inode::{Inode, InodeStore, OrphanRecord};
use crate::policy::OrphanPolicy;
use drystone_jbd2::Handle;
use drystone_sync::Arc;
use drystone_sync::atomic::{AtomicBool, Ordering};
use list::OrphanList;
use locked::LockedFile;
use per_core::PerCoreFile;

/// Not recorded.
const NONE: u64 = OrphanRecord::NONE;
/// In the list.
const LIST: u64 = 1;
/// In the orphan file, at the slot of this number less this constant.
const SLOT: u64 = 2;
/// Added if the slot is the one that the thread keeps which truncates the inode.
const KEPT: u64 = 1 << 63;

/// All orphans of a mounted image.
#[derive(Debug)]
pub(crate) struct Orphans {
    form: OrphanForm,
    list: OrphanList,
    /// Those that the mount has found are left to a checker.
    are_left: AtomicBool,
}

/// How the orphan file is used.
#[derive(Debug)]
enum OrphanForm {
    /// The image has none, or only what a crash left in it is read and removed.
    Unused(Option<OrphanFile>),
    Locked(LockedFile),
    Lockless(OrphanFile),
    PerCore(PerCoreFile),
    /// Nothing is recorded at all.
    Unrecorded(Option<OrphanFile>),
}

impl Orphans {
    /// Nothing recorded, and no file.
    pub fn new() -> Orphans {
        Orphans::with_form(OrphanForm::Unused(None))
    }

    /// Nothing recorded but what is in `file`, the image's orphan file.
    ///
    /// # Errors
    /// The policy needs an orphan file, and the image has none.
    pub fn open(file: Option<OrphanFile>, policy: Option<OrphanPolicy>) -> Result<Orphans> {
        let form = match (policy, file) {
            (Some(OrphanPolicy::List) | None, None) => OrphanForm::Unused(None),
            (Some(OrphanPolicy::List), file) => OrphanForm::Unused(file),
            (Some(OrphanPolicy::Unrecorded), file) => OrphanForm::Unrecorded(file),
            (Some(OrphanPolicy::FileLocked), Some(file)) => {
                OrphanForm::Locked(LockedFile::new(file))
            }
            (Some(OrphanPolicy::File), Some(file)) => OrphanForm::Lockless(file),
            (Some(OrphanPolicy::PerCore) | None, Some(file)) => {
                OrphanForm::PerCore(PerCoreFile::new(file))
            }
            (
                Some(
                    policy
                    @ (OrphanPolicy::FileLocked | OrphanPolicy::File | OrphanPolicy::PerCore),
                ),
                None,
            ) => {
                return Err(Error::Mount(format!(
                    "the policy orphans={} needs an image with the orphan_file feature",
                    policy.name()
                )));
            }
        };
        Ok(Orphans::with_form(form))
    }

    fn with_form(form: OrphanForm) -> Orphans {
        Orphans { form, list: OrphanList::new(), are_left: AtomicBool::new(false) }
    }

    /// Notes that the orphans that the mount has found are left to a checker.
    pub fn leave(&self) {
        self.are_left.store(true, Ordering::Relaxed);
    }

    /// Whether the orphans that the mount has found are left to a checker.
    pub fn are_left(&self) -> bool {
        self.are_left.load(Ordering::Relaxed)
    }

    fn file(&self) -> Option<&OrphanFile> {
        match &self.form {
            OrphanForm::Unused(file) | OrphanForm::Unrecorded(file) => file.as_ref(),
            OrphanForm::Locked(locked) => Some(locked.file()),
            OrphanForm::Lockless(file) => Some(file),
            OrphanForm::PerCore(per_core) => Some(per_core.file()),
        }
    }

    /// True if any inode is recorded.
    pub fn is_any(&self) -> bool {
        !self.list.is_empty() || self.file().is_some_and(|file| !file.orphans().is_empty())
    }

    /// Records an inode, unless it is already.
    pub fn add(&self, fs: &InodeStore, handle: &mut Handle<'_>, inode: &Arc<Inode>) -> Result<()> {
        if inode.orphan.get() != NONE {
            return Ok(());
        }
        let slot = match &self.form {
            OrphanForm::Unrecorded(_) => return Ok(()),
            OrphanForm::Unused(_) => None,
            OrphanForm::Locked(locked) => locked.add(handle, inode.number)?,
            OrphanForm::Lockless(file) => file.add(handle, inode.number)?,
            OrphanForm::PerCore(per_core) => per_core.file().add(handle, inode.number)?,
        };
        let record = match slot {
            Some(slot) => SLOT + slot,
            None => {
                self.list.add(fs, handle, inode)?;
                LIST
            }
        };
        inode.orphan.set(record);
        Ok(())
    }

    /// Takes back an inode whose creation failed: its link count becomes zero, also on disk, and it is
    /// recorded. The caller stops the handle and then deletes the inode.
    pub fn abandon(
        &self,
        fs: &InodeStore,
        handle: &mut Handle<'_>,
        inode: &Arc<Inode>,
    ) -> Result<()> {
        self.add(fs, handle, inode)?;
        inode.update(fs, handle, |fields| {
            fields.disk.links_count = 0;
            Ok(())
        })
    }

    /// Records an inode that the calling thread truncates, unless it is recorded already. The thread
    /// calls [`end_cut`](Self::end_cut) at the end.
    #[inline]
    pub fn add_cut(
        &self,
        fs: &InodeStore,
        handle: &mut Handle<'_>,
        inode: &Arc<Inode>,
    ) -> Result<()> {
        let OrphanForm::PerCore(file) = &self.form else { return self.add(fs, handle, inode) };
        if inode.orphan.is_recorded() {
            return Ok(());
        }
        let record = match file.add_cut(handle, inode.number)? {
            Some((slot, true)) => KEPT | (SLOT + slot),
            Some((slot, false)) => SLOT + slot,
            None => return self.add(fs, handle, inode),
        };
        inode.orphan.set(record);
        Ok(())
    }

    /// The calling thread's truncation has ended, with or without success. An inode that is still
    /// recorded stays so, and the thread gives up the slot: the thread that deletes the inode frees it.
    #[inline]
    pub fn end_cut(&self, inode: &Inode) {
        let record = inode.orphan.get();
        if record & KEPT != 0 {
            inode.orphan.set(record & !KEPT);
            per_core::give_up();
        }
    }

    /// Takes an inode off the record, if it is on it.
    #[inline]
    pub fn remove(
        &self,
        fs: &InodeStore,
        handle: &mut Handle<'_>,
        inode: &Arc<Inode>,
    ) -> Result<()> {
        let record = inode.orphan.get();
        if record & KEPT != 0
            && let OrphanForm::PerCore(file) = &self.form
        {
            file.end_cut(handle, (record & !KEPT) - SLOT, inode.number)?;
            inode.orphan.set(NONE);
            return Ok(());
        }
        self.remove_any(fs, handle, inode, record)
    }

    fn remove_any(
        &self,
        fs: &InodeStore,
        handle: &mut Handle<'_>,
        inode: &Arc<Inode>,
        record: u64,
    ) -> Result<()> {
        match (record, &self.form) {
            (NONE, _) => return Ok(()),
            (LIST, _) => self.list.remove(fs, handle, inode)?,
            (slot, OrphanForm::Locked(locked)) => {
                locked.remove(handle, slot - SLOT, inode.number)?
            }
            (
                slot,
                OrphanForm::Lockless(file)
                | OrphanForm::Unused(Some(file))
                | OrphanForm::Unrecorded(Some(file)),
            ) => file.remove(handle, slot - SLOT, inode.number)?,
            (slot, OrphanForm::PerCore(per_core)) => {
                per_core.file().remove(handle, slot - SLOT, inode.number)?;
            }
            (slot, OrphanForm::Unused(None) | OrphanForm::Unrecorded(None)) => {
                unreachable!("orphan slot {} without an orphan file", slot - SLOT)
            }
        }
        inode.orphan.set(NONE);
        Ok(())
    }
}
