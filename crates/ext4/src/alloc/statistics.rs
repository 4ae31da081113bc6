//! What allocation has done so far, counted per core.

use drystone_sync::PerCore;
use drystone_sync::atomic::{AtomicU64, Ordering};

/// Counts of allocations since the mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct AllocationStatistics {
    /// Inodes given out.
    pub inodes: u64,
    /// How often a group's lock was taken to find and mark inodes.
    pub inode_lock_takes: u64,
    /// Requests for write access to an inode bitmap.
    pub inode_write_accesses: u64,
    /// Inodes that were found free, but taken by another thread before they could be marked.
    pub inode_races_lost: u64,
    /// Runs of inodes that cores have set aside.
    pub inode_runs: u64,
    /// Runs of blocks given out.
    pub block_runs: u64,
    /// Of these, runs at the goal.
    pub block_goals: u64,
    /// Runs from a preallocation window; not among `block_runs`.
    pub block_windows: u64,
    /// How often groups of the file's own were searched before the criteria, with
    /// `block-goal=own-group`.
    pub own_groups: u64,
    /// How often each criterion was tried, from strict to loose.
    pub criteria: [u64; 5],
    /// Groups looked into for blocks.
    pub groups_tried: u64,
    /// Groups passed over because another thread held their lock.
    pub groups_busy: u64,
}

/// What is counted; the order is that of [`AllocationStatistics`].
#[derive(Clone, Copy, Debug)]
pub(super) enum Count {
    Inode,
    InodeLockTake,
    InodeWriteAccess,
    InodeRaceLost,
    InodeRun,
    BlockRun,
    BlockGoal,
    BlockWindow,
    OwnGroup,
    CriterionOrder,
    CriterionAverage,
    CriterionTrimmed,
    CriterionAnyRun,
    CriterionAnyCluster,
    GroupTried,
    GroupBusy,
}

/// How many kinds of counts there are.
const KINDS: usize = Count::GroupBusy as usize + 1;

/// The counts of a mount.
#[derive(Debug)]
pub(super) struct AllocationCounts {
    slots: PerCore<[AtomicU64; KINDS]>,
}

impl AllocationCounts {
    pub fn new() -> AllocationCounts {
        AllocationCounts { slots: PerCore::new(|_| std::array::from_fn(|_| AtomicU64::new(0))) }
    }

    /// Counts one.
    pub fn note(&self, count: Count) {
        self.slots.current()[count as usize].fetch_add(1, Ordering::Relaxed);
    }

    fn sum(&self, count: Count) -> u64 {
        self.slots.iter().map(|slot| slot[count as usize].load(Ordering::Relaxed)).sum()
    }

    /// All counts; approximate while other threads allocate.
    pub fn read(&self) -> AllocationStatistics {
        AllocationStatistics {
            inodes: self.sum(Count::Inode),
            inode_lock_takes: self.sum(Count::InodeLockTake),
            inode_write_accesses: self.sum(Count::InodeWriteAccess),
            inode_races_lost: self.sum(Count::InodeRaceLost),
            inode_runs: self.sum(Count::InodeRun),
            block_runs: self.sum(Count::BlockRun),
            block_goals: self.sum(Count::BlockGoal),
            block_windows: self.sum(Count::BlockWindow),
            own_groups: self.sum(Count::OwnGroup),
            criteria: [
                self.sum(Count::CriterionOrder),
                self.sum(Count::CriterionAverage),
                self.sum(Count::CriterionTrimmed),
                self.sum(Count::CriterionAnyRun),
                self.sum(Count::CriterionAnyCluster),
            ],
            groups_tried: self.sum(Count::GroupTried),
            groups_busy: self.sum(Count::GroupBusy),
        }
    }
}
