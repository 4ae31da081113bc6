//! Takes blocks of one group, which the caller has locked.

use super::super::group::{BlockGroup, BlockGroupState};
use super::super::search::{RunRequest, find_run, run_at};
use super::super::statistics::Count;
use super::super::{Allocator, BlockKind, BlockRun};
use super::RunWish;
use super::criteria::Criterion;
use crate::error::{Error, Result};
use drystone_ext4_format::GroupNumber;
use drystone_jbd2::Handle;
use drystone_ondisk::bitmap;
use drystone_sync::atomic::Ordering;
use std::ops::Range;

/// Blocks that were given out, and what is kept behind them.
pub(super) struct Taken {
    pub run: BlockRun,
    pub clusters: u32,
    pub group: GroupNumber,
    pub kept: Range<u32>,
}

impl Allocator {
    /// Takes what is free at the goal, however little that is.
    pub(super) fn take_at_goal(
        &self,
        handle: &mut Handle<'_>,
        wish: &RunWish<'_>,
    ) -> Result<Option<Taken>> {
        let Some((number, bit)) = wish.goal else { return Ok(None) };
        let group = &self.groups[number as usize];
        if group.available.load(Ordering::Relaxed) == 0 {
            return Ok(None);
        }
        let Some(mut state) = self.lock_group(group, false) else {
            self.counts.note(Count::GroupBusy);
            return Ok(None);
        };
        let Some(loaded) = self.load_or_take_out(group, &mut state, true)? else {
            return Ok(None);
        };
        let Some(map) = &loaded.map else { unreachable!("the map was loaded") };
        let limit = self.bits_below(group, wish.below);
        if bit >= limit || bitmap::test(map.taken(), bit as usize) {
            return Ok(None);
        }
        let run = run_at(map.taken(), bit, wish.wanted, limit);
        let taken = self.take(handle, group, &mut state, wish, run)?;
        self.counts.note(Count::BlockGoal);
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
        let Some(loaded) = self.load_or_take_out(group, state, true)? else { return Ok(None) };
        let Some(map) = &loaded.map else { unreachable!("the map was loaded") };
        let limit = self.bits_below(group, wish.below);
        let aligned = match criterion {
            // The buddies don't know of limits.
            Criterion::Apart(order, _) | Criterion::Order(order)
                if limit == self.volume.layout.group_cluster_count(group.number) =>
            {
                map.find_order(*order).map(|start| start..start + wish.wanted)
            }
            _ => None,
        };
        let (first, bit) = wish.start;
        let cursor = if first == group.number.get() { bit } else { map.cursor };
        let request = RunRequest {
            // Metadata go to the first hole, where they lie together and cut no long run.
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

    /// The bits of a group that a caller may have whose blocks must be below a number.
    fn bits_below(&self, group: &BlockGroup, below: u64) -> u32 {
        let layout = &self.volume.layout;
        let first = layout.group_first_block(group.number).get();
        let blocks = below.saturating_sub(first).min(u64::from(u32::MAX));
        // No more than the clusters of a group.
        layout.group_cluster_count(group.number).min((blocks >> layout.log_cluster_ratio()) as u32)
    }

    /// Takes a free run, or as much of it as the caller may have. What the caller doesn't need yet
    /// is kept.
    fn take(
        &self,
        handle: &mut Handle<'_>,
        group: &BlockGroup,
        state: &mut BlockGroupState,
        wish: &RunWish<'_>,
        run: Range<u32>,
    ) -> Result<Taken> {
        let loaded = state.load(&self.volume, group.number)?;
        let needed = wish.needed.min(run.len() as u32);
        let granted = wish.claim(&self.free_space, needed);
        if granted == 0 {
            return Err(Error::NoSpace);
        }
        let used = run.start..run.start + granted;
        let mut change = self.change(group.number, loaded);
        if let Err(error) = change.mark_clusters(handle, used.clone(), true) {
            wish.unclaim(&self.free_space, granted);
            self.pending.note_release();
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
        self.note_map(group, map);
        self.counts.note(Count::BlockRun);
        let run = self.block_run(group.number, run.start, granted);
        Ok(Taken { run, group: group.number, kept, clusters: granted })
    }

    /// The blocks of a run of clusters.
    pub(super) fn block_run(&self, group: GroupNumber, bit: u32, clusters: u32) -> BlockRun {
        let layout = &self.volume.layout;
        let start = layout.block_of_bit(group, bit);
        // The last cluster of an image may be cut short.
        let whole = u64::from(clusters) << layout.log_cluster_ratio();
        let length = whole.min(layout.blocks_count() - start.get()) as u32;
        BlockRun { start, length }
    }
}
