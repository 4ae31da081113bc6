//! A slot that a thread keeps: not zero, and counted as taken, so that no other thread claims it.

use super::slots::{OrphanSlots, SET_ASIDE};
use drystone_ext4_format::InodeNumber;
use drystone_sync::atomic::{AtomicU32, Ordering};

/// Distance of the slots that threads keep: two cache lines.
const STRETCH: usize = 32;

/// A slot that a thread keeps, without an orphan.
pub(super) struct KeptSlot<'a>(&'a AtomicU32);

impl KeptSlot<'_> {
    /// Puts an orphan into it.
    #[inline]
    pub(super) fn put(self, inode: InodeNumber) {
        self.0.store(inode.get(), Ordering::Release);
    }
}

impl OrphanSlots {
    /// A slot that the calling thread keeps, if no orphan is in it.
    #[inline]
    pub(super) fn kept(&self, slot: usize) -> Option<KeptSlot<'_>> {
        let slot = &self.slots[slot];
        (slot.load(Ordering::Relaxed) == SET_ASIDE).then_some(KeptSlot(slot))
    }

    /// Takes `inode` out of a slot that the calling thread keeps. The thread still keeps it.
    #[inline]
    pub(super) fn keep(&self, slot: usize, inode: InodeNumber) {
        let slot = &self.slots[slot];
        debug_assert_eq!(slot.load(Ordering::Relaxed), inode.get(), "a kept slot changed hands");
        slot.store(SET_ASIDE, Ordering::Release);
    }

    /// Sets aside, for the calling thread to keep, the slot in the middle of the `number`th stretch: far
    /// from those that other threads keep, and from those that are claimed first. Returns its index, or
    /// `None` if it is taken or too few slots are free.
    pub(super) fn set_aside(&self, number: usize) -> Option<usize> {
        let slot = number % (self.slots.len() / STRETCH).max(1) * STRETCH + STRETCH / 2;
        let is_plenty = self.free.load(Ordering::Relaxed) as usize > self.slots.len() / 2;
        if !is_plenty || slot >= self.slots.len() || !self.take_free() {
            return None;
        }
        let slots = &self.slots;
        let set = slots[slot].compare_exchange(0, SET_ASIDE, Ordering::AcqRel, Ordering::Relaxed);
        if set.is_err() {
            self.give_free();
            return None;
        }
        Some(slot)
    }

    /// Frees a slot that a thread has kept, unless it has an orphan.
    pub(super) fn give_kept(&self, slot: usize) {
        if let Some(KeptSlot(slot)) = self.kept(slot) {
            slot.store(0, Ordering::Release);
            self.give_free();
        }
    }
}
