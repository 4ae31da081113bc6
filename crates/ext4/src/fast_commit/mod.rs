//! Replays fast commits: what Linux has synced since its last full commit.
//!
//! A fast commit records the state of files after some changes, and which names were added and
//! removed. It does not record bitmaps, counts, nodes of extent trees or blocks of directories. So
//! the records are first read into a [`ReplayPlan`]: the final state of each file and each name.
//! Then a separate engine, over an overlay in memory, changes the image from the state of the last
//! full commit to that final state.
//!
//! # State
//! None that stays: the result is the set of changed blocks, for the journal.
//!
//! # Locking
//! No other thread uses the replay's engine.
//!
//! # Crash
//! The replay does not change the image. All changed blocks become one transaction
//! ([`drystone_jbd2::replace_fast_commits`]), so that every recovery starts from the full commit,
//! or finds the replay done. So no step of the replay has to be repeatable.
//!
//! # Invariants
//! - Metadata on which the image's consistency depends (bitmaps, counts, links, trees) is never
//!   taken from fast commits. Link counts come from counting names.
//! - All blocks that the records give to files are claimed before any other block is allocated.
//!
//! # Reference
//! "Fast commits" in the kernel's ext4 data structure pages, and the format crate's `fast_commit`.

mod files;
mod names;
mod plan;
mod ranges;

use crate::alloc::with_space_retry;
use crate::error::Result;
use crate::inode::Inode;
use crate::operations::Engine;
use drystone_blockdev::{BlockDevice, Overlay};
use drystone_cache::BlockBytes;
use drystone_ext4_format::error::FastCommitProblem;
use drystone_ext4_format::superblock::Superblock;
use drystone_ext4_format::{Corrupt, InodeNumber};
use drystone_jbd2::{FastCommit, Handle};
use drystone_sync::Arc;
use drystone_vfs::RequestContext;
use names::CountedNames;
use plan::{RecordedInode, ReplayPlan};
use std::collections::BTreeMap;

/// The blocks of `device` that `commits` change, with their new content. All full transactions must
/// be checkpointed. `open` returns an engine that writes metadata in place, without a log.
///
/// # Errors
/// [`Corrupt::FastCommit`], and the errors of the engine; the image is unchanged.
pub(crate) fn replay(
    device: &Arc<dyn BlockDevice>,
    superblock: &Superblock,
    commits: &[FastCommit],
    open: impl FnOnce(Arc<dyn BlockDevice>) -> Result<Engine>,
) -> Result<Vec<(u64, BlockBytes)>> {
    let plan = ReplayPlan::read(commits, superblock.layout())?;
    let overlay = Arc::new(Overlay::new(Arc::clone(device)));
    let fs = open(Arc::clone(&overlay) as Arc<dyn BlockDevice>)?;
    Replay::new(&fs, plan)?.run()?;
    fs.volume.journal.commit_and_wait()?;
    fs.volume.journal.close()?;
    changed_blocks(&overlay, superblock.layout().block_size())
}

/// The blocks in which an overlay differs from its base.
fn changed_blocks(
    overlay: &Overlay<Arc<dyn BlockDevice>>,
    block_size: usize,
) -> Result<Vec<(u64, BlockBytes)>> {
    let mut blocks: Vec<(u64, BlockBytes)> = Vec::new();
    let mut base = vec![0; block_size];
    for range in overlay.changed_ranges() {
        let first = range.start / block_size as u64;
        for block in first..range.end.div_ceil(block_size as u64) {
            // A block may be larger than a piece of the overlay.
            if blocks.last().is_some_and(|(last, _)| *last >= block) {
                continue;
            }
            let offset = block * block_size as u64;
            let mut bytes = vec![0; block_size].into_boxed_slice();
            overlay.read_at(offset, &mut bytes)?;
            overlay.base().read_at(offset, &mut base)?;
            if *bytes != *base {
                blocks.push((block, Arc::new(bytes)));
            }
        }
    }
    Ok(blocks)
}

/// What an inode number refers to before the replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NumberState {
    /// The inode that the fast commits mean.
    Kept,
    /// Another inode, which was deleted before the number was used again.
    Replaced,
    /// No inode.
    Absent,
}

/// A replay under way.
struct Replay<'a> {
    fs: &'a Engine,
    said: BTreeMap<InodeNumber, RecordedInode>,
    names: CountedNames,
    number_states: BTreeMap<InodeNumber, NumberState>,
    /// The superuser: the changes were permitted when they were made.
    context: RequestContext,
    /// The orphans. They must be in memory so that they can be removed from the orphans.
    _orphans: Vec<Arc<Inode>>,
}

/// The error for a wrong record of an inode.
fn wrong(inode: InodeNumber, problem: FastCommitProblem) -> crate::error::Error {
    Corrupt::FastCommit { inode, problem }.into()
}

impl<'a> Replay<'a> {
    fn new(fs: &'a Engine, plan: ReplayPlan) -> Result<Self> {
        let mut orphans = Vec::new();
        fs.orphans.load(fs, &mut orphans)?;
        let mut number_states = BTreeMap::new();
        for number in plan.numbers() {
            if fs.volume.check_recoverable(number).is_err() {
                return Err(wrong(number, FastCommitProblem::Number));
            }
            let state = number_state(fs, number, plan.said.get(&number))?;
            number_states.insert(number, state);
        }
        let names = CountedNames::resolve(fs, &plan.names, &number_states)?;
        let context = RequestContext::superuser();
        Ok(Replay { fs, said: plan.said, names, number_states, context, _orphans: orphans })
    }

    fn run(&self) -> Result<()> {
        self.claim_ranges()?;
        self.delete_replaced()?;
        self.make_and_change()?;
        self.apply_ranges()?;
        self.move_names()?;
        self.count_names()
    }

    fn number_state(&self, number: InodeNumber) -> NumberState {
        self.number_states.get(&number).copied().unwrap_or(NumberState::Absent)
    }

    /// Whether an inode of this number exists after the replay. An orphan that stays one is left to
    /// the mount.
    fn exists(&self, number: InodeNumber) -> bool {
        match self.number_state(number) {
            NumberState::Kept => self.names.counts().get(&number) != Some(&0),
            NumberState::Replaced | NumberState::Absent => self.names.gained(number) > 0,
        }
    }

    /// Runs one step in a handle of its own.
    fn step<T>(
        &self,
        credits: u32,
        mut work: impl FnMut(&mut Handle<'_>) -> Result<T>,
    ) -> Result<T> {
        with_space_retry(&self.fs.volume, || {
            let mut handle = self.fs.volume.start(credits)?;
            let done = work(&mut handle);
            self.fs.settle(handle, done)
        })
    }
}

/// What an inode number refers to before the replay; `said` is what fast commits record about it.
fn number_state(
    fs: &Engine,
    number: InodeNumber,
    said: Option<&RecordedInode>,
) -> Result<NumberState> {
    if !fs.allocator.inodes.is_allocated(number)? {
        return Ok(NumberState::Absent);
    }
    let Some(image) = said.and_then(|said| said.image.as_ref()) else {
        return Ok(NumberState::Kept);
    };
    let inode = fs.orphan_inode(number)?;
    let is_same = inode.fields().disk.generation == image.disk.generation;
    Ok(if is_same { NumberState::Kept } else { NumberState::Replaced })
}
