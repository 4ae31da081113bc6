//! Locks for leaves of hashed directories.
//!
//! # Locking
//! All leaves of a mount share [`LOCKS`] locks, by directory and number. A thread holds one at a time, so two
//! leaves with one lock only wait for each other. What they protect is told by `dir::lock_name`.

use crate::lock_classes;
use drystone_ext4_format::{InodeNumber, LogicalBlock};
use drystone_sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// With 32 threads in as many leaves, one in 130 finds its lock taken for another leaf.
const LOCKS: usize = 4096;

/// The locks of a mount.
#[derive(Debug)]
pub(crate) struct LeafLocks(Box<[RwLock<()>]>);

impl LeafLocks {
    /// None is held.
    pub fn new() -> LeafLocks {
        LeafLocks((0..LOCKS).map(|_| RwLock::new(&lock_classes::LEAF, ())).collect())
    }

    /// Locks the names of a leaf against changes.
    pub fn read(&self, directory: InodeNumber, leaf: LogicalBlock) -> RwLockReadGuard<'_, ()> {
        self.of(directory, leaf).read()
    }

    /// Locks the names of a leaf, to change one.
    pub fn write(&self, directory: InodeNumber, leaf: LogicalBlock) -> RwLockWriteGuard<'_, ()> {
        self.of(directory, leaf).write()
    }

    fn of(&self, directory: InodeNumber, leaf: LogicalBlock) -> &RwLock<()> {
        // Neighbours get locks of different cache lines.
        let mixed = (directory.get() ^ leaf.get()).wrapping_mul(0x9e37_79b1);
        &self.0[(mixed >> 16) as usize % LOCKS]
    }
}
