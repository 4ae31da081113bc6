//! The slots of one block of the orphan file, which threads take and free without a lock.
//!
//! # Invariants
//! - The counter is never above the number of slots that are zero and not promised to anybody: who
//!   has taken it down finds a slot, unless others are faster in each sweep.
//! - A slot holds an inode number from its claim to its release, and nobody else's meanwhile.
//! - A slot that a thread keeps for itself is not zero, and counted as taken: nobody else claims it.

use drystone_ext4_format::InodeNumber;
use drystone_sync::atomic::{AtomicI32, AtomicU32, Ordering};

/// Searches of a block before it is treated as full: others free and take slots meanwhile, so that
/// a search can miss the slot that the counter promises.
const SWEEPS_MAX: u32 = 3;

/// What is in a slot that a thread keeps while it has no orphan. No inode has this number: there are
/// a multiple of eight.
const KEPT: u32 = u32::MAX;

/// The slots of a block, and how many of them are free.
#[derive(Debug)]
pub(super) struct Slots {
    slots: Box<[AtomicU32]>,
    free: AtomicI32,
}

/// Slots between two that threads keep: two lines of memory.
const STRETCH: usize = 32;

/// A slot that a thread keeps, without an orphan.
pub(super) struct KeptSlot<'a>(&'a AtomicU32);

impl KeptSlot<'_> {
    /// Puts an orphan into it.
    #[inline]
    pub fn put(self, inode: InodeNumber) {
        self.0.store(inode.get(), Ordering::Release);
    }
}

impl Slots {
    /// `count` slots, of which some are taken.
    pub fn new(count: usize, taken: impl IntoIterator<Item = (usize, InodeNumber)>) -> Slots {
        let slots: Box<[AtomicU32]> = (0..count).map(|_| AtomicU32::new(0)).collect();
        let mut free = count as i32;
        for (slot, inode) in taken {
            slots[slot].store(inode.get(), Ordering::Relaxed);
            free -= 1;
        }
        Slots { slots, free: AtomicI32::new(free) }
    }

    /// What is in each slot.
    pub fn contents(&self) -> impl Iterator<Item = Option<InodeNumber>> {
        // Acquire pairs with the release of who set the slot.
        self.slots.iter().map(|slot| match slot.load(Ordering::Acquire) {
            KEPT => None,
            number => InodeNumber::from_field(number),
        })
    }

    /// A slot that the calling thread keeps, if no orphan is in it.
    #[inline]
    pub fn kept(&self, slot: usize) -> Option<KeptSlot<'_>> {
        let slot = &self.slots[slot];
        (slot.load(Ordering::Relaxed) == KEPT).then_some(KeptSlot(slot))
    }

    /// Takes `inode` out of a slot that the calling thread keeps, and goes on to keep.
    #[inline]
    pub fn keep(&self, slot: usize, inode: InodeNumber) {
        let slot = &self.slots[slot];
        debug_assert_eq!(slot.load(Ordering::Relaxed), inode.get(), "a kept slot changed hands");
        slot.store(KEPT, Ordering::Release);
    }

    /// Has the calling thread keep the slot in the middle of the `number`th stretch of memory, so that
    /// it is far from those that others keep, and from those that are claimed first. Returns which
    /// it is, if it is free and enough others are.
    pub fn set_aside(&self, number: usize) -> Option<usize> {
        let slot = number % (self.slots.len() / STRETCH).max(1) * STRETCH + STRETCH / 2;
        let is_plenty = self.free.load(Ordering::Relaxed) as usize > self.slots.len() / 2;
        if !is_plenty || slot >= self.slots.len() || !self.take_free() {
            return None;
        }
        let set = self.slots[slot].compare_exchange(0, KEPT, Ordering::AcqRel, Ordering::Relaxed);
        if set.is_err() {
            self.give_free();
            return None;
        }
        Some(slot)
    }

    /// Frees a slot that a thread has kept, unless it has an orphan.
    pub fn give_kept(&self, slot: usize) {
        if let Some(KeptSlot(slot)) = self.kept(slot) {
            slot.store(0, Ordering::Release);
            self.give_free();
        }
    }

    /// Takes the counter down by one, if it is above zero.
    pub fn take_free(&self) -> bool {
        self.free
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, |free| (free > 0).then(|| free - 1))
            .is_ok()
    }

    /// Gives a count back.
    pub fn give_free(&self) {
        // After the slot is free: who takes the counter down finds one.
        self.free.fetch_add(1, Ordering::Release);
    }

    /// Claims a slot after the counter was taken down; gives the count back if none is found.
    pub fn claim(&self, inode: InodeNumber) -> Option<usize> {
        for _ in 0..SWEEPS_MAX {
            for (index, slot) in self.slots.iter().enumerate() {
                if slot.load(Ordering::Relaxed) == 0
                    && slot
                        .compare_exchange(0, inode.get(), Ordering::AcqRel, Ordering::Relaxed)
                        .is_ok()
                {
                    return Some(index);
                }
            }
        }
        self.give_free();
        None
    }

    /// Frees a slot that `inode` has.
    pub fn release(&self, slot: usize, inode: InodeNumber) {
        // Nobody else changes a slot that is taken.
        let holder = self.slots[slot].load(Ordering::Relaxed);
        assert_eq!(holder, inode.get(), "an orphan slot changed hands");
        self.slots[slot].store(0, Ordering::Release);
        self.give_free();
    }
}
