//! The cache of extents: what is known about the blocks of files, over their mapping in the image.
//!
//! # State
//! A tree of facts for each inode ([`ExtentCacheTree`]), made when there is something worth to be kept: where the
//! root in the inode names at most one extent, looking there is cheaper than looking here. All facts
//! but delayed data are also in the image, and may be dropped at any time. When a mount has more of
//! them than its budget, whoever added one runs a pass of the reclaimer, in the form that
//! `extent-reclaim` says.
//!
//! # Locking
//! An inode's facts change with its content lock held: shared to add what the image says, exclusively
//! to follow a change of the mapping. The tree's own lock is for look-ups side by side, and for the
//! reclaimer, who has no other. Look-ups take no lock that inodes share.
//!
//! # Invariants
//! - What is cached is what the image says. A change of the mapping is noted, or what is known about its
//!   range is forgotten, before its content lock is released.
//! - Noting never fails after the image has changed: without memory the range is forgotten. Where data
//!   waits, which can't be forgotten, room is taken before.
//! - With `lru-reclaimable` and `round-robin` the reclaimer's list holds an inode exactly while it has
//!   facts that may be dropped.

mod extent;
mod list;
mod lru;
mod mapped;
mod round_robin;
mod statistics;
#[cfg(test)]
mod tests;
mod tree;

pub(crate) use extent::{CachedExtent, ExtentState};
pub(crate) use mapped::MappedRun;
pub use statistics::ExtentStatusStatistics;

use crate::lock_classes;
use crate::policy::ExtentReclaim;
use drystone_sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use drystone_sync::{Arc, OnceLock, RwLock, RwLockWriteGuard, clock};
use lru::{Lru, Members};
use round_robin::RoundRobin;
use statistics::{ExtentCounts, ReclaimPass};
use tree::ExtentCacheTree;

/// Bytes that a cached extent is counted with: its entry, and as much again for room in its chunk and
/// for what its inode has beside it.
const EXTENT_BYTES: usize = 32;
/// Passes that one change runs at most, where one isn't enough.
const PASSES_MAX: usize = 4;

/// What the reclaimers have in common.
trait Reclaim: std::fmt::Debug + Send + Sync {
    /// A tree was changed; its lock is given up in here.
    fn changed(&self, inode: &Arc<CachedInode>, tree: RwLockWriteGuard<'_, ExtentCacheTree>);

    /// An inode leaves memory, and its tree is empty.
    fn forget(&self, inode: &CachedInode);

    /// Drops some facts.
    fn pass(&self) -> ReclaimPass;

    /// Whether it goes by when inodes were touched last.
    fn orders_by_touch(&self) -> bool;

    /// Whether an inode is listed if and only if it should be.
    #[cfg(test)]
    fn is_listed_rightly(&self, inode: &CachedInode) -> bool;

    /// The inodes that are listed, in order.
    #[cfg(test)]
    fn listed(&self) -> Vec<Arc<CachedInode>>;
}

/// The facts of one inode.
#[derive(Debug)]
struct CachedInode {
    tree: RwLock<ExtentCacheTree>,
    /// Facts in the tree, to see without its lock that there are none.
    length: AtomicUsize,
    /// Nothing is known from this block on, to see that without the lock as well.
    end: AtomicU64,
    /// Where the reclaimer's list has the inode.
    place: AtomicU32,
    /// The time of the last look-up or change, where the reclaimer goes by it.
    touched: AtomicU64,
}

impl CachedInode {
    fn place(&self) -> u32 {
        self.place.load(Ordering::Relaxed)
    }

    fn set_place(&self, place: u32) {
        self.place.store(place, Ordering::Relaxed);
    }

    fn touched(&self) -> u64 {
        self.touched.load(Ordering::Relaxed)
    }

    fn touch(&self) {
        let now = clock::coarse_ns();
        if self.touched() != now {
            self.touched.store(now, Ordering::Relaxed);
        }
    }

    fn is_empty(&self) -> bool {
        self.length.load(Ordering::Relaxed) == 0
    }

    fn note_length(&self, tree: &ExtentCacheTree) {
        self.length.store(tree.len(), Ordering::Relaxed);
        self.end.store(tree.end(), Ordering::Relaxed);
    }
}

/// What an inode has of the cache.
#[derive(Debug, Default)]
pub(crate) struct InodeExtents {
    owned: OnceLock<OwnedExtents>,
}

/// The facts of an inode, until it leaves memory.
#[derive(Debug)]
struct OwnedExtents {
    cached: Arc<CachedInode>,
    status: Arc<ExtentStatus>,
}

impl Drop for OwnedExtents {
    fn drop(&mut self) {
        self.status.forget_inode(&self.cached);
    }
}

impl InodeExtents {
    /// The facts, if there are any.
    fn any(&self) -> Option<&Arc<CachedInode>> {
        self.owned.get().map(|owned| &owned.cached).filter(|cached| !cached.is_empty())
    }
}

/// The cache of a mount.
#[derive(Debug)]
pub(crate) struct ExtentStatus {
    reclaimer: Box<dyn Reclaim>,
    /// Whether the reclaimer goes by when inodes were touched last.
    is_touch_noted: bool,
    counts: ExtentCounts,
    extents_max: u64,
}

impl ExtentStatus {
    /// A cache that keeps to so many bytes.
    pub fn new(policy: ExtentReclaim, budget_bytes: usize) -> ExtentStatus {
        let reclaimer: Box<dyn Reclaim> = match policy {
            ExtentReclaim::LruSorted => Box::new(Lru::new(Members::All)),
            ExtentReclaim::LruReclaimable => Box::new(Lru::new(Members::Droppable)),
            ExtentReclaim::RoundRobin => Box::new(RoundRobin::new()),
        };
        let extents_max = (budget_bytes / EXTENT_BYTES) as u64;
        let is_touch_noted = reclaimer.orders_by_touch();
        ExtentStatus { reclaimer, is_touch_noted, counts: ExtentCounts::new(), extents_max }
    }

    /// What the cache has done so far.
    pub fn statistics(&self) -> ExtentStatusStatistics {
        self.counts.statistics(self.extents_max)
    }

    /// What is at a block and those behind it, if that is known.
    #[inline]
    pub fn lookup(
        &self,
        extents: &InodeExtents,
        logical: u32,
        length_max: u32,
    ) -> Option<MappedRun> {
        let inode = extents.any()?;
        let found = inode.tree.read().lookup(logical)?;
        self.note_touch(inode);
        self.counts.hits.add(1);
        Some(found.mapped(logical, length_max))
    }

    #[inline]
    fn note_touch(&self, inode: &CachedInode) {
        if self.is_touch_noted {
            inode.touch();
        }
    }

    /// Keeps what a look-up found in the image.
    pub fn found(self: &Arc<Self>, extents: &InodeExtents, fact: CachedExtent) {
        self.counts.misses.add(1);
        self.change(self.owned(extents), |tree| {
            if tree.reserve(u64::from(fact.logical)) {
                tree.set(fact);
            }
        });
    }

    /// The facts of an inode, which may be none yet.
    fn owned<'a>(self: &Arc<Self>, extents: &'a InodeExtents) -> &'a Arc<CachedInode> {
        let owned = extents.owned.get_or_init(|| OwnedExtents {
            cached: Arc::new(CachedInode {
                tree: RwLock::new(&lock_classes::EXTENTS, ExtentCacheTree::default()),
                length: AtomicUsize::new(0),
                end: AtomicU64::new(0),
                place: AtomicU32::new(list::NONE),
                touched: AtomicU64::new(0),
            }),
            status: Arc::clone(self),
        });
        &owned.cached
    }

    /// Notes that a hole gets data that waits for its blocks. False, and nothing noted, if there is no
    /// memory.
    pub fn delay(self: &Arc<Self>, extents: &InodeExtents, logical: u32, length: u32) -> bool {
        let mut has_room = false;
        self.change(self.owned(extents), |tree| {
            has_room = tree.reserve(u64::from(logical));
            if has_room {
                tree.set(CachedExtent {
                    logical,
                    length,
                    physical: 0,
                    status: ExtentState::Delayed,
                });
            }
        });
        has_room
    }

    /// What the image says about a block and those around it, as far as no data waits there. None does
    /// at the block itself.
    pub fn beside_delayed(
        &self,
        extents: &InodeExtents,
        fact: CachedExtent,
        logical: u32,
    ) -> CachedExtent {
        let Some(inode) = extents.any().filter(|_| fact.status == ExtentState::Hole) else {
            return fact;
        };
        let (from, end) = (u64::from(logical), fact.end());
        let next = inode.tree.read().first_overlapping(from, end);
        let end = next.map_or(end, |next| u64::from(next.logical));
        fact.overlap(from, end).unwrap_or(fact)
    }

    /// Takes the room for what a change of the mapping will have to be noted as, where data waits: that
    /// can't be forgotten, so it has to be known before the change whether there is memory.
    pub fn prepare(&self, extents: &InodeExtents, logical: u32) -> bool {
        extents.any().is_none_or(|inode| inode.tree.write().reserve(u64::from(logical)))
    }

    /// Notes what a change of the mapping has put at a range.
    pub fn set(&self, extents: &InodeExtents, fact: CachedExtent) {
        if let Some(inode) = extents.any() {
            self.change(inode, |tree| {
                if !tree.extend(&fact) {
                    // Without room what is known is forgotten instead; where data waits there is some.
                    tree.reserve(u64::from(fact.logical));
                    tree.set(fact);
                }
            });
        }
    }

    /// Notes that what is mapped of a range is written or unwritten from now on.
    pub fn convert(&self, extents: &InodeExtents, from: u64, to: u64, status: ExtentState) {
        if let Some(inode) = extents.any() {
            self.change(inode, |tree| tree.convert(from, to, status));
        }
    }

    /// Forgets what is known about `[from, to)`, but for data that waits.
    pub fn forget(&self, extents: &InodeExtents, from: u64, to: u64) {
        if let Some(inode) = extents.any()
            && from < inode.end.load(Ordering::Relaxed)
        {
            self.change(inode, |tree| tree.forget_droppable(from, to));
        }
    }

    /// Forgets everything, also data that waited: the inode is freed.
    pub fn forget_all(&self, extents: &InodeExtents) {
        if let Some(inode) = extents.any() {
            self.change(inode, |tree| tree.forget(0, u64::MAX));
        }
    }

    fn change(&self, inode: &Arc<CachedInode>, change: impl FnOnce(&mut ExtentCacheTree)) {
        let mut tree = inode.tree.write();
        let before = (tree.len() as i64, tree.droppable() as i64);
        change(&mut tree);
        let added = tree.len() as i64 - before.0;
        let droppable = tree.droppable() as i64 - before.1;
        inode.note_length(&tree);
        self.note_touch(inode);
        self.reclaimer.changed(inode, tree);
        if droppable != 0 {
            self.counts.droppable.add(droppable);
        }
        if added != 0
            && let Some(cached) = self.counts.cached.add(added)
            && cached > self.extents_max
        {
            self.shrink();
        }
    }

    /// Brings the cache back to its budget, or nearer to it.
    #[cold]
    fn shrink(&self) {
        for _ in 0..PASSES_MAX {
            let cpu_start_ns = clock::thread_cpu_ns();
            let start = clock::now();
            let pass = self.reclaimer.pass();
            let elapsed_ns = start.elapsed_ns();
            let cpu_ns = clock::thread_cpu_ns().saturating_sub(cpu_start_ns);
            self.counts.pass(&pass, elapsed_ns, cpu_ns);
            if pass.dropped == 0 || self.counts.cached.settled() <= self.extents_max {
                return;
            }
        }
    }

    /// An inode leaves memory.
    fn forget_inode(&self, inode: &CachedInode) {
        let tree = std::mem::take(&mut *inode.tree.write());
        self.counts.cached.add(-(tree.len() as i64));
        self.counts.droppable.add(-(tree.droppable() as i64));
        inode.length.store(0, Ordering::Relaxed);
        self.reclaimer.forget(inode);
    }
}
