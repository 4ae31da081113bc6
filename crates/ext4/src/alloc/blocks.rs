//! Allocates and frees blocks.
//!
//! A search goes over the groups from the goal's on, first for runs of the full length, then for
//! shorter ones. Groups that are busy are passed over until the last round, which waits for each,
//! so that a busy group is never mistaken for a full one.
//!
//! # Locking
//! One group at a time.
//!
//! # Crash
//! A freed cluster is clear on disk with the transaction that frees it, and stays taken in memory
//! until that has committed.

use super::group::{Group, GroupState};
use super::search::{RunRequest, find_run};
use super::statistics::Count;
use super::{Allocator, BlockKind, BlockRequest, BlockRun};
use crate::error::{Error, Result};
use drystone_ext4_format::group::GroupFlags;
use drystone_ext4_format::{Corrupt, GroupNumber, PhysicalBlock};
use drystone_jbd2::Handle;
use drystone_ondisk::bitmap;
use drystone_sync::atomic::Ordering;
use std::ops::Range;

/// How many groups a round may search in vain before it settles for less.
const SEARCHES_MAX: u32 = 64;

/// What is wanted, in the terms of groups and clusters.
struct Wish {
    group: u32,
    goal: Option<u32>,
    wanted: u32,
    below: u64,
    kind: BlockKind,
    may_use_reserved: bool,
}

/// One round over the groups.
struct Round {
    /// The shortest run to take.
    least: u32,
    /// Whether to wait for groups that are busy.
    waits: bool,
    /// Whether to give up after some searches.
    bounded: bool,
}

impl Allocator {
    /// Allocates a run of blocks and marks it in the transaction.
    ///
    /// The run starts at the goal if that is free. It is as long as wanted or shorter; with
    /// clusters it is made of whole ones, and may then be longer.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if nothing is left for this caller; [`Error::CommitFirst`] if what is
    /// left waits for a commit (see [`with_space_retry`](super::with_space_retry)).
    pub fn allocate_blocks(
        &self,
        handle: &mut Handle<'_>,
        request: &BlockRequest,
    ) -> Result<BlockRun> {
        let wish = self.wish(request);
        let full = wish.wanted.min(self.volume.layout.clusters_per_group() / 2).max(1);
        let rounds = [
            Round { least: full, waits: false, bounded: true },
            Round { least: full.div_ceil(8), waits: false, bounded: true },
            Round { least: 1, waits: false, bounded: false },
            Round { least: 1, waits: true, bounded: false },
        ];
        loop {
            let releases = self.pending.releases();
            for round in &rounds {
                if let Some(run) = self.search_groups(handle, &wish, round)? {
                    return Ok(run);
                }
            }
            if self.pending.waiting() > 0 {
                return Err(Error::CommitFirst);
            }
            // A commit may have released blocks of a group that was already passed.
            if self.pending.releases() == releases {
                return Err(Error::NoSpace);
            }
        }
    }

    fn wish(&self, request: &BlockRequest) -> Wish {
        let layout = &self.volume.layout;
        let below = if request.below_32_bits { 1 << 32 } else { u64::MAX };
        let goal = Some(request.goal).filter(|goal| goal.get() < below);
        let place = goal.and_then(|goal| layout.bit_of_block(goal));
        let wanted = layout.clusters_for(u64::from(request.length.max(1)));
        Wish {
            group: place.map_or(0, |(group, _)| group.get()),
            goal: place.map(|(_, bit)| bit),
            // Limited by a number of 32 bits.
            wanted: wanted.min(u64::from(layout.clusters_per_group())) as u32,
            below,
            kind: request.kind,
            may_use_reserved: request.may_use_reserved,
        }
    }

    fn search_groups(
        &self,
        handle: &mut Handle<'_>,
        wish: &Wish,
        round: &Round,
    ) -> Result<Option<BlockRun>> {
        let count = self.groups.len() as u32;
        let mut searches_left = SEARCHES_MAX;
        for step in 0..count {
            let group = &self.groups[((wish.group + step) % count) as usize];
            let is_goal = step == 0 && wish.goal.is_some();
            let available = group.available.load(Ordering::Relaxed);
            if available == 0 {
                continue;
            }
            // The goal's group is searched whatever it has: a run at the goal is always good.
            let longest = group.longest_run_max.load(Ordering::Relaxed);
            if !is_goal && available.min(longest) < round.least {
                continue;
            }
            if self.volume.layout.group_first_block(group.number).get() >= wish.below {
                continue;
            }
            let state = if round.waits { Some(group.state.lock()) } else { group.state.try_lock() };
            let Some(mut state) = state else {
                self.counts.note(Count::GroupBusy);
                continue;
            };
            self.counts.note(Count::GroupTried);
            if let Some(run) = self.search_group(handle, group, &mut state, wish, round)? {
                return Ok(Some(run));
            }
            searches_left -= 1;
            if round.bounded && searches_left == 0 {
                break;
            }
        }
        Ok(None)
    }

    fn search_group(
        &self,
        handle: &mut Handle<'_>,
        group: &Group,
        state: &mut GroupState,
        wish: &Wish,
        round: &Round,
    ) -> Result<Option<BlockRun>> {
        let layout = &self.volume.layout;
        let Some(loaded) = self.load_or_take_out(group, state, true)? else { return Ok(None) };
        let Some(map) = loaded.map.as_ref() else { unreachable!("the map was loaded") };
        let clusters = layout.group_cluster_count(group.number);
        let first = layout.group_first_block(group.number).get();
        let blocks_below = wish.below.saturating_sub(first).min(u64::from(u32::MAX));
        let limit = clusters.min((blocks_below >> layout.log_cluster_ratio()) as u32);
        let request = RunRequest {
            goal: wish.goal.filter(|_| group.number.get() == wish.group),
            // Metadata go to the first hole, where they lie together and cut no long run.
            cursor: if wish.kind == BlockKind::Data { map.cursor } else { 0 },
            wanted: wish.wanted,
            least: round.least,
            limit,
        };
        let mut run = match find_run(&map.taken, &request) {
            Ok(run) => run,
            Err(longest) => {
                if limit == clusters {
                    group.longest_run_max.store(longest, Ordering::Relaxed);
                }
                return Ok(None);
            }
        };
        let granted = self.free_space.claim(run.len() as u32, wish.may_use_reserved);
        if granted == 0 {
            return Err(Error::NoSpace);
        }
        run.end = run.start + granted;
        let mut change = self.change(group.number, loaded);
        if let Err(error) = change.mark_clusters(handle, run.clone(), true) {
            self.free_space.release(granted);
            self.pending.note_release();
            return Err(error);
        }
        if let Some(map) = &mut loaded.map {
            bitmap::set_range(&mut map.taken, run.start as usize..run.end as usize);
            if wish.kind == BlockKind::Data {
                map.cursor = run.end;
            }
        }
        self.counts.note(Count::BlockRun);
        if request.goal == Some(run.start) {
            self.counts.note(Count::BlockGoal);
        }
        group.available.fetch_sub(granted, Ordering::Relaxed);
        let start = layout.block_of_bit(group.number, run.start);
        // The last cluster of an image may be cut short.
        let whole = u64::from(granted) << layout.log_cluster_ratio();
        let length = whole.min(layout.blocks_count() - start.get()) as u32;
        Ok(Some(BlockRun { start, length }))
    }

    /// Frees blocks. They may be allocated again when the handle's transaction has committed.
    ///
    /// With clusters, every cluster that `count` blocks from `start` touch is freed whole.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if a block is free already, holds fixed metadata or does not exist;
    /// nothing has changed then.
    pub fn free_blocks(
        &self,
        handle: &mut Handle<'_>,
        start: PhysicalBlock,
        count: u64,
        kind: BlockKind,
    ) -> Result<()> {
        if count == 0 {
            return Ok(());
        }
        let pieces = self.pieces(start, count)?;
        if pieces.len() > 1 {
            // A problem in the last group must not be met after the first one has changed.
            for (group, run) in &pieces {
                self.check_used(*group, run)?;
            }
        }
        for (group, run) in pieces {
            self.free_in_group(handle, group, run)?;
        }
        if kind == BlockKind::Metadata {
            for block in start.get()..start.get() + count {
                handle.forget(block)?;
            }
        }
        Ok(())
    }

    /// The clusters that blocks touch, by group.
    fn pieces(&self, start: PhysicalBlock, count: u64) -> Result<Vec<(GroupNumber, Range<u32>)>> {
        let layout = &self.volume.layout;
        let blocks = layout.blocks_count();
        if !layout.contains_blocks(start, count) {
            let block =
                if layout.contains_blocks(start, 1) { PhysicalBlock::new(blocks) } else { start };
            return Err(Corrupt::BlockOutOfRange { block, blocks }.into());
        }
        let end = start.get() + count;
        let mut pieces = Vec::with_capacity(1);
        let mut next = start;
        while next.get() < end {
            let Some((group, bit)) = layout.bit_of_block(next) else {
                return Err(Corrupt::BlockOutOfRange { block: next, blocks }.into());
            };
            let first = layout.group_first_block(group).get();
            let group_end = first + u64::from(layout.group_block_count(group));
            let piece_end = end.min(group_end);
            // Offsets in a group fit.
            let bit_end = ((piece_end - first) as u32).div_ceil(layout.blocks_per_cluster());
            let whole_start = first + (u64::from(bit) << layout.log_cluster_ratio());
            let whole_end = first + (u64::from(bit_end) << layout.log_cluster_ratio());
            if let Some(block) = self.metadata.first_in(whole_start..whole_end.min(group_end)) {
                return Err(Corrupt::BlockFixed { block }.into());
            }
            pieces.push((group, bit..bit_end));
            next = PhysicalBlock::new(piece_end);
        }
        Ok(pieces)
    }

    fn check_used(&self, number: GroupNumber, run: &Range<u32>) -> Result<()> {
        let mut state = self.groups[number.index()].state.lock();
        let loaded = state.load(&self.volume, number)?;
        let free = if loaded.descriptor.flags.contains(GroupFlags::BLOCK_UNINIT) {
            Some(run.start)
        } else {
            let buffer = loaded.block_bitmap(&self.volume, number)?;
            bitmap::find_zero(&buffer.read(), run.start as usize..run.end as usize)
                .map(|bit| bit as u32)
        };
        match free {
            Some(bit) => {
                let block = self.volume.layout.block_of_bit(number, bit);
                Err(Corrupt::BlockFree { block }.into())
            }
            None => Ok(()),
        }
    }

    fn free_in_group(
        &self,
        handle: &mut Handle<'_>,
        number: GroupNumber,
        run: Range<u32>,
    ) -> Result<()> {
        let group = &self.groups[number.index()];
        let mut state = group.state.lock();
        let loaded = state.load(&self.volume, number)?;
        if loaded.descriptor.flags.contains(GroupFlags::BLOCK_UNINIT) {
            let block = self.volume.layout.block_of_bit(number, run.start);
            return Err(Corrupt::BlockFree { block }.into());
        }
        loaded.load_map(&self.volume, number, &self.metadata)?;
        self.change(number, loaded).mark_clusters(handle, run.clone(), false)?;
        let Some(map) = &mut loaded.map else { unreachable!("the map was loaded") };
        let clusters = run.len() as u32;
        let transaction = handle.tid();
        if map.pending.add(transaction, run) {
            self.pending.enter(transaction, number);
        }
        self.pending.wait(clusters);
        self.free_space.release(clusters);
        Ok(())
    }

    /// Makes the blocks available that a transaction freed, after its commit.
    pub(super) fn release_pending(&self, transaction: u64) {
        for number in self.pending.take(transaction) {
            let group = &self.groups[number.index()];
            let mut released = 0;
            {
                let mut state = group.state.lock();
                let GroupState::Loaded(loaded) = &mut *state else { continue };
                let Some(map) = &mut loaded.map else { continue };
                for run in map.pending.take(transaction) {
                    released += run.len() as u32;
                    bitmap::clear_range(&mut map.taken, run.start as usize..run.end as usize);
                }
                group.make_available(released);
            }
            self.pending.release(released);
        }
    }
}
