//! Where the search for a free inode starts: the policy `inode-search`.
//!
//! # Reference
//! `next-hint`: "nilfs2: improve inode allocation algorithm" of 2014: a hint that is read and written
//! without a lock, set behind the inode that was made, lowered to one that is freed, and reset whenever
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
    NextHint {
        hint: AtomicU64,
    },
    PerCore {
        /// Where each core goes on; `UNCLAIMED` before its first search.
        next: PerCore<AtomicU64>,
        /// The first group that no core has claimed since the mount, or since it was last reset.
        unclaimed: AtomicU64,
    },
}

const UNCLAIMED: u64 = u64::MAX;

impl InodeSearcher {
    pub(super) fn new(search: InodeSearch) -> Self {
        match search {
            InodeSearch::First => Self::First,
            InodeSearch::NextHint => Self::NextHint { hint: AtomicU64::new(0) },
            InodeSearch::PerCore => Self::PerCore {
                next: PerCore::new(|_| AtomicU64::new(UNCLAIMED)),
                unclaimed: AtomicU64::new(0),
            },
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
            Self::PerCore { next, unclaimed } => {
                let own = next.current();
                let mut from = own.load(Ordering::Relaxed);
                loop {
                    if from != UNCLAIMED {
                        let group = ifile.layout.group_of(from);
                        let inside = from % ifile.layout.entries_per_group();
                        if let Some(inode) = ifile.take(group, inside, source)? {
                            own.store(inode.0 + 1, Ordering::Relaxed);
                            return Ok(inode);
                        }
                    }
                    let group = unclaimed.fetch_add(1, Ordering::Relaxed);
                    from = group * ifile.layout.entries_per_group();
                }
            }
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
            Self::PerCore { unclaimed, .. } => unclaimed.store(0, Ordering::Relaxed),
        }
    }
}

/// Takes the first free inode from `from` on. There is always a group behind all that are in use.
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
