//! The inodes whose last block may hold old bytes behind the end of the file, until a sync clears them.

use crate::inode::Inode;
use crate::lock_classes;
use drystone_sync::atomic::{AtomicBool, Ordering};
use drystone_sync::{Arc, Mutex};

/// Cuts that may wait for a sync before the oldest are cleared anyway: bounds the inodes that are
/// kept in memory for it.
const WAITING_MAX: usize = 4096;

/// The inodes with old bytes behind their end.
#[derive(Debug)]
pub(crate) struct UnclearedTails {
    waiting: Mutex<Vec<Arc<Inode>>>,
    /// So many wait that a sync is due: each cut asks, so that is seen without the lock.
    is_full: AtomicBool,
}

impl UnclearedTails {
    /// None yet.
    pub fn new() -> UnclearedTails {
        UnclearedTails {
            waiting: Mutex::new(&lock_classes::UNCLEARED_TAILS, Vec::new()),
            is_full: AtomicBool::new(false),
        }
    }

    /// True if so many wait that a sync is due.
    pub fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Relaxed)
    }

    /// Adds an inode that was just cut.
    pub fn push(&self, inode: &Arc<Inode>) {
        let mut waiting = self.waiting.lock();
        waiting.push(Arc::clone(inode));
        if waiting.len() >= WAITING_MAX {
            self.is_full.store(true, Ordering::Relaxed);
        }
    }

    /// Takes all of them.
    pub fn take(&self) -> Vec<Arc<Inode>> {
        let mut waiting = self.waiting.lock();
        self.is_full.store(false, Ordering::Relaxed);
        std::mem::take(&mut *waiting)
    }
}
