//! How many clusters are free in the whole image, and which callers may have the last ones.
//!
//! An allocation claims clusters here before it marks them, and a free gives them back. With
//! delayed allocation a write claims the clusters in advance. Clusters that wait for a commit count
//! as free.
//!
//! # State
//! A common pool, and a stash per core, from which claims are met and to which frees return without
//! a lock. A stash holds only clusters above the reserve. When the pool comes near the reserve, the
//! stashes are emptied into it and stay empty, so that each claim sees the exact number.
//!
//! Besides the blocks that the image reserves for privileged callers, some clusters are reserved
//! for nodes of mappings: a write into the middle of an unwritten extent splits it, and must not
//! fail because the image is full.
//!
//! # Locking
//! The pool has a lock, taken inside a group's lock, once per batch.
//!
//! # Invariants
//! Pool and stashes together are the sum of the free counts in the descriptors of undamaged groups,
//! less what is claimed but not marked yet. An allocation claims and marks under the group's lock.
//! A [promise](super::BlockAllocator::promise) holds no lock and lasts until the data gets its
//! blocks, which may be seconds.

use super::request::Reach;
use crate::lock_classes;
use crate::volume::Volume;
use drystone_ext4_format::features::Incompat;
use drystone_ext4_format::layout::Layout;
use drystone_ext4_format::superblock::Superblock;
use drystone_sync::atomic::{AtomicBool, AtomicI64, Ordering};
use drystone_sync::{Mutex, PerCore};

/// The most that a core sets aside at once.
const BATCH_MAX: i64 = 1024;

/// Clusters reserved for nodes of mappings: one of so many, and no more than this. Linux reserves
/// as many.
const NODES_ONE_IN: u64 = 50;
const NODES_MAX: u64 = 4096;

/// How many clusters of `total` are reserved for nodes.
fn kept_for_nodes(total: u64) -> u64 {
    (total / NODES_ONE_IN).min(NODES_MAX)
}

/// Clusters of the whole image, and those that not everybody may have.
#[derive(Clone, Copy, Debug)]
pub(super) struct SpaceLimits {
    pub total: u64,
    /// For privileged callers.
    pub reserved: u64,
    /// For nodes of mappings.
    pub for_nodes: u64,
}

impl SpaceLimits {
    pub fn of(volume: &Volume, layout: &Layout) -> SpaceLimits {
        let total = layout.clusters_for(layout.blocks_count());
        let reserved_blocks = volume.with_superblock(Superblock::reserved_blocks_count);
        let has_extents = volume.features.incompat.contains(Incompat::EXTENTS);
        SpaceLimits {
            total,
            reserved: reserved_blocks >> layout.log_cluster_ratio(),
            for_nodes: if has_extents { kept_for_nodes(total) } else { 0 },
        }
    }
}

/// The number of free clusters.
#[derive(Debug)]
pub(super) struct FreeSpace {
    /// Held to change the pool.
    change: Mutex<()>,
    pool: AtomicI64,
    stashes: PerCore<AtomicI64>,
    /// Set while the pool is so near the reserve that nothing may be stashed.
    low: AtomicBool,
    /// Clusters that only privileged callers and nodes of mappings may have. It and the next three
    /// change only when the image grows.
    reserved: AtomicI64,
    /// Of these, the clusters that only nodes may have.
    for_nodes: AtomicI64,
    batch: AtomicI64,
    low_mark: AtomicI64,
}

impl FreeSpace {
    /// Starts with `free` clusters.
    pub fn new(free: u64, limits: SpaceLimits) -> Self {
        Self::with_stashes(PerCore::new(|_| AtomicI64::new(0)), free, limits)
    }

    fn with_stashes(stashes: PerCore<AtomicI64>, free: u64, limits: SpaceLimits) -> Self {
        let [reserved, for_nodes, batch, low_mark] = [(); 4].map(|()| AtomicI64::new(0));
        let space = Self {
            change: Mutex::new(&lock_classes::FREE_SPACE, ()),
            pool: AtomicI64::new(0),
            stashes,
            low: AtomicBool::new(false),
            reserved,
            for_nodes,
            batch,
            low_mark,
        };
        space.grow(free as i64, limits);
        space
    }

    /// Adds the clusters that are `free` in what the image has grown by, and sets its new limits.
    pub fn grow(&self, free: i64, limits: SpaceLimits) {
        let _change = self.change.lock();
        let reserved = (limits.reserved + limits.for_nodes) as i64;
        let slots = self.stashes.slot_count() as i64;
        let batch = (limits.total as i64 / (slots * 64)).min(BATCH_MAX);
        self.reserved.store(reserved, Ordering::Relaxed);
        self.for_nodes.store(limits.for_nodes as i64, Ordering::Relaxed);
        self.batch.store(batch, Ordering::Relaxed);
        // Each core may hold two batches before it gives one back.
        self.low_mark.store(reserved + slots * batch * 2, Ordering::Relaxed);
        self.add(free);
        self.settle();
    }

    /// Takes up to `wanted` clusters out of the count; returns how many were granted.
    pub fn claim(&self, wanted: u32, reach: Reach) -> u32 {
        let amount = i64::from(wanted);
        if !self.low.load(Ordering::Relaxed) && take_all(self.stashes.current(), amount) {
            return wanted;
        }
        let _change = self.change.lock();
        if self.pool() - amount < self.low_mark.load(Ordering::Relaxed) {
            self.drain();
        }
        let floor = match reach {
            Reach::Common => self.reserved.load(Ordering::Relaxed),
            Reach::Privileged => self.for_nodes.load(Ordering::Relaxed),
            Reach::All => 0,
        };
        let granted = amount.min(self.pool() - floor).max(0);
        self.add(-granted);
        self.settle();
        if !self.low.load(Ordering::Relaxed) {
            let batch = self.batch();
            self.add(-batch);
            self.stashes.current().fetch_add(batch, Ordering::Relaxed);
        }
        // Not above `wanted`, so it fits.
        granted as u32
    }

    /// Puts `count` clusters back.
    pub fn release(&self, count: u32) {
        let amount = i64::from(count);
        if self.low.load(Ordering::Relaxed) {
            let _change = self.change.lock();
            self.add(amount);
            self.settle();
            return;
        }
        let stash = self.stashes.current();
        if stash.fetch_add(amount, Ordering::Relaxed) + amount > 2 * self.batch() {
            let _change = self.change.lock();
            self.add(stash.swap(0, Ordering::Relaxed));
        }
    }

    /// Takes `count` clusters out of the count for good: those of a damaged group.
    pub fn withdraw(&self, count: u32) {
        let _change = self.change.lock();
        self.drain();
        self.add(-i64::from(count));
        self.settle();
    }

    /// The number of free clusters: exact if no thread changes it meanwhile.
    pub fn sum(&self) -> u64 {
        let stashed: i64 = self.stashes.iter().map(|stash| stash.load(Ordering::Relaxed)).sum();
        (self.pool() + stashed).max(0) as u64
    }

    /// Whether so little is free that nothing may be set aside.
    pub fn is_low(&self) -> bool {
        self.low.load(Ordering::Relaxed)
    }

    /// The number of clusters that only privileged callers and nodes may have.
    pub fn reserved(&self) -> u64 {
        self.reserved.load(Ordering::Relaxed) as u64
    }

    fn batch(&self) -> i64 {
        self.batch.load(Ordering::Relaxed)
    }

    fn pool(&self) -> i64 {
        self.pool.load(Ordering::Relaxed)
    }

    fn add(&self, amount: i64) {
        self.pool.fetch_add(amount, Ordering::Relaxed);
    }

    /// Empties the stashes into the pool.
    fn drain(&self) {
        for stash in self.stashes.iter() {
            self.add(stash.swap(0, Ordering::Relaxed));
        }
    }

    /// Decides again whether the pool is low. Called whenever the pool has shrunk, or has grown
    /// while low.
    fn settle(&self) {
        let batch = self.batch();
        let low_mark = self.low_mark.load(Ordering::Relaxed);
        let low = batch == 0 || self.pool() < low_mark + batch;
        if low != self.low.load(Ordering::Relaxed) {
            self.low.store(low, Ordering::Relaxed);
            self.drain();
        }
    }
}

/// Takes `amount` from a stash if it holds that much.
fn take_all(stash: &AtomicI64, amount: i64) -> bool {
    stash
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |held| {
            (held >= amount).then(|| held - amount)
        })
        .is_ok()
}

#[cfg(test)]
mod tests {
    use super::super::request::Reach::{All, Common, Privileged};
    use super::*;
    use drystone_sync::thread;

    fn space(slots: usize, free: u64, total: u64, reserved: u64, for_nodes: u64) -> FreeSpace {
        let stashes = PerCore::with_slots(slots, |_| AtomicI64::new(0));
        FreeSpace::with_stashes(stashes, free, SpaceLimits { total, reserved, for_nodes })
    }

    #[test]
    fn the_last_are_for_nodes() {
        let space = space(4, 1000, 100_000, 100, 30);
        assert_eq!(space.claim(1000, Common), 870);
        assert_eq!(space.claim(1000, Privileged), 100);
        assert_eq!(space.claim(1, Privileged), 0);
        assert_eq!(space.claim(1000, All), 30);
        space.release(31);
        assert_eq!(space.claim(2, Privileged), 1);
        assert_eq!(kept_for_nodes(1000), 20);
        assert_eq!(kept_for_nodes(1 << 40), 4096);
    }

    #[test]
    fn grants_down_to_the_reserve_and_no_further() {
        let space = space(4, 1000, 100_000, 100, 0);
        assert_eq!(space.claim(850, Common), 850);
        assert_eq!(space.claim(100, Common), 50);
        assert_eq!(space.claim(1, Common), 0);
        assert_eq!(space.claim(200, All), 100);
        assert_eq!(space.claim(1, All), 0);
        space.release(101);
        assert_eq!(space.claim(200, Common), 1);
        assert_eq!(space.sum(), 100);
    }

    #[test]
    fn many_threads_get_exactly_what_there_is() {
        let space = space(8, 200_000, 200_000, 1000, 0);
        let granted: u64 = thread::scope(|scope| {
            let takers: Vec<_> = (1..5)
                .map(|size| {
                    let space = &space;
                    scope.spawn(move || {
                        let mut mine = 0u64;
                        loop {
                            let granted = space.claim(size * 7, Common);
                            mine += u64::from(granted);
                            if granted == 0 {
                                return mine;
                            }
                            // Only after a full grant, or two threads could pass the rest to and
                            // fro.
                            if granted == size * 7 && mine.is_multiple_of(5) {
                                space.release(3);
                                mine -= 3;
                            }
                        }
                    })
                })
                .collect();
            takers.into_iter().map(|taker| taker.join().unwrap()).sum()
        });
        // The last thread to release clusters may have done so after the others had given up.
        let left = space.sum() - 1000;
        assert_eq!(granted + left, 199_000);
        assert_eq!(u64::from(space.claim(u32::MAX, Common)), left);
        assert_eq!(space.sum(), 1000);
        space.release(200_000);
        assert_eq!(space.sum(), 201_000);
    }
}
