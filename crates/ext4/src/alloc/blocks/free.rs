//! Frees blocks.
//!
//! # Crash
//! A freed cluster becomes clear on disk with the transaction that frees it, and stays taken in
//! memory until that transaction has committed.

use super::super::group::BlockGroupState;
use super::super::groups::BlockGroups;
use super::{BlockAllocator, BlockKind};
use crate::error::Result;
use drystone_ext4_format::error::BlockProblem;
use drystone_ext4_format::group::GroupFlags;
use drystone_ext4_format::{Corrupt, GroupNumber, PhysicalBlock};
use drystone_jbd2::Handle;
use drystone_ondisk::bitmap;
use std::ops::Range;

impl BlockAllocator {
    /// Frees blocks. They may be allocated again when the handle's transaction has committed.
    ///
    /// With clusters, every cluster that `count` blocks from `start` touch is freed whole. Blocks
    /// of a group that is out of use stay marked as used until the image is repaired.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if a block is free already, holds fixed metadata or does not exist;
    /// nothing has changed then.
    pub fn free(
        &self,
        handle: &mut Handle<'_>,
        start: PhysicalBlock,
        count: u64,
        kind: BlockKind,
    ) -> Result<()> {
        self.free_run(handle, start, count, false)?;
        if kind == BlockKind::Metadata {
            for block in start.get()..start.get() + count {
                handle.forget(block)?;
            }
        }
        Ok(())
    }

    /// Frees blocks of data that were allocated for a [promise](BlockAllocator::promise). The
    /// promise holds again.
    ///
    /// # Errors
    /// As [`free`](BlockAllocator::free).
    pub fn free_promised(
        &self,
        handle: &mut Handle<'_>,
        start: PhysicalBlock,
        count: u64,
    ) -> Result<()> {
        self.free_run(handle, start, count, true)
    }

    fn free_run(
        &self,
        handle: &mut Handle<'_>,
        start: PhysicalBlock,
        count: u64,
        is_promised: bool,
    ) -> Result<()> {
        if count == 0 {
            return Ok(());
        }
        let pieces = self.groups.pieces(start, count)?;
        if pieces.len() > 1 {
            // A problem in the last group must be found before the first one changes.
            for (group, run) in &pieces {
                self.check_used(*group, run)?;
            }
        }
        for (group, run) in pieces {
            self.free_in_group(handle, group, run, is_promised)?;
        }
        Ok(())
    }

    fn check_used(&self, number: GroupNumber, run: &Range<u32>) -> Result<()> {
        let group = &self.groups.at(number);
        let mut state = group.state.lock();
        let Some(loaded) = self.groups.load_or_take_out(group, &mut state, true)? else {
            return Ok(());
        };
        let free = if loaded.descriptor.flags.contains(GroupFlags::BLOCK_UNINIT) {
            Some(run.start)
        } else {
            let buffer = loaded.block_bitmap(&self.groups.volume, number)?;
            bitmap::find_zero(&buffer.read(), run.start as usize..run.end as usize)
                .map(|bit| bit as u32)
        };
        match free {
            Some(bit) => {
                let block = self.groups.volume.layout().block_of_bit(number, bit);
                Err(Corrupt::Block { block, problem: BlockProblem::Free }.into())
            }
            None => Ok(()),
        }
    }

    fn free_in_group(
        &self,
        handle: &mut Handle<'_>,
        number: GroupNumber,
        run: Range<u32>,
        is_promised: bool,
    ) -> Result<()> {
        let group = &self.groups.at(number);
        let mut state = group.state.lock();
        let Some(loaded) = self.groups.load_or_take_out(group, &mut state, true)? else {
            return Ok(());
        };
        if loaded.descriptor.flags.contains(GroupFlags::BLOCK_UNINIT) {
            let block = self.groups.volume.layout().block_of_bit(number, run.start);
            return Err(Corrupt::Block { block, problem: BlockProblem::Free }.into());
        }
        self.groups.change(number, loaded).mark_clusters(handle, run.clone(), false)?;
        let Some(map) = &mut loaded.map else { unreachable!("the map was loaded") };
        let clusters = run.len() as u32;
        let transaction = handle.tid();
        if map.pending.add(transaction, run) {
            self.groups.pending.enter(transaction, number);
        }
        self.groups.pending.wait(clusters);
        if !is_promised {
            self.groups.free_space.release(clusters);
        }
        if drystone_sync::planted!("reuse-before-commit") {
            drop(state);
            self.groups.release_pending(transaction);
        }
        Ok(())
    }
}

impl BlockGroups {
    /// The clusters that a run of blocks touches, by group.
    pub(super) fn pieces(
        &self,
        start: PhysicalBlock,
        count: u64,
    ) -> Result<Vec<(GroupNumber, Range<u32>)>> {
        let layout = self.volume.layout();
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
            if let Some(block) = self.metadata.get().first_in(whole_start..whole_end.min(group_end))
            {
                return Err(Corrupt::Block { block, problem: BlockProblem::Fixed }.into());
            }
            pieces.push((group, bit..bit_end));
            next = PhysicalBlock::new(piece_end);
        }
        Ok(pieces)
    }

    /// Makes blocks available after the commit of the transaction that freed them.
    pub(in crate::alloc) fn release_pending(&self, transaction: u64) {
        for number in self.pending.take(transaction) {
            let group = &self.at(number);
            let mut released = 0;
            {
                let mut state = group.state.lock();
                let BlockGroupState::Loaded(loaded) = &mut *state else { continue };
                let Some(map) = &mut loaded.map else { continue };
                for run in map.pending.take(transaction) {
                    released += run.len() as u32;
                    map.release(run);
                }
                self.note_map(group, map);
            }
            self.pending.release(released);
        }
    }
}
