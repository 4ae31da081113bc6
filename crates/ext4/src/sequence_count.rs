//! A count of changes, by which words are read together without a lock.
//!
//! # State
//! The count goes up before and after each change, so it is odd while one goes on. A reader that
//! finds the same even count before and after it reads the words has read what was there at once.
//!
//! # Locking
//! One thread changes the words at a time; the callers see to that. The words are atomics.

use drystone_sync::atomic::{AtomicU64, Ordering, fence};

/// How often words have begun or ended to change.
#[derive(Debug, Default)]
pub(crate) struct SequenceCount(AtomicU64);

/// The count as a reader found it before it read the words.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SequenceRead<'a> {
    count: &'a AtomicU64,
    seen: u64,
}

impl SequenceCount {
    /// The words change from now on.
    #[inline]
    pub fn begin_change(&self) {
        let count = self.0.load(Ordering::Relaxed);
        debug_assert!(count.is_multiple_of(2), "a change within a change");
        self.0.store(count + 1, Ordering::Relaxed);
        // A reader that sees one of the words change sees that count, or a later one.
        fence(Ordering::Release);
    }

    /// The words have changed.
    #[inline]
    pub fn end_change(&self) {
        let count = self.0.load(Ordering::Relaxed);
        self.0.store(count + 1, Ordering::Release);
    }

    /// Begins to read the words; nothing while they change.
    #[inline]
    pub fn read(&self) -> Option<SequenceRead<'_>> {
        let seen = self.0.load(Ordering::Acquire);
        seen.is_multiple_of(2).then_some(SequenceRead { count: &self.0, seen })
    }
}

impl SequenceRead<'_> {
    /// Whether the words that were read since were there at once, and haven't changed.
    #[inline]
    pub fn holds(&self) -> bool {
        // The words were read before the count below.
        fence(Ordering::Acquire);
        self.count.load(Ordering::Relaxed) == self.seen
    }
}
