//! A value per core.
//!
//! A slot is a hint about which core uses it, not a right: a thread may be moved to another core
//! between asking and using, and machines may have more cores than slots. What is in a slot
//! must be safe for several threads.

use crate::atomic::{AtomicI64, Ordering};
use crate::{LockClass, SpinLock, backend};
use crossbeam_utils::CachePadded;

/// More slots would make sums slower than they make updates faster.
const SLOTS_MAX: usize = 256;

/// How many slots a [`PerCore`] has: the cores that the process may use, rounded up to a
/// power of two, 256 at most.
#[must_use]
pub fn core_slots() -> usize {
    backend::core::count().clamp(1, SLOTS_MAX).next_power_of_two()
}

/// The core that the calling thread runs on, or lately ran on: a number below
/// [`core_slots`].
#[inline]
#[must_use]
pub fn current_core() -> usize {
    backend::core::current() & (SLOTS_MAX - 1)
}

/// One `T` for each core, each on its own cache lines.
#[derive(Debug)]
pub struct PerCore<T> {
    /// A power of two of them.
    slots: Box<[CachePadded<T>]>,
}

impl<T> PerCore<T> {
    /// One value per core, made by `make` from the slot's number.
    pub fn new(make: impl FnMut(usize) -> T) -> Self {
        Self::with_slots(core_slots(), make)
    }

    /// As [`new`](Self::new) with at least `slots` slots, so that a result or a test doesn't depend
    /// on the machine.
    pub fn with_slots(slots: usize, mut make: impl FnMut(usize) -> T) -> Self {
        let slots = slots.clamp(1, SLOTS_MAX).next_power_of_two();
        Self { slots: (0..slots).map(|slot| CachePadded::new(make(slot))).collect() }
    }

    /// The slot of the current core.
    #[inline]
    pub fn current(&self) -> &T {
        self.slot(current_core())
    }

    /// The slot of core number `core`; numbers beyond the slots wrap around.
    #[inline]
    pub fn slot(&self, core: usize) -> &T {
        &self.slots[core & (self.slots.len() - 1)]
    }

    /// The number of the current core's slot, below [`slot_count`](Self::slot_count).
    #[inline]
    #[must_use]
    pub fn current_slot(&self) -> usize {
        current_core() & (self.slots.len() - 1)
    }

    /// How many slots there are: a power of two.
    #[must_use]
    pub fn slot_count(&self) -> usize {
        self.slots.len()
    }

    /// All slots, by number.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &T> {
        self.slots.iter().map(|slot| &**slot)
    }
}

/// A signed count that many threads change and many compare with a bound: what a core has counted
/// reaches the shared total only in batches.
#[derive(Debug)]
pub struct BatchedCounter {
    parts: PerCore<AtomicI64>,
    total: CachePadded<AtomicI64>,
    /// Held while a part moves to the total.
    moving: SpinLock<()>,
    batch: i64,
}

impl BatchedCounter {
    /// A counter of 0. Each core keeps less than `batch` to itself.
    #[must_use]
    pub fn new(class: &'static LockClass, batch: i64) -> Self {
        Self {
            parts: PerCore::new(|_| AtomicI64::new(0)),
            total: CachePadded::new(AtomicI64::new(0)),
            moving: SpinLock::new(class, ()),
            batch,
        }
    }

    /// Adds `amount`, which may be negative. Orders nothing.
    #[inline]
    pub fn add(&self, amount: i64) {
        let part = self.parts.current();
        let kept = part.fetch_add(amount, Ordering::Relaxed) + amount;
        if kept.abs() >= self.batch {
            self.move_part(part);
        }
    }

    #[cold]
    fn move_part(&self, part: &AtomicI64) {
        let _moving = self.moving.lock();
        let kept = part.swap(0, Ordering::Relaxed);
        self.total.fetch_add(kept, Ordering::Relaxed);
    }

    /// The count without what the cores keep to themselves.
    #[inline]
    #[must_use]
    pub fn roughly(&self) -> i64 {
        self.total.load(Ordering::Relaxed)
    }

    /// The count: exact when no one changes it meanwhile. Of changes that are under way it may see a later one
    /// without an earlier one, so that it can be a count that never was.
    #[must_use]
    pub fn sum(&self) -> i64 {
        let _moving = self.moving.lock();
        let parts: i64 = self.parts.iter().map(|part| part.load(Ordering::Relaxed)).sum();
        parts + self.total.load(Ordering::Relaxed)
    }
}

/// A signed count that many threads change and few read.
#[derive(Debug)]
pub struct PerCoreCounter {
    slots: PerCore<AtomicI64>,
}

impl PerCoreCounter {
    /// A counter that starts at `value`.
    #[must_use]
    pub fn new(value: i64) -> Self {
        Self { slots: PerCore::new(|slot| AtomicI64::new(if slot == 0 { value } else { 0 })) }
    }

    /// Adds `amount`, which may be negative. Orders nothing.
    #[inline]
    #[cfg_attr(sim, track_caller)]
    pub fn add(&self, amount: i64) {
        self.slots.current().fetch_add(amount, Ordering::Relaxed);
    }

    /// The count: exact if nothing changes it meanwhile, otherwise approximate.
    #[must_use]
    #[cfg_attr(sim, track_caller)]
    pub fn sum(&self) -> i64 {
        self.slots.iter().map(|slot| slot.load(Ordering::Relaxed)).sum()
    }
}
