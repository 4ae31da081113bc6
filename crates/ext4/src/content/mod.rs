//! The context of `mapping`, `dir`, `xattr` and `file`: what operations on the content of inodes
//! share.
//!
//! [`ContentStore`] adds to the [`InodeStore`] the extent status, delayed allocation, and the
//! records that operations on content keep. Operations on names and whole files are above it.

mod delayed_allocation;
mod leaf_locks;
mod name_rules;
mod uncleared_tails;
mod xattr_index;

pub(crate) use delayed_allocation::{DelayedAllocation, WriteBackReason};
pub(crate) use leaf_locks::LeafLocks;
pub(crate) use name_rules::{NameRules, SoughtName, minor_for_listing};
pub(crate) use uncleared_tails::UnclearedTails;
pub(crate) use xattr_index::{XattrBlockIndex, XattrIndexShard};

use crate::extent_status::ExtentStatus;
use crate::inode::InodeStore;
use crate::orphan::Orphans;
use crate::quota::Quotas;
use drystone_sync::Arc;
use std::ops::Deref;

/// The context of a change of an inode's content.
#[derive(Debug)]
pub struct ContentStore {
    /// Inodes, in memory and in the image.
    pub(crate) inode_store: InodeStore,
    /// The extent status of inodes.
    pub(crate) extent_status: Arc<ExtentStatus>,
    /// The data without blocks yet.
    pub(crate) delayed_allocation: DelayedAllocation,
    /// The orphans.
    pub(crate) orphans: Orphans,
    /// Usage and limits of users, groups and projects.
    pub(crate) quotas: Quotas,
    /// Blocks of extended attributes that several inodes may share.
    pub(crate) xattr_blocks: XattrBlockIndex,
    /// Files whose last block is still to be zeroed past their end.
    pub(crate) tails: UnclearedTails,
    /// How names are compared and hashed.
    pub(crate) names: NameRules,
    /// Locks for names of hashed directories.
    pub(crate) leaves: LeafLocks,
}

/// Content belongs to an inode, so code that works on content also works on inodes.
impl Deref for ContentStore {
    type Target = InodeStore;

    #[inline]
    fn deref(&self) -> &InodeStore {
        &self.inode_store
    }
}
