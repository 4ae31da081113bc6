//! Free space while files are given new places.

use crate::error::Result;
use crate::image::Image;
use drystone_ext4_format::GroupNumber;
use drystone_ondisk::bitmap;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Free runs in a group that are looked at for a file of the group.
const NEAR_RUNS_MAX: usize = 64;

/// What a file needs.
pub(super) struct Wanted {
    pub blocks: u64,
    /// Where its group is.
    pub near: Range<u64>,
    /// The end of where it may be.
    pub limit: u64,
    /// How many runs it may be in.
    pub count_max: usize,
    /// Blocks that it needs besides if it is in several.
    pub nodes: u64,
}

/// Runs of free blocks, by place and by size. Their lengths are whole clusters.
#[derive(Default)]
pub(super) struct FreePlaces {
    by_start: BTreeMap<u64, u64>,
    by_size: BTreeSet<(u64, u64)>,
    blocks: u64,
}

impl FreePlaces {
    pub fn of(image: &mut Image<'_>) -> Result<FreePlaces> {
        let layout = image.layout;
        let mut places = FreePlaces::default();
        let mut open: Option<Range<u64>> = None;
        for group in (0..layout.group_count()).map(GroupNumber::new) {
            if image.groups[group.index()].free_clusters_count == 0 {
                continue;
            }
            let first = layout.group_first_block(group).get();
            // The last cluster of an image may be cut.
            let whole = layout.group_block_count(group) >> layout.log_cluster_ratio();
            let bits = image.current_block_bitmap(group)?;
            for run in bitmap::zero_runs(&bits, 0..whole as usize) {
                let block = |bit: usize| first + ((bit as u64) << layout.log_cluster_ratio());
                let (start, end) = (block(run.start), block(run.end));
                // A run may go on in the next group.
                match &mut open {
                    Some(open) if open.end == start => open.end = end,
                    _ => open.replace(start..end).into_iter().for_each(|run| places.add(run)),
                }
            }
        }
        open.into_iter().for_each(|run| places.add(run));
        Ok(places)
    }

    fn add(&mut self, run: Range<u64>) {
        if !run.is_empty() {
            self.by_size.insert((run.end - run.start, run.start));
            self.by_start.insert(run.start, run.end);
            self.blocks += run.end - run.start;
        }
    }

    fn remove(&mut self, start: u64) -> Range<u64> {
        let end = self.by_start.remove(&start).unwrap_or(start);
        self.by_size.remove(&(end - start, start));
        self.blocks -= end - start;
        start..end
    }

    /// Takes the front of the run that starts here.
    fn take_front(&mut self, start: u64, blocks: u64) -> Range<u64> {
        let run = self.remove(start);
        let taken = start..start + blocks.min(run.end - run.start);
        self.add(taken.end..run.end);
        taken
    }

    /// Takes what is wanted: one run, near if there is one, or else some of the largest. Nothing if there is none, or
    /// if fewer than `kept` blocks would be left.
    pub fn take(&mut self, wanted: &Wanted, kept: u64) -> Option<Vec<Range<u64>>> {
        let Wanted { blocks, ref near, limit, count_max, nodes } = *wanted;
        if self.blocks < blocks + kept {
            return None;
        }
        let fits = |start: u64, length: u64| length >= blocks && start + blocks <= limit;
        let near = self.by_start.range(near.clone()).take(NEAR_RUNS_MAX);
        let mut near = near.map(|(start, end)| (*start, *end - *start));
        let nearest = near.find(|(start, length)| fits(*start, *length)).map(|(start, _)| start);
        let best = || {
            let mut enough = self.by_size.range((blocks, 0)..);
            enough.find(|(length, start)| fits(*start, *length)).map(|(_, start)| *start)
        };
        if let Some(start) = nearest.or_else(best) {
            return Some(vec![self.take_front(start, blocks)]);
        }
        if self.blocks < blocks + kept + nodes {
            return None;
        }
        let largest = self.by_size.iter().rev().filter(|(length, start)| start + length <= limit);
        let mut missing = blocks;
        let mut starts = Vec::new();
        for (length, start) in largest.take(count_max) {
            starts.push(*start);
            missing = missing.saturating_sub(*length);
            if missing == 0 {
                break;
            }
        }
        if missing > 0 {
            return None;
        }
        let mut left = blocks;
        let taken = starts.into_iter().map(|start| {
            let run = self.take_front(start, left);
            left -= run.end - run.start;
            run
        });
        Some(taken.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_run_is_taken_or_the_largest_or_none() {
        let mut places = FreePlaces::default();
        for run in [10..14, 100..110, 200..205] {
            places.add(run);
        }
        let mut take = |blocks, near, count| {
            let wanted = Wanted { blocks, near, limit: 1000, count_max: count, nodes: 1 };
            let taken = places.take(&wanted, 0)?;
            Some(taken.iter().map(|run| (run.start, run.end)).collect::<Vec<_>>())
        };
        assert_eq!(take(4, 90..120, 1), Some(vec![(100, 104)]), "near");
        assert_eq!(take(4, 500..600, 1), Some(vec![(10, 14)]), "the one that fits best");
        assert_eq!(take(8, 500..600, 1), None);
        assert_eq!(take(8, 500..600, 2), Some(vec![(104, 110), (200, 202)]));
        assert_eq!(take(4, 0..600, 9), None, "there are only three");
        assert_eq!(take(3, 0..600, 9), Some(vec![(202, 205)]));
    }
}
