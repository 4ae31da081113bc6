//! Reclaim from the least recently touched inodes first (`extent-reclaim=lru-sorted` and
//! `lru-reclaimable`).
//!
//! # State
//! A list of inodes that is sorted only when necessary. An inode has the time of its last touch, to
//! a tick of the kernel's clock, as in the published algorithm. A walk skips inodes that were
//! touched after the list was sorted, and moves them to its end: their place in the list is out of
//! date. If the walk drops nothing, the list is sorted by the last touch and walked again.
//!
//! # Locking
//! The list's lock is held for the whole pass, and a tree's lock inside it while its extents are
//! dropped. An inode enters and leaves the list with both held.

use super::list::{List, NONE};
use super::statistics::ReclaimPass;
use super::tree::{ExtentCacheTree, ReclaimLimits};
use super::{CachedInode, Reclaim};
use crate::lock_classes;
use drystone_sync::{Arc, Mutex, RwLockWriteGuard, clock};

/// The most extents that one pass drops.
const PASS_DROPS: usize = 128;

/// Which inodes are on the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Members {
    /// All inodes that ever had cached extents.
    All,
    /// Inodes with droppable extents.
    Droppable,
}

/// The reclaimer.
#[derive(Debug)]
pub(super) struct Lru {
    members: Members,
    state: Mutex<LruState>,
}

#[derive(Debug)]
struct LruState {
    list: List,
    /// When the list was sorted, by the clock that times touches.
    sorted: u64,
}

impl Lru {
    pub fn new(members: Members) -> Lru {
        let state = LruState { list: List::new(), sorted: 0 };
        Lru { members, state: Mutex::new(&lock_classes::EXTENT_LRU, state) }
    }

    fn belongs(&self, tree: &ExtentCacheTree) -> bool {
        match self.members {
            Members::All => true,
            Members::Droppable => tree.droppable() > 0,
        }
    }

    /// Walks the list. Skips inodes that were touched later than `touched_max`.
    fn walk(&self, list: &mut List, touched_max: u64, pass: &mut ReclaimPass) {
        let (mut next, last) = (list.first(), list.last());
        while let Some(number) = next {
            // After the last one are the inodes that were skipped.
            next = if next == last { None } else { list.next(number) };
            if list.inode(number).touched() > touched_max {
                list.move_last(number);
                continue;
            }
            let inode = Arc::clone(list.inode(number));
            let mut tree = inode.tree.write();
            tree.rewind();
            let mut limits = ReclaimLimits {
                looks_left: usize::MAX,
                drops_left: PASS_DROPS - pass.dropped,
                spares_referenced: false,
            };
            let reclaimed = tree.reclaim(&mut limits);
            inode.note_length(&tree);
            pass.scanned += reclaimed.scanned;
            pass.dropped += reclaimed.dropped;
            if !self.belongs(&tree) {
                list.remove(&inode);
            }
            if pass.dropped == PASS_DROPS {
                return;
            }
        }
    }
}

impl Reclaim for Lru {
    fn changed(&self, inode: &Arc<CachedInode>, tree: RwLockWriteGuard<'_, ExtentCacheTree>) {
        let is_right = self.belongs(&tree) == (inode.place() != NONE);
        drop(tree);
        if is_right {
            return;
        }
        let mut state = self.state.lock();
        let tree = inode.tree.write();
        match self.belongs(&tree) {
            true if inode.place() == NONE => state.list.push(inode),
            false => state.list.remove(inode),
            true => {}
        }
    }

    fn forget(&self, inode: &CachedInode) {
        self.state.lock().list.remove(inode);
    }

    fn pass(&self) -> ReclaimPass {
        let mut pass = ReclaimPass::default();
        let mut state = self.state.lock();
        let sorted = state.sorted;
        self.walk(&mut state.list, sorted, &mut pass);
        if pass.dropped == 0 {
            state.list.sort_by_key(CachedInode::touched);
            state.sorted = clock::coarse_ns();
            self.walk(&mut state.list, u64::MAX, &mut pass);
        }
        pass
    }

    fn orders_by_touch(&self) -> bool {
        true
    }

    #[cfg(test)]
    fn is_listed_rightly(&self, inode: &CachedInode) -> bool {
        let _state = self.state.lock();
        self.belongs(&inode.tree.read()) == (inode.place() != NONE)
    }

    #[cfg(test)]
    fn listed(&self) -> Vec<Arc<CachedInode>> {
        self.state.lock().list.inodes()
    }
}
