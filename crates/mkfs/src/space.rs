//! Gives out the blocks of a new image.
//!
//! # State
//! A bitmap for each group in which more than the fixed metadata is given out; other groups need
//! none. So an image of 16 TiB costs memory for a few groups.

use crate::error::{Error, Result};
use drystone_ext4_format::layout::Layout;
use drystone_ext4_format::{GroupNumber, PhysicalBlock};
use drystone_ondisk::bitmap;
use std::collections::BTreeMap;

/// A contiguous run of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockRun {
    pub start: u64,
    pub length: u32,
}

/// Which blocks are given out.
#[derive(Debug)]
pub(crate) struct Space {
    layout: Layout,
    groups: BTreeMap<u32, Vec<u8>>,
}

impl Space {
    /// Only the superblocks and descriptors are in use.
    pub fn new(layout: &Layout) -> Space {
        Space { layout: *layout, groups: BTreeMap::new() }
    }

    /// The groups that hold more than fixed metadata, and their bitmaps.
    pub fn group(&self, group: GroupNumber) -> Option<&[u8]> {
        self.groups.get(&group.get()).map(Vec::as_slice)
    }

    /// The bitmap of a group with only the fixed metadata.
    pub fn fixed(&self, group: GroupNumber) -> Vec<u8> {
        let mut bits = vec![0; self.layout.block_size()];
        let used = self.layout.clusters_for(u64::from(self.layout.group_base(group).blocks));
        let count = self.layout.group_cluster_count(group) as usize;
        bitmap::set_range(&mut bits, 0..used as usize);
        let whole = bits.len() * 8;
        bitmap::set_range(&mut bits, count..whole);
        bits
    }

    /// Free clusters of a group.
    pub fn free_clusters(&self, group: GroupNumber) -> u32 {
        let count = self.layout.group_cluster_count(group);
        match self.group(group) {
            Some(bits) => count - bitmap::count_ones(bits, 0..count as usize) as u32,
            None => {
                let base = self.layout.group_base(group).blocks;
                count - self.layout.clusters_for(u64::from(base)) as u32
            }
        }
    }

    /// Gives out one run of up to `wanted` blocks, the longest that starts in the first group from
    /// `goal` on that has any room. With clusters, runs start and end with one.
    pub fn take(&mut self, goal: GroupNumber, wanted: u32, what: &'static str) -> Result<BlockRun> {
        let groups = self.layout.group_count();
        for step in 0..groups {
            let group = GroupNumber::new((goal.get() + step) % groups);
            if let Some(run) = self.take_in(group, wanted) {
                return Ok(run);
            }
        }
        Err(Error::TooSmall { blocks: self.layout.blocks_count(), what })
    }

    /// Gives out `wanted` blocks in as few runs as come.
    pub fn take_all(
        &mut self,
        goal: GroupNumber,
        wanted: u32,
        what: &'static str,
    ) -> Result<Vec<BlockRun>> {
        let mut runs: Vec<BlockRun> = Vec::new();
        let mut left = wanted;
        while left > 0 {
            let run = self.take(goal, left, what)?;
            let length = run.length.min(left);
            left -= length;
            match runs.last_mut() {
                Some(last) if last.start + u64::from(last.length) == run.start => {
                    last.length += length;
                }
                _ => runs.push(BlockRun { start: run.start, length }),
            }
        }
        Ok(runs)
    }

    /// Gives out exactly `wanted` blocks in one run inside a group.
    pub fn take_contiguous(
        &mut self,
        goal: GroupNumber,
        wanted: u32,
        what: &'static str,
    ) -> Result<PhysicalBlock> {
        let clusters = self.layout.clusters_for(u64::from(wanted)) as usize;
        for step in 0..self.layout.group_count() {
            let group = GroupNumber::new((goal.get() + step) % self.layout.group_count());
            let count = self.layout.group_cluster_count(group) as usize;
            let fixed = self.fixed(group);
            let bits = self.groups.get(&group.get()).unwrap_or(&fixed);
            if let Some(first) = bitmap::find_zero_run(bits, 0..count, clusters) {
                let bits = self.groups.entry(group.get()).or_insert(fixed);
                bitmap::set_range(bits, first..first + clusters);
                return Ok(self.layout.block_of_bit(group, first as u32));
            }
        }
        Err(Error::TooSmall { blocks: self.layout.blocks_count(), what })
    }

    /// The free blocks in order, as runs from a start to before an end.
    pub fn free_runs(&self) -> Vec<std::ops::Range<u64>> {
        let mut runs: Vec<std::ops::Range<u64>> = Vec::new();
        for group in self.layout.groups() {
            let count = self.layout.group_cluster_count(group) as usize;
            let fixed;
            let bits = match self.group(group) {
                Some(bits) => bits,
                None => {
                    fixed = self.fixed(group);
                    &fixed
                }
            };
            for run in bitmap::zero_runs(bits, 0..count) {
                let block = |bit: usize| self.layout.block_of_bit(group, bit as u32).get();
                let (start, end) =
                    (block(run.start), block(run.end).min(self.layout.blocks_count()));
                match runs.last_mut() {
                    Some(last) if last.end == start => last.end = end,
                    _ => runs.push(start..end),
                }
            }
        }
        runs
    }

    /// Gives out these blocks, which must be free.
    pub fn take_range(&mut self, blocks: std::ops::Range<u64>) {
        let mut start = blocks.start;
        while start < blocks.end {
            // Free blocks lie in groups.
            let Some((group, bit)) = self.layout.bit_of_block(PhysicalBlock::new(start)) else {
                return;
            };
            let next = self.layout.group_first_block(group).get()
                + u64::from(self.layout.blocks_per_group());
            let length = blocks.end.min(next) - start;
            let clusters = self.layout.clusters_for(length) as usize;
            let fixed = self.fixed(group);
            let bits = self.groups.entry(group.get()).or_insert(fixed);
            bitmap::set_range(bits, bit as usize..bit as usize + clusters);
            start += length;
        }
    }

    fn take_in(&mut self, group: GroupNumber, wanted: u32) -> Option<BlockRun> {
        let count = self.layout.group_cluster_count(group) as usize;
        let clusters = self.layout.clusters_for(u64::from(wanted)) as usize;
        let fixed = self.fixed(group);
        let bits = self.groups.get(&group.get()).unwrap_or(&fixed);
        let (first, end) = match bitmap::find_zero_run(bits, 0..count, clusters) {
            Some(first) => (first, first + clusters),
            None => {
                let longest = bitmap::zero_runs(bits, 0..count).max_by_key(|run| run.len())?;
                (longest.start, longest.end)
            }
        };
        let bits = self.groups.entry(group.get()).or_insert(fixed);
        bitmap::set_range(bits, first..end);
        let start = self.layout.block_of_bit(group, first as u32).get();
        let length = (end - first) as u32 * self.layout.blocks_per_cluster();
        // The last cluster of an image may be cut off.
        let length = u64::from(length).min(self.layout.blocks_count() - start) as u32;
        Some(BlockRun { start, length })
    }
}
