//! The table of inodes in memory.
//!
//! # State
//! An inode stays in the table while a thread works with it, and after that until its shard is over its
//! share of the bound. Unused inodes leave when others are added, and at once when they are given back
//! to a shard that holds too many. `references` says what holds for inodes that callers refer to.
//!
//! # Locking
//! There are shards by inode number, and the inodes of a table block share one: threads that each work
//! on their own files, which have neighbouring inodes, seldom meet. A shard's lock is held for a
//! look-up, never for I/O; `residents` says how an inode is loaded without it. An inode that is found
//! stays for as long as its shard is locked, and needs no `Arc` of its own.
//!
//! References are a plain number in the inode, changed with the shard locked. An inode leaves memory
//! under that lock too, so no look-up meets one that is on its way out.
//!
//! The last reference and the last name may go at the same time in two threads. The thread that
//! removes the name notes that first, and then looks for references with the shard locked. The
//! thread that returns the reference looks for names with the shard locked. The second of the two to
//! lock the shard sees both gone. A claim, made under the lock, lets only one of them free the inode.

mod references;
mod residents;

pub(super) use references::HeldInode;

use super::recent::UsedDirectory;
use super::{Inode, recent};
use crate::dentry_cache::DentryReader;
use crate::error::Result;
use crate::lock_classes;
use crate::number_map::{NumberMap, SPREAD};
use crossbeam_utils::CachePadded;
use drystone_ext4_format::{Corrupt, InodeNumber};
use drystone_sync::atomic::Ordering;
use drystone_sync::{Arc, SpinLock};
use residents::{Loaded, Residents};
use std::collections::VecDeque;

const SHARDS_MAX: usize = 256;
/// A shard has room for at least so many inodes: it holds neighbours, of which few may be in use.
const SHARD_LENGTH_MIN: usize = 64;
/// Neighbouring inodes in one shard, as a power of two: those of a block of the inode table.
const LOG_NEIGHBOURS: u32 = 4;
/// Inodes looked at for each one that is added to a full shard.
const SWEEP_LENGTH: usize = 8;

/// Inodes that a sweep took out.
type Swept = [Option<Arc<Inode>>; SWEEP_LENGTH];

#[derive(Debug, Default)]
struct InodeShard {
    inodes: Residents<Inode>,
    /// The numbers in the order in which a sweep meets them.
    ring: VecDeque<u32>,
    /// The references that callers hold to inodes that aren't in memory.
    parked: NumberMap<u32, u32>,
}

/// Inodes in memory, by number.
#[derive(Debug)]
pub(crate) struct InodeTable {
    /// A power of two of them.
    shards: Box<[CachePadded<SpinLock<InodeShard>>]>,
    shard_length_max: usize,
    /// Tells tables apart.
    id: u64,
}

impl InodeTable {
    /// A table that keeps up to `inodes_max` unused inodes.
    pub fn new(inodes_max: usize) -> InodeTable {
        let count = (inodes_max / SHARD_LENGTH_MIN).clamp(1, SHARDS_MAX);
        // Rounded down to a power of two.
        let count = 1 << count.ilog2();
        InodeTable {
            shards: (0..count)
                .map(|_| SpinLock::new(&lock_classes::INODE_TABLE, InodeShard::default()))
                .map(CachePadded::new)
                .collect(),
            shard_length_max: inodes_max.div_ceil(count).max(1),
            id: recent::new_table(),
        }
    }

    fn shard(&self, number: InodeNumber) -> &SpinLock<InodeShard> {
        let spread = u64::from(number.get() >> LOG_NEIGHBOURS).wrapping_mul(SPREAD);
        // The upper bits are spread best.
        &self.shards[(spread >> 32) as usize & (self.shards.len() - 1)]
    }

    /// The inode if it is in memory.
    pub fn get(&self, number: InodeNumber) -> Option<Arc<Inode>> {
        let shard = self.shard(number).lock();
        shard.inodes.get(number.get()).cloned()
    }

    /// Calls `found` with a directory in memory that names are looked up in, and what the thread has
    /// read of its names.
    #[inline]
    pub fn with_directory<T>(
        &self,
        number: InodeNumber,
        found: impl FnOnce(&Inode, &mut DentryReader) -> Option<T>,
    ) -> Option<T> {
        recent::with(self.id, number, || self.get(number), found)
    }

    /// A directory that an operation uses: that which the thread keeps, or what `get` gives.
    #[inline]
    pub(super) fn used_directory(
        &self,
        number: InodeNumber,
        get: impl FnOnce() -> Result<Arc<Inode>>,
    ) -> Result<UsedDirectory> {
        recent::used(self.id, number, get)
    }

    /// The inode from memory, or else as `decode` reads it from its record. Only an inode in memory
    /// changes its record.
    pub(super) fn get_or_add(
        &self,
        number: InodeNumber,
        decode: impl FnMut() -> Result<Inode>,
    ) -> Result<Arc<Inode>> {
        let shard = self.shard(number);
        match residents::load(shard, |shard| &shard.inodes, number.get(), decode)? {
            Loaded::Here(inode) => Ok(inode),
            Loaded::Decoded(mut shard, inode) => {
                let inode = Arc::new(inode);
                inode.set_references(shard.parked.remove(&number.get()).map_or(0, u64::from));
                let swept = self.add(&mut shard, Arc::clone(&inode));
                drop(shard);
                drop(swept);
                Ok(inode)
            }
        }
    }

    /// Adds an inode whose number was just allocated. If the inode bitmap is damaged the number
    /// may be that of an inode in use.
    pub(super) fn insert_new(&self, inode: Arc<Inode>) -> Result<()> {
        let mut shard = self.shard(inode.number).lock();
        if shard.inodes.get(inode.number.get()).is_some() {
            return Err(Corrupt::InodeInUse { inode: inode.number }.into());
        }
        let swept = self.add(&mut shard, inode);
        drop(shard);
        drop(swept);
        Ok(())
    }

    /// Adds an inode. Returns those that left for it. The caller drops them after it unlocks the shard,
    /// since that frees their cached extents too.
    fn add(&self, shard: &mut InodeShard, inode: Arc<Inode>) -> Swept {
        let swept = if shard.inodes.len() >= self.shard_length_max {
            shard.sweep()
        } else {
            Swept::default()
        };
        let number = inode.number.get();
        shard.ring.push_back(number);
        shard.inodes.insert(number, inode);
        swept
    }

    /// How many inodes are in memory.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().inodes.len()).sum()
    }

    /// The inodes without names, which only references keep alive, and those whose truncation has failed. The
    /// mount ends, so the references of callers are forgotten.
    pub fn take_unfinished(&self) -> Vec<Arc<Inode>> {
        let mut found = Vec::new();
        for shard in &self.shards {
            for inode in shard.lock().inodes.values() {
                if inode.is_unfinished() {
                    inode.set_references(0);
                    found.push(Arc::clone(inode));
                }
            }
        }
        found
    }

    /// Drops an inode that a caller has just given back, if its shard is over its share. Adding
    /// sweeps a full shard as well, but nothing may be added for long after many were in use.
    pub fn shed(&self, inode: Arc<Inode>) {
        let mut shard = self.shard(inode.number).lock();
        let is_last = |kept: &Arc<Inode>| {
            // The table's `Arc` and ours. Another thread would need this lock to get one.
            Arc::ptr_eq(kept, &inode)
                && Arc::strong_count(&inode) == 2
                && inode.references() == 0
                && !inode.has_orphan_work()
        };
        if shard.inodes.len() <= self.shard_length_max
            || !shard.inodes.get(inode.number.get()).is_some_and(is_last)
        {
            return;
        }
        // The number stays in the ring until a sweep meets it.
        shard.inodes.take(inode.number.get());
        // Its cached extents are freed with it, and the shard shouldn't be locked for that.
        drop(shard);
        drop(inode);
    }

    /// Drops an inode that is about to be freed.
    pub fn remove(&self, number: InodeNumber) {
        let dropped = self.shard(number).lock().inodes.take(number.get());
        if let Some(inode) = dropped {
            inode.is_dropped.store(true, Ordering::Release);
        }
    }

    /// Drops the dentry caches when the image is closed. Threads might keep them alive otherwise.
    pub fn forget_names(&self) {
        for shard in &self.shards {
            let shard = shard.lock();
            let inodes = shard.inodes.values();
            let directories: Vec<_> =
                inodes.filter(|inode| inode.is_directory()).cloned().collect();
            drop(shard);
            for directory in directories {
                directory.is_dropped.store(true, Ordering::Release);
                if let Some(names) = directory.dentry_cache() {
                    names.clear();
                }
            }
        }
    }
}

impl InodeShard {
    /// Takes out some unused inodes.
    fn sweep(&mut self) -> Swept {
        let mut swept = Swept::default();
        for place in &mut swept {
            let Some(number) = self.ring.pop_front() else { break };
            // A number whose inode was freed leaves the ring here.
            let Some(inode) = self.inodes.get_mut(number) else { continue };
            // No thread can get another `Arc` of it: that takes the shard's lock.
            match Arc::get_mut(inode).and_then(Inode::references_to_keep) {
                Some(references) => {
                    *place = self.inodes.take(number);
                    if references > 0 {
                        self.parked.insert(number, references);
                    }
                }
                None => self.ring.push_back(number),
            }
        }
        swept
    }
}

impl Inode {
    /// Whether the number stands for something else now, or for nothing.
    pub(crate) fn is_dropped(&self) -> bool {
        self.is_dropped.load(Ordering::Acquire)
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
