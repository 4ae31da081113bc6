//! A bit set that changes without a lock.

use drystone_sync::atomic::{AtomicU64, Ordering};
use std::ops::Range;

const WORD_BITS: u32 = 64;

/// A set of small numbers.
#[derive(Debug)]
pub(crate) struct AtomicBits {
    words: Box<[AtomicU64]>,
}

impl AtomicBits {
    /// The empty set of numbers below `length`.
    pub fn new(length: u32) -> AtomicBits {
        AtomicBits { words: (0..length.div_ceil(WORD_BITS)).map(|_| AtomicU64::new(0)).collect() }
    }

    fn word(&self, bit: u32) -> (&AtomicU64, u64) {
        (&self.words[(bit / WORD_BITS) as usize], 1 << (bit % WORD_BITS))
    }

    /// Adds a number; returns whether it was there before.
    pub fn set(&self, bit: u32) -> bool {
        let (word, mask) = self.word(bit);
        word.fetch_or(mask, Ordering::AcqRel) & mask != 0
    }

    /// Removes a number; returns whether it was there.
    pub fn clear(&self, bit: u32) -> bool {
        let (word, mask) = self.word(bit);
        word.fetch_and(!mask, Ordering::AcqRel) & mask != 0
    }

    /// Whether a number is there.
    pub fn test(&self, bit: u32) -> bool {
        let (word, mask) = self.word(bit);
        word.load(Ordering::Acquire) & mask != 0
    }

    /// The lowest number in `range`.
    pub fn next(&self, range: Range<u32>) -> Option<u32> {
        let mut start = range.start;
        while start < range.end {
            let found = self.words[(start / WORD_BITS) as usize].load(Ordering::Acquire)
                & (u64::MAX << (start % WORD_BITS));
            let first = start / WORD_BITS * WORD_BITS;
            if found != 0 {
                return Some(first + found.trailing_zeros()).filter(|found| *found < range.end);
            }
            start = first + WORD_BITS;
        }
        None
    }

    /// Removes all numbers and returns them in order.
    pub fn take(&self) -> Vec<u32> {
        let mut taken = Vec::new();
        for (index, word) in self.words.iter().enumerate() {
            // Most words are empty, and a load is cheaper than a swap.
            if word.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let mut bits = word.swap(0, Ordering::AcqRel);
            while bits != 0 {
                // Fits: numbers are below the length, which has 32 bits.
                taken.push(index as u32 * WORD_BITS + bits.trailing_zeros());
                bits &= bits - 1;
            }
        }
        taken
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_and_go() {
        let bits = AtomicBits::new(130);
        assert!(!bits.set(0) && !bits.set(129) && bits.set(129) && !bits.set(64));
        assert!(bits.test(64) && !bits.test(63));
        let next = |start, end| bits.next(start..end);
        assert_eq!([next(0, 1), next(1, 64), next(1, 65)], [Some(0), None, Some(64)]);
        assert_eq!([next(65, 129), next(65, 130), next(130, 130)], [None, Some(129), None]);
        assert!(bits.clear(64) && !bits.clear(64));
        assert_eq!(bits.take(), [0, 129]);
        assert_eq!(bits.take(), []);
    }
}
