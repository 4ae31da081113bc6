//! Group index: block groups ordered by the size of their free runs.
//!
//! # State
//! Two sets of group numbers for each order: the groups whose largest aligned free run is of that
//! order, and those whose free runs are of that order on average. The sets are ordered by number,
//! so that a scan can go on behind the group it tried last, and threads that start at different
//! groups try different ones. A group whose map is not loaded is entered as if its free clusters
//! were one run.
//!
//! # Locking
//! Each set has a lock, held to look up, insert or remove one number. A group is moved under its
//! own lock.

use super::group::{BlockGroup, ORDERS};
use crate::lock_classes;
use drystone_sync::SpinLock;
use drystone_sync::atomic::Ordering;
use std::collections::BTreeSet;
use std::ops::Range;

/// Which of the two sets.
#[derive(Clone, Copy, Debug)]
pub(super) enum IndexedSize {
    Largest,
    Average,
}

/// The groups of an image, by order.
#[derive(Debug)]
pub(super) struct GroupIndex {
    sets: [Vec<SpinLock<BTreeSet<u32>>>; 2],
}

impl GroupIndex {
    pub fn new(groups: &[BlockGroup]) -> GroupIndex {
        let sets = || {
            (0..ORDERS)
                .map(|_| SpinLock::new(&lock_classes::GROUP_INDEX, BTreeSet::new()))
                .collect()
        };
        let index = GroupIndex { sets: [sets(), sets()] };
        for group in groups {
            let number = group.number.get();
            index.enter(IndexedSize::Largest, group.largest_order.load(Ordering::Relaxed), number);
            index.enter(IndexedSize::Average, group.average_order(), number);
        }
        index
    }

    fn set(&self, kind: IndexedSize, order: u32) -> Option<&SpinLock<BTreeSet<u32>>> {
        self.sets[kind as usize].get(order as usize)
    }

    fn enter(&self, kind: IndexedSize, order: u32, group: u32) {
        if let Some(set) = self.set(kind, order) {
            set.lock().insert(group);
        }
    }

    /// Moves a group, whose lock the caller holds, to another order.
    pub(super) fn moved(&self, kind: IndexedSize, group: u32, from: u32, to: u32) {
        if from == to {
            return;
        }
        if let Some(set) = self.set(kind, from) {
            set.lock().remove(&group);
        }
        self.enter(kind, to, group);
    }

    /// The group of an order with the lowest number in `range`.
    pub(super) fn next(&self, kind: IndexedSize, order: u32, range: Range<u32>) -> Option<u32> {
        if range.is_empty() {
            return None;
        }
        self.set(kind, order)?.lock().range(range).next().copied()
    }
}

/// Iterates over the groups of an order or above: first those from a group number on, then those
/// before it.
pub(super) struct Ordered<'a> {
    index: &'a GroupIndex,
    kind: IndexedSize,
    least: u32,
    start: u32,
    count: u32,
    /// Whether the groups from the start on are done.
    is_around: bool,
    order: u32,
    from: u32,
}

impl<'a> Ordered<'a> {
    pub fn new(
        index: &'a GroupIndex,
        kind: IndexedSize,
        least: u32,
        start: u32,
        count: u32,
    ) -> Self {
        Ordered { index, kind, least, start, count, is_around: false, order: least, from: start }
    }
}

impl Iterator for Ordered<'_> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        loop {
            let end = if self.is_around { self.start } else { self.count };
            if let Some(group) = self.index.next(self.kind, self.order, self.from..end) {
                self.from = group + 1;
                return Some(group);
            }
            self.order += 1;
            if self.order >= ORDERS {
                if self.is_around {
                    return None;
                }
                self.is_around = true;
                self.order = self.least;
            }
            self.from = if self.is_around { 0 } else { self.start };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::group::NO_ORDER;
    use super::*;

    #[test]
    fn goes_over_all_orders_from_the_start_on_and_then_before_it() {
        let index = GroupIndex::new(&[]);
        for (group, order) in [(0, 5), (1, 3), (2, 4), (3, 5), (4, 3), (5, 2)] {
            index.enter(IndexedSize::Largest, order, group);
        }
        let scan = |least, start| {
            Ordered::new(&index, IndexedSize::Largest, least, start, 6).collect::<Vec<_>>()
        };
        assert_eq!(scan(3, 0), [1, 4, 2, 0, 3]);
        assert_eq!(scan(3, 3), [4, 3, 1, 2, 0]);
        assert_eq!(scan(5, 4), [0, 3]);
        index.moved(IndexedSize::Largest, 0, 5, NO_ORDER);
        assert_eq!(scan(5, 4), [3]);
        assert_eq!(Ordered::new(&index, IndexedSize::Average, 0, 0, 6).count(), 0);
    }
}
