//! Block groups, and the allocation of blocks and inodes from them.
//!
//! # State
//! [`BlockGroups`] has a small record for each group (`group`), which grows when the group is first
//! used, and sums over all groups, kept per core. Freed blocks wait in `pending` until the
//! transaction that freed them has committed. The [`BlockAllocator`] and the [`InodeAllocator`]
//! share the groups.
//!
//! # Locking
//! A group's lock is held for one search and mark, so allocations in different groups don't wait
//! for each other. Inside it a thread takes the locks of the list of groups with pending frees, of
//! the pool of free clusters, and of buffers. Two groups are never locked at once.
//!
//! # Crash
//! A bitmap and its descriptor join the transaction of the caller's handle; the descriptor and all
//! checksums are updated when that closes (`change`). The sums in the superblock are written when
//! the image is closed; until then they are stale, as they are under Linux, and a mount
//! counts again.
//!
//! # Invariants
//! - A group's descriptor agrees with its bitmaps in every transaction.
//! - The blocks that may be allocated in a group are those that are free on disk, without those
//!   that wait for a commit or are in a preallocation window.
//! - Blocks of fixed metadata are never allocated or freed.

mod bits;
mod block_map;
mod blocks;
mod buddy;
mod change;
mod cluster_cuts;
mod free_space;
mod group;
mod group_index;
mod group_list;
mod group_metadata;
mod groups;
mod growth;
mod inodes;
mod load;
mod pending;
mod request;
mod search;
mod spread;
mod statistics;
mod system_zones;
mod table_seal;
#[cfg(test)]
mod tests;

use crate::error::{Error, Result};
use crate::found_damage::STOPS_FOR_DAMAGE;
use crate::policy::Policy;
use crate::volume::Volume;
pub(crate) use blocks::BlockAllocator;
use cluster_cuts::ClusterCuts;
use drystone_cache::Seal;
use drystone_ext4_format::{GroupNumber, InodeNumber, PhysicalBlock};
use drystone_jbd2::{CommitListener, Handle};
use drystone_sync::{Arc, Weak};
pub(crate) use groups::BlockGroups;
pub(crate) use inodes::{InodeAllocator, InodeRequest};
pub(crate) use request::{BlockKind, BlockRequest, FileRequest, FileSpace, Reach};
pub use statistics::AllocationStatistics;
use std::ops::Range;
use table_seal::TableSeal;
pub(crate) use table_seal::part_of_record;

/// How often an operation waits for a commit to release space.
const SPACE_RETRIES_MAX: u32 = 8;

/// Gives out blocks and inodes and takes them back.
pub(crate) struct Allocator {
    pub groups: Arc<BlockGroups>,
    pub blocks: BlockAllocator,
    pub inodes: InodeAllocator,
    pub cluster_cuts: ClusterCuts,
    table_seal: Arc<dyn Seal>,
    /// The same seal.
    tables: Arc<TableSeal>,
}

impl std::fmt::Debug for Allocator {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Allocator")
            .field("groups", &self.groups.count())
            .finish_non_exhaustive()
    }
}

impl Allocator {
    /// Opens the [groups](BlockGroups::open) of an image.
    ///
    /// # Errors
    /// Those of the groups.
    pub fn open(
        volume: Arc<Volume>,
        policy: Policy,
        journal: &[Range<u64>],
    ) -> Result<Arc<Allocator>> {
        let groups = Arc::new(BlockGroups::open(volume, policy.group_scan, journal)?);
        let tables = Arc::new(TableSeal::new(*groups.volume.layout(), groups.tables()));
        let allocator = Arc::new(Allocator {
            table_seal: Arc::clone(&tables) as Arc<dyn Seal>,
            tables,
            blocks: BlockAllocator::new(Arc::clone(&groups), policy),
            inodes: InodeAllocator::new(Arc::clone(&groups), policy),
            cluster_cuts: ClusterCuts::new(),
            groups,
        });
        let listener = Arc::new(Releaser { allocator: Arc::downgrade(&allocator) });
        allocator.groups.volume.journal.add_listener(listener);
        Ok(allocator)
    }

    /// Where the first block of an inode should go: into the inode's group.
    pub fn data_goal(&self, inode: InodeNumber) -> PhysicalBlock {
        let layout = self.groups.volume.layout();
        let group = layout.group_of_inode(inode).unwrap_or(GroupNumber::FIRST);
        layout.group_first_block(group)
    }

    /// The seal that computes the checksums of inodes when a commit freezes a block of the inode
    /// table.
    pub fn table_seal(&self) -> &Arc<dyn Seal> {
        &self.table_seal
    }
}

/// Tells the allocator about commits. The journal holds this, and not the allocator, because the
/// allocator holds the journal.
#[derive(Debug)]
struct Releaser {
    allocator: Weak<Allocator>,
}

impl CommitListener for Releaser {
    fn before_commit(&self, _: u64, handle: &mut Handle<'_>) {
        let Some(allocator) = self.allocator.upgrade() else { return };
        let volume = &allocator.groups.volume;
        let recorded = allocator
            .inodes
            .record(handle)
            .and_then(|()| allocator.groups.record_changes(handle))
            .and_then(|()| volume.note_waiting_damage(handle));
        if let Err(error) = recorded {
            tracing::error!(%error, "groups can't be brought up to date: the journal is stopped");
            volume.journal.abort("groups could not be brought up to date");
        }
    }

    fn committed(&self, tid: u64) {
        if let Some(allocator) = self.allocator.upgrade() {
            allocator.groups.release_pending(tid);
            allocator.inodes.committed(tid);
            allocator.cluster_cuts.committed(tid);
        }
    }

    fn settled(&self, _: u64) {
        let Some(allocator) = self.allocator.upgrade() else { return };
        let volume = &allocator.groups.volume;
        // Not before: whoever waits for this transaction would be told of an error.
        if volume.damage.stops_now() {
            volume.journal.abort(STOPS_FOR_DAMAGE);
        }
    }
}

/// Runs an operation that allocates, and repeats it after a commit as long as all free space waits
/// for one. The operation starts and stops its handle itself, and must leave no changes behind when
/// it fails with [`Error::CommitFirst`].
pub(crate) fn with_space_retry<T>(
    volume: &Volume,
    mut operation: impl FnMut() -> Result<T>,
) -> Result<T> {
    for _ in 0..SPACE_RETRIES_MAX {
        match operation() {
            Err(Error::CommitFirst) => volume.journal.commit_and_wait()?,
            result => return result,
        }
    }
    Err(Error::NoSpace)
}
