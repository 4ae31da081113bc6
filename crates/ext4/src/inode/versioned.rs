//! Words that are read together without a lock.
//!
//! # State
//! A version counts up before and after each change, so it is odd while the words change. A reader
//! that finds the same even version before and after the words has read what was there at once.
//!
//! # Locking
//! One thread changes the words at a time; the callers see to that.

use drystone_sync::atomic::{AtomicU64, Ordering, fence};

/// The words.
#[derive(Debug)]
pub(super) struct Versioned<const N: usize> {
    version: AtomicU64,
    words: [AtomicU64; N],
}

impl<const N: usize> Versioned<N> {
    /// Words to begin with.
    pub fn new(words: [u64; N]) -> Self {
        Versioned { version: AtomicU64::new(0), words: words.map(AtomicU64::new) }
    }

    /// Replaces the words.
    pub fn write(&self, words: &[u64; N]) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version + 1, Ordering::Relaxed);
        // Who sees one of the words below sees that version, or a later one.
        fence(Ordering::Release);
        for (word, value) in self.words.iter().zip(words) {
            word.store(*value, Ordering::Release);
        }
        self.version.store(version + 2, Ordering::Release);
    }

    /// All words, unless they change meanwhile.
    #[inline]
    pub fn read(&self) -> Option<[u64; N]> {
        let version = self.version.load(Ordering::Acquire);
        let mut words = [0; N];
        for (value, word) in words.iter_mut().zip(&self.words) {
            *value = word.load(Ordering::Relaxed);
        }
        // The words above were read before the version below.
        fence(Ordering::Acquire);
        let is_whole = version.is_multiple_of(2) && self.version.load(Ordering::Relaxed) == version;
        is_whole.then_some(words)
    }

    /// One word, and what was written before it.
    #[inline]
    pub fn word(&self, index: usize) -> u64 {
        self.words[index].load(Ordering::Acquire)
    }
}
