//! One part of the table: entries by block number, and a clock hand that picks what to drop.
//!
//! # State
//!
//! `ring` holds the number of every entry, and each entry knows its place in it. The hand goes
//! round: a buffer touched since its last visit is spared once, a buffer that someone refers
//! to is skipped.

use crate::lock_classes::LOADING;
use crate::{Buffer, CacheStatistics};
use drystone_blockdev::DeviceResult;
use drystone_ondisk::NumberHasher;
use drystone_sync::atomic::Ordering;
use drystone_sync::{Arc, Condvar, Mutex};
use std::collections::HashMap;
use std::hash::BuildHasherDefault;

/// How many buffers the hand may look at for one insertion. If nearly all are in use, the cache
/// exceeds its budget for a while rather than search the whole ring at each insertion.
const HAND_STEPS_MAX: usize = 32;

/// A block on its way from the device.
#[derive(Debug)]
pub(crate) struct Loading {
    outcome: Mutex<Option<DeviceResult<Arc<Buffer>>>>,
    done: Condvar,
}

impl Loading {
    pub(crate) fn new() -> Self {
        Self { outcome: Mutex::new(&LOADING, None), done: Condvar::new() }
    }

    pub(crate) fn finish(&self, outcome: DeviceResult<Arc<Buffer>>) {
        *self.outcome.lock() = Some(outcome);
        self.done.notify_all();
    }

    pub(crate) fn wait(&self) -> DeviceResult<Arc<Buffer>> {
        let mut outcome = self.outcome.lock();
        loop {
            if let Some(outcome) = &*outcome {
                return outcome.clone();
            }
            self.done.wait(&mut outcome);
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) enum CacheSlot {
    Loading(Arc<Loading>),
    Ready(Arc<Buffer>),
}

#[derive(Debug)]
struct CacheEntry {
    slot: CacheSlot,
    place: usize,
}

#[derive(Debug)]
pub(crate) struct CacheShard {
    entries: HashMap<u64, CacheEntry, BuildHasherDefault<NumberHasher>>,
    ring: Vec<u64>,
    hand: usize,
    budget_blocks: usize,
    /// The byte counts are filled in by the cache.
    pub(crate) statistics: CacheStatistics,
}

impl CacheShard {
    pub(crate) fn new(budget_blocks: usize) -> Self {
        Self {
            entries: HashMap::default(),
            ring: Vec::new(),
            hand: 0,
            budget_blocks,
            statistics: CacheStatistics::default(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// What is known of `block`. Counts as a touch.
    pub(crate) fn get(&self, block: u64) -> Option<&CacheSlot> {
        let slot = &self.entries.get(&block)?.slot;
        if let CacheSlot::Ready(buffer) = slot {
            buffer.touch();
        }
        Some(slot)
    }

    /// Adds `block`, which has no entry, and drops others for it if the budget is reached.
    pub(crate) fn insert(&mut self, block: u64, slot: CacheSlot) {
        self.make_room();
        self.add(block, slot);
    }

    fn add(&mut self, block: u64, slot: CacheSlot) {
        let place = self.ring.len();
        self.ring.push(block);
        let previous = self.entries.insert(block, CacheEntry { slot, place });
        debug_assert!(previous.is_none(), "block {block} is inserted twice");
    }

    /// A load has ended.
    pub(crate) fn set_ready(&mut self, block: u64, buffer: Arc<Buffer>) {
        if let Some(entry) = self.entries.get_mut(&block) {
            entry.slot = CacheSlot::Ready(buffer);
        }
    }

    /// Takes the entry of `block` out.
    pub(crate) fn remove(&mut self, block: u64) -> Option<CacheSlot> {
        let entry = self.entries.remove(&block)?;
        self.ring.swap_remove(entry.place);
        if let Some(moved) = self.ring.get(entry.place)
            && let Some(moved) = self.entries.get_mut(moved)
        {
            moved.place = entry.place;
        }
        Some(entry.slot)
    }

    /// Drops a buffer that no one seems to refer to; false if someone does.
    fn evict(&mut self, block: u64) -> bool {
        let Some(CacheSlot::Ready(buffer)) = self.remove(block) else { return false };
        // A new reference comes from the table's, which needs this shard's lock, from another
        // reference, of which there is none, or from a weak one, which is impossible once this has
        // succeeded.
        match Arc::try_unwrap(buffer) {
            Ok(_) => true,
            Err(buffer) => {
                self.add(block, CacheSlot::Ready(buffer));
                false
            }
        }
    }

    fn make_room(&mut self) {
        for _ in 0..HAND_STEPS_MAX {
            if self.entries.len() < self.budget_blocks {
                return;
            }
            if self.hand >= self.ring.len() {
                self.hand = 0;
            }
            let Some(&block) = self.ring.get(self.hand) else { return };
            let is_idle = match self.entries.get(&block) {
                Some(CacheEntry { slot: CacheSlot::Ready(buffer), .. }) => {
                    Arc::strong_count(buffer) == 1
                        && !buffer.referenced.swap(false, Ordering::Relaxed)
                }
                _ => false,
            };
            if is_idle && self.evict(block) {
                self.statistics.evictions += 1;
            } else {
                self.hand += 1;
            }
        }
    }
}
