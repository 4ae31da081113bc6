//! Sets of blocks, as ranges.

use drystone_ext4_format::extent::Extent;
use std::collections::BTreeMap;
use std::ops::Range;

/// A set of blocks.
#[derive(Debug, Default)]
pub(crate) struct BlockRanges {
    /// The end of each range, by its start. Ranges neither overlap nor touch.
    ranges: BTreeMap<u64, u64>,
}

impl BlockRanges {
    /// Adds blocks. Returns the parts of `range` that weren't in the set, in order.
    pub fn insert(&mut self, range: Range<u64>) -> Vec<Range<u64>> {
        let mut added = Vec::new();
        if range.is_empty() {
            return added;
        }
        let (mut joined, mut below) = (range.clone(), range.end);
        // Merge the ranges that overlap or touch this one, the last one first.
        while let Some((&start, &end)) = self.ranges.range(..=joined.end).next_back()
            && end >= joined.start
        {
            self.ranges.remove(&start);
            joined = joined.start.min(start)..joined.end.max(end);
            if end < below {
                added.push(end..below);
            }
            below = below.min(start);
        }
        self.ranges.insert(joined.start, joined.end);
        if range.start < below {
            added.push(range.start..below);
        }
        added.reverse();
        added
    }

    /// Adds the blocks of runs. Returns the parts of the runs that weren't in the set: a damaged map may name a
    /// block any number of times.
    pub fn insert_runs(&mut self, runs: &[Extent]) -> Vec<Extent> {
        let mut added = Vec::new();
        for run in runs {
            let start = run.physical.get();
            for part in self.insert(start..run.physical_end().get()) {
                let from = run.logical.as_u64() + (part.start - start);
                added.extend(run.overlap(from, from + (part.end - part.start)));
            }
        }
        added
    }

    /// Removes blocks.
    pub fn remove(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        while let Some((&start, &end)) = self.ranges.range(..range.end).next_back()
            && end > range.start
        {
            self.ranges.remove(&start);
            if end > range.end {
                self.ranges.insert(range.end, end);
            }
            if start < range.start {
                self.ranges.insert(start, range.start);
            }
        }
    }

    /// The parts of a range that are in the set, in order.
    pub fn within(&self, range: Range<u64>) -> Vec<Range<u64>> {
        if range.is_empty() {
            return Vec::new();
        }
        let before = self.ranges.range(..=range.start).next_back();
        let first =
            before.filter(|(_, end)| **end > range.start).map_or(range.start, |(&at, _)| at);
        let found = self.ranges.range(first..range.end);
        found.map(|(&start, &end)| start.max(range.start)..end.min(range.end)).collect()
    }

    /// All ranges, in order.
    pub fn iter(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.ranges.iter().map(|(&start, &end)| start..end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn behaves_like_a_set() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..200 {
            let (mut ranges, mut model) = (BlockRanges::default(), BTreeSet::new());
            for _ in 0..40 {
                let start = random.u64(0..60);
                let range = start..start + random.u64(0..12);
                if random.bool() {
                    let added: Vec<u64> =
                        ranges.insert(range.clone()).into_iter().flatten().collect();
                    let expected: Vec<u64> =
                        range.clone().filter(|block| !model.contains(block)).collect();
                    assert_eq!(added, expected);
                    model.extend(range);
                } else {
                    ranges.remove(range.clone());
                    model.retain(|block| !range.contains(block));
                }
                let start = random.u64(0..60);
                let asked = start..start + random.u64(0..30);
                let inside: Vec<u64> = ranges.within(asked.clone()).into_iter().flatten().collect();
                let expected: Vec<u64> = asked.filter(|block| model.contains(block)).collect();
                assert_eq!(inside, expected);
                assert_eq!(ranges.iter().flatten().collect::<BTreeSet<u64>>(), model);
            }
        }
    }

    #[test]
    fn a_block_of_runs_counts_once() {
        let run = |logical: u32, physical: u64, length| Extent {
            length,
            ..Extent::of_block(logical.into(), physical.into())
        };
        let mut ranges = BlockRanges::default();
        assert_eq!(ranges.insert_runs(&[run(0, 100, 10)]), [run(0, 100, 10)]);
        let again = [run(20, 95, 20), run(50, 100, 3)];
        assert_eq!(ranges.insert_runs(&again), [run(20, 95, 5), run(35, 110, 5)]);
    }
}
