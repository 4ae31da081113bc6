//! A fact as it is kept: in 16 bytes, with a note of whether anybody asked for it.
//!
//! # Locking
//! A look-up notes that with the tree locked shared, so the note is an atomic; all else changes with
//! the lock held exclusively.

use crate::extent_status::extent::{CachedExtent, ExtentState};
use drystone_sync::atomic::{AtomicU64, Ordering};

const STATUS_SHIFT: u32 = 60;
const PHYSICAL_MASK: u64 = (1 << STATUS_SHIFT) - 1;
const REFERENCED: u64 = 1 << 62;

/// A fact as it is kept.
#[derive(Debug)]
pub(super) struct PackedExtent {
    pub start: u32,
    pub length: u32,
    /// The block of the device, the status, and whether it was looked up since a reclaimer came by.
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

    /// Takes the first blocks off, fewer than all.
    pub fn shorten_front(&mut self, length: u32) {
        self.start += length;
        self.length -= length;
        if self.fact().status.is_mapped() {
            // The numbers of blocks stay below the status.
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

    /// Notes a look-up. Reclaim needs the tree's lock exclusively, so nothing is lost.
    pub fn reference(&self) {
        let word = self.word.load(Ordering::Relaxed);
        if word & REFERENCED == 0 {
            self.word.store(word | REFERENCED, Ordering::Relaxed);
        }
    }

    /// Whether it was looked up since this was asked last.
    pub fn take_reference(&mut self) -> bool {
        let word = self.word.load(Ordering::Relaxed);
        self.word.store(word & !REFERENCED, Ordering::Relaxed);
        word & REFERENCED != 0
    }
}
