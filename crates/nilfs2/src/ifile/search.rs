//! Where the search for a free inode starts: the policy `inode-search`.
//!
//! # Reference
//! `next-hint`: "nilfs2: improve inode allocation algorithm" of 2014: a hint that is read and written
//! without a lock, set after the inode that was made, lowered to one that is freed, and reset whenever
//! the log writer finds the superblock due.

use super::Ifile;
use crate::dat::Translated;
use crate::error::Result;
use crate::lock_classes::RESERVED_INODES;
use crate::policy::InodeSearch;
use drystone_nilfs2_format::InodeNumber;
use drystone_sync::atomic::{AtomicU64, Ordering};
use drystone_sync::{Mutex, PerCore};
use std::ops::Range;

/// The state of a policy.
#[derive(Debug)]
pub(super) enum InodeSearcher {
    First,
    NextHint { hint: AtomicU64 },
    PerCore(CoreGroups),
}

/// Which group each core takes inodes from.
#[derive(Debug)]
pub(super) struct CoreGroups {
    cores: PerCore<CoreGroup>,
    /// The first group that no core has claimed since the mount, or since it was last reset.
    unclaimed: AtomicU64,
}

/// Where a core takes inodes from.
#[derive(Debug)]
struct CoreGroup {
    /// Its group; `UNCLAIMED` while it has none.
    group: AtomicU64,
    /// Numbers of the group that the core has reserved. Those before them are given out.
    reserved: Mutex<Range<u64>>,
}

/// Inodes that a core reserves at once.
const RESERVED_MAX: usize = 64;

const UNCLAIMED: u64 = u64::MAX;

impl InodeSearcher {
    pub(super) fn new(search: InodeSearch) -> Self {
        match search {
            InodeSearch::First => Self::First,
            InodeSearch::NextHint => Self::NextHint { hint: AtomicU64::new(0) },
            InodeSearch::PerCore => Self::PerCore(CoreGroups::new()),
        }
    }

    pub(super) fn allocate(&self, ifile: &Ifile, source: Translated<'_>) -> Result<InodeNumber> {
        match self {
            Self::First => search_from(ifile, 0, source),
            Self::NextHint { hint } => {
                let inode = search_from(ifile, hint.load(Ordering::Relaxed), source)?;
                hint.store(inode.0 + 1, Ordering::Relaxed);
                Ok(inode)
            }
            Self::PerCore(groups) => groups.allocate(ifile, source),
        }
    }

    pub(super) fn note_free(&self, inode: InodeNumber) {
        if let Self::NextHint { hint } = self
            && inode.0 < hint.load(Ordering::Relaxed)
        {
            hint.store(inode.0, Ordering::Relaxed);
        }
    }

    /// Gives reserved inodes back, because what is taken is about to be logged. No change is under way.
    pub(super) fn give_back(&self, ifile: &Ifile) {
        if let Self::PerCore(groups) = self {
            groups.give_back(ifile);
        }
    }

    /// Has freed inodes found again that the search has passed.
    pub(super) fn reset_hint(&self) {
        match self {
            Self::First => {}
            Self::NextHint { hint } => hint.store(0, Ordering::Relaxed),
            Self::PerCore(groups) => groups.unclaimed.store(0, Ordering::Relaxed),
        }
    }
}

impl CoreGroups {
    fn new() -> Self {
        let new = |_| CoreGroup {
            group: AtomicU64::new(UNCLAIMED),
            reserved: Mutex::new(&RESERVED_INODES, 0..0),
        };
        Self { cores: PerCore::new(new), unclaimed: AtomicU64::new(0) }
    }

    fn allocate(&self, ifile: &Ifile, source: Translated<'_>) -> Result<InodeNumber> {
        let core = self.cores.current();
        let mut reserved = core.reserved.lock();
        if reserved.is_empty() {
            *reserved = self.reserve(core, reserved.end, ifile, source)?;
        }
        let number = reserved.start;
        reserved.start += 1;
        Ok(InodeNumber(number))
    }

    /// Reserves the next free inodes of a core's group from `from` on, or of one that it claims.
    #[cold]
    fn reserve(
        &self,
        core: &CoreGroup,
        from: u64,
        ifile: &Ifile,
        source: Translated<'_>,
    ) -> Result<Range<u64>> {
        let per_group = ifile.layout.entries_per_group();
        let mut group = core.group.load(Ordering::Relaxed);
        // After the last number of its group, the core goes on in another one.
        let mut inside = from.saturating_sub(group.saturating_mul(per_group));
        loop {
            if group != UNCLAIMED
                && let Some(reserved) = ifile.take(group, inside, RESERVED_MAX, source)?
            {
                return Ok(reserved);
            }
            group = self.claim();
            inside = 0;
            core.group.store(group, Ordering::Relaxed);
        }
    }

    /// A group that no core is in. A group that two cores claim at the same moment is
    /// shared until it is full, which costs time and nothing else.
    fn claim(&self) -> u64 {
        loop {
            let group = self.unclaimed.fetch_add(1, Ordering::Relaxed);
            if !self.cores.iter().any(|core| core.group.load(Ordering::Relaxed) == group) {
                return group;
            }
        }
    }

    fn give_back(&self, ifile: &Ifile) {
        for core in self.cores.iter() {
            let mut reserved = core.reserved.lock();
            ifile.give_back(reserved.clone());
            // The core goes on where it was.
            reserved.end = reserved.start;
        }
    }
}

/// Takes the first free inode from `from` on. There is always a group after all that are in use.
fn search_from(ifile: &Ifile, from: u64, source: Translated<'_>) -> Result<InodeNumber> {
    let per_group = ifile.layout.entries_per_group();
    let (mut group, mut inside) = (from / per_group, from % per_group);
    loop {
        if let Some(taken) = ifile.take(group, inside, 1, source)? {
            return Ok(InodeNumber(taken.start));
        }
        group += 1;
        inside = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_leaves_the_groups_of_others_alone() {
        let groups = CoreGroups::new();
        groups.cores.current().group.store(1, Ordering::Relaxed);
        assert_eq!(groups.claim(), 0);
        assert_eq!(groups.claim(), 2, "group 1 is a core's");
        groups.unclaimed.store(1, Ordering::Relaxed);
        assert_eq!(groups.claim(), 2, "also when the search begins again");
    }
}
