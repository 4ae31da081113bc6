//! The inodes in memory, by number.
//!
//! # State
//! An inode stays while callers hold references, while a thread uses it, and while a change of it isn't
//! logged: a deleted one until a log has the deletion, or another inode has its number. Others are dropped when
//! more than a limit are in memory, and twice as many as the last time left.
//!
//! # Locking
//! Shards, each with a lock. An inode is loaded with its shard locked, so that no number is in memory twice,
//! and none is loaded from a stale record.

use super::Inode;
use crate::error::Result;
use crate::lock_classes::INODE_TABLE;
use drystone_nilfs2_format::InodeNumber;
use drystone_ondisk::NumberHasher;
use drystone_sync::atomic::Ordering;
use drystone_sync::{Arc, Mutex, MutexGuard};
use std::collections::HashMap;
use std::hash::BuildHasherDefault;

const SHARDS: u64 = 256;
/// Inodes of a shard above which unused ones are dropped.
const SHARD_INODES_MAX: usize = 1024;

type InodeMap = HashMap<InodeNumber, Arc<Inode>, BuildHasherDefault<NumberHasher>>;

#[derive(Debug)]
struct InodeShard {
    inodes: InodeMap,
    /// With so many, unused ones are dropped before another is added.
    sweep_at: usize,
}

impl InodeShard {
    fn new() -> Self {
        Self { inodes: InodeMap::default(), sweep_at: SHARD_INODES_MAX }
    }

    fn insert(&mut self, inode: Arc<Inode>) {
        if self.inodes.len() >= self.sweep_at {
            drop_unused(&mut self.inodes);
            // If most are in use, the next one isn't looked for at once.
            self.sweep_at = SHARD_INODES_MAX.max(2 * self.inodes.len());
        }
        self.inodes.insert(inode.number, inode);
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct InodeTable {
    shards: Vec<Mutex<InodeShard>>,
}

impl InodeTable {
    pub(crate) fn new() -> Self {
        Self { shards: (0..SHARDS).map(|_| Mutex::new(&INODE_TABLE, InodeShard::new())).collect() }
    }

    fn shard(&self, number: InodeNumber) -> MutexGuard<'_, InodeShard> {
        self.shards[(number.0 % SHARDS) as usize].lock()
    }

    /// An inode, loaded with `load` if it isn't in memory, with `references` more.
    pub(crate) fn get(
        &self,
        number: InodeNumber,
        references: u64,
        load: impl FnOnce() -> Result<Inode>,
    ) -> Result<Arc<Inode>> {
        let mut shard = self.shard(number);
        if let Some(inode) = shard.inodes.get(&number) {
            inode.references.fetch_add(references, Ordering::Relaxed);
            return Ok(Arc::clone(inode));
        }
        let inode = Arc::new(load()?);
        inode.references.store(references, Ordering::Relaxed);
        shard.insert(Arc::clone(&inode));
        Ok(inode)
    }

    /// An inode that is in memory.
    pub(crate) fn held(&self, number: InodeNumber) -> Option<Arc<Inode>> {
        self.shard(number).inodes.get(&number).map(Arc::clone)
    }

    /// Adds an inode that was made just now, with one reference.
    pub(crate) fn insert(&self, inode: &Arc<Inode>) {
        inode.references.store(1, Ordering::Relaxed);
        self.shard(inode.number).insert(Arc::clone(inode));
    }

    /// Gives references back; returns the inode if these were the last.
    pub(crate) fn release(&self, number: InodeNumber, count: u64) -> Option<Arc<Inode>> {
        let shard = self.shard(number);
        let inode = shard.inodes.get(&number)?;
        let left = inode.references().saturating_sub(count);
        inode.references.store(left, Ordering::Relaxed);
        (left == 0).then(|| Arc::clone(inode))
    }

    /// Whether an inode is in the table and has no references.
    pub(crate) fn is_unused(&self, inode: &Inode) -> bool {
        let shard = self.shard(inode.number);
        shard.inodes.get(&inode.number).is_some_and(|known| std::ptr::eq(&**known, inode))
            && inode.references() == 0
    }

    /// Takes a deleted inode out of the table, unless another one has its number by now.
    pub(crate) fn remove(&self, inode: &Inode) {
        let mut shard = self.shard(inode.number);
        if shard.inodes.get(&inode.number).is_some_and(|known| std::ptr::eq(&**known, inode)) {
            shard.inodes.remove(&inode.number);
        }
    }

    /// All inodes in memory, one shard at a time.
    pub(crate) fn for_each(&self, mut visit: impl FnMut(&Arc<Inode>)) {
        for shard in &self.shards {
            let inodes: Vec<Arc<Inode>> = shard.lock().inodes.values().map(Arc::clone).collect();
            inodes.iter().for_each(&mut visit);
        }
    }
}

fn drop_unused(inodes: &mut InodeMap) {
    inodes.retain(|number, inode| {
        *number == InodeNumber::ROOT
            || inode.references() > 0
            || Arc::strong_count(inode) > 1
            || inode.fields.try_lock().is_none_or(|fields| {
                // One without names couldn't be deleted: the unmount must know.
                fields.is_dirty || fields.in_flight || fields.record.links_count == 0
            })
    });
}

#[cfg(all(test, not(loom)))]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests {
    use super::*;
    use crate::inode::Record;

    #[test]
    fn a_shard_in_use_is_not_swept_for_each_inode() {
        let table = InodeTable::new();
        let record = Record { mode: 0o100_644, ..Record::metadata_file() };
        let get = |index: usize, references| {
            let number = InodeNumber(index as u64 * SHARDS);
            table
                .get(number, references, || Inode::new(number, record.clone(), true, 1024))
                .unwrap();
        };
        let length = || table.shard(InodeNumber(0)).inodes.len();
        (0..SHARD_INODES_MAX).for_each(|index| get(index, 1));
        // The first of these finds that all are in use.
        (SHARD_INODES_MAX..2 * SHARD_INODES_MAX).for_each(|index| get(index, 0));
        assert_eq!(length(), 2 * SHARD_INODES_MAX);
        get(2 * SHARD_INODES_MAX, 0);
        assert_eq!(length(), SHARD_INODES_MAX + 1);
    }
}
