//! Takes blocks: a run of one group, or given blocks, as a fast commit records them.

use super::super::group::{BlockGroup, BlockGroupState};
use super::super::search::{RunRequest, find_run, run_at};
use super::super::statistics::Count;
use super::criteria::Criterion;
use super::{BlockAllocator, BlockKind, BlockRun, Reach, RunWish};
use crate::error::{Error, Result};
use drystone_ext4_format::{GroupNumber, PhysicalBlock};
use drystone_jbd2::Handle;
use drystone_ondisk::bitmap;
use drystone_sync::atomic::Ordering;
use std::ops::Range;

/// Allocated blocks, and the clusters after them that are kept as a window.
pub(super) struct Taken {
    pub run: BlockRun,
    pub clusters: u32,
    pub group: GroupNumber,
    pub kept: Range<u32>,
}

impl BlockAllocator {
    /// Takes the free run at the goal, however short.
    pub(super) fn take_at_goal(
        &self,
        handle: &mut Handle<'_>,
        wish: &RunWish<'_>,
    ) -> Result<Option<Taken>> {
        let Some((number, bit)) = wish.goal else { return Ok(None) };
        let group = &self.groups.at(GroupNumber::new(number));
        if group.available.load(Ordering::Relaxed) == 0 {
            return Ok(None);
        }
        let Some(mut state) = self.lock_group(group, false) else {
            self.groups.counts.note(Count::GroupBusy);
            return Ok(None);
        };
        let Some(loaded) = self.groups.load_or_take_out(group, &mut state, true)? else {
            return Ok(None);
        };
        let Some(map) = &loaded.map else { unreachable!("the map was loaded") };
        let limit = self.bits_below(group, wish.below);
        if bit >= limit || bitmap::test(map.taken(), bit as usize) {
            return Ok(None);
        }
        let run = run_at(map.taken(), bit, wish.wanted, limit);
        let taken = self.take(handle, group, &mut state, wish, run)?;
        self.groups.counts.note(Count::BlockGoal);
        Ok(Some(taken))
    }

    /// Takes a run of a group by a criterion, if there is one.
    pub(super) fn take_by(
        &self,
        handle: &mut Handle<'_>,
        group: &BlockGroup,
        state: &mut BlockGroupState,
        wish: &RunWish<'_>,
        criterion: &Criterion,
    ) -> Result<Option<Taken>> {
        let Some(loaded) = self.groups.load_or_take_out(group, state, true)? else {
            return Ok(None);
        };
        let Some(map) = &loaded.map else { unreachable!("the map was loaded") };
        let limit = self.bits_below(group, wish.below);
        let aligned = match criterion {
            // The buddies know no limit.
            Criterion::Apart(order, _) | Criterion::Order(order)
                if limit == self.groups.volume.layout().group_cluster_count(group.number) =>
            {
                map.find_order(*order).map(|start| start..start + wish.wanted)
            }
            _ => None,
        };
        let (first, bit) = wish.start;
        let cursor = if first == group.number.get() { bit } else { map.cursor };
        let request = RunRequest {
            // Metadata go to the first gap, where they lie together and cut no long run.
            cursor: if wish.kind == BlockKind::Data { cursor } else { 0 },
            wanted: wish.wanted,
            least: criterion.least(wish.wanted),
            limit,
        };
        let run = match aligned {
            Some(run) => run,
            None => match find_run(map.taken(), &request) {
                Ok(run) => run,
                Err(_) => return Ok(None),
            },
        };
        self.take(handle, group, state, wish, run).map(Some)
    }

    /// How many bits of a group are for blocks below `below`.
    fn bits_below(&self, group: &BlockGroup, below: u64) -> u32 {
        let layout = self.groups.volume.layout();
        let first = layout.group_first_block(group.number).get();
        let blocks = below.saturating_sub(first).min(u64::from(u32::MAX));
        // At most the clusters of a group.
        layout.group_cluster_count(group.number).min((blocks >> layout.log_cluster_ratio()) as u32)
    }

    /// Takes a free run, or as much of it as the caller may have. The clusters that the caller
    /// doesn't need yet are kept for a window.
    fn take(
        &self,
        handle: &mut Handle<'_>,
        group: &BlockGroup,
        state: &mut BlockGroupState,
        wish: &RunWish<'_>,
        run: Range<u32>,
    ) -> Result<Taken> {
        let loaded = state.load(&self.groups.volume, group.number)?;
        let needed = wish.needed.min(run.len() as u32);
        let granted = wish.claim(&self.groups.free_space, needed);
        if granted == 0 {
            return Err(Error::NoSpace);
        }
        let used = run.start..run.start + granted;
        let mut change = self.groups.change(group.number, loaded);
        if let Err(error) = change.mark_clusters(handle, used.clone(), true) {
            wish.unclaim(&self.groups.free_space, granted);
            self.groups.pending.note_release();
            return Err(error);
        }
        let end = if granted == needed { run.end } else { used.end };
        let kept = used.end..end;
        let Some(map) = &mut loaded.map else { unreachable!("the map was loaded") };
        map.take(run.start..end);
        self.windows.note_kept(kept.len() as u32);
        if wish.kind == BlockKind::Data {
            map.cursor = end;
        }
        self.groups.note_map(group, map);
        self.groups.counts.note(Count::BlockRun);
        let run = self.groups.block_run(group.number, run.start, granted);
        Ok(Taken { run, group: group.number, kept, clusters: granted })
    }

    /// Marks the clusters that `count` blocks from `start` touch as used. If a block of these is
    /// used already, changes nothing and returns that block.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if a block holds fixed metadata or does not exist; `NoSpace` if the count
    /// of free clusters is too small.
    pub fn claim(
        &self,
        handle: &mut Handle<'_>,
        start: PhysicalBlock,
        count: u64,
    ) -> Result<Option<PhysicalBlock>> {
        let pieces = self.groups.pieces(start, count)?;
        for (number, run) in &pieces {
            let mut state = self.groups.at(*number).state.lock();
            let loaded = state.load(&self.groups.volume, *number)?;
            loaded.load_map(&self.groups.volume, *number, self.groups.metadata.get())?;
            let Some(map) = &loaded.map else { unreachable!("the map was loaded") };
            let bits = run.start as usize..run.end as usize;
            if let Some(bit) = bitmap::find_one(map.taken(), bits) {
                return Ok(Some(self.groups.volume.layout().block_of_bit(*number, bit as u32)));
            }
        }
        for (number, run) in pieces {
            let group = &self.groups.at(number);
            let mut state = group.state.lock();
            let loaded = state.load(&self.groups.volume, number)?;
            let clusters = run.len() as u32;
            let granted = self.groups.free_space.claim(clusters, Reach::All);
            if granted < clusters {
                self.groups.free_space.release(granted);
                return Err(Error::NoSpace);
            }
            let marked =
                self.groups.change(number, loaded).mark_clusters(handle, run.clone(), true);
            marked.inspect_err(|_| self.groups.free_space.release(clusters))?;
            let Some(map) = &mut loaded.map else { unreachable!("the map was loaded") };
            map.take(run);
            self.groups.note_map(group, map);
        }
        Ok(None)
    }
}
