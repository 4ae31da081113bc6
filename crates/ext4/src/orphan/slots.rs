//! The slots of one block of the orphan file, which threads take and free without a lock.
//!
//! # Invariants
//! - The counter is never above the number of slots that are zero and not promised to anybody: who
//!   has taken it down finds a slot, unless others are faster in each sweep.
//! - A slot holds an inode number from its claim to its release, and nobody else's meanwhile.

use drystone_ext4_format::InodeNumber;
use drystone_sync::atomic::{AtomicI32, AtomicU32, Ordering};

/// Searches of a block before it is treated as full: others free and take slots meanwhile, so that
/// a search can miss the slot that the counter promises.
const SWEEPS_MAX: u32 = 3;

/// The slots of a block, and how many of them are free.
#[derive(Debug)]
pub(super) struct Slots {
    slots: Box<[AtomicU32]>,
    free: AtomicI32,
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
        self.slots.iter().map(|slot| InodeNumber::from_field(slot.load(Ordering::Acquire)))
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
