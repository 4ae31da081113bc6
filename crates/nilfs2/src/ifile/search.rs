//! Where the search for a free inode starts: the policy `inode-search`.
//!
//! # Reference
//! `next-hint`: "nilfs2: improve inode allocation algorithm" of 2014: a hint that is read and written
//! without a lock, set after the inode that was made, lowered to one that is freed, and reset whenever
//! the log writer finds the superblock due.

use super::Ifile;
use crate::dat::Translated;
use crate::error::Result;
use crate::policy::InodeSearch;
use drystone_nilfs2_format::InodeNumber;
use drystone_sync::PerCore;
use drystone_sync::atomic::{AtomicU64, Ordering};

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
    /// Where each core goes on in its group; `UNCLAIMED` while it has none.
    next: PerCore<AtomicU64>,
    /// The first group that no core has claimed since the mount, or since it was last reset.
    unclaimed: AtomicU64,
}

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
        Self { next: PerCore::new(|_| AtomicU64::new(UNCLAIMED)), unclaimed: AtomicU64::new(0) }
    }

    fn allocate(&self, ifile: &Ifile, source: Translated<'_>) -> Result<InodeNumber> {
        let per_group = ifile.layout.entries_per_group();
        let own = self.next.current();
        let mut from = own.load(Ordering::Relaxed);
        loop {
            if from != UNCLAIMED
                && let Some(inode) = ifile.take(from / per_group, from % per_group, source)?
            {
                own.store(behind(inode, per_group), Ordering::Relaxed);
                return Ok(inode);
            }
            from = self.claim(per_group);
            own.store(from, Ordering::Relaxed);
        }
    }

    /// The start of a group that no core is in. A group that two cores claim at the same moment is
    /// shared until it is full, which costs time and nothing else.
    fn claim(&self, per_group: u64) -> u64 {
        loop {
            let group = self.unclaimed.fetch_add(1, Ordering::Relaxed);
            // The cell of a core without a group lies in none that exists.
            let is_in = |next: &AtomicU64| next.load(Ordering::Relaxed) / per_group == group;
            if !self.next.iter().any(is_in) {
                return group * per_group;
            }
        }
    }
}

/// Where a core goes on after an inode. The group after its own may be another core's.
fn behind(inode: InodeNumber, per_group: u64) -> u64 {
    let next = inode.0 + 1;
    if next.is_multiple_of(per_group) { UNCLAIMED } else { next }
}

/// Takes the first free inode from `from` on. There is always a group after all that are in use.
fn search_from(ifile: &Ifile, from: u64, source: Translated<'_>) -> Result<InodeNumber> {
    let per_group = ifile.layout.entries_per_group();
    let (mut group, mut inside) = (from / per_group, from % per_group);
    loop {
        if let Some(inode) = ifile.take(group, inside, source)? {
            return Ok(inode);
        }
        group += 1;
        inside = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PER_GROUP: u64 = 8192;

    #[test]
    fn a_core_leaves_the_groups_of_others_alone() {
        assert_eq!(behind(InodeNumber(PER_GROUP - 2), PER_GROUP), PER_GROUP - 1);
        assert_eq!(behind(InodeNumber(PER_GROUP - 1), PER_GROUP), UNCLAIMED);
        let groups = CoreGroups::new();
        groups.next.current().store(2 * PER_GROUP - 1, Ordering::Relaxed);
        assert_eq!(groups.claim(PER_GROUP), 0);
        assert_eq!(groups.claim(PER_GROUP), 2 * PER_GROUP, "group 1 is a core's");
        groups.unclaimed.store(1, Ordering::Relaxed);
        assert_eq!(groups.claim(PER_GROUP), 2 * PER_GROUP, "also when the search begins again");
    }
}
