//! A cached extent as it is stored: in 16 bytes, with a mark that it was looked up.
//!
//! # Locking
//! A look-up sets the mark with the tree locked shared, so it is in an atomic; all else changes
//! with the lock held exclusively.

use crate::extent_status::extent::{CachedExtent, ExtentState};
use drystone_sync::atomic::{AtomicU64, Ordering};

const STATUS_SHIFT: u32 = 60;
const PHYSICAL_MASK: u64 = (1 << STATUS_SHIFT) - 1;
const REFERENCED: u64 = 1 << 62;

/// A cached extent as it is stored.
#[derive(Debug)]
pub(super) struct PackedExtent {
    pub start: u32,
    pub length: u32,
    /// The block of the device, the state, and whether a look-up found the entry since the last
    /// visit of the reclaimer.
    word: AtomicU64,
}

impl PackedExtent {
    pub fn new(fact: CachedExtent, referenced: bool) -> PackedExtent {
        debug_assert!(fact.length > 0 && fact.physical <= PHYSICAL_MASK, "{fact:?}");
        let status = match fact.status {
            ExtentState::Written => 0,
            ExtentState::Unwritten => 1,
            ExtentState::Delayed => 2,
            ExtentState::Hole => 3,
        };
        let referenced = if referenced { REFERENCED } else { 0 };
        let word = fact.physical & PHYSICAL_MASK | status << STATUS_SHIFT | referenced;
        PackedExtent { start: fact.logical, length: fact.length, word: AtomicU64::new(word) }
    }

    pub fn fact(&self) -> CachedExtent {
        let word = self.word.load(Ordering::Relaxed);
        let status = match word >> STATUS_SHIFT & 3 {
            0 => ExtentState::Written,
            1 => ExtentState::Unwritten,
            2 => ExtentState::Delayed,
            _ => ExtentState::Hole,
        };
        CachedExtent {
            logical: self.start,
            length: self.length,
            physical: word & PHYSICAL_MASK,
            status,
        }
    }

    /// Removes the first blocks, fewer than all.
    pub fn shorten_front(&mut self, length: u32) {
        self.start += length;
        self.length -= length;
        if self.fact().status.is_mapped() {
            // The addition can't reach the bits of the state.
            let word = self.word.load(Ordering::Relaxed) + u64::from(length);
            self.word.store(word, Ordering::Relaxed);
        }
    }

    pub fn end(&self) -> u64 {
        u64::from(self.start) + u64::from(self.length)
    }

    pub fn is_droppable(&self) -> bool {
        self.fact().status.is_droppable()
    }

    pub fn is_referenced(&self) -> bool {
        self.word.load(Ordering::Relaxed) & REFERENCED != 0
    }

    /// Marks the entry as looked up. The bit is cleared only with the tree locked exclusively, so
    /// no update is lost.
    pub fn reference(&self) {
        let word = self.word.load(Ordering::Relaxed);
        if word & REFERENCED == 0 {
            self.word.store(word | REFERENCED, Ordering::Relaxed);
        }
    }

    /// Clears the mark; returns whether it was set.
    pub fn take_reference(&mut self) -> bool {
        let word = self.word.load(Ordering::Relaxed);
        self.word.store(word & !REFERENCED, Ordering::Relaxed);
        word & REFERENCED != 0
    }
}
