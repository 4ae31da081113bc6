//! Room in the running transaction, usually handed out without a shared write.
//!
//! # State
//!
//! A transaction's room is split between a common budget and small reservations, one per core,
//! refilled from the budget in chunks. A handle takes what it may need when it starts and returns
//! what it did not use. When neither its core's reservation nor the budget suffices, the
//! reservations of all cores are gathered, so that a transaction counts as full only when it is.
//!
//! The budget can go below zero: revoke blocks are charged without asking, and take room from
//! the transaction's handles, never from the log, of which a transaction gets a quarter.
//!
//! # Locking
//!
//! Atomics alone. All but `reset` and `available` are called inside the gate, `reset` while it is
//! closed; the gate orders them. `available` is asked by threads that wait at the gate.

use crossbeam_utils::CachePadded;
use drystone_sync::PerCore;
use drystone_sync::atomic::{AtomicI64, Ordering};

/// Blocks that a core takes from the budget at once.
const CHUNK_MAX: i64 = 256;

#[derive(Debug)]
pub(crate) struct Credits {
    reserved: PerCore<AtomicI64>,
    budget: CachePadded<AtomicI64>,
    /// Credits taken with [`charge`](Credits::charge).
    charged: AtomicI64,
    chunk: i64,
}

impl Credits {
    /// Room for `max` blocks.
    pub(crate) fn new(max: u32) -> Self {
        let reserved = PerCore::new(|_| AtomicI64::new(0));
        // At most an eighth of the room lies in reservations.
        let chunk = i64::from(max) / (8 * reserved.slot_count() as i64);
        let budget = CachePadded::new(AtomicI64::new(i64::from(max)));
        let charged = AtomicI64::new(0);
        Self { reserved, budget, charged, chunk: chunk.clamp(1, CHUNK_MAX) }
    }

    /// Takes `count`, or nothing.
    #[inline]
    pub(crate) fn take(&self, core: usize, count: u32) -> bool {
        let count = i64::from(count);
        take_from(self.reserved.slot(core), count) || self.refill(core, count)
    }

    #[cold]
    fn refill(&self, core: usize, count: i64) -> bool {
        let chunk = self.chunk.max(count);
        if self.take_of_plenty(chunk) || take_from(&self.budget, chunk) {
            self.reserved.slot(core).fetch_add(chunk - count, Ordering::Relaxed);
            return true;
        }
        if take_from(&self.budget, count) {
            return true;
        }
        for slot in self.reserved.iter() {
            self.budget.fetch_add(slot.swap(0, Ordering::Relaxed), Ordering::Relaxed);
        }
        take_from(&self.budget, count)
    }

    /// Takes `count` from a budget that has so much that all cores may take as much at once. When a transaction
    /// begins, they do: a subtraction can't fail as an exchange does whenever another core was faster.
    ///
    /// More threads than cores may find plenty before any of them takes its part. A subtraction counts only if
    /// there was enough before it, so no more is taken than there is. Until the others have given their parts
    /// back, a thread may find less than there is. It waits at the gate then, and looks again when they leave it.
    fn take_of_plenty(&self, count: i64) -> bool {
        let plenty = count.saturating_mul(self.reserved.slot_count() as i64 + 1);
        if self.budget.load(Ordering::Relaxed) < plenty {
            return false;
        }
        let is_taken = self.budget.fetch_sub(count, Ordering::Relaxed) >= count;
        if !is_taken {
            self.budget.fetch_add(count, Ordering::Relaxed);
        }
        is_taken
    }

    /// Returns what a handle took and did not use.
    #[inline]
    pub(crate) fn give(&self, core: usize, count: u32) {
        if count > 0 {
            self.reserved.slot(core).fetch_add(i64::from(count), Ordering::Relaxed);
        }
    }

    /// Takes one, whether there is one or not.
    pub(crate) fn charge(&self) {
        self.budget.fetch_sub(1, Ordering::Relaxed);
        self.charged.fetch_add(1, Ordering::Relaxed);
    }

    /// How many were taken with [`charge`](Credits::charge).
    pub(crate) fn charged(&self) -> i64 {
        self.charged.load(Ordering::Relaxed)
    }

    /// How many can be taken. Too low for an instant while a handle moves credits between a
    /// reservation and the budget, or gives back what was not there.
    pub(crate) fn available(&self) -> i64 {
        let reserved: i64 = self.reserved.iter().map(|slot| slot.load(Ordering::Relaxed)).sum();
        reserved + self.budget.load(Ordering::Relaxed)
    }

    /// Room for `max` blocks in a new transaction.
    pub(crate) fn reset(&self, max: u32) {
        for slot in self.reserved.iter() {
            slot.store(0, Ordering::Relaxed);
        }
        self.budget.store(i64::from(max), Ordering::Relaxed);
        self.charged.store(0, Ordering::Relaxed);
    }
}

#[inline]
fn take_from(room: &AtomicI64, count: i64) -> bool {
    let mut current = room.load(Ordering::Relaxed);
    while current >= count {
        match room.compare_exchange_weak(
            current,
            current - count,
            Ordering::Relaxed,
            Ordering::Relaxed,
        ) {
            Ok(_) => return true,
            Err(changed) => current = changed,
        }
    }
    false
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use drystone_sync::{Arc, thread};

    /// Threads together get all the room, and no more.
    #[test]
    fn all_room_is_taken_once() {
        for max in [1, 7, 100, 5000] {
            let credits = Arc::new(Credits::new(max));
            let takers = (0..4).map(|core| {
                let credits = Arc::clone(&credits);
                let take = move || (0..).take_while(|_| credits.take(core, 1)).count();
                thread::spawn("taker", take).expect("a thread")
            });
            let takers: Vec<_> = takers.collect();
            let taken = takers.into_iter().map(|taker| taker.join().expect("no panic"));
            let taken = taken.sum::<usize>() as i64;
            assert!(taken <= i64::from(max), "{taken} of {max}");
            // A thread that finds nothing while another one moves credits gives up.
            let left = (0..4).map(|core| (0..).take_while(|_| credits.take(core, 1)).count());
            assert_eq!(taken + left.sum::<usize>() as i64, i64::from(max));
            assert_eq!(credits.available(), 0);
        }
    }
}
