//! Searches the groups in order for the inode of a file, from the first group or from a hint.

use super::{InodeAllocator, InodeRequest};
use crate::alloc::group::{BlockGroup, BlockGroupState};
use crate::alloc::statistics::Count;
use crate::error::Result;
use drystone_ext4_format::{GroupNumber, InodeNumber};
use drystone_jbd2::Handle;
use drystone_sync::atomic::{AtomicU64, Ordering};
use std::ops::Range;

/// Where the next search over the whole image starts: an inode number minus one.
///
/// It points after the inode given out last, or to the lowest one freed since. It is read and
/// written without a lock or memory ordering: a stale hint only makes a search longer, because a
/// search goes all the way around. It is reset at every commit, so that freed inodes are soon found
/// again.
#[derive(Debug)]
pub(super) struct NextHint(AtomicU64);

impl NextHint {
    pub fn new() -> NextHint {
        NextHint(AtomicU64::new(0))
    }

    /// Notes that an inode was freed.
    pub fn note_freed(&self, inode: InodeNumber) {
        let place = u64::from(inode.get()) - 1;
        if place < self.0.load(Ordering::Relaxed) {
            self.0.store(place, Ordering::Relaxed);
        }
    }

    /// Starts over.
    pub fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

impl InodeAllocator {
    /// Searches from where the last search ended (`inode-search=next-hint`).
    pub(super) fn search_from_hint(
        &self,
        handle: &mut Handle<'_>,
        hint: &NextHint,
        request: &InodeRequest,
    ) -> Result<Option<InodeNumber>> {
        let inodes = self.groups.volume.layout().inodes_per_group();
        let count = self.groups.count();
        for (number, bits) in search_order(hint.0.load(Ordering::Relaxed), count, inodes) {
            let group = &self.groups.at(GroupNumber::new(number));
            if bits.is_empty() || group.free_inodes.load(Ordering::Relaxed) == 0 {
                continue;
            }
            if let Some(inode) = self.claim_inode(handle, group, bits, request.directory)? {
                hint.0.store(u64::from(inode.get()), Ordering::Relaxed);
                return Ok(Some(inode));
            }
        }
        Ok(None)
    }
}

/// The groups and their bits from the hint to the end of the image, and then from its start to the
/// hint. The hint's group comes twice: first with the bits from the hint on, last with those before
/// it.
fn search_order(
    place: u64,
    groups: u32,
    inodes_per_group: u32,
) -> impl Iterator<Item = (u32, Range<u32>)> {
    let inodes = u64::from(inodes_per_group);
    let place = place % (u64::from(groups) * inodes);
    // Fits: below the number of groups, and of a group's inodes.
    let (first, bit) = ((place / inodes) as u32, (place % inodes) as u32);
    let rest = (first + 1..groups).chain(0..first).map(move |group| (group, 0..inodes_per_group));
    std::iter::once((first, bit..inodes_per_group)).chain(rest).chain([(first, 0..bit)])
}

impl InodeAllocator {
    /// Searches from the first group on (`inode-search=first`). It locks every group up to the one
    /// with a free inode to read its count, then searches that group's bitmap from its start. The
    /// cost of a creation grows with the number of inodes in use.
    pub(super) fn search_from_first(
        &self,
        handle: &mut Handle<'_>,
        request: &InodeRequest,
    ) -> Result<Option<InodeNumber>> {
        for group in self.groups.iter() {
            if self.locked_free_inodes(group) == 0 {
                continue;
            }
            let bits = 0..self.groups.volume.layout().inodes_per_group();
            if let Some(inode) = self.claim_inode(handle, group, bits, request.directory)? {
                return Ok(Some(inode));
            }
        }
        Ok(None)
    }

    fn locked_free_inodes(&self, group: &BlockGroup) -> u32 {
        let state = group.state.lock();
        self.groups.counts.note(Count::InodeLockTake);
        match &*state {
            BlockGroupState::Loaded(loaded) => loaded.descriptor.free_inodes_count,
            BlockGroupState::Unloaded => group.free_inodes.load(Ordering::Relaxed),
            BlockGroupState::Damaged(..) => 0,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::super::SearchForm;
    use super::*;
    use crate::alloc::tests::{CREDITS, image, open_with};
    use crate::policy::{InodeSearch, Policy};

    #[test]
    fn goes_on_to_the_end_and_then_from_the_start() {
        let order = |place| search_order(place, 4, 100).collect::<Vec<_>>();
        assert_eq!(order(130), [(1, 30..100), (2, 0..100), (3, 0..100), (0, 0..100), (1, 0..30)]);
        assert_eq!(order(0), [(0, 0..100), (1, 0..100), (2, 0..100), (3, 0..100), (0, 0..0)]);
        // After the last inode of the image comes its first.
        assert_eq!(order(400), order(0));
        assert_eq!(search_order(7, 1, 10).collect::<Vec<_>>(), [(0, 7..10), (0, 0..7)]);
    }

    /// When a stale hint has free inodes before it in its own group, the groups after it come
    /// first.
    #[test]
    fn the_front_of_the_hints_group_comes_last() {
        let Some(image) = image("-t ext4 -O ^has_journal,^flex_bg -g 8192 -N 2000", 120_000) else {
            return;
        };
        let policy = Policy { inode_search: InodeSearch::NextHint, ..Policy::BASELINE };
        let allocator = open_with(&image, policy);
        let per_group = allocator.groups.volume.layout().inodes_per_group();
        let take = || {
            let parent = InodeNumber::ROOT;
            let wish = InodeRequest { parent, directory: false, top_level: false, goal: None };
            let mut handle = allocator.groups.volume.start(CREDITS).unwrap();
            let inode = allocator.inodes.allocate(&mut handle, &wish).unwrap();
            handle.stop().unwrap();
            inode.get()
        };
        let SearchForm::NextHint(hint) = &allocator.inodes.search else { unreachable!() };
        let groups = allocator.groups.count();
        assert!(groups >= 3);
        // Everything up to the end of the last group but one is taken; the last group is free.
        let last = per_group * (groups - 1);
        while take() < last {}
        let mut handle = allocator.groups.volume.start(CREDITS).unwrap();
        allocator.inodes.free(&mut handle, InodeNumber::new(last - 5), false).unwrap();
        handle.stop().unwrap();
        allocator.groups.volume.journal.commit_and_wait().unwrap();
        hint.0.store(u64::from(last - 2), Ordering::Relaxed);
        assert_eq!(take(), last + 1, "the next group, not the front of the hint's own");
        // At the end of the image the search begins again at its start.
        while take() < per_group * groups {}
        assert_eq!(take(), last - 5);
    }

    #[test]
    fn the_hint_follows_what_is_taken_and_the_lowest_that_is_freed() {
        let hint = NextHint::new();
        hint.0.store(50, Ordering::Relaxed);
        hint.note_freed(InodeNumber::new(80));
        assert_eq!(hint.0.load(Ordering::Relaxed), 50);
        hint.note_freed(InodeNumber::new(20));
        assert_eq!(hint.0.load(Ordering::Relaxed), 19, "the freed inode itself");
        hint.reset();
        assert_eq!(hint.0.load(Ordering::Relaxed), 0);
    }
}
