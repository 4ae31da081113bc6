//! The running transaction, and what is left of it once it has closed.
//!
//! # State
//!
//! One `Transaction` lives as long as the journal and is always the running one: closing it takes
//! its lists out and raises its number. So a handle needs no reference to a transaction, and no
//! reference count is shared.
//!
//! Transaction numbers (tids) exist in memory and also count transactions without changes. The
//! sequence numbers in the log count only those written.

use crate::credits::Credits;
use crate::lock_classes::{BUFFERS, REVOKES};
use drystone_cache::{BlockBytes, Buffer, JournalDoor};
use drystone_sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use drystone_sync::{Arc, Mutex, PerCore};
use std::collections::HashSet;

pub(crate) struct RunningTransaction {
    tid: AtomicU64,
    pub(crate) credits: Credits,
    max_blocks: u32,
    /// Each buffer once, in the list of the core whose handle joined it.
    buffers: PerCore<Mutex<Vec<Arc<Buffer>>>>,
    revokes: Mutex<HashSet<u64>>,
    /// How many there are; zero spares a join the lock.
    revoke_count: AtomicUsize,
}

/// A closed transaction's block as it is to be written.
pub(crate) struct Frozen {
    pub(crate) buffer: Arc<Buffer>,
    pub(crate) bytes: BlockBytes,
}

/// A closed transaction.
#[derive(Default)]
pub(crate) struct ClosedTransaction {
    pub(crate) tid: u64,
    pub(crate) buffers: Vec<Arc<Buffer>>,
    pub(crate) revokes: Vec<u64>,
}

impl ClosedTransaction {
    /// Whether there is nothing to write.
    pub(crate) fn is_empty(&self) -> bool {
        self.buffers.is_empty() && self.revokes.is_empty()
    }

    /// The blocks of a closed transaction, by block number. Blocks that the next transaction has
    /// changed were frozen at that time; freed blocks are left out.
    pub(crate) fn freeze(&self) -> Vec<Frozen> {
        let freeze = |buffer: &Arc<Buffer>| {
            let bytes = JournalDoor::to(buffer).freeze(self.tid)?;
            Some(Frozen { buffer: buffer.clone(), bytes })
        };
        let mut frozen: Vec<Frozen> = self.buffers.iter().filter_map(freeze).collect();
        frozen.sort_unstable_by_key(|block| block.buffer.number());
        debug_assert!(
            frozen.is_sorted_by(|a, b| a.buffer.number() < b.buffer.number()),
            "a transaction holds two buffers of one block"
        );
        frozen
    }
}

impl RunningTransaction {
    pub(crate) fn new(tid: u64, max_blocks: u32) -> Self {
        Self {
            tid: AtomicU64::new(tid),
            credits: Credits::new(max_blocks),
            max_blocks,
            buffers: PerCore::new(|_| Mutex::new(&BUFFERS, Vec::new())),
            revokes: Mutex::new(&REVOKES, HashSet::new()),
            revoke_count: AtomicUsize::new(0),
        }
    }

    /// The number; stays the same while a handle is open.
    pub(crate) fn tid(&self) -> u64 {
        self.tid.load(Ordering::Relaxed)
    }

    pub(crate) fn max_blocks(&self) -> u32 {
        self.max_blocks
    }

    pub(crate) fn add_buffer(&self, core: usize, buffer: &Arc<Buffer>) {
        self.buffers.slot(core).lock().push(buffer.clone());
    }

    /// Revokes `block`. Every `per_block` revokes take the room of one block.
    pub(crate) fn revoke(&self, block: u64, per_block: usize) {
        if drystone_sync::planted!("no-revoke") {
            return;
        }
        let mut revokes = self.revokes.lock();
        if revokes.insert(block) {
            self.revoke_count.store(revokes.len(), Ordering::Relaxed);
            if revokes.len() % per_block == 1 {
                self.credits.charge();
            }
        }
    }

    /// Undoes a revoke of `block` in this transaction: its new content is to be replayed.
    pub(crate) fn cancel_revoke(&self, block: u64) {
        // A block's revoke and its next use are ordered by whatever frees and allocates it.
        if self.revoke_count.load(Ordering::Relaxed) > 0 {
            let mut revokes = self.revokes.lock();
            revokes.remove(&block);
            self.revoke_count.store(revokes.len(), Ordering::Relaxed);
        }
    }

    /// Whether the transaction has room for `credits` more once open handles have given back what
    /// they don't use. If not, only the next transaction has.
    pub(crate) fn could_hold(&self, credits: u32) -> bool {
        let joined: usize = self.buffers.iter().map(|buffers| buffers.lock().len()).sum();
        joined as i64 + self.credits.charged() + i64::from(credits) <= i64::from(self.max_blocks)
    }

    /// Whether there is something to commit. The answer may be outdated at once unless the gate is
    /// closed.
    pub(crate) fn is_empty(&self) -> bool {
        self.revoke_count.load(Ordering::Relaxed) == 0
            && self.buffers.iter().all(|buffers| buffers.lock().is_empty())
    }

    /// Takes the lists and starts the next transaction. Called while the gate is closed.
    pub(crate) fn close(&self) -> ClosedTransaction {
        let mut buffers = Vec::new();
        for list in self.buffers.iter() {
            buffers.append(&mut list.lock());
        }
        let revokes = self.revokes.lock().drain().collect();
        self.revoke_count.store(0, Ordering::Relaxed);
        let tid = self.tid();
        self.tid.store(tid + 1, Ordering::Relaxed);
        self.credits.reset(self.max_blocks);
        ClosedTransaction { tid, buffers, revokes }
    }
}
