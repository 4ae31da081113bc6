//! Delayed allocation, the mount's part: which inodes have delayed data, and how much there is.
//!
//! # State
//! [`DelayedAllocation`] bounds the amount of delayed data, and lists the inodes that have some.
//! The write-back thread of the mount ([`Ext4`](crate::mount::Ext4)) writes it after a time, or
//! when there is much of it.
//!
//! # Locking
//! The list of inodes has a lock of its own, held for a push. A thread that writes all delayed data
//! holds `flushing`, which ranks before the content locks.
//!
//! # Crash
//! A crash loses delayed data, and with it the growth of the file: the size on disk grows only when
//! the data is written.

use crate::inode::Inode;
use crate::lock_classes;
use drystone_sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use drystone_sync::{Arc, BatchedCounter, Condvar, Mutex, core_slots};
use std::time::Duration;

/// The most inodes on the list, which keeps them in memory.
const INODES_MAX: usize = 4096;

/// Delayed blocks that a core counts alone, at most.
const BATCH_BLOCKS_MAX: i64 = 32;

/// The delayed data of a mount.
#[derive(Debug)]
pub(crate) struct DelayedAllocation {
    /// Whether data may be delayed at all.
    pub is_on: bool,
    blocks: BatchedCounter,
    blocks_max: i64,
    /// Inodes on the list.
    inodes: AtomicUsize,
    waiting: Mutex<DelayedQueue>,
    wake: Condvar,
    /// There is so much delayed data that it should be written soon.
    is_urgent: AtomicBool,
    /// Held by a thread that writes all delayed data, so that the next such thread finds that data
    /// written.
    pub flushing: Mutex<()>,
}

/// The list of inodes that have delayed data, or had some.
#[derive(Debug, Default)]
struct DelayedQueue {
    inodes: Vec<Arc<Inode>>,
    /// There are uncleared tails.
    has_tails: bool,
    has_ended: bool,
}

/// Why data has to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteBackReason {
    /// Some data has been delayed long enough.
    Old,
    /// There is much of it.
    Urgent,
}

impl DelayedAllocation {
    /// No data is delayed yet; if not `is_on`, none ever will be.
    pub fn new(is_on: bool, blocks_max: usize) -> DelayedAllocation {
        let blocks_max = i64::try_from(blocks_max).unwrap_or(i64::MAX);
        // What all cores may count alone is a small part of the bound, and comes off it.
        let slots = core_slots() as i64;
        let batch = (blocks_max / (8 * slots)).clamp(1, BATCH_BLOCKS_MAX);
        let blocks_max = blocks_max - slots * (batch - 1);
        DelayedAllocation {
            is_on,
            blocks: BatchedCounter::new(&lock_classes::DELAYED_COUNT, batch),
            blocks_max,
            inodes: AtomicUsize::new(0),
            waiting: Mutex::new(&lock_classes::DELAYED_ALLOCATION, DelayedQueue::default()),
            wake: Condvar::new(),
            is_urgent: AtomicBool::new(false),
            flushing: Mutex::new(&lock_classes::FLUSHING, ()),
        }
    }

    /// Counts blocks of an inode that are delayed from now on.
    pub fn add(&self, inode: &Arc<Inode>, blocks: u32) {
        let blocks = i64::from(blocks);
        self.blocks.add(blocks);
        let mut wakes = self.blocks.roughly() > self.blocks_max / 2;
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
        // Every write comes here while much is delayed: the flag is written once.
        let is_told = || self.is_urgent.load(Ordering::Relaxed);
        if wakes && !is_told() && !self.is_urgent.swap(true, Ordering::Relaxed) {
            // The write-back thread reads the flag with the lock held; so it sees the flag, or
            // already sleeps and is woken.
            drop(self.waiting.lock());
            self.wake.notify_all();
        }
    }

    /// Counts blocks that are no longer delayed.
    pub fn remove(&self, blocks: u32) {
        self.blocks.add(-i64::from(blocks));
    }

    /// Whether any data is delayed.
    pub fn is_any(&self) -> bool {
        self.blocks() > 0
    }

    /// Whether any inode is on the list, as one with delayed data is unless a thread holds `flushing`.
    pub fn is_any_waiting(&self) -> bool {
        !self.waiting.lock().inodes.is_empty()
    }

    /// Blocks of delayed data.
    pub fn blocks(&self) -> i64 {
        self.blocks.sum()
    }

    /// Whether more data may be delayed.
    pub fn has_room(&self) -> bool {
        self.blocks.roughly() < self.blocks_max && self.inodes.load(Ordering::Relaxed) < INODES_MAX
    }

    /// Takes all inodes off the list and returns them.
    pub fn take_waiting(&self) -> Vec<Arc<Inode>> {
        let inodes = std::mem::take(&mut self.waiting.lock().inodes);
        self.inodes.store(0, Ordering::Relaxed);
        for inode in &inodes {
            inode.delayed.note_dequeued();
        }
        inodes
    }

    /// Notes that there is an uncleared tail, which is due after the same time.
    pub fn note_tail(&self) {
        if !std::mem::replace(&mut self.waiting.lock().has_tails, true) {
            self.wake.notify_all();
        }
    }

    /// Waits until data has to be written, and returns why: `age_max` has passed; or, unless the
    /// last attempt `has_failed`, so much data is delayed that it is urgent. Returns `None` after
    /// [`end`](Self::end).
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
