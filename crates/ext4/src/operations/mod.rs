//! The operations on a mounted image, with what each checks, locks and journals: operations on names,
//! whole inodes and the image.
//!
//! [`Engine`] is an open image. The operations are its methods; contents are below them (`file`, `dir`,
//! `xattr`), opening and closing above (`mount`).
//!
//! # Locking
//! Directories are locked in the order of their inode numbers, whatever their place in the tree.
//! Where the directories to lock depend on what a name stands for, an operation looks the name up, locks
//! them, and looks it up again: [`remove`] and [`rename`].

mod access_time;
mod acl;
mod attributes;
mod create;
mod damage;
mod data;
mod delete;
mod directory;
pub(crate) mod links;
mod lookup;
mod new_inode;
mod quota;
mod remove;
mod rename;
mod statistics;
pub(crate) mod xattrs;

pub(crate) use access_time::AccessTimeRules;
pub use access_time::AccessTimes;
pub use quota::QuotaReport;
pub use statistics::{EngineStatistics, MemoryUse};

use crate::content::ContentStore;
use crate::inode::Inode;
use crate::mmp::MultiMountProtection;
use drystone_sync::{Arc, Mutex};
use drystone_vfs::InodeAttributes;
use std::ops::Deref;

/// The engine over one image. [`Ext4`](crate::mount::Ext4) is this, with the thread that works for it.
#[derive(Debug)]
pub struct Engine {
    /// Inodes and their contents.
    pub(crate) content: ContentStore,
    /// Which reads change times of last access.
    pub(crate) access_times: AccessTimeRules,
    /// Held by a rename that gives a directory another parent.
    pub(crate) rename: Mutex<()>,
    /// Keeps other mounts away, on images with this protection.
    pub(crate) mmp: Option<Arc<MultiMountProtection>>,
}

/// An operation works on inodes and contents.
impl Deref for Engine {
    type Target = ContentStore;

    #[inline]
    fn deref(&self) -> &ContentStore {
        &self.content
    }
}

impl Engine {
    /// The inode's attributes, with a reference for the caller.
    fn entry(&self, inode: &Inode) -> InodeAttributes {
        self.inodes.reference(inode);
        self.attributes_of(inode)
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // Before the allocator is dropped: a commit without it would lack its allocations.
        self.volume.journal.abandon();
    }
}
