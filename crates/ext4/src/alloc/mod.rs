//! Block groups: which blocks and inodes are in use, and who gets the next ones.
//!
//! # State
//! An [`Allocator`] has a small record for each group (`group`), which grows when the group is
//! first used. Sums over all groups are kept per core. Freed blocks wait in `pending` until the
//! transaction that freed them has committed.
//!
//! # Locking
//! A group's lock, held for one search and mark, is what allocation in different groups doesn't
//! share. Inside it come the list of groups with pending frees, the pool of free clusters, and
//! buffers. Never are two groups locked at once.
//!
//! # Crash
//! A bitmap and its descriptor become part of the transaction in the caller's handle; the descriptor
//! and both checksums are brought up to date when the transaction closes (`change`). The sums in
//! the superblock are written when the image is closed; until then they are stale, as they are
//! under Linux, and a mount counts anew.
//!
//! # Invariants
//! - A group's descriptor agrees with its bitmaps in every transaction.
//! - What may be allocated in a group is what is free on disk less what waits for a commit.
//! - Blocks of fixed metadata are never given out or taken back.

mod bits;
mod block_map;
mod blocks;
mod buddy;
mod change;
mod free_space;
mod group;
mod inodes;
mod load;
mod pending;
mod search;
mod spread;
mod statistics;
mod system_zones;
mod table_seal;
#[cfg(test)]
mod tests;

use crate::error::{Error, Result};
use crate::policy::Policy;
use crate::volume::Volume;
use blocks::{BlockForms, PreallocationWindows};
use change::{ChangedGroups, GroupChange};
use drystone_cache::Seal;
use drystone_ext4_format::features::Incompat;
use drystone_ext4_format::superblock::Superblock;
use drystone_ext4_format::{Corrupt, GroupNumber, InodeNumber, PhysicalBlock};
use drystone_jbd2::{CommitListener, Handle};
use drystone_sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use drystone_sync::{Arc, PerCoreCounter, Weak};
use free_space::FreeSpace;
use group::{BlockGroup, BlockGroupState, LoadedGroup};
use inodes::InodeForms;
use pending::PendingGroups;
use statistics::AllocationCounts;
pub use statistics::AllocationStatistics;
use std::ops::Range;
use system_zones::SystemZones;
use table_seal::TableSeal;
pub(crate) use table_seal::part_of_record;

/// How often an operation waits for a commit that should give it space.
const SPACE_RETRIES_MAX: u32 = 8;

/// Gives out blocks and inodes and takes them back.
pub(crate) struct Allocator {
    volume: Arc<Volume>,
    groups: Box<[BlockGroup]>,
    metadata: SystemZones,
    free_space: FreeSpace,
    free_inodes: PerCoreCounter,
    directories: PerCoreCounter,
    pending: PendingGroups,
    changed: ChangedGroups,
    inodes: InodeForms,
    blocks: BlockForms,
    windows: PreallocationWindows,
    counts: AllocationCounts,
    table_seal: Arc<dyn Seal>,
    /// Differs for every directory at the top, so that they take turns among equal groups.
    next_top_directory: AtomicU32,
}

impl std::fmt::Debug for Allocator {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Allocator")
            .field("groups", &self.groups.len())
            .finish_non_exhaustive()
    }
}

/// What blocks are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockKind {
    /// The content of files: not journaled.
    Data,
    /// Blocks that change through the journal, and must be forgotten there when they are freed.
    Metadata,
}

/// Which of the last free blocks a caller may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// None that are kept back.
    Common,
    /// Those that the image keeps for its administrators.
    Privileged,
    /// All: for nodes of mappings, without which a file could not use the space that it was given.
    All,
}

/// A wish for blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockRequest<'a> {
    /// Where the run should start. Anything will do; a block outside the image means no wish.
    pub goal: PhysicalBlock,
    /// Blocks wanted; at least 1.
    pub length: u32,
    /// What they are for.
    pub kind: BlockKind,
    /// Only blocks whose number fits 32 bits: for files with a block map.
    pub below_32_bits: bool,
    /// Which of the last blocks may be used.
    pub reach: Reach,
    /// Whether they were claimed before, by [`Allocator::promise`].
    pub is_promised: bool,
    /// The file whose data the blocks are for; `None` for anything else.
    pub file: Option<FileRequest<'a>>,
}

/// A file that gets blocks for its data.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileRequest<'a> {
    /// What the file remembers.
    pub space: &'a FileSpace,
    /// The block of the file that the run is for: the first of a cluster where there are clusters.
    pub logical: u64,
    /// The file's size when it has the blocks.
    pub size_bytes: u64,
    /// Whether it is too large to lie among small files.
    pub is_large: bool,
}

/// What a file remembers about its blocks.
#[derive(Debug)]
pub(crate) struct FileSpace {
    inode: InodeNumber,
    goal: AtomicU64,
    /// Something may be kept back for the file, or a group marked as its own.
    has_window: AtomicBool,
}

impl FileSpace {
    /// For a file that got no blocks since it is in memory.
    pub fn new(inode: InodeNumber) -> FileSpace {
        FileSpace {
            inode,
            goal: AtomicU64::new(blocks::NO_PLACE),
            has_window: AtomicBool::new(false),
        }
    }

    /// Whether something may be kept back for the file, or a group marked as its own.
    pub fn has_window(&self) -> bool {
        self.has_window.load(Ordering::Acquire)
    }
}

/// Blocks given out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockRun {
    /// The first block; the first of a cluster where there are clusters.
    pub start: PhysicalBlock,
    /// The number of blocks, at least 1; whole clusters where there are clusters.
    pub length: u32,
}

/// A wish for an inode.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InodeRequest {
    /// The directory that the inode's first name will be in.
    pub parent: InodeNumber,
    /// Whether it will be a directory.
    pub directory: bool,
    /// Whether it is a directory whose subtree should lie away from others.
    pub top_level: bool,
    /// The first inode to try; only its group counts for certain.
    pub goal: Option<InodeNumber>,
}

/// What is free in the whole image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FreeCounts {
    /// Free blocks, with those that wait for a commit and those that are reserved.
    pub blocks: u64,
    /// Blocks that only the privileged, or nodes of mappings, may use.
    pub reserved_blocks: u64,
    /// Free inodes.
    pub inodes: u64,
    /// Inodes in use that are directories.
    pub directories: u64,
}

impl Allocator {
    /// Reads the group descriptors. Bitmaps are read when they are first needed. The blocks of the
    /// journal are as much out of bounds as fixed metadata.
    ///
    /// # Errors
    /// The device's; `GroupsDamaged`. A few damaged groups are no error: they are not used.
    pub fn open(
        volume: Arc<Volume>,
        policy: Policy,
        journal: &[Range<u64>],
    ) -> Result<Arc<Allocator>> {
        let loaded = load::load_groups(&volume, journal)?;
        let layout = &volume.layout;
        let total = layout.clusters_for(layout.blocks_count());
        let reserved_blocks = volume.with_superblock(Superblock::reserved_blocks_count);
        let reserved = reserved_blocks >> layout.log_cluster_ratio();
        let has_extents = volume.features.incompat.contains(Incompat::EXTENTS);
        let for_nodes = if has_extents { free_space::kept_for_nodes(total) } else { 0 };
        let tables = loaded.groups.iter().map(|group| (group.inode_table, group.number));
        // A damaged descriptor has none.
        let tables = tables.filter(|(start, _)| start.get() != 0);
        let allocator = Arc::new(Allocator {
            table_seal: Arc::new(TableSeal::new(volume.layout, tables)),
            blocks: BlockForms::new(policy, &loaded.groups),
            windows: PreallocationWindows::new(),
            groups: loaded.groups,
            metadata: loaded.metadata,
            free_space: FreeSpace::new(loaded.free_clusters, total, reserved, for_nodes),
            free_inodes: PerCoreCounter::new(loaded.free_inodes as i64),
            directories: PerCoreCounter::new(loaded.directories as i64),
            pending: PendingGroups::new(),
            changed: ChangedGroups::new(),
            inodes: InodeForms::new(policy),
            counts: AllocationCounts::new(),
            next_top_directory: AtomicU32::new(0),
            volume,
        });
        let listener = Arc::new(Releaser { allocator: Arc::downgrade(&allocator) });
        allocator.volume.journal.add_listener(listener);
        Ok(allocator)
    }

    /// Checks that a mapping of an inode leads to none of the blocks that the file system keeps for
    /// itself.
    pub fn check_mapped(
        &self,
        inode: InodeNumber,
        start: PhysicalBlock,
        length: u32,
    ) -> Result<()> {
        match self.metadata.first_in(start.get()..start.get() + u64::from(length)) {
            Some(block) => Err(Corrupt::MappedMetadata { inode, block }.into()),
            None => Ok(()),
        }
    }

    /// Where the first block of an inode should go: into the inode's group.
    pub fn data_goal(&self, inode: InodeNumber) -> PhysicalBlock {
        let layout = &self.volume.layout;
        let group = layout.group_of_inode(inode).unwrap_or(GroupNumber::FIRST);
        layout.group_first_block(group)
    }

    /// What is free: exact while no one allocates or frees.
    pub fn free_counts(&self) -> FreeCounts {
        let ratio = self.volume.layout.log_cluster_ratio();
        FreeCounts {
            blocks: self.free_space.sum() << ratio,
            reserved_blocks: self.free_space.reserved() << ratio,
            inodes: self.free_inodes.sum().max(0) as u64,
            directories: self.directories.sum().max(0) as u64,
        }
    }

    /// What finishes blocks of the inode table when a commit freezes them.
    pub fn table_seal(&self) -> &Arc<dyn Seal> {
        &self.table_seal
    }

    /// What was done so far.
    pub fn statistics(&self) -> AllocationStatistics {
        self.counts.read()
    }

    /// Writes the sums into a superblock, when the image is closed.
    pub fn store_counts(&self, superblock: &mut Superblock) {
        let counts = self.free_counts();
        superblock.set_free_blocks_count(counts.blocks);
        // No more than there are inodes, whose number has 32 bits.
        superblock.set_free_inodes_count(counts.inodes as u32);
    }

    /// A change of a group whose lock the caller holds.
    fn change<'a>(&'a self, group: GroupNumber, loaded: &'a mut LoadedGroup) -> GroupChange<'a> {
        GroupChange {
            volume: &self.volume,
            metadata: &self.metadata,
            changed: &self.changed,
            group,
            loaded,
        }
    }

    /// Loads a group for an allocation, with its block bitmap if `with_map`; `None` if it is
    /// damaged, in which case it is out of use from now on.
    fn load_or_take_out<'a>(
        &self,
        group: &BlockGroup,
        state: &'a mut BlockGroupState,
        with_map: bool,
    ) -> Result<Option<&'a mut LoadedGroup>> {
        let result = state.load(&self.volume, group.number).and_then(|loaded| {
            if with_map {
                loaded.load_map(&self.volume, group.number, &self.metadata)
            } else {
                Ok(())
            }
        });
        match result {
            Ok(()) => {
                let loaded = state.load(&self.volume, group.number)?;
                if let Some(map) = &loaded.map
                    && !group.has_map.swap(true, Ordering::Relaxed)
                {
                    self.note_map(group, map);
                }
                Ok(Some(loaded))
            }
            Err(Error::Corrupt(corrupt)) => {
                self.take_out(group, state, corrupt);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Takes a damaged group out of use.
    fn take_out(&self, group: &BlockGroup, state: &mut BlockGroupState, corrupt: Corrupt) {
        let mut waiting = 0;
        match state {
            BlockGroupState::Damaged(..) => return,
            BlockGroupState::Loaded(loaded) => {
                if let Some(map) = &loaded.map {
                    waiting = map.pending.clusters();
                }
            }
            BlockGroupState::Unloaded => {}
        }
        tracing::error!(group = group.number.get(), %corrupt, "group taken out of use");
        let before = match std::mem::replace(state, BlockGroupState::Unloaded) {
            BlockGroupState::Loaded(loaded) => Some(loaded),
            BlockGroupState::Unloaded | BlockGroupState::Damaged(..) => None,
        };
        *state = BlockGroupState::Damaged(Box::new(corrupt), before);
        let available = group.available.load(Ordering::Relaxed);
        self.note_damaged(group);
        self.free_space.withdraw(available + waiting);
        self.pending.release(waiting);
        let free_inodes = group.free_inodes.swap(0, Ordering::Relaxed);
        self.free_inodes.add(-i64::from(free_inodes));
    }
}

/// Tells the allocator about commits. The journal keeps this, and not the allocator,
/// which keeps the journal.
#[derive(Debug)]
struct Releaser {
    allocator: Weak<Allocator>,
}

impl CommitListener for Releaser {
    fn before_commit(&self, _: u64, handle: &mut Handle<'_>) {
        let Some(allocator) = self.allocator.upgrade() else { return };
        let recorded =
            allocator.record_inodes(handle).and_then(|()| allocator.record_changes(handle));
        if let Err(error) = recorded {
            tracing::error!(%error, "groups can't be brought up to date: the journal is stopped");
            allocator.volume.journal.abort("groups could not be brought up to date");
        }
    }

    fn committed(&self, tid: u64) {
        if let Some(allocator) = self.allocator.upgrade() {
            allocator.release_pending(tid);
            allocator.inodes_committed(tid);
        }
    }
}

/// Runs an operation that allocates, again after a commit as long as all that is free waits for
/// one. The operation starts and stops its handle itself, and leaves nothing behind when it fails
/// with [`Error::CommitFirst`].
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
