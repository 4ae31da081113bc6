//! The lock of a hashed directory's index, with which leaves split while other leaves change.
//!
//! # State
//! A lock of the index, with the number of entries that splits under way will add; a count of the leaves that were
//! split; and a lock of the directory's mapping.
//!
//! # Locking
//! All threads here hold the directory's content lock shared; a thread that holds it exclusively needs none of
//! these. The order is: leaf, an open handle, index, mapping. A thread holds one leaf.
//!
//! - A split holds its leaf exclusively, from before anything changes until the index has the new leaf. With the
//!   index locked exclusively it reserves room for an entry; then it adds a block, with the mapping locked
//!   exclusively, and moves names to it; and then, with the index locked again, it adds the entry.
//! - A thread that uses one leaf descends without a lock of the index, locks the leaf, and makes sure
//!   that it is the right one ([`lock_leaf`](DirectoryIndexLock::lock_leaf)).
//! - A thread that visits leaves in turn (`htree::visit_leaves`) locks each, and then the index, shared, to learn
//!   what the leaf's bounds are and which one is next.
//! - A thread that asks the mapping for a block of the directory holds the mapping shared.
//!
//! # Races
//! - *A name moves to the new leaf after a descent, and before the leaf is locked.* The split has counted itself
//!   before it unlocked the leaf, so the count differs; the thread descends again, with the leaf locked.
//! - *The leaf is split after that.* It can't be: a split needs its lock. Splits of neighbours don't change its
//!   bounds, nor whether its last hash goes on in the next leaf: an entry that is added lies after the one of the
//!   leaf that was split.
//! - *An index block changes during a descent.* Each block is searched as it was at one moment, and a split changes
//!   one block, by one entry. Splits of index blocks, and a new root, hold the content lock exclusively.
//! - *Two threads find the same leaf full.* The second one waits for the leaf, and then searches it.
//! - *Splits take the last room of an index block from each other.* Each reserves an entry before it adds a block. A
//!   split counts the reservations of all splits of the directory, so it may find a block full too early; then it
//!   is done with the content lock held exclusively, when no split is under way.
//! - *A thread has found room, or an entry, and the records of the block move.* It keeps its leaf locked until its
//!   change is made.
//! - *Two splits each wait for the other's leaf.* A split locks one leaf. The name that asked for it may go to the
//!   new leaf, which is locked by a new search, after the old one is unlocked.
//! - *Splits add the same block, or one overwrites the other's size.* The number of blocks is read, and the size
//!   written, with the mapping locked.
//! - *A listing sees a name in both leaves, or in neither.* It copies a leaf and learns of the next one with the leaf
//!   locked. What moves from there afterwards goes to a leaf in between, which the listing doesn't visit. What moved
//!   from the next leaf before it was locked is in a leaf after that.
//! - *A look-up of a hash that several leaves have misses a name that moves.* For the same reason it doesn't. The
//!   name itself stays: such names change with the content lock held exclusively.
//! - *Names of one hash come to lie in two leaves.* Then the second descent says so, and the thread locks more
//!   ([`lock_leaf`](DirectoryIndexLock::lock_leaf) returns nothing).
//! - *The new leaf is looked up in the mapping while its extent is inserted*, or a node of the mapping is split. The
//!   mapping is locked.
//! - *An index block that was written and dropped from the cache is read again, and names a leaf after the size that
//!   a thread has seen.* The check of the block asks for the size after it has read the block. The size grows before
//!   the index does.
//! - *A split fails half way.* The journal stops, as for every operation that can't be taken back. The reservation
//!   ends in any case.
//! - *The journal stops after names have moved, and before the index has an entry for them.* The split has got access
//!   to both blocks before, so it goes on.
//! - *Power is cut between a split and the name for which it was made.* A split is a handle of its own, and leaves a
//!   complete index.

use crate::lock_classes;
use drystone_sync::atomic::{AtomicU64, Ordering};
use drystone_sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// See the module.
#[derive(Debug)]
pub(crate) struct DirectoryIndexLock {
    /// Entries that splits under way will add.
    index: RwLock<u32>,
    splits: AtomicU64,
    mapping: RwLock<()>,
}

/// The index of a directory, which stays as it is.
pub(crate) struct IndexReadLock<'a> {
    splits: &'a AtomicU64,
    _index: RwLockReadGuard<'a, u32>,
}

/// The index of a directory, locked to add an entry.
pub(crate) struct IndexWriteLock<'a> {
    splits: &'a AtomicU64,
    reserved: RwLockWriteGuard<'a, u32>,
}

impl DirectoryIndexLock {
    /// Nothing is locked.
    pub fn new() -> DirectoryIndexLock {
        DirectoryIndexLock {
            index: RwLock::new(&lock_classes::DIRECTORY_INDEX, 0),
            splits: AtomicU64::new(0),
            mapping: RwLock::new(&lock_classes::DIRECTORY_MAPPING, ()),
        }
    }

    /// Locks the index shared.
    pub fn read(&self) -> IndexReadLock<'_> {
        IndexReadLock { _index: self.index.read(), splits: &self.splits }
    }

    /// Locks the index exclusively.
    pub fn write(&self) -> IndexWriteLock<'_> {
        IndexWriteLock { reserved: self.index.write(), splits: &self.splits }
    }

    /// Locks the index exclusively if no other thread has it.
    pub fn try_write(&self) -> Option<IndexWriteLock<'_>> {
        Some(IndexWriteLock { reserved: self.index.try_write()?, splits: &self.splits })
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

impl IndexReadLock<'_> {
    /// How many leaves were split.
    pub fn splits(&self) -> u64 {
        self.splits.load(Ordering::Relaxed)
    }
}

impl IndexWriteLock<'_> {
    /// Entries that splits under way will add.
    pub fn reserved(&self) -> u32 {
        *self.reserved
    }

    /// Reserves room for an entry.
    pub fn reserve(&mut self) {
        *self.reserved += 1;
    }

    /// Ends a reservation.
    pub fn end_reservation(&mut self) {
        *self.reserved -= 1;
    }

    /// Notes that a leaf, which is still locked, was split.
    pub fn note_split(&self) {
        // Changes only with the index locked. The lock of the leaf brings the count to the next thread that gets it.
        let splits = self.splits.load(Ordering::Relaxed);
        self.splits.store(splits + 1, Ordering::Release);
    }
}
