//! Which blocks hold the image's fixed metadata, so that nothing frees them.
//!
//! Fixed metadata are superblocks, descriptors, blocks reserved for the growth of the descriptor
//! table, bitmaps, inode tables and the journal. With flexible groups a group's bitmaps and inode
//! table may lie in another group. The map serves to refuse frees, and to make the bitmap of a
//! group whose block bitmap was never initialised.
//!
//! # State
//! Sorted runs that neither overlap nor touch; immutable once built.

use drystone_ext4_format::PhysicalBlock;
use std::ops::Range;

/// The blocks of fixed metadata.
#[derive(Debug)]
pub(super) struct SystemZones {
    runs: Box<[Range<u64>]>,
}

impl SystemZones {
    /// The union of `runs`, which may come in any order and overlap.
    pub fn new(mut runs: Vec<Range<u64>>) -> Self {
        runs.retain(|run| !run.is_empty());
        runs.sort_unstable_by_key(|run| run.start);
        let mut merged: Vec<Range<u64>> = Vec::new();
        for run in runs {
            match merged.last_mut() {
                Some(last) if run.start <= last.end => last.end = last.end.max(run.end),
                _ => merged.push(run),
            }
        }
        Self { runs: merged.into_boxed_slice() }
    }

    /// The first block of fixed metadata in `blocks`, if there is one.
    pub fn first_in(&self, blocks: Range<u64>) -> Option<PhysicalBlock> {
        self.within(blocks).next().map(|run| PhysicalBlock::new(run.start))
    }

    /// The runs of fixed metadata, cut to `blocks`.
    pub fn within(&self, blocks: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let first = self.runs.partition_point(|run| run.end <= blocks.start);
        self.runs[first..]
            .iter()
            .take_while(move |run| run.start < blocks.end)
            .map(move |run| run.start.max(blocks.start)..run.end.min(blocks.end))
            .filter(|run| !run.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merges_and_cuts() {
        let map = SystemZones::new(vec![20..30, 0..5, 5..9, 25..40, 50..50]);
        assert_eq!(&*map.runs, [0..9, 20..40]);
        assert_eq!(map.first_in(9..20), None);
        assert_eq!(map.first_in(9..21), Some(PhysicalBlock::new(20)));
        assert_eq!(map.within(4..25).collect::<Vec<_>>(), [4..9, 20..25]);
        assert_eq!(map.within(40..60).count(), 0);
        assert_eq!(map.within(6..6).count(), 0);
    }
}
