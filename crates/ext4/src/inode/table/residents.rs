//! The inodes that a shard of the table has in memory, and how one comes in from its record.
//!
//! # State
//! Values by number, and a count of those that have left.
//!
//! # Locking
//! The shard's lock is not held while a record is decoded. Two threads may decode one record at the same
//! time. The second to finish takes the value of the first, even if its own decoding failed: the first
//! thread may just have been changing the record. If the first value has left memory again by then, it
//! may have changed its record before, and what the second thread decoded is stale. So a thread that
//! finds the count of departures changed decodes again.

use crate::number_map::NumberMap;
use drystone_sync::{Arc, SpinLock, SpinLockGuard};

/// Values in memory, by number.
#[derive(Debug)]
pub(super) struct Residents<T> {
    values: NumberMap<u32, Arc<T>>,
    /// How many values have left memory.
    departures: u64,
}

impl<T> Default for Residents<T> {
    fn default() -> Self {
        Residents { values: NumberMap::default(), departures: 0 }
    }
}

impl<T> Residents<T> {
    pub fn len(&self) -> usize {
        self.values.len()
    }

    pub fn get(&self, number: u32) -> Option<&Arc<T>> {
        self.values.get(&number)
    }

    pub fn get_mut(&mut self, number: u32) -> Option<&mut Arc<T>> {
        self.values.get_mut(&number)
    }

    pub fn values(&self) -> impl Iterator<Item = &Arc<T>> {
        self.values.values()
    }

    pub fn insert(&mut self, number: u32, value: Arc<T>) {
        self.values.insert(number, value);
    }

    /// Takes a value out of memory.
    pub fn take(&mut self, number: u32) -> Option<Arc<T>> {
        self.departures += 1;
        self.values.remove(&number)
    }
}

/// A value of a shard, or the shard's lock and a value that `decode` has read from its record, which the
/// caller is to insert before it unlocks.
pub(super) enum Loaded<'a, S, T> {
    Here(Arc<T>),
    Decoded(SpinLockGuard<'a, S>, T),
}

/// The value from memory, or as `decode` reads it from its record. Only a value in memory changes its
/// record.
pub(super) fn load<'a, S, T, E>(
    shard: &'a SpinLock<S>,
    residents: impl Fn(&S) -> &Residents<T>,
    number: u32,
    mut decode: impl FnMut() -> Result<T, E>,
) -> Result<Loaded<'a, S, T>, E> {
    let mut locked = shard.lock();
    let mut decoded: Option<(Result<T, E>, u64)> = None;
    loop {
        let here = residents(&locked);
        if let Some(value) = here.get(number) {
            return Ok(Loaded::Here(Arc::clone(value)));
        }
        let departures = here.departures;
        if let Some((result, seen)) = decoded.take()
            && seen == departures
        {
            return result.map(|value| Loaded::Decoded(locked, value));
        }
        drop(locked);
        decoded = Some((decode(), departures));
        locked = shard.lock();
    }
}
