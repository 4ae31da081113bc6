//! Goals of streams: where a large file's blocks go when the blocks after its last ones are taken.

use crate::alloc::request::{FileSpace, NO_PLACE};
use crate::lock_classes;
use crate::policy::BlockGoal;
use drystone_sync::atomic::{AtomicU64, Ordering};
use drystone_sync::{SpinLock, thread};

/// A group and a bit in it.
pub(super) type StreamPlace = (u32, u32);

/// The goals of large files.
#[derive(Debug)]
pub(super) enum StreamGoals {
    /// One for all.
    Global(SpinLock<StreamPlace>),
    /// In each file.
    PerInode,
    /// In each file; growing files also mark the groups that they are in.
    OwnGroup,
    /// One for each residue class of inode numbers.
    Hashed(Box<[AtomicU64]>),
}

impl StreamGoals {
    /// The goals for an image of `groups` groups.
    pub fn new(policy: BlockGoal, groups: usize) -> StreamGoals {
        match policy {
            BlockGoal::Global => {
                StreamGoals::Global(SpinLock::new(&lock_classes::BLOCK_GOAL, (0, 0)))
            }
            BlockGoal::PerInode => StreamGoals::PerInode,
            BlockGoal::OwnGroup => StreamGoals::OwnGroup,
            BlockGoal::Hashed => StreamGoals::Hashed(
                (0..goal_count(groups)).map(|_| AtomicU64::new(NO_PLACE)).collect(),
            ),
        }
    }

    /// Whether files that grow at the same time keep out of each other's groups.
    pub(super) fn keep_apart(&self) -> bool {
        matches!(self, StreamGoals::OwnGroup)
    }

    /// Where the search for a file's blocks starts; `None` if it has no goal yet.
    pub(super) fn get(&self, file: &FileSpace) -> Option<StreamPlace> {
        match self {
            StreamGoals::Global(goal) => Some(*goal.lock()),
            StreamGoals::PerInode | StreamGoals::OwnGroup => {
                unpack(file.goal.load(Ordering::Relaxed))
            }
            StreamGoals::Hashed(goals) => unpack(hashed(goals, file).load(Ordering::Relaxed)),
        }
    }

    /// Notes where a file's blocks end.
    pub(super) fn set(&self, file: &FileSpace, place: StreamPlace) {
        match self {
            StreamGoals::Global(goal) => *goal.lock() = place,
            StreamGoals::PerInode | StreamGoals::OwnGroup => {
                file.goal.store(pack(place), Ordering::Relaxed);
            }
            StreamGoals::Hashed(goals) => {
                hashed(goals, file).store(pack(place), Ordering::Relaxed);
            }
        }
    }
}

/// How many goals files are hashed to: one for each core, but at most one for every four groups.
pub(in crate::alloc) fn goal_count(groups: usize) -> usize {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    cores.min(groups.div_ceil(4)).max(1)
}

fn hashed<'a>(goals: &'a [AtomicU64], file: &FileSpace) -> &'a AtomicU64 {
    &goals[file.inode.get() as usize % goals.len()]
}

fn pack((group, bit): StreamPlace) -> u64 {
    u64::from(group) << 32 | u64::from(bit)
}

fn unpack(word: u64) -> Option<StreamPlace> {
    // The upper and the lower half.
    (word != NO_PLACE).then_some(((word >> 32) as u32, word as u32))
}
