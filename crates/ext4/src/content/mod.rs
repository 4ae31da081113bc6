//! What the contents of all inodes of a mount share: the context of `mapping`, `dir`, `xattr` and `file`.
//!
//! [`ContentStore`] adds to the [`InodeStore`] what is known of extents, what waits for blocks, and the
//! records that an operation on contents keeps. Operations on names and whole files are above it.

mod delayed_allocation;
mod name_rules;
mod uncleared_tails;
mod xattr_index;

pub(crate) use delayed_allocation::{DelayedAllocation, WriteBackReason};
pub(crate) use name_rules::{NameRules, SoughtName, minor_for_listing};
pub(crate) use uncleared_tails::UnclearedTails;
pub(crate) use xattr_index::{XattrBlockIndex, XattrIndexShard};

use crate::extent_status::ExtentStatus;
use crate::inode::InodeStore;
use crate::orphan::Orphans;
use crate::quota::Quotas;
use drystone_sync::Arc;
use std::ops::Deref;

/// What a change of an inode's content needs.
#[derive(Debug)]
pub struct ContentStore {
    /// Inodes, and where they are stored.
    pub(crate) inode_store: InodeStore,
    /// What is known about the extents of inodes.
    pub(crate) extent_status: Arc<ExtentStatus>,
    /// The data that waits for blocks.
    pub(crate) delayed_allocation: DelayedAllocation,
    /// What a crash would leave to be cleaned up.
    pub(crate) orphans: Orphans,
    /// Who uses how much.
    pub(crate) quotas: Quotas,
    /// Blocks of extended attributes that several inodes may share.
    pub(crate) xattr_blocks: XattrBlockIndex,
    /// Files whose last block waits to be cleared behind their end.
    pub(crate) tails: UnclearedTails,
    /// How names are compared and hashed.
    pub(crate) names: NameRules,
}

/// A content is an inode's: what works on one works on inodes too.
impl Deref for ContentStore {
    type Target = InodeStore;

    #[inline]
    fn deref(&self) -> &InodeStore {
        &self.inode_store
    }
}
