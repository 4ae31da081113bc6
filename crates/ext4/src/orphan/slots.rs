//! The slots of one block of the orphan file, which threads take and free without a lock.
//!
//! # Invariants
//! - The counter is never above the number of slots that are zero and not promised to any thread. So a
//!   thread that has decremented it finds a slot, unless other threads are faster in each sweep.
//! - A slot holds an inode number from its claim to its release, and no other thread changes it
//!   meanwhile.

use drystone_ext4_format::InodeNumber;
use drystone_sync::atomic::{AtomicI32, AtomicU32, Ordering};

/// Searches of a block before it is treated as full; the published algorithm makes more than three.
/// Other threads free and take slots meanwhile, so a search can miss the slot that the counter promises.
const SWEEPS: u32 = 4;

/// The content of a slot that is set aside and has no orphan. No inode has this number, since the number
/// of inodes is a multiple of eight.
pub(super) const SET_ASIDE: u32 = u32::MAX;

/// The slots of a block, and how many of them are free.
#[derive(Debug)]
pub(super) struct OrphanSlots {
    pub(super) slots: Box<[AtomicU32]>,
    pub(super) free: AtomicI32,
}

impl OrphanSlots {
    /// `count` slots, of which some are taken.
    pub fn new(count: usize, taken: impl IntoIterator<Item = (usize, InodeNumber)>) -> OrphanSlots {
        let slots: Box<[AtomicU32]> = (0..count).map(|_| AtomicU32::new(0)).collect();
        let mut free = count as i32;
        for (slot, inode) in taken {
            slots[slot].store(inode.get(), Ordering::Relaxed);
            free -= 1;
        }
        OrphanSlots { slots, free: AtomicI32::new(free) }
    }

    /// What is in each slot.
    pub fn contents(&self) -> impl Iterator<Item = Option<InodeNumber>> {
        // Acquire pairs with the release of the thread that set the slot.
        self.slots.iter().map(|slot| match slot.load(Ordering::Acquire) {
            SET_ASIDE => None,
            number => InodeNumber::from_field(number),
        })
    }

    /// Decrements the counter if it is above zero.
    pub fn take_free(&self) -> bool {
        self.free
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, |free| (free > 0).then(|| free - 1))
            .is_ok()
    }

    /// Increments the counter.
    pub fn give_free(&self) {
        // Done after the slot is free, so that a thread that decrements the counter finds one.
        self.free.fetch_add(1, Ordering::Release);
    }

    /// Claims a slot after the counter was decremented; increments it again if none is found.
    pub fn claim(&self, inode: InodeNumber) -> Option<usize> {
        for _ in 0..SWEEPS {
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

    /// Frees the slot of `inode`.
    pub fn release(&self, slot: usize, inode: InodeNumber) {
        self.clear(slot, inode);
        self.give_free();
    }

    /// Takes `inode` out of its slot.
    pub(super) fn clear(&self, slot: usize, inode: InodeNumber) {
        // No other thread changes a slot that is taken.
        let holder = self.slots[slot].load(Ordering::Relaxed);
        assert_eq!(holder, inode.get(), "an orphan slot changed hands");
        self.slots[slot].store(0, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use drystone_sync::thread;

    fn inode(number: u32) -> InodeNumber {
        InodeNumber::new(number)
    }

    fn free(slots: &OrphanSlots) -> i32 {
        slots.free.load(Ordering::Relaxed)
    }

    #[test]
    fn the_first_zero_slot_is_claimed_after_the_counter_went_down() {
        let slots = OrphanSlots::new(4, [(0, inode(20)), (2, inode(21))]);
        assert!(slots.take_free());
        assert_eq!(free(&slots), 1, "the counter goes down before the search");
        assert_eq!(slots.claim(inode(30)), Some(1));
        assert!(slots.take_free() && !slots.take_free(), "the counter never goes below zero");
        assert_eq!(slots.claim(inode(31)), Some(3));
        slots.release(1, inode(30));
        assert_eq!((free(&slots), slots.contents().nth(1)), (1, Some(None)));
        assert!(slots.take_free());
        assert_eq!(slots.claim(inode(32)), Some(1), "the search begins with the first slot again");
    }

    #[test]
    fn a_block_in_which_no_sweep_finds_a_slot_is_full() {
        let slots = OrphanSlots::new(2, [(0, inode(20)), (1, inode(21))]);
        // As if another thread had been faster in each sweep.
        slots.give_free();
        assert!(slots.take_free());
        assert_eq!(slots.claim(inode(30)), None);
        assert_eq!(free(&slots), 1, "the count is given back");
    }

    #[test]
    fn threads_that_claim_and_release_share_no_slot() {
        const THREADS: u32 = 4;
        let slots = OrphanSlots::new(THREADS as usize - 1, []);
        thread::scope(|scope| {
            for worker in 0..THREADS {
                let slots = &slots;
                scope.spawn(move || {
                    for round in 0..20_000 {
                        let number = inode(1 + worker + THREADS * round);
                        if slots.take_free()
                            && let Some(slot) = slots.claim(number)
                        {
                            // Panics if another thread has changed it.
                            slots.release(slot, number);
                        }
                    }
                });
            }
        });
        assert_eq!(free(&slots), THREADS as i32 - 1);
        assert!(slots.contents().all(|slot| slot.is_none()));
    }
}
