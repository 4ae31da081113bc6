//! Allocates and frees blocks.
//!
//! A request is first met from a preallocation window, then from the free run at its goal. Else
//! groups are tried by five criteria, from strict to loose (`criteria`). Policies decide which
//! groups are tried in which order, what happens with a locked group, and where the blocks of a
//! large file go. The last criterion waits for the lock of every group, so that a busy group is
//! never mistaken for a full one. With `block-goal=own-group` another search comes before the
//! criteria; it keeps files that grow at the same time in groups of their own as long as there is
//! room (`streams`).
//!
//! # Locking
//! A thread locks one group at a time.
//!
//! # Crash
//! A freed cluster becomes clear on disk with the transaction that frees it, and stays taken in
//! memory until that transaction has committed.

mod criteria;
mod free;
mod goal;
mod preallocation;
mod streams;
mod take;

#[cfg(test)]
pub(super) use goal::goal_count;

use super::free_space::FreeSpace;
use super::group::{BlockGroup, BlockGroupState};
use super::group_index::{GroupIndex, Ordered};
use super::groups::BlockGroups;
use super::request::{BlockKind, BlockRequest, BlockRun, FileRequest, FileSpace, Reach};
use super::statistics::Count;
use crate::error::{Error, Result};
use crate::policy::{GroupLock, Policy};
use criteria::Criterion;
use drystone_ext4_format::GroupNumber;
use drystone_jbd2::Handle;
use drystone_sync::{Arc, MutexGuard, thread};
use goal::{StreamGoals, StreamPlace};
use preallocation::PreallocationWindows;
use take::Taken;

/// Gives out blocks.
pub(crate) struct BlockAllocator {
    groups: Arc<BlockGroups>,
    lock: GroupLock,
    goals: StreamGoals,
    pub windows: PreallocationWindows,
}

/// A request in terms of groups and clusters.
#[derive(Debug)]
struct RunWish<'a> {
    goal: Option<StreamPlace>,
    /// The group from which groups are tried, and the bit at which the search in it starts.
    start: StreamPlace,
    /// The most clusters that the caller gets.
    needed: u32,
    /// The length to look for: with what is to be preallocated.
    wanted: u32,
    below: u64,
    kind: BlockKind,
    reach: Reach,
    is_promised: bool,
    /// The stream, if it keeps out of other streams' groups.
    stream: Option<&'a FileSpace>,
}

impl RunWish<'_> {
    /// Takes clusters out of the count of free ones, unless they were promised. Returns how many
    /// were granted.
    fn claim(&self, free_space: &FreeSpace, clusters: u32) -> u32 {
        if self.is_promised { clusters } else { free_space.claim(clusters, self.reach) }
    }

    /// Gives back clusters that were claimed but could not be marked.
    fn unclaim(&self, free_space: &FreeSpace, clusters: u32) {
        if !self.is_promised {
            free_space.release(clusters);
        }
    }
}

impl BlockAllocator {
    pub(super) fn new(groups: Arc<BlockGroups>, policy: Policy) -> BlockAllocator {
        BlockAllocator {
            lock: policy.group_lock,
            goals: StreamGoals::new(policy.block_goal, groups.count() as usize),
            windows: PreallocationWindows::new(Arc::clone(&groups)),
            groups,
        }
    }

    /// Where the search for a file starts.
    #[cfg(test)]
    pub fn goal(&self, file: &FileSpace) -> Option<StreamPlace> {
        self.goals.get(file)
    }

    #[cfg(test)]
    pub fn set_goal(&self, file: &FileSpace, place: StreamPlace) {
        self.goals.set(file, place);
    }

    /// Allocates a run of blocks and marks it in the transaction.
    ///
    /// The run comes from a preallocation window of the file, or starts at the goal if that is
    /// free, or else lies elsewhere. It is as long as requested or shorter; with clusters it
    /// consists of whole ones, and may then be longer.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if nothing is left for this caller; [`Error::CommitFirst`] if all that is
    /// left waits for a commit (see [`with_space_retry`](super::with_space_retry)).
    pub fn allocate(
        &self,
        handle: &mut Handle<'_>,
        request: &BlockRequest<'_>,
    ) -> Result<BlockRun> {
        let mut releases = None;
        loop {
            let wish = self.wish(request);
            if let Some(run) = self.windows.take(handle, request, &wish)? {
                self.groups.counts.note(Count::BlockWindow);
                return Ok(run);
            }
            if let Some(taken) = self.search_blocks(handle, &wish)? {
                if let Some(file) = &request.file {
                    self.keep(file, &wish, &taken);
                }
                return Ok(taken.run);
            }
            if self.windows.discard() {
                continue;
            }
            if self.windows.is_any() {
                // Another thread has taken a window out and is about to give it back.
                thread::yield_now();
                continue;
            }
            if self.groups.pending.waiting() > 0 {
                return Err(Error::CommitFirst);
            }
            // A commit may have released blocks of a group that the search had passed already. The first search
            // hasn't looked: most find something, and the count is in as many cache lines as there are cores.
            let now = self.groups.pending.releases();
            if releases.replace(now) == Some(now) {
                return Err(Error::NoSpace);
            }
        }
    }

    /// Claims clusters that will be allocated later, all of them or none: an allocation with
    /// `is_promised` uses the claim up.
    pub fn promise(&self, clusters: u32, reach: Reach) -> bool {
        let granted = self.groups.free_space.claim(clusters, reach);
        if granted < clusters {
            self.groups.free_space.release(granted);
        }
        granted == clusters
    }

    /// Gives back clusters of a promise that is not needed any more.
    pub fn take_back(&self, clusters: u32) {
        if clusters > 0 {
            self.groups.free_space.release(clusters);
        }
    }

    /// Whether so little is free that writes should allocate blocks at once rather than delay it.
    pub fn is_low(&self) -> bool {
        self.groups.free_space.is_low()
    }

    fn wish<'a>(&'a self, request: &BlockRequest<'a>) -> RunWish<'a> {
        let layout = self.groups.volume.layout();
        let below = if request.below_32_bits { 1 << 32 } else { u64::MAX };
        let goal = Some(request.goal).filter(|goal| goal.get() < below);
        let goal = goal.and_then(|goal| layout.bit_of_block(goal));
        let goal = goal.map(|(group, bit)| (group.get(), bit));
        let needed = layout.clusters_for(u64::from(request.length.max(1)));
        // Fits: at most the clusters of a group.
        let needed = needed.min(u64::from(layout.clusters_per_group() / 2)).max(1) as u32;
        let wanted = request.file.map_or(needed, |file| self.normalised(&file, needed));
        let large = request.file.filter(|file| file.is_large).map(|file| file.space);
        let stream = match request.file {
            Some(file) => self.stream(&file, goal, wanted),
            None => None,
        };
        let start = large.or(stream).and_then(|space| self.goals.get(space)).or(goal);
        RunWish {
            goal,
            start: start.unwrap_or((0, 0)),
            needed,
            wanted,
            below,
            kind: request.kind,
            reach: request.reach,
            is_promised: request.is_promised,
            stream,
        }
    }

    fn search_blocks(&self, handle: &mut Handle<'_>, wish: &RunWish<'_>) -> Result<Option<Taken>> {
        // In a group of another stream, going on at the goal comes second.
        let another = match (wish.stream, wish.goal) {
            (Some(stream), Some((group, _))) => {
                self.groups.at(GroupNumber::new(group)).is_for_another(stream.inode)
            }
            _ => false,
        };
        if !another && let Some(run) = self.take_at_goal(handle, wish)? {
            return Ok(Some(run));
        }
        if let Some(stream) = wish.stream {
            let apart = Criterion::apart(wish.wanted, stream.inode);
            if let Some(run) = self.search_criterion(handle, wish, &apart)? {
                return Ok(Some(run));
            }
        }
        if another && let Some(run) = self.take_at_goal(handle, wish)? {
            return Ok(Some(run));
        }
        for criterion in Criterion::all(wish.wanted) {
            if let Some(run) = self.search_criterion(handle, wish, &criterion)? {
                return Ok(Some(run));
            }
        }
        Ok(None)
    }

    /// Tries the groups that a criterion allows.
    fn search_criterion(
        &self,
        handle: &mut Handle<'_>,
        wish: &RunWish<'_>,
        criterion: &Criterion,
    ) -> Result<Option<Taken>> {
        self.groups.counts.note(criterion.count());
        let count = self.groups.count();
        let (start, _) = wish.start;
        let mut ordered = self.groups.index().and_then(|index| {
            let (kind, least) = criterion.orders()?;
            Some(Ordered::new(index, kind, least, start, count))
        });
        let mut linear = (0..count).map(|step| (start + step) % count);
        // The start group comes first, whatever its order.
        let mut near = ordered.is_some().then_some(start);
        while let Some(number) = near.take().or_else(|| match &mut ordered {
            Some(ordered) => ordered.next(),
            None => linear.next(),
        }) {
            let group = &self.groups.at(GroupNumber::new(number));
            let is_below =
                self.groups.volume.layout().group_first_block(group.number).get() < wish.below;
            if !is_below || !criterion.allows(group) {
                self.settle(group);
                continue;
            }
            let Some(mut state) = self.lock_group(group, criterion.is_last()) else {
                self.groups.counts.note(Count::GroupBusy);
                continue;
            };
            self.groups.counts.note(Count::GroupTried);
            if let Some(run) = self.take_by(handle, group, &mut state, wish, criterion)? {
                return Ok(Some(run));
            }
            if let Some(index) = self.groups.index() {
                index.settle(group);
            }
        }
        Ok(None)
    }

    /// Puts a group where it belongs in the index, if it was passed over because it has shrunk. If its
    /// lock is taken, another search does it.
    fn settle(&self, group: &BlockGroup) {
        if let Some(index) = self.groups.index()
            && GroupIndex::is_outdated(group)
            && let Some(_state) = group.state.try_lock()
        {
            index.settle(group);
        }
    }

    /// The group's lock; `None` if another thread holds it and the policy doesn't wait.
    fn lock_group<'a>(
        &self,
        group: &'a BlockGroup,
        waits: bool,
    ) -> Option<MutexGuard<'a, BlockGroupState>> {
        match self.lock {
            GroupLock::Try if !waits => group.state.try_lock(),
            GroupLock::Wait | GroupLock::Try => Some(group.state.lock()),
        }
    }
}
