//! Extent status: a cache of the extents of files, in front of their mapping in the image.
//!
//! # State
//! Each inode has a tree of cached extents ([`ExtentCacheTree`]), made when it is first useful:
//! while the root in the inode has at most one extent, a look-up there is cheaper. All cached
//! extents but delayed ones are also in the image, and may be dropped at any time. When a mount has
//! more of them than its budget, the thread that added one runs a pass of the reclaimer, in the
//! variant that `extent-reclaim` selects.
//!
//! # Locking
//! An inode's cached extents change with its content lock held: shared to add an extent from the
//! image, exclusively to follow a change of the mapping. The tree's own lock serves concurrent
//! look-ups, and the reclaimer, which holds no content lock. Look-ups take no lock that inodes
//! share.
//!
//! # Invariants
//! - Cached extents agree with the image. Before a thread that changes a mapping releases the
//!   content lock, it notes the change, or forgets the cached extents of the range.
//! - Noting never fails after the image has changed: without memory, the range is forgotten.
//!   Delayed extents can't be forgotten, so where there are some, room is reserved before.
//! - With `lru-reclaimable` and `round-robin`, the reclaimer's list holds an inode exactly while it
//!   has droppable extents.

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

/// Bytes that a cached extent counts as: its entry, and as much again for unused room in its chunk
/// and for the data per inode.
const EXTENT_BYTES: usize = 32;
/// The most passes that one change runs.
const PASSES_MAX: usize = 4;

/// A variant of the reclaimer.
trait Reclaim: std::fmt::Debug + Send + Sync {
    /// Called after a change of a tree; releases its lock.
    fn changed(&self, inode: &Arc<CachedInode>, tree: RwLockWriteGuard<'_, ExtentCacheTree>);

    /// Called when an inode leaves memory, with an empty tree.
    fn forget(&self, inode: &CachedInode);

    /// Runs a pass, which drops some extents.
    fn pass(&self) -> ReclaimPass;

    /// Whether it needs the time when inodes were last touched.
    fn orders_by_touch(&self) -> bool;

    /// Whether an inode is listed if and only if it should be.
    #[cfg(test)]
    fn is_listed_rightly(&self, inode: &CachedInode) -> bool;

    /// The listed inodes, in order.
    #[cfg(test)]
    fn listed(&self) -> Vec<Arc<CachedInode>>;
}

/// The cached extents of one inode.
#[derive(Debug)]
struct CachedInode {
    tree: RwLock<ExtentCacheTree>,
    /// The number of extents in the tree, to see without its lock that there are none.
    length: AtomicUsize,
    /// The end of the last cached extent, to read without the lock.
    end: AtomicU64,
    /// The inode's node in the reclaimer's list.
    place: AtomicU32,
    /// The time of the last look-up or change, if the reclaimer needs it.
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

/// An inode's part of the cache.
#[derive(Debug, Default)]
pub(crate) struct InodeExtents {
    owned: OnceLock<OwnedExtents>,
}

/// The cached extents of an inode, until it leaves memory.
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
    /// The cached extents, if there are any.
    fn any(&self) -> Option<&Arc<CachedInode>> {
        self.owned.get().map(|owned| &owned.cached).filter(|cached| !cached.is_empty())
    }
}

/// The cache of a mount.
#[derive(Debug)]
pub(crate) struct ExtentStatus {
    reclaimer: Box<dyn Reclaim>,
    /// Whether the reclaimer needs the time when inodes were last touched.
    is_touch_noted: bool,
    counts: ExtentCounts,
    extents_max: u64,
}

impl ExtentStatus {
    /// A cache with a budget of `budget_bytes`.
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

    /// The counts of the cache.
    pub fn statistics(&self) -> ExtentStatusStatistics {
        self.counts.statistics(self.extents_max)
    }

    /// The mapping of a block and those after it, if it is cached.
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

    /// Caches an extent that a look-up found in the image.
    pub fn found(self: &Arc<Self>, extents: &InodeExtents, fact: CachedExtent) {
        self.counts.misses.add(1);
        self.change(self.owned(extents), |tree| {
            if tree.reserve(u64::from(fact.logical)) {
                tree.set(fact);
            }
        });
    }

    /// The cached extents of an inode, created if there are none yet.
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

    /// Notes delayed data in a hole. Without memory, notes nothing and returns false.
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

    /// Cuts a hole that was found in the image: to the part from `logical` up to the next delayed
    /// data. There is none at `logical` itself.
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

    /// Reserves room to note a change of the mapping at `logical`; false if there is no memory.
    /// Delayed extents can't be forgotten, so a caller must know before the change that noting it
    /// will succeed.
    pub fn prepare(&self, extents: &InodeExtents, logical: u32) -> bool {
        extents.any().is_none_or(|inode| inode.tree.write().reserve(u64::from(logical)))
    }

    /// Notes an extent that a change of the mapping has made.
    pub fn set(&self, extents: &InodeExtents, fact: CachedExtent) {
        if let Some(inode) = extents.any() {
            self.change(inode, |tree| {
                if !tree.extend(&fact) {
                    // Without room the range is forgotten instead. Where data is delayed, `prepare`
                    // has made room.
                    tree.reserve(u64::from(fact.logical));
                    tree.set(fact);
                }
            });
        }
    }

    /// Notes that the mapped blocks of a range are now written, or unwritten.
    pub fn convert(&self, extents: &InodeExtents, from: u64, to: u64, status: ExtentState) {
        if let Some(inode) = extents.any() {
            self.change(inode, |tree| tree.convert(from, to, status));
        }
    }

    /// Forgets the cached extents in `[from, to)`, except delayed ones.
    pub fn forget(&self, extents: &InodeExtents, from: u64, to: u64) {
        if let Some(inode) = extents.any()
            && from < inode.end.load(Ordering::Relaxed)
        {
            self.change(inode, |tree| tree.forget_droppable(from, to));
        }
    }

    /// Forgets everything, including delayed extents: the inode is being freed.
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

    /// Runs passes until the cache is within its budget, or nearer to it.
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

    /// Forgets an inode that leaves memory.
    fn forget_inode(&self, inode: &CachedInode) {
        let tree = std::mem::take(&mut *inode.tree.write());
        self.counts.cached.add(-(tree.len() as i64));
        self.counts.droppable.add(-(tree.droppable() as i64));
        inode.length.store(0, Ordering::Relaxed);
        self.reclaimer.forget(inode);
    }
}
