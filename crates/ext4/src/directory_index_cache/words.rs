//! The entries of one index block, as words that are read without a lock.
//!
//! # State
//! A word for each entry: its hash, above its block. The words are read together ([`SequenceCount`]).
//!
//! # Locking
//! One thread changes them at a time; the callers see to that.

use crate::sequence_count::SequenceCount;
use drystone_ext4_format::LogicalBlock;
use drystone_ext4_format::htree::IndexEntry;
use drystone_sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The words of one block.
#[derive(Debug)]
pub(super) struct IndexEntryWords {
    changes: SequenceCount,
    /// Entries in use; 0 if they aren't known.
    count: AtomicUsize,
    words: Box<[AtomicU64]>,
}

/// Why a search finds nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IndexMiss {
    /// The entries change at this moment.
    Changing,
    /// The entries aren't cached.
    Unknown,
}

/// What a search finds.
#[derive(Clone, Copy, Debug)]
pub(super) struct CachedEntry {
    /// Where the entry is in its block.
    pub position: usize,
    pub entry: IndexEntry,
    /// The entry after it in the block.
    pub next: Option<IndexEntry>,
}

impl IndexEntryWords {
    /// Room for as many entries as fit a block.
    pub fn new(limit: usize) -> IndexEntryWords {
        IndexEntryWords {
            changes: SequenceCount::default(),
            count: AtomicUsize::new(0),
            words: (0..limit).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// The memory that a block takes.
    pub fn bytes(limit: usize) -> usize {
        size_of::<IndexEntryWords>() + limit * size_of::<AtomicU64>()
    }

    /// How many entries fit.
    pub fn limit(&self) -> usize {
        self.words.len()
    }

    /// Whether the entries are known. Only the thread that may change them asks.
    pub fn is_known(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// The last entry whose hash is not above this one.
    #[inline]
    pub fn search(&self, hash: u32) -> Result<CachedEntry, IndexMiss> {
        let read = self.changes.read().ok_or(IndexMiss::Changing)?;
        let found = self.search_once(hash);
        if read.holds() { found.ok_or(IndexMiss::Unknown) } else { Err(IndexMiss::Changing) }
    }

    /// The same in words that may change meanwhile.
    #[inline]
    fn search_once(&self, hash: u32) -> Option<CachedEntry> {
        let words = self.words.get(..self.count.load(Ordering::Relaxed))?;
        // The first entry has no hash and takes everything below the second.
        let position = words.get(1..)?.partition_point(|word| unpack(word).hash <= hash);
        let entry = unpack(words.get(position)?);
        let next = words.get(position + 1).map(unpack);
        Some(CachedEntry { position, entry, next })
    }

    /// Makes these the entries.
    pub fn set(&self, entries: impl Iterator<Item = IndexEntry>) {
        self.changes.begin_change();
        let mut count = 0;
        for (word, entry) in self.words.iter().zip(entries) {
            word.store(pack(entry), Ordering::Relaxed);
            count += 1;
        }
        self.count.store(count, Ordering::Relaxed);
        self.changes.end_change();
    }

    /// Adds an entry after a position, if the entries are known.
    pub fn insert_after(&self, position: usize, entry: IndexEntry) {
        let count = self.count.load(Ordering::Relaxed);
        if count == 0 {
            return;
        }
        if position >= count || count == self.words.len() {
            // Only if they aren't the block's, which is damaged then.
            return self.clear();
        }
        self.changes.begin_change();
        for from in (position + 1..count).rev() {
            self.words[from + 1].store(self.words[from].load(Ordering::Relaxed), Ordering::Relaxed);
        }
        self.words[position + 1].store(pack(entry), Ordering::Relaxed);
        self.count.store(count + 1, Ordering::Relaxed);
        self.changes.end_change();
    }

    /// Forgets the entries.
    pub fn clear(&self) {
        self.set(std::iter::empty());
    }
}

fn pack(entry: IndexEntry) -> u64 {
    u64::from(entry.hash) << 32 | u64::from(entry.block.get())
}

fn unpack(word: &AtomicU64) -> IndexEntry {
    let word = word.load(Ordering::Relaxed);
    IndexEntry { hash: (word >> 32) as u32, block: LogicalBlock::new(word as u32) }
}
