//! The tables of one directory: one, or [`SHARDS`] by the hash of the name once there are many names, so that
//! threads that add or remove names seldom wait for each other.
//!
//! # Locking
//! Each table has a lock; a thread holds one at a time. A directory's names move from its first table to the
//! shards with the first locked, which stays empty from then on. A change of a name that has begun in the first table
//! ends in the name's shard.

use super::DentryBudget;
use super::table::{DentryTable, name_hash};
use crate::lock_classes;
use drystone_sync::{OnceLock, RwLock, RwLockWriteGuard};

/// Tables of a directory with many names.
const SHARDS: usize = 256;
/// The shard is in the upper bits of a name's hash; the lower bits select the slot.
const SHARD_SHIFT: u32 = u32::BITS - SHARDS.trailing_zeros();

/// The tables.
#[derive(Debug)]
pub(super) struct DentryTables {
    first: RwLock<DentryTable>,
    shards: OnceLock<Box<[DentryShard]>>,
}

/// A table in cache lines of its own.
#[derive(Debug)]
#[repr(align(128))]
struct DentryShard(RwLock<DentryTable>);

impl DentryTables {
    /// One table without names.
    pub fn new() -> DentryTables {
        DentryTables { first: table(DentryTable::default()), shards: OnceLock::new() }
    }

    /// The number of the table of a name, which stays the same but for the move to the shards.
    #[inline]
    pub fn number_of(&self, name: &[u8]) -> usize {
        match self.shards.get() {
            None => 0,
            Some(_) => 1 + shard_of(name_hash(name)),
        }
    }

    /// A table by its number.
    #[inline]
    pub fn get(&self, number: usize) -> &RwLock<DentryTable> {
        match (number.checked_sub(1), self.shards.get()) {
            (Some(shard), Some(shards)) => &shards[shard].0,
            _ => &self.first,
        }
    }

    /// The table of a name, to be read.
    #[inline]
    pub fn of(&self, name: &[u8]) -> &RwLock<DentryTable> {
        self.get(self.number_of(name))
    }

    /// Locks the table of a name for a change.
    pub fn write(&self, name: &[u8]) -> RwLockWriteGuard<'_, DentryTable> {
        loop {
            let number = self.number_of(name);
            let table = self.get(number).write();
            if number != 0 || self.shards.get().is_none() {
                return table;
            }
        }
    }

    /// Moves the names of the first table, which is locked, to shards, if they are many and there is memory.
    /// Returns whether it did.
    pub fn spread(&self, first: &mut DentryTable, budget: &DentryBudget) -> bool {
        if self.shards.get().is_some() || !first.is_to_be_spread() {
            return false;
        }
        let mut spread: Box<[DentryTable]> =
            (0..SHARDS).map(|_| first.empty_shard(SHARDS)).collect();
        let bytes = spread.iter().map(DentryTable::bytes).sum();
        if !budget.take(bytes) {
            return false;
        }
        first.copy_to(&mut spread, shard_of);
        // Before another thread can change a name in its shard: readers without a lock still have these slots.
        budget.give(first.reset());
        let shards = spread.into_iter().map(|shard| DentryShard(table(shard))).collect();
        // Only the thread that has the first table locked sets it.
        let _ = self.shards.set(shards);
        true
    }

    /// All tables.
    pub fn all(&self) -> impl Iterator<Item = &RwLock<DentryTable>> {
        let shards = self.shards.get().into_iter().flatten();
        std::iter::once(&self.first).chain(shards.map(|shard| &shard.0))
    }

    /// Forgets everything, and returns the number of bytes freed. Nothing else uses it.
    pub fn reset(&mut self) -> usize {
        let shards = self.shards.get_mut().into_iter().flatten();
        let shards: usize = shards.map(|shard| shard.0.get_mut().reset()).sum();
        self.first.get_mut().reset() + shards
    }
}

fn table(table: DentryTable) -> RwLock<DentryTable> {
    RwLock::new(&lock_classes::DENTRY_CACHE, table)
}

fn shard_of(hash: u32) -> usize {
    (hash >> SHARD_SHIFT) as usize
}
