//! Delayed allocation, the mount's side: which inodes have data that waits for blocks, and how much.
//!
//! # State
//! [`DelayedAllocation`] bounds how much data waits, and knows the inodes that have some. A thread of the
//! mount ([`Ext4`](crate::mount::Ext4)) writes it after a time, or when it gets much.
//!
//! # Locking
//! The list of inodes has a lock of its own, held for a push. Whoever writes all that waits holds
//! `flushing`, which comes before the content locks.
//!
//! # Crash
//! A crash loses what waits here, and with it the growth of the file: the size on disk moves with the
//! data.

use crate::inode::Inode;
use crate::lock_classes;
use drystone_sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use drystone_sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// Inodes that may wait, whatever they hold: bounds those that are kept in memory for it.
const INODES_MAX: usize = 4096;

/// What waits in a mount.
#[derive(Debug)]
pub(crate) struct DelayedAllocation {
    /// Whether anything may wait.
    pub is_on: bool,
    blocks: AtomicI64,
    blocks_max: i64,
    /// Inodes on the list.
    inodes: AtomicUsize,
    waiting: Mutex<DelayedQueue>,
    wake: Condvar,
    /// So much waits that it shouldn't for long.
    is_urgent: AtomicBool,
    /// Held by who writes all that waits, so that who comes next knows that it was written.
    pub flushing: Mutex<()>,
}

/// The inodes that have something that waits, or had.
#[derive(Debug, Default)]
struct DelayedQueue {
    inodes: Vec<Arc<Inode>>,
    /// Tails of files wait to be cleared.
    has_tails: bool,
    has_ended: bool,
}

/// Why data has to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteBackReason {
    /// It has waited long enough.
    Old,
    /// There is much of it.
    Urgent,
}

impl DelayedAllocation {
    /// Nothing waits, and nothing will unless it `is_on`.
    pub fn new(is_on: bool, blocks_max: usize) -> DelayedAllocation {
        DelayedAllocation {
            is_on,
            blocks: AtomicI64::new(0),
            blocks_max: i64::try_from(blocks_max).unwrap_or(i64::MAX),
            inodes: AtomicUsize::new(0),
            waiting: Mutex::new(&lock_classes::DELAYED_ALLOCATION, DelayedQueue::default()),
            wake: Condvar::new(),
            is_urgent: AtomicBool::new(false),
            flushing: Mutex::new(&lock_classes::FLUSHING, ()),
        }
    }

    /// Counts blocks of an inode that wait from now on.
    pub fn add(&self, inode: &Arc<Inode>, blocks: u32) {
        let blocks = i64::from(blocks);
        let before = self.blocks.fetch_add(blocks, Ordering::Relaxed);
        let mut wakes = before + blocks > self.blocks_max / 2;
        if !inode.delayed.note_queued() {
            let mut waiting = self.waiting.lock();
            let is_first = waiting.inodes.is_empty();
            waiting.inodes.push(Arc::clone(inode));
            let count = waiting.inodes.len();
            self.inodes.store(count, Ordering::Relaxed);
            drop(waiting);
            wakes |= count > INODES_MAX / 2;
            if is_first {
                self.wake.notify_all();
            }
        }
        if wakes && !self.is_urgent.swap(true, Ordering::Relaxed) {
            // Who looks whether it is urgent does so with the lock held, and sleeps or sees it.
            drop(self.waiting.lock());
            self.wake.notify_all();
        }
    }

    /// Counts blocks that don't wait any more.
    pub fn remove(&self, blocks: u32) {
        self.blocks.fetch_sub(i64::from(blocks), Ordering::Relaxed);
    }

    /// Whether data waits.
    pub fn is_any(&self) -> bool {
        self.blocks() > 0
    }

    /// Blocks of data that wait.
    pub fn blocks(&self) -> i64 {
        self.blocks.load(Ordering::Relaxed)
    }

    /// Whether more may wait.
    pub fn has_room(&self) -> bool {
        self.blocks() < self.blocks_max && self.inodes.load(Ordering::Relaxed) < INODES_MAX
    }

    /// The inodes that wait; they are off the list.
    pub fn take_waiting(&self) -> Vec<Arc<Inode>> {
        let inodes = std::mem::take(&mut self.waiting.lock().inodes);
        self.inodes.store(0, Ordering::Relaxed);
        for inode in &inodes {
            inode.delayed.note_dequeued();
        }
        inodes
    }

    /// Notes that the tail of a file waits to be cleared, which has the same time.
    pub fn note_tail(&self) {
        if !std::mem::replace(&mut self.waiting.lock().has_tails, true) {
            self.wake.notify_all();
        }
    }

    /// Returns when what waits has to be written, and why: when something has waited for `age_max`, or
    /// so much waits that it is urgent, unless what was tried last `has_failed`. Nothing: no more will
    /// wait.
    pub fn wait_until_due(&self, age_max: Duration, has_failed: bool) -> Option<WriteBackReason> {
        let mut waiting = self.waiting.lock();
        while !waiting.has_ended {
            if !has_failed && self.is_urgent.swap(false, Ordering::Relaxed) {
                return Some(WriteBackReason::Urgent);
            }
            if waiting.inodes.is_empty() && !waiting.has_tails {
                self.wake.wait(&mut waiting);
            } else if self.wake.wait_timeout(&mut waiting, age_max) && !waiting.has_ended {
                waiting.has_tails = false;
                return Some(WriteBackReason::Old);
            }
        }
        None
    }

    /// Ends [`wait_until_due`](Self::wait_until_due).
    pub fn end(&self) {
        self.waiting.lock().has_ended = true;
        self.wake.notify_all();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn after_a_failure_nothing_is_urgent() {
        let waits = DelayedAllocation::new(true, 8);
        waits.is_urgent.store(true, Ordering::Relaxed);
        let ended = drystone_sync::thread::scope(|scope| {
            let waiting = scope.spawn(|| waits.wait_until_due(Duration::from_secs(3600), true));
            waits.end();
            waiting.join().unwrap()
        });
        assert_eq!(ended, None);
        let waits = DelayedAllocation::new(true, 8);
        waits.is_urgent.store(true, Ordering::Relaxed);
        assert_eq!(waits.wait_until_due(Duration::ZERO, false), Some(WriteBackReason::Urgent));
    }
}
