//! The inodes whose last block may hold old data past the end of the file, until a sync zeroes
//! it.

use crate::inode::Inode;
use crate::lock_classes;
use drystone_sync::atomic::{AtomicBool, Ordering};
use drystone_sync::{Arc, Mutex};

/// How many truncated inodes may wait for a sync before one is forced. Bounds the inodes that the
/// list keeps in memory.
const WAITING_MAX: usize = 4096;

/// The inodes with old data past their end.
#[derive(Debug)]
pub(crate) struct UnclearedTails {
    waiting: Mutex<Vec<Arc<Inode>>>,
    /// The list is full, so a sync is due. An atomic, because every truncation reads it.
    is_full: AtomicBool,
}

impl UnclearedTails {
    /// The empty list.
    pub fn new() -> UnclearedTails {
        UnclearedTails {
            waiting: Mutex::new(&lock_classes::UNCLEARED_TAILS, Vec::new()),
            is_full: AtomicBool::new(false),
        }
    }

    /// Whether so many inodes wait that a sync is due.
    pub fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Relaxed)
    }

    /// Adds an inode that was just truncated.
    pub fn push(&self, inode: &Arc<Inode>) {
        let mut waiting = self.waiting.lock();
        waiting.push(Arc::clone(inode));
        if waiting.len() >= WAITING_MAX {
            self.is_full.store(true, Ordering::Relaxed);
        }
    }

    /// Removes and returns all inodes.
    pub fn take(&self) -> Vec<Arc<Inode>> {
        let mut waiting = self.waiting.lock();
        self.is_full.store(false, Ordering::Relaxed);
        std::mem::take(&mut *waiting)
    }
}
