//! Which clusters of a group may be allocated: a bit for each, and the free runs by size.

use super::buddy::Buddy;
use super::pending::PendingRuns;
use drystone_ondisk::bitmap;
use std::ops::Range;

/// Which clusters of a group may be allocated.
#[derive(Debug)]
pub(super) struct BlockMap {
    taken: Box<[u8]>,
    buddy: Buddy,
    clusters: u32,
    free: u32,
    fragments: u32,
    /// Where the next search starts.
    pub cursor: u32,
    /// Freed runs: clear on disk, taken here until a commit.
    pub pending: PendingRuns,
}

impl BlockMap {
    /// A map of `clusters` clusters, where a set bit may not be allocated.
    pub fn new(taken: Box<[u8]>, clusters: u32) -> BlockMap {
        let mut buddy = Buddy::new(clusters);
        let (mut free, mut fragments) = (0, 0);
        for run in bitmap::zero_runs(&taken, 0..clusters as usize) {
            buddy.add(run.start as u32, run.end as u32);
            free += run.len() as u32;
            fragments += 1;
        }
        let pending = PendingRuns::default();
        BlockMap { taken, buddy, clusters, free, fragments, cursor: 0, pending }
    }

    /// The bits: a cluster whose bit is set may not be allocated.
    pub fn taken(&self) -> &[u8] {
        &self.taken
    }

    /// Clusters that may be allocated.
    pub fn free(&self) -> u32 {
        self.free
    }

    /// The number of runs that these clusters form.
    pub fn fragments(&self) -> u32 {
        self.fragments
    }

    /// The largest order that has an aligned free run.
    pub fn largest_order(&self) -> Option<u32> {
        self.buddy.largest_order()
    }

    /// The start of an aligned free run of an order.
    pub fn find_order(&self, order: u32) -> Option<u32> {
        self.buddy.find(order)
    }

    /// Takes a run that is free.
    pub fn take(&mut self, run: Range<u32>) {
        debug_assert!(bitmap::find_one(&self.taken, bits(&run)).is_none());
        bitmap::set_range(&mut self.taken, bits(&run));
        self.buddy.remove(run.start, run.end);
        self.free -= run.len() as u32;
        self.fragments = self.fragments + self.free_neighbours(&run) - 1;
    }

    /// Makes a taken run available for allocation.
    pub fn release(&mut self, run: Range<u32>) {
        debug_assert!(bitmap::find_zero(&self.taken, bits(&run)).is_none());
        bitmap::clear_range(&mut self.taken, bits(&run));
        self.buddy.add(run.start, run.end);
        self.free += run.len() as u32;
        self.fragments = self.fragments + 1 - self.free_neighbours(&run);
    }

    fn free_neighbours(&self, run: &Range<u32>) -> u32 {
        let before = run.start > 0 && !bitmap::test(&self.taken, run.start as usize - 1);
        let behind = run.end < self.clusters && !bitmap::test(&self.taken, run.end as usize);
        u32::from(before) + u32::from(behind)
    }
}

fn bits(run: &Range<u32>) -> Range<usize> {
    run.start as usize..run.end as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_fragments() {
        let mut map = BlockMap::new(vec![0; 16].into_boxed_slice(), 100);
        assert_eq!((map.free(), map.fragments()), (100, 1));
        map.take(10..20);
        map.take(30..40);
        assert_eq!((map.free(), map.fragments()), (80, 3));
        map.take(20..30);
        assert_eq!((map.free(), map.fragments()), (70, 2));
        map.take(0..10);
        map.take(40..100);
        assert_eq!((map.free(), map.fragments(), map.largest_order()), (0, 0, None));
        map.release(5..6);
        map.release(0..5);
        map.release(90..100);
        assert_eq!((map.free(), map.fragments(), map.find_order(2)), (16, 2, Some(0)));
    }
}
