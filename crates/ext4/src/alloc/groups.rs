//! All block groups of an image, with their sums and lists.
//!
//! # State
//! A record for each group (`group`), sums over all groups, kept per core, and the lists of groups
//! that have changed or wait for a commit. The image may grow (`growth`).
//!
//! # Locking
//! None of its own: `blocks` and `inodes` lock the groups that they look into.

use super::block_map::BlockMap;
use super::change::{ChangedGroups, GroupChange};
use super::free_space::{FreeSpace, SpaceLimits};
use super::group::{BlockGroup, BlockGroupState, LoadedGroup, NO_ORDER};
use super::group_index::GroupIndex;
use super::group_list::GroupList;
use super::load::load_groups;
use super::pending::PendingGroups;
use super::request::BlockRun;
use super::statistics::AllocationCounts;
use super::statistics::AllocationStatistics;
use super::system_zones::SystemZones;
use crate::error::{Error, Result};
use crate::lock_classes;
use crate::policy::GroupScan;
use crate::volume::Volume;
use drystone_ext4_format::error::MappedBlockProblem;
use drystone_ext4_format::superblock::Superblock;
use drystone_ext4_format::{Corrupt, GroupNumber, InodeNumber, PhysicalBlock};
use drystone_jbd2::Handle;
use drystone_sync::atomic::Ordering;
use drystone_sync::{Arc, PerCoreCounter, PublishedValue};
use std::ops::Range;

/// The groups of an image.
pub(crate) struct BlockGroups {
    pub(super) volume: Arc<Volume>,
    pub(super) groups: GroupList,
    /// The group index; `None` if searches go through the groups in order.
    pub(super) index: Option<PublishedValue<GroupIndex>>,
    pub(super) metadata: PublishedValue<SystemZones>,
    /// The blocks of the journal.
    pub(super) journal: Box<[Range<u64>]>,
    pub(super) free_space: FreeSpace,
    pub(super) free_inodes: PerCoreCounter,
    pub(super) directories: PerCoreCounter,
    pub(super) pending: PendingGroups,
    pub(super) changed: ChangedGroups,
    pub(super) counts: AllocationCounts,
}

/// What is free in the whole image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FreeCounts {
    /// Free blocks, including those that wait for a commit and those that are reserved.
    pub blocks: u64,
    /// Blocks that only privileged callers and nodes of mappings may use.
    pub reserved_blocks: u64,
    /// Free inodes.
    pub inodes: u64,
    /// Inodes in use that are directories.
    pub directories: u64,
}

impl BlockGroups {
    /// Reads the group descriptors. Bitmaps are read when they are first needed. The blocks of the
    /// journal are protected like fixed metadata.
    ///
    /// # Errors
    /// Those of the device; `GroupsDamaged`. A few damaged groups aren't an error: they are not used.
    pub(super) fn open(
        volume: Arc<Volume>,
        scan: GroupScan,
        journal: &[Range<u64>],
    ) -> Result<BlockGroups> {
        let loaded = load_groups(&volume, volume.layout(), journal, 0)?;
        let index = match scan {
            GroupScan::Linear => None,
            GroupScan::SizeOrdered => Some(GroupIndex::new(&loaded.groups, false)),
            GroupScan::SizeLazy => Some(GroupIndex::new(&loaded.groups, true)),
        };
        let limits = SpaceLimits::of(&volume, volume.layout());
        Ok(BlockGroups {
            index: index.map(|index| PublishedValue::new(&lock_classes::PUBLISHED, index)),
            groups: GroupList::new(loaded.groups.into()),
            metadata: PublishedValue::new(&lock_classes::PUBLISHED, loaded.metadata),
            journal: journal.into(),
            free_space: FreeSpace::new(loaded.free_clusters, limits),
            free_inodes: PerCoreCounter::new(loaded.free_inodes as i64),
            directories: PerCoreCounter::new(loaded.directories as i64),
            pending: PendingGroups::new(),
            changed: ChangedGroups::new(),
            counts: AllocationCounts::new(),
            volume,
        })
    }

    /// The number of groups.
    pub(super) fn count(&self) -> u32 {
        self.volume.layout().group_count()
    }

    #[inline]
    pub(super) fn at(&self, number: GroupNumber) -> &BlockGroup {
        self.groups.at(number)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &BlockGroup> {
        self.groups.iter()
    }

    /// The group index, if searches use one.
    #[inline]
    pub(super) fn index(&self) -> Option<&GroupIndex> {
        self.index.as_ref().map(PublishedValue::get)
    }

    /// The starts of the inode tables.
    pub(super) fn tables(&self) -> impl Iterator<Item = (PhysicalBlock, GroupNumber)> {
        let tables = self.iter().map(|group| (group.inode_table, group.number));
        // A damaged descriptor has no table.
        tables.filter(|(start, _)| start.get() != 0)
    }

    /// Checks that a mapping of an inode leads to no fixed metadata.
    pub fn check_mapped(
        &self,
        inode: InodeNumber,
        start: PhysicalBlock,
        length: u32,
    ) -> Result<()> {
        match self.metadata.get().first_in(start.get()..start.get() + u64::from(length)) {
            Some(block) => {
                Err(Corrupt::MappedBlock { inode, block, problem: MappedBlockProblem::Metadata }
                    .into())
            }
            None => Ok(()),
        }
    }

    /// What is free: exact while no thread allocates or frees.
    pub fn free_counts(&self) -> FreeCounts {
        let ratio = self.volume.layout().log_cluster_ratio();
        FreeCounts {
            blocks: self.free_space.sum() << ratio,
            reserved_blocks: self.free_space.reserved() << ratio,
            inodes: self.free_inodes.sum().max(0) as u64,
            directories: self.directories.sum().max(0) as u64,
        }
    }

    /// What allocation has done so far.
    pub fn statistics(&self) -> AllocationStatistics {
        self.counts.read()
    }

    /// Writes the sums into a superblock, when the image is closed.
    pub fn store_counts(&self, superblock: &mut Superblock) {
        let counts = self.free_counts();
        superblock.set_free_blocks_count(counts.blocks);
        // At most the number of inodes, which has 32 bits.
        superblock.set_free_inodes_count(counts.inodes as u32);
    }

    /// Starts a change of a group whose lock the caller holds.
    pub(super) fn change<'a>(
        &'a self,
        group: GroupNumber,
        loaded: &'a mut LoadedGroup,
    ) -> GroupChange<'a> {
        GroupChange {
            volume: &self.volume,
            metadata: self.metadata.get(),
            changed: &self.changed,
            group,
            loaded,
        }
    }

    /// Loads a group, with its map if `with_map`. Returns `None` if the group is damaged; it is out
    /// of use from then on.
    pub(super) fn load_or_take_out<'a>(
        &self,
        group: &BlockGroup,
        state: &'a mut BlockGroupState,
        with_map: bool,
    ) -> Result<Option<&'a mut LoadedGroup>> {
        let result = state.load(&self.volume, group.number).and_then(|loaded| {
            if with_map {
                loaded.load_map(&self.volume, group.number, self.metadata.get())
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
    pub(super) fn take_out(
        &self,
        group: &BlockGroup,
        state: &mut BlockGroupState,
        corrupt: Corrupt,
    ) {
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
        self.volume.damage.note_later();
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

    /// Updates a group's hints, and its place in the index, from its map.
    pub(super) fn note_map(&self, group: &BlockGroup, map: &BlockMap) {
        group.available.store(map.free(), Ordering::Relaxed);
        group.fragments.store(map.fragments(), Ordering::Relaxed);
        group.largest_order.store(map.largest_order().unwrap_or(NO_ORDER), Ordering::Relaxed);
        self.note_moved(group);
    }

    /// Updates a group's hints, and its place in the index: it has nothing free any more.
    pub(super) fn note_damaged(&self, group: &BlockGroup) {
        group.available.store(0, Ordering::Relaxed);
        group.largest_order.store(NO_ORDER, Ordering::Relaxed);
        self.note_moved(group);
    }

    fn note_moved(&self, group: &BlockGroup) {
        if let Some(index) = self.index() {
            index.changed(group);
        }
    }

    /// The blocks of a run of clusters.
    pub(super) fn block_run(&self, group: GroupNumber, bit: u32, clusters: u32) -> BlockRun {
        let layout = self.volume.layout();
        let start = layout.block_of_bit(group, bit);
        // The last cluster of an image may be cut short.
        let whole = u64::from(clusters) << layout.log_cluster_ratio();
        let length = whole.min(layout.blocks_count() - start.get()) as u32;
        BlockRun { start, length }
    }

    /// Writes the descriptors of the groups that the transaction has changed. The transaction is
    /// closing: no other handle is open.
    pub(super) fn record_changes(&self, handle: &mut Handle<'_>) -> Result<()> {
        let groups = self.changed.take();
        for number in groups {
            let mut state = self.at(number).state.lock();
            // A group may have been taken out of use since it changed.
            if let BlockGroupState::Loaded(loaded) | BlockGroupState::Damaged(_, Some(loaded)) =
                &mut *state
            {
                loaded.record_changes(handle, &self.volume, number)?;
            }
        }
        Ok(())
    }
}
