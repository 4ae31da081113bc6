//! Group index: block groups ordered by the size of their free runs.
//!
//! # State
//! Two sets of group numbers for each order: the groups whose largest aligned free run is of that
//! order, and those whose free runs are of that order on average. The sets are ordered by number,
//! so that a scan can go on after the group it tried last, and threads that start at different
//! groups try different ones. A group whose map is not loaded is entered as if its free clusters
//! were one run.
//!
//! With `group-scan=size-lazy`, a group moves to a larger order at once, but to a smaller one only when
//! a search has found it too small. Files that take and free blocks in a group of their own then change
//! no set, which all cores share.
//!
//! # Locking
//! A group is moved under its own lock. Each set of `size-ordered` has a lock, held to look up, insert
//! or remove one number; those of `size-lazy` are bits that change without one, so that a search of
//! many groups writes nothing.

use super::bits::AtomicBits;
use super::group::{BlockGroup, NO_ORDER, ORDERS};
use crate::lock_classes;
use drystone_sync::SpinLock;
use drystone_sync::atomic::{AtomicU32, Ordering};
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
    sets: [Box<[GroupSet]>; 2],
    /// A group that shrinks stays where it is until a search settles it.
    is_lazy: bool,
    /// Groups that the bits are enough for.
    room: u32,
}

/// Numbers of groups.
#[derive(Debug)]
enum GroupSet {
    Ordered(SpinLock<BTreeSet<u32>>),
    /// The bits, and how many are set, by which an empty set is known.
    Bits(AtomicBits, AtomicU32),
}

impl GroupSet {
    fn insert(&self, group: u32) {
        match self {
            GroupSet::Ordered(groups) => drop(groups.lock().insert(group)),
            GroupSet::Bits(groups, count) => {
                count.fetch_add(1, Ordering::Relaxed);
                if groups.set(group) {
                    count.fetch_sub(1, Ordering::Relaxed);
                }
            }
        }
    }

    fn remove(&self, group: u32) {
        match self {
            GroupSet::Ordered(groups) => drop(groups.lock().remove(&group)),
            GroupSet::Bits(groups, count) => {
                // Not there if the index was replaced just now, as the image grew.
                if groups.clear(group) {
                    count.fetch_sub(1, Ordering::Relaxed);
                }
            }
        }
    }

    /// The lowest number in `range`, which isn't empty.
    fn next(&self, range: Range<u32>) -> Option<u32> {
        match self {
            GroupSet::Ordered(groups) => groups.lock().range(range).next().copied(),
            GroupSet::Bits(_, count) if count.load(Ordering::Relaxed) == 0 => None,
            GroupSet::Bits(groups, _) => groups.next(range),
        }
    }
}

impl GroupIndex {
    pub fn new(groups: &[BlockGroup], is_lazy: bool) -> GroupIndex {
        // Groups are numbered with 32 bits.
        let index = GroupIndex::empty(groups.len() as u32, is_lazy);
        groups.iter().for_each(|group| index.settle(group));
        index
    }

    /// The index of an image that has grown too large for the one before, which was lazy. There is room for the
    /// image to double, so that few indexes are made and kept.
    pub fn rebuilt<'a>(groups: impl Iterator<Item = &'a BlockGroup>, count: u32) -> GroupIndex {
        let index = GroupIndex::empty(count.saturating_mul(2), true);
        for group in groups {
            let _state = group.state.lock();
            group.indexed.iter().for_each(|order| order.store(NO_ORDER, Ordering::Relaxed));
            index.settle(group);
        }
        index
    }

    /// Whether numbers below `count` have room.
    pub fn has_room(&self, count: u32) -> bool {
        !self.is_lazy || count <= self.room
    }

    fn empty(room: u32, is_lazy: bool) -> GroupIndex {
        let set = || match is_lazy {
            true => GroupSet::Bits(AtomicBits::new(room), AtomicU32::new(0)),
            false => GroupSet::Ordered(SpinLock::new(&lock_classes::GROUP_INDEX, BTreeSet::new())),
        };
        let sets = || (0..ORDERS).map(|_| set()).collect();
        GroupIndex { sets: [sets(), sets()], is_lazy, room }
    }

    fn set(&self, kind: IndexedSize, order: u32) -> Option<&GroupSet> {
        self.sets[kind as usize].get(order as usize)
    }

    /// The free runs of a group, whose lock the caller holds, have changed.
    pub(super) fn changed(&self, group: &BlockGroup) {
        for (kind, from, to) in moves(group) {
            if !self.is_lazy || rank(to) > rank(from) {
                self.move_to(kind, group, from, to);
            }
        }
    }

    /// Whether a group should be settled, as far as its hints tell.
    pub(super) fn is_outdated(group: &BlockGroup) -> bool {
        moves(group).into_iter().any(|(_, from, to)| from != to)
    }

    /// Moves a group, whose lock the caller holds, to where it belongs.
    pub(super) fn settle(&self, group: &BlockGroup) {
        for (kind, from, to) in moves(group) {
            self.move_to(kind, group, from, to);
        }
    }

    fn move_to(&self, kind: IndexedSize, group: &BlockGroup, from: u32, to: u32) {
        if from == to {
            return;
        }
        let number = group.number.get();
        if let Some(set) = self.set(kind, from) {
            set.remove(number);
        }
        if let Some(set) = self.set(kind, to) {
            set.insert(number);
        }
        group.indexed[kind as usize].store(to, Ordering::Relaxed);
    }

    /// The group of an order with the lowest number in `range`.
    pub(super) fn next(&self, kind: IndexedSize, order: u32, range: Range<u32>) -> Option<u32> {
        if range.is_empty() {
            return None;
        }
        self.set(kind, order)?.next(range)
    }
}

/// For each of the two sizes, the order that a group is entered under and the one that it has.
fn moves(group: &BlockGroup) -> [(IndexedSize, u32, u32); 2] {
    let entered = |kind| group.indexed[kind as usize].load(Ordering::Relaxed);
    [
        (
            IndexedSize::Largest,
            entered(IndexedSize::Largest),
            group.largest_order.load(Ordering::Relaxed),
        ),
        (IndexedSize::Average, entered(IndexedSize::Average), group.average_order()),
    ]
}

/// Orders by size; [`NO_ORDER`] is the smallest.
fn rank(order: u32) -> u32 {
    (order + 1) % (NO_ORDER + 1)
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
    use super::*;
    use drystone_ext4_format::GroupNumber;
    use drystone_ext4_format::group::GroupDescriptor;

    fn groups(orders: &[u32]) -> Vec<BlockGroup> {
        let groups: Vec<_> = (0..)
            .zip(orders)
            .map(|(number, _)| {
                BlockGroup::new(GroupNumber::new(number), &GroupDescriptor::default(), 8)
            })
            .collect();
        groups.iter().zip(orders).for_each(|(group, &order)| shape(group, order));
        groups
    }

    /// A group with one free run of an order.
    fn shape(group: &BlockGroup, order: u32) {
        group.largest_order.store(order, Ordering::Relaxed);
        group.available.store(if order == NO_ORDER { 0 } else { 1 << order }, Ordering::Relaxed);
    }

    fn scan(index: &GroupIndex, groups: u32, least: u32, start: u32) -> Vec<u32> {
        Ordered::new(index, IndexedSize::Largest, least, start, groups).collect()
    }

    #[test]
    fn goes_over_all_orders_from_the_start_on_and_then_before_it() {
        let groups = groups(&[5, 3, 4, 5, 3, 2]);
        let index = GroupIndex::new(&groups, false);
        assert_eq!(scan(&index, 6, 3, 0), [1, 4, 2, 0, 3]);
        assert_eq!(scan(&index, 6, 3, 3), [4, 3, 1, 2, 0]);
        assert_eq!(scan(&index, 6, 5, 4), [0, 3]);
        shape(&groups[0], NO_ORDER);
        index.changed(&groups[0]);
        assert_eq!(scan(&index, 6, 5, 4), [3]);
        assert_eq!(Ordered::new(&index, IndexedSize::Average, 6, 0, 6).count(), 0);
    }

    #[test]
    fn a_group_sinks_only_when_a_search_settles_it() {
        let groups = groups(&[5, 3]);
        let index = GroupIndex::new(&groups, true);
        for order in [4, 5, NO_ORDER] {
            shape(&groups[0], order);
            index.changed(&groups[0]);
            assert_eq!(scan(&index, 2, 5, 0), [0]);
        }
        assert!(GroupIndex::is_outdated(&groups[0]));
        index.settle(&groups[0]);
        assert!(!GroupIndex::is_outdated(&groups[0]));
        assert_eq!(scan(&index, 2, 0, 0), [1]);
        // It rises at once.
        shape(&groups[0], 6);
        index.changed(&groups[0]);
        assert_eq!(scan(&index, 2, 0, 0), [1, 0]);
    }
}
