//! The cached extents of one inode, in the order of its blocks.
//!
//! # State
//! Sorted chunks of entries of 16 bytes ([`Chunk`]), in a sorted list. A look-up searches two
//! arrays; a change moves the entries of one chunk.
//!
//! # Invariants
//! - Extents don't overlap, and neighbours that could be one extent are one.
//! - No chunk is empty, except an only one.
//! - A change allocates no memory: [`ExtentCacheTree::reserve`] does that before. Without a
//!   reservation a change forgets extents for which it has no room. So a lack of memory never
//!   prevents a change of the image; and delayed extents, which may not be forgotten, need the
//!   reservation.

mod entry;
mod reclaim;
mod replace;

pub(super) use reclaim::ReclaimLimits;

use super::extent::{CachedExtent, ExtentState};
use entry::PackedExtent;

/// The most entries of a chunk.
const CHUNK_LENGTH_MAX: usize = 64;
/// The capacity of the first chunk: most files have few extents.
const FIRST_CHUNK_LENGTH: usize = 4;
/// Entries that one change may add: the rest of an extent on both sides, and the new one.
const ADDED_MAX: usize = 3;

type Chunk = Vec<PackedExtent>;

fn start_of(chunk: &Chunk) -> u32 {
    chunk.first().map_or(0, |entry| entry.start)
}

/// The cached extents of an inode.
#[derive(Debug, Default)]
pub(super) struct ExtentCacheTree {
    chunks: Vec<Chunk>,
    length: usize,
    droppable: usize,
    /// The block at which the reclaimer's next visit begins.
    resume: u32,
}

impl ExtentCacheTree {
    /// The number of extents.
    pub fn len(&self) -> usize {
        self.length
    }

    /// The number of extents that may be dropped.
    pub fn droppable(&self) -> usize {
        self.droppable
    }

    /// The first block after all extents.
    pub fn end(&self) -> u64 {
        self.chunks.last().and_then(|chunk| chunk.last()).map_or(0, PackedExtent::end)
    }

    /// The extent that contains a block, if it is cached.
    pub fn lookup(&self, logical: u32) -> Option<CachedExtent> {
        let chunk = match self.chunks.as_slice() {
            [only] => only,
            chunks => {
                let behind = chunks.partition_point(|chunk| start_of(chunk) <= logical);
                &chunks[behind.checked_sub(1)?]
            }
        };
        let behind = chunk.partition_point(|entry| entry.start <= logical);
        let entry = &chunk[behind.checked_sub(1)?];
        if u64::from(logical) >= entry.end() {
            return None;
        }
        entry.reference();
        Some(entry.fact())
    }

    /// The chunk, and the index in it, of the first entry that ends after `from`. The index may be
    /// after the chunk's last entry.
    fn locate(&self, from: u64) -> (usize, usize) {
        let behind = self.chunks.partition_point(|chunk| u64::from(start_of(chunk)) <= from);
        let chunk = behind.saturating_sub(1);
        let place = |chunk: &Chunk| chunk.partition_point(|entry| entry.end() <= from);
        (chunk, self.chunks.get(chunk).map_or(0, place))
    }

    /// Makes room for one change at `from`. False if there is no memory.
    pub fn reserve(&mut self, from: u64) -> bool {
        self.try_reserve(from).is_ok()
    }

    fn try_reserve(&mut self, from: u64) -> Result<(), std::collections::TryReserveError> {
        let (place, index) = self.locate(from);
        let is_last = place + 1 >= self.chunks.len();
        self.chunks.try_reserve(1)?;
        let Some(chunk) = self.chunks.get_mut(place) else {
            let mut first = Chunk::new();
            first.try_reserve_exact(FIRST_CHUNK_LENGTH)?;
            self.chunks.push(first);
            return Ok(());
        };
        let length = chunk.len();
        if length + ADDED_MAX > CHUNK_LENGTH_MAX {
            // Files mostly grow at their end; splitting there leaves full chunks behind.
            let middle = if is_last && index + 1 >= length { length - 4 } else { length / 2 };
            let mut upper = Chunk::new();
            upper.try_reserve_exact(CHUNK_LENGTH_MAX)?;
            upper.extend(chunk.drain(middle..));
            self.chunks.insert(place + 1, upper);
        } else if chunk.capacity() - length < ADDED_MAX {
            let wanted = (2 * length).clamp(FIRST_CHUNK_LENGTH, CHUNK_LENGTH_MAX);
            chunk.try_reserve_exact((wanted - length).max(ADDED_MAX))?;
        }
        Ok(())
    }

    /// Replaces what is cached about the extent's range by the extent.
    pub fn set(&mut self, fact: CachedExtent) {
        if !self.extend(&fact) {
            self.set_anew(fact);
        }
    }

    /// The fast path of a change: an extent that continues the previous one and replaces the
    /// beginning of the next one, as when a file grows into the hole past its end. Otherwise
    /// changes nothing and returns false.
    pub fn extend(&mut self, fact: &CachedExtent) -> bool {
        let behind = self.chunks.partition_point(|chunk| start_of(chunk) <= fact.logical);
        let Some(chunk) = self.chunks.get_mut(behind.wrapping_sub(1)) else { return false };
        let behind = chunk.partition_point(|entry| entry.start <= fact.logical);
        let [.., previous, next] = &mut chunk[..behind] else { return false };
        if next.start != fact.logical || next.end() <= fact.end() {
            return false;
        }
        let Some(merged) = previous.fact().merge(fact) else { return false };
        previous.length = merged.length;
        next.shorten_front(fact.length);
        true
    }

    fn set_anew(&mut self, fact: CachedExtent) {
        self.replace(u64::from(fact.logical), fact.end(), Some(fact));
    }

    /// Forgets the cached extents in `[from, to)`.
    pub fn forget(&mut self, from: u64, to: u64) {
        self.replace(from, to, None);
    }

    /// Forgets the cached extents in `[from, to)`, except delayed ones.
    pub fn forget_droppable(&mut self, from: u64, to: u64) {
        if self.droppable == self.length {
            self.forget(from, to);
            return;
        }
        let mut from = from;
        while let Some(known) = self.first_overlapping(from, to) {
            from = known.end();
            if known.status.is_droppable() {
                self.forget(u64::from(known.logical), known.end());
            }
        }
    }

    /// Sets the mapped extents of a range to written, or to unwritten.
    pub fn convert(&mut self, from: u64, to: u64, status: ExtentState) {
        let mut from = from;
        while let Some(known) = self.first_overlapping(from, to) {
            from = known.end();
            if known.status.is_mapped() && known.status != status {
                // Without room the extent is forgotten, which is right too.
                self.reserve(u64::from(known.logical));
                self.set(CachedExtent { status, ..known });
            }
        }
    }

    /// The first cached part of a range.
    pub fn first_overlapping(&self, from: u64, to: u64) -> Option<CachedExtent> {
        let (place, index) = self.locate(from);
        let here = self.chunks.get(place)?.get(index);
        let entry = here.or_else(|| self.chunks.get(place + 1)?.first())?;
        entry.fact().overlap(from, to)
    }

    /// All extents, for checks.
    #[cfg(test)]
    pub fn facts(&self) -> Vec<CachedExtent> {
        self.chunks.iter().flatten().map(PackedExtent::fact).collect()
    }

    /// How many entries there is room for.
    #[cfg(test)]
    pub fn capacity(&self) -> usize {
        self.chunks.iter().map(Vec::capacity).sum()
    }

    /// Checks the invariants.
    #[cfg(test)]
    pub fn check(&self) {
        let facts = self.facts();
        assert_eq!(facts.len(), self.length);
        let droppable = facts.iter().filter(|fact| fact.status.is_droppable()).count();
        assert_eq!(droppable, self.droppable);
        for pair in facts.windows(2) {
            assert!(pair[0].end() <= u64::from(pair[1].logical), "{pair:?} overlap");
            assert_eq!(pair[0].merge(&pair[1]), None, "{pair:?} are two");
        }
        let empty = self.chunks.iter().filter(|chunk| chunk.is_empty()).count();
        assert!(empty == 0 || self.chunks.len() == 1, "an empty chunk");
        assert!(self.chunks.iter().all(|chunk| chunk.len() <= CHUNK_LENGTH_MAX));
    }
}
