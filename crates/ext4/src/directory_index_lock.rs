//! The lock of a hashed directory's index, with which leaves split while other leaves change.
//!
//! # State
//! A lock of the index, a count of the leaves that were split, and a lock of the directory's mapping.
//!
//! # Locking
//! All threads here hold the directory's content lock shared; a thread that holds it exclusively needs none of
//! these. The order is: index, leaf, an open handle, mapping.
//!
//! - A split holds the index exclusively, then its leaf exclusively, from before anything changes until the index
//!   has the new leaf. In between, and inside its handle, it holds the mapping exclusively to add a block.
//! - A thread that visits more than one leaf holds the index shared, and the lock of one leaf at a time.
//! - A thread that uses one leaf descends without a lock of the index, locks the leaf, and makes sure
//!   that it is the right one ([`lock_leaf`](DirectoryIndexLock::lock_leaf)). It never waits for the index with a
//!   leaf locked: if the leaf is full, it unlocks it first, and searches again after the split.
//! - A thread that asks the mapping for a block of the directory holds the mapping shared.
//!
//! # Races
//! - *A name moves to the new leaf after a descent, and before the leaf is locked.* The split has counted itself
//!   before it unlocked the leaf, so the count differs; the thread descends again, with the leaf locked.
//! - *The leaf is split after that.* It can't be: a split needs its lock. Splits of neighbours don't change its
//!   bounds, nor whether its last hash goes on in the next leaf: an entry that is added lies behind the one of the
//!   leaf that was split.
//! - *An index block changes during a descent.* Each block is searched under its buffer's lock, and a split changes
//!   one block, by one entry. Splits of index blocks, and a new root, hold the content lock exclusively.
//! - *Two threads find the same leaf full.* The second one to lock the index finds that there is room.
//! - *A thread has found room, or an entry, and the records of the block move.* It keeps its leaf locked until its
//!   change is made.
//! - *Two splits each wait for the other's leaf.* A split locks one leaf. The name that asked for it may go to the
//!   new leaf, which is locked by a search anew, after the index is unlocked.
//! - *A walk sees a name in both leaves, or in neither.* A walk shares the index, so no leaf is split meanwhile.
//! - *Names of one hash come to lie in two leaves.* Then the second descent says so, and the thread locks more
//!   ([`lock_leaf`](DirectoryIndexLock::lock_leaf) returns nothing).
//! - *The new leaf is looked up in the mapping while its extent is inserted*, or a node of the mapping is split. The
//!   mapping is locked.
//! - *An index block that was written and dropped from the cache is read anew, and names a leaf behind the size that
//!   a thread has seen.* The check of the block asks for the size after it has read the block. The size grows before
//!   the index does.
//! - *Power is cut between a split and the name for which it was made.* A split is a handle of its own, and leaves a
//!   complete index.

use crate::lock_classes;
use drystone_sync::atomic::{AtomicU64, Ordering};
use drystone_sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// See the module.
#[derive(Debug)]
pub(crate) struct DirectoryIndexLock {
    index: RwLock<()>,
    splits: AtomicU64,
    mapping: RwLock<()>,
}

/// The index of a directory, locked to split a leaf.
pub(crate) struct IndexSplitLock<'a> {
    splits: &'a AtomicU64,
    _index: RwLockWriteGuard<'a, ()>,
}

impl DirectoryIndexLock {
    /// Nothing is locked.
    pub fn new() -> DirectoryIndexLock {
        DirectoryIndexLock {
            index: RwLock::new(&lock_classes::DIRECTORY_INDEX, ()),
            splits: AtomicU64::new(0),
            mapping: RwLock::new(&lock_classes::DIRECTORY_MAPPING, ()),
        }
    }

    /// Keeps leaves from being split.
    pub fn read(&self) -> RwLockReadGuard<'_, ()> {
        self.index.read()
    }

    /// Locks the index to split a leaf.
    pub fn write(&self) -> IndexSplitLock<'_> {
        IndexSplitLock { _index: self.index.write(), splits: &self.splits }
    }

    /// Locks the index if no other thread has it.
    pub fn try_write(&self) -> Option<IndexSplitLock<'_>> {
        Some(IndexSplitLock { _index: self.index.try_write()?, splits: &self.splits })
    }

    /// Keeps the mapping as it is.
    pub fn read_mapping(&self) -> RwLockReadGuard<'_, ()> {
        self.mapping.read()
    }

    /// Locks the mapping to add blocks.
    pub fn write_mapping(&self) -> RwLockWriteGuard<'_, ()> {
        self.mapping.write()
    }

    /// Locks the leaf that `find` returns. It stays the one that `find` would return while it is locked. `None` if
    /// `find` returns none.
    #[inline]
    pub fn lock_leaf<L: Copy + PartialEq, G, E>(
        &self,
        find: impl Fn() -> Result<Option<L>, E>,
        lock: impl Fn(L) -> G,
    ) -> Result<Option<(L, G)>, E> {
        loop {
            // Pairs with the release in `note_split`: a descent that sees the count sees the index.
            let splits = self.splits.load(Ordering::Acquire);
            let Some(leaf) = find()? else { return Ok(None) };
            let locked = lock(leaf);
            if self.splits.load(Ordering::Relaxed) == splits
                || drystone_sync::planted!("leaf-not-sought-again")
                || find()? == Some(leaf)
            {
                return Ok(Some((leaf, locked)));
            }
        }
    }
}

impl IndexSplitLock<'_> {
    /// Notes that a leaf, which is still locked, was split.
    pub fn note_split(&self) {
        // No other thread writes the count. The lock of the leaf brings the count to the next thread that gets it.
        let splits = self.splits.load(Ordering::Relaxed);
        self.splits.store(splits + 1, Ordering::Release);
    }
}
