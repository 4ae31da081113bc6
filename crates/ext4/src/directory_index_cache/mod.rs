//! Directory index cache: the entries of a hashed directory's index blocks, to be searched without a lock.
//!
//! # State
//! The entries of the root and of the nodes below it ([`IndexEntryWords`]). Memory comes from the budget of the
//! dentry cache; when that is used up, nothing is added. What isn't cached is searched in the blocks, as is an index
//! with more than one level of nodes.
//!
//! # Locking
//! The content lock is held. A search shares it, and needs no other lock. A thread that caches a block or adds
//! an entry shares it too, and holds the lock of the index exclusively. All other changes of an index hold the
//! content lock exclusively, and empty the cache.
//!
//! # Invariants
//! The entries of a block are those in its buffer, or, while the index is locked exclusively, those before the
//! change.

mod words;

use crate::dentry_cache::DentryBudget;
use drystone_ext4_format::LogicalBlock;
use drystone_ext4_format::hash::HashVersion;
use drystone_ext4_format::htree::{IndexBlock, IndexEntry};
use drystone_sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicUsize, Ordering};
use drystone_sync::{Arc, OnceLock};
use words::IndexEntryWords;
pub(crate) use words::IndexMiss;

/// After the budget had no memory, so many searches pass before it is asked again.
const REFUSED_SEARCHES: u32 = 1024;

/// The cached index of one directory.
#[derive(Debug)]
pub(crate) struct DirectoryIndexCache {
    root: OnceLock<Box<CachedRoot>>,
    /// The index can't be cached; until the cache is emptied.
    is_off: AtomicBool,
    /// Searches to pass before memory is asked for again.
    refused: AtomicU32,
    /// Bytes that were taken from the budget.
    bytes: AtomicUsize,
    budget: Arc<DentryBudget>,
}

#[derive(Debug)]
struct CachedRoot {
    /// The hash function, which stays the same.
    version: HashVersion,
    /// Levels of nodes below: 0 or 1.
    levels: AtomicU8,
    entries: IndexEntryWords,
    /// The nodes, by the position of their entry in the root.
    nodes: OnceLock<Box<[OnceLock<IndexEntryWords>]>>,
}

/// The leaf for a name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CachedLeaf {
    pub leaf: LogicalBlock,
    pub hash: u32,
    /// The entry after that of the leaf, if there is one.
    pub bound: Option<IndexEntry>,
}

impl DirectoryIndexCache {
    /// Nothing is cached.
    pub fn new(budget: &Arc<DentryBudget>) -> DirectoryIndexCache {
        DirectoryIndexCache {
            root: OnceLock::new(),
            is_off: AtomicBool::new(false),
            refused: AtomicU32::new(0),
            bytes: AtomicUsize::new(0),
            budget: Arc::clone(budget),
        }
    }

    /// The leaf where names of a hash start, if its index blocks are cached and don't change just now.
    #[inline]
    pub fn find(&self, hash_of: impl FnOnce(HashVersion) -> u32) -> Result<CachedLeaf, IndexMiss> {
        let root = self.root.get().ok_or(IndexMiss::Unknown)?;
        let hash = hash_of(root.version);
        let above = root.entries.search(hash)?;
        if root.levels.load(Ordering::Relaxed) == 0 {
            return Ok(CachedLeaf { leaf: above.entry.block, hash, bound: above.next });
        }
        let node = root.node(above.position).ok_or(IndexMiss::Unknown)?.search(hash)?;
        Ok(CachedLeaf { leaf: node.entry.block, hash, bound: node.next.or(above.next) })
    }

    /// Whether a search that found blocks unknown should cache them.
    pub fn wants_blocks(&self) -> bool {
        if self.is_off.load(Ordering::Relaxed) {
            return false;
        }
        let refused = self.refused.load(Ordering::Relaxed);
        if refused > 0 {
            // Searches at the same time may count as one: it is only a delay.
            self.refused.store(refused - 1, Ordering::Relaxed);
        }
        refused == 0
    }

    /// Caches the root, unless it is known. The index is locked exclusively.
    pub fn add_root(&self, root: &IndexBlock<'_>) {
        let (Some(version), Some(levels @ 0..=1)) = (root.hash_version(), root.levels()) else {
            return self.turn_off();
        };
        if levels > 0 && has_twice(root) {
            return self.turn_off();
        }
        let limit = usize::from(root.limit());
        let bytes = IndexEntryWords::bytes(limit) + size_of::<CachedRoot>();
        if self.root.get().is_none() && self.take(bytes) {
            let entries = IndexEntryWords::new(limit);
            let (levels, nodes) = (AtomicU8::new(levels), OnceLock::new());
            // No other thread sets it while the index is locked.
            let _ = self.root.set(Box::new(CachedRoot { version, levels, entries, nodes }));
        }
        let Some(cached) = self.root.get() else { return };
        if cached.version != version {
            return self.turn_off();
        }
        if cached.entries.is_known() {
            return;
        }
        cached.levels.store(levels, Ordering::Relaxed);
        cached.entries.set(root.entries());
    }

    /// Caches a node below the entry of the root at `position`, unless it is known. The nodes are the lowest index
    /// blocks. The index is locked exclusively.
    pub fn add_node(&self, position: u16, node: &IndexBlock<'_>) {
        let Some(root) = self.root.get() else { return };
        let limit = root.entries.limit();
        let bytes = limit * size_of::<OnceLock<IndexEntryWords>>();
        if root.nodes.get().is_none() && self.take(bytes) {
            let _ = root.nodes.set((0..limit).map(|_| OnceLock::new()).collect());
        }
        let Some(place) = root.nodes.get().and_then(|nodes| nodes.get(usize::from(position)))
        else {
            return;
        };
        let limit = usize::from(node.limit());
        if place.get().is_none() && self.take(IndexEntryWords::bytes(limit)) {
            let _ = place.set(IndexEntryWords::new(limit));
        }
        if let Some(cached) = place.get().filter(|cached| !cached.is_known()) {
            cached.set(node.entries());
        }
    }

    /// Adds an entry after a position in the root or, if that has nodes, in the node below the entry of the root at
    /// `above`. The index is locked exclusively.
    pub fn insert_after(&self, above: Option<u16>, position: u16, entry: IndexEntry) {
        let Some(root) = self.root.get() else { return };
        let block = match above {
            None => Some(&root.entries),
            Some(above) => root.node(usize::from(above)),
        };
        if let Some(block) = block {
            block.insert_after(usize::from(position), entry);
        }
    }

    /// Empties the cache. The content lock is held exclusively.
    pub fn clear(&self) {
        if let Some(root) = self.root.get() {
            root.entries.clear();
            root.nodes
                .get()
                .into_iter()
                .flatten()
                .filter_map(OnceLock::get)
                .for_each(|node| node.clear());
        }
        self.is_off.store(false, Ordering::Relaxed);
        self.refused.store(0, Ordering::Relaxed);
    }

    /// Caches nothing until the cache is emptied.
    pub fn turn_off(&self) {
        self.is_off.store(true, Ordering::Relaxed);
    }

    fn take(&self, bytes: usize) -> bool {
        let is_taken = self.budget.take(bytes);
        if is_taken {
            self.bytes.fetch_add(bytes, Ordering::Relaxed);
        } else {
            self.pause();
        }
        is_taken
    }

    /// Caches nothing for a while.
    pub fn pause(&self) {
        self.refused.store(REFUSED_SEARCHES, Ordering::Relaxed);
    }
}

impl CachedRoot {
    /// The node below the entry at a position, if there are words for it.
    #[inline]
    fn node(&self, position: usize) -> Option<&IndexEntryWords> {
        self.nodes.get()?.get(position)?.get()
    }
}

/// Whether two entries of a damaged index have the same block. Then a change of a node had to reach two places.
fn has_twice(index: &IndexBlock<'_>) -> bool {
    let mut blocks: Vec<_> = index.entries().map(|entry| entry.block).collect();
    blocks.sort_unstable();
    blocks.windows(2).any(|pair| pair[0] == pair[1])
}

impl Drop for DirectoryIndexCache {
    fn drop(&mut self) {
        self.budget.give(self.bytes.load(Ordering::Relaxed));
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
