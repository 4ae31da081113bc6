//! The inodes in memory, by number.
//!
//! # State
//! An inode stays while callers hold references, while a thread uses it, and while a change of it isn't
//! logged: a deleted one until a log has the deletion, or another inode has its number. Others are dropped when
//! more than a limit are in memory.
//!
//! # Locking
//! Shards, each with a lock. An inode is loaded with its shard locked, so that no number is in memory twice,
//! and none is loaded from a stale record.

use super::Inode;
use crate::error::Result;
use crate::lock_classes::INODE_TABLE;
use drystone_nilfs2_format::InodeNumber;
use drystone_sync::atomic::Ordering;
use drystone_sync::{Arc, Mutex, MutexGuard};
use std::collections::HashMap;

const SHARDS: u64 = 256;
/// Inodes of a shard above which unused ones are dropped.
const SHARD_INODES_MAX: usize = 1024;

type InodeShard = HashMap<InodeNumber, Arc<Inode>>;

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
        if let Some(inode) = shard.get(&number) {
            inode.references.fetch_add(references, Ordering::Relaxed);
            return Ok(Arc::clone(inode));
        }
        let inode = Arc::new(load()?);
        if shard.len() >= SHARD_INODES_MAX {
            drop_unused(&mut shard);
        }
        inode.references.store(references, Ordering::Relaxed);
        shard.insert(number, Arc::clone(&inode));
        Ok(inode)
    }

    /// An inode that is in memory.
    pub(crate) fn held(&self, number: InodeNumber) -> Option<Arc<Inode>> {
        self.shard(number).get(&number).map(Arc::clone)
    }

    /// Adds an inode that was made just now, with one reference.
    pub(crate) fn insert(&self, inode: &Arc<Inode>) {
        inode.references.store(1, Ordering::Relaxed);
        let mut shard = self.shard(inode.number);
        if shard.len() >= SHARD_INODES_MAX {
            drop_unused(&mut shard);
        }
        shard.insert(inode.number, Arc::clone(inode));
    }

    /// Gives references back; returns the inode if these were the last.
    pub(crate) fn release(&self, number: InodeNumber, count: u64) -> Option<Arc<Inode>> {
        let shard = self.shard(number);
        let inode = shard.get(&number)?;
        let left = inode.references().saturating_sub(count);
        inode.references.store(left, Ordering::Relaxed);
        (left == 0).then(|| Arc::clone(inode))
    }

    /// Whether an inode is in the table and has no references.
    pub(crate) fn is_unused(&self, inode: &Inode) -> bool {
        let shard = self.shard(inode.number);
        shard.get(&inode.number).is_some_and(|known| std::ptr::eq(&**known, inode))
            && inode.references() == 0
    }

    /// Takes a deleted inode out of the table, unless another one has its number by now.
    pub(crate) fn remove(&self, inode: &Inode) {
        let mut shard = self.shard(inode.number);
        if shard.get(&inode.number).is_some_and(|known| std::ptr::eq(&**known, inode)) {
            shard.remove(&inode.number);
        }
    }

    /// All inodes in memory, one shard at a time.
    pub(crate) fn for_each(&self, mut visit: impl FnMut(&Arc<Inode>)) {
        for shard in &self.shards {
            let inodes: Vec<Arc<Inode>> = shard.lock().values().map(Arc::clone).collect();
            inodes.iter().for_each(&mut visit);
        }
    }
}

fn drop_unused(shard: &mut InodeShard) {
    shard.retain(|number, inode| {
        *number == InodeNumber::ROOT
            || inode.references() > 0
            || Arc::strong_count(inode) > 1
            || inode.fields.try_lock().is_none_or(|fields| {
                // One without names couldn't be deleted: the unmount must know.
                fields.is_dirty || fields.in_flight || fields.record.links_count == 0
            })
    });
}
