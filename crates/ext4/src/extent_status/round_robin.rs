//! Reclaim from each inode in turn (`extent-reclaim=round-robin`).
//!
//! # State
//! A ring of the inodes with droppable extents: a list whose first inode is next, and is moved to
//! the end when its turn comes. A pass is bounded by the number of extents that it looks at, not by
//! how many it drops; if it can't finish an inode, the inode's next turn goes on from the same
//! block. An extent that was looked up since the last turn is spared once.
//!
//! # Locking
//! The ring's lock is held to take the next inode, not to work on it. A tree whose lock is held is
//! skipped. An inode enters and leaves the ring under its tree's lock, so that it is there exactly
//! while it has droppable extents.

use super::list::{List, NONE};
use super::statistics::ReclaimPass;
use super::tree::{ExtentCacheTree, ReclaimLimits};
use super::{CachedInode, Reclaim};
use crate::lock_classes;
use drystone_sync::{Arc, Mutex, RwLockWriteGuard};

/// The most extents that one pass looks at. An inode counts as one at least.
const PASS_LOOKS: usize = 128;

/// The reclaimer.
#[derive(Debug)]
pub(super) struct RoundRobin {
    ring: Mutex<List>,
}

impl RoundRobin {
    pub fn new() -> RoundRobin {
        RoundRobin { ring: Mutex::new(&lock_classes::EXTENT_RING, List::new()) }
    }

    /// The inode whose turn it is.
    fn next(&self) -> Option<Arc<CachedInode>> {
        let mut ring = self.ring.lock();
        let first = ring.first()?;
        ring.move_last(first);
        Some(Arc::clone(ring.inode(first)))
    }

    /// Adds an inode to the ring or removes it. Its tree is locked exclusively.
    fn settle(&self, inode: &Arc<CachedInode>, tree: &ExtentCacheTree) {
        match (tree.droppable() > 0, inode.place() != NONE) {
            (true, false) => self.ring.lock().push(inode),
            (false, true) => self.ring.lock().remove(inode),
            _ => {}
        }
    }
}

impl Reclaim for RoundRobin {
    fn changed(&self, inode: &Arc<CachedInode>, tree: RwLockWriteGuard<'_, ExtentCacheTree>) {
        self.settle(inode, &tree);
    }

    fn forget(&self, inode: &CachedInode) {
        self.ring.lock().remove(inode);
    }

    fn pass(&self) -> ReclaimPass {
        let mut pass = ReclaimPass::default();
        let mut limits = ReclaimLimits {
            looks_left: PASS_LOOKS,
            drops_left: usize::MAX,
            spares_referenced: true,
        };
        let mut turns_left = self.ring.lock().len();
        while limits.looks_left > 0 && turns_left > 0 {
            turns_left -= 1;
            let Some(inode) = self.next() else { break };
            let Some(mut tree) = inode.tree.try_write() else {
                pass.skipped_busy += 1;
                limits.looks_left -= 1;
                continue;
            };
            let reclaimed = tree.reclaim(&mut limits);
            inode.note_length(&tree);
            if reclaimed.scanned == 0 {
                limits.looks_left -= 1;
            }
            pass.scanned += reclaimed.scanned;
            pass.dropped += reclaimed.dropped;
            self.settle(&inode, &tree);
        }
        pass
    }

    fn orders_by_touch(&self) -> bool {
        false
    }

    #[cfg(test)]
    fn is_listed_rightly(&self, inode: &CachedInode) -> bool {
        let tree = inode.tree.read();
        (tree.droppable() > 0) == (inode.place() != NONE)
    }

    #[cfg(test)]
    fn listed(&self) -> Vec<Arc<CachedInode>> {
        self.ring.lock().inodes()
    }
}
