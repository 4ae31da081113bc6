//! The records of all groups, by number; more come when the image grows.
//!
//! # State
//! The groups of the mount are in one piece. Each growth adds a segment, and publishes a new list of
//! segments. A record never moves, because threads keep references to it.
//!
//! # Locking
//! None to look a group up. Only the thread that has frozen the image to grow it adds groups.

use super::group::BlockGroup;
use crate::lock_classes;
use drystone_ext4_format::GroupNumber;
use drystone_sync::{Arc, PublishedValue};

/// The groups that a growth has added.
#[derive(Clone, Debug)]
struct GroupSegment {
    first: u32,
    groups: Arc<[BlockGroup]>,
}

/// The groups of an image.
#[derive(Debug)]
pub(super) struct GroupList {
    mounted: Box<[BlockGroup]>,
    /// By their first groups, each after the one before.
    added: PublishedValue<Vec<GroupSegment>>,
}

impl GroupList {
    pub fn new(mounted: Box<[BlockGroup]>) -> GroupList {
        GroupList { mounted, added: PublishedValue::new(&lock_classes::PUBLISHED, Vec::new()) }
    }

    /// The group of a number, which must exist.
    #[inline]
    pub fn at(&self, number: GroupNumber) -> &BlockGroup {
        match self.mounted.get(number.index()) {
            Some(group) => group,
            None => self.added_at(number.get()),
        }
    }

    #[inline(never)]
    fn added_at(&self, number: u32) -> &BlockGroup {
        let segments = self.added.get();
        let behind = segments.partition_point(|segment| segment.first <= number);
        let found = behind.checked_sub(1).and_then(|index| {
            let segment = &segments[index];
            segment.groups.get((number - segment.first) as usize)
        });
        // Group numbers come from the layout, which is published after the groups.
        found.unwrap_or_else(|| panic!("group {number} does not exist"))
    }

    pub fn iter(&self) -> impl Iterator<Item = &BlockGroup> {
        let added = self.added.get().iter().flat_map(|segment| &*segment.groups);
        self.mounted.iter().chain(added)
    }

    /// Adds groups after the last one.
    pub fn add(&self, groups: Vec<BlockGroup>) {
        let Some(first) = groups.first().map(|group| group.number.get()) else { return };
        let mut segments = self.added.get().clone();
        segments.push(GroupSegment { first, groups: groups.into() });
        self.added.replace(segments);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use drystone_ext4_format::group::GroupDescriptor;

    #[test]
    fn groups_keep_their_place() {
        let groups = |numbers: std::ops::Range<u32>| {
            numbers
                .map(|number| {
                    BlockGroup::new(GroupNumber::new(number), &GroupDescriptor::default(), 8)
                })
                .collect::<Vec<_>>()
        };
        let list = GroupList::new(groups(0..3).into());
        let first = list.at(GroupNumber::new(0));
        list.add(groups(3..4));
        let early = list.at(GroupNumber::new(3));
        list.add(groups(4..9));
        list.add(Vec::new());
        for number in (0..9).map(GroupNumber::new) {
            assert_eq!(list.at(number).number, number);
        }
        assert!(std::ptr::eq(early, list.at(GroupNumber::new(3))));
        assert!(std::ptr::eq(first, list.at(GroupNumber::new(0))));
        assert!(list.iter().map(|group| group.number.get()).eq(0..9));
    }
}
