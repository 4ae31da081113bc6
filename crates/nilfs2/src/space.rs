//! Free space: how much changes may take, and how much is kept so that they can always be logged.
//!
//! # State
//! A log takes more blocks than are dirty: also nodes of maps, and blocks of the DAT with entries of new and of
//! ended blocks. The bounds here assume the worst case, in which each logged block changes blocks of the DAT that
//! no other one changes. They cost little, because a log is written before a change is refused.
//!
//! Blocks of data logs are counted as dirty until the next checkpoint, which writes the nodes above them. After a
//! crash, recovery logs them again.
//!
//! Changes compare the number of dirty blocks with limits, which are worked out when the log or the cleaner changes
//! what they depend on. The exact number, which takes a look at all cores, is asked for only near a limit.
//!
//! There are two limits for clean segments. An addition must leave the *reserve*. A removal may take from it, but
//! must leave room for one log of removals; the rest is for the cleaner.

use crate::lock_classes::DIRTY_COUNT;
use crate::log::LogState;
use drystone_nilfs2_format::Geometry;
use drystone_nilfs2_format::dat::ENTRY_BYTES;
use drystone_sync::atomic::{AtomicU64, Ordering};
use drystone_sync::{BatchedCounter, core_slots};

/// Of so many dirty blocks, one more is dirty in nodes of maps and the inode file. Nodes above blocks that
/// don't follow each other are counted as dirty themselves.
const METADATA_SHARE: u64 = 8;
/// Blocks of the DAT that a logged block changes at most: those with the entries that it takes and ends, and
/// one for bitmaps and nodes.
const DAT_BLOCKS_PER_BLOCK: u64 = 3;
/// Segments of a recovery that don't hold what it logs: the rest of the one that it finds, the next one.
const RECOVERY_SEGMENTS: u64 = 2;
/// Blocks of metadata files, of any size, that change with every checkpoint, and the super root; without
/// the DAT.
const CHECKPOINT_BLOCKS_MAX: u64 = 16;
/// The metadata files of a small volume may grow by so many blocks in a checkpoint.
const METADATA_GROWTH_BLOCKS: u64 = 4;
/// Segments that are left for the cleaner.
const CLEANER_SEGMENTS_MIN: u64 = 3;
/// Dirty blocks that a core counts before others see them.
const DIRTY_BATCH: i64 = 64;

/// See the module.
#[derive(Debug)]
pub(crate) struct Space {
    geometry: Geometry,
    /// Segments that may be allocated.
    clean_segments: AtomicU64,
    /// Dirty blocks of content with nodes above them, one more for the record of each dirty inode, and
    /// claims of changes.
    dirty_blocks: BatchedCounter,
    /// What cores may have counted and not shown, at most.
    unseen_max: i64,
    limits: DirtyLimits,
    /// Blocks that the cleaner is about to log.
    cleaner_blocks: AtomicU64,
    /// Blocks of the DAT, and of all metadata files, with the nodes of their maps.
    dat_blocks: AtomicU64,
    metadata_blocks: AtomicU64,
}

/// Numbers of dirty blocks from which on something isn't so.
#[derive(Debug, Default)]
struct DirtyLimits {
    /// There is room for additions.
    additions: AtomicU64,
    /// There is room for a log of removals.
    removals: AtomicU64,
    /// A log of them leaves most of the space.
    plenty: AtomicU64,
}

/// Room for a change, counted as dirty until what is dirty counts itself.
#[derive(Debug)]
pub(crate) struct SpaceClaim<'a> {
    dirty_blocks: &'a BatchedCounter,
    blocks: i64,
}

impl Drop for SpaceClaim<'_> {
    fn drop(&mut self) {
        self.dirty_blocks.add(-self.blocks);
    }
}

impl Space {
    pub(crate) fn new(geometry: Geometry, log: &LogState, dat_blocks: u64, ifile: u64) -> Self {
        let space = Self {
            geometry,
            clean_segments: AtomicU64::new(0),
            dirty_blocks: BatchedCounter::new(&DIRTY_COUNT, DIRTY_BATCH),
            unseen_max: core_slots() as i64 * DIRTY_BATCH,
            limits: DirtyLimits::default(),
            cleaner_blocks: AtomicU64::new(0),
            dat_blocks: AtomicU64::new(0),
            metadata_blocks: AtomicU64::new(0),
        };
        space.note_log(log, dat_blocks, ifile);
        space
    }

    /// Notes what the newest log has left, and how large the metadata files are.
    pub(crate) fn note_log(&self, log: &LogState, dat_blocks: u64, ifile_blocks: u64) {
        let others = log.cpfile.blocks_mapped() + log.segments.file.blocks_mapped();
        let bounds = SpaceBounds::new(&self.geometry, dat_blocks, ifile_blocks + others);
        self.dat_blocks.store(bounds.dat_blocks, Ordering::Relaxed);
        self.metadata_blocks.store(bounds.metadata_blocks, Ordering::Relaxed);
        self.clean_segments.store(log.segments.header.clean, Ordering::Relaxed);
        self.update_limits();
    }

    fn update_limits(&self) {
        let (bounds, clean) = (self.bounds(), self.clean_segments());
        // More blocks don't fit, whatever they are.
        let end = clean * self.geometry.blocks_per_segment() + 1;
        let set = |limit: &AtomicU64, fits: &dyn Fn(u64) -> bool| {
            limit.store(first_without(end, fits), Ordering::Relaxed);
        };
        set(&self.limits.additions, &|dirty| clean > bounds.segments_kept(dirty));
        set(&self.limits.removals, &|dirty| clean > bounds.segments_for_removals(dirty));
        set(&self.limits.plenty, &|dirty| bounds.segments_for(dirty) <= clean / 4);
    }

    pub(crate) fn clean_segments(&self) -> u64 {
        self.clean_segments.load(Ordering::Relaxed)
    }

    pub(crate) fn add_dirty(&self, blocks: i64) {
        self.dirty_blocks.add(blocks);
    }

    pub(crate) fn dirty_blocks(&self) -> u64 {
        self.dirty_blocks.sum().max(0).cast_unsigned()
    }

    /// Claims room before the look, so that several threads don't find the same.
    pub(crate) fn claim(&self, blocks: u64) -> SpaceClaim<'_> {
        let blocks = blocks.cast_signed();
        self.dirty_blocks.add(blocks);
        SpaceClaim { dirty_blocks: &self.dirty_blocks, blocks }
    }

    /// Blocks beside summaries that a segment has room for.
    pub(crate) fn segment_payload_min(&self) -> u64 {
        self.geometry.blocks_per_segment() - summary_blocks_max(&self.geometry)
    }

    /// Notes that the cleaner is about to log so many blocks; none when it is done. Says whether there
    /// is room for them beside what is dirty.
    pub(crate) fn claim_for_cleaner(&self, blocks: u64) -> bool {
        self.cleaner_blocks.store(blocks, Ordering::Relaxed);
        self.update_limits();
        self.log_segments() <= self.clean_segments()
    }

    fn bounds(&self) -> SpaceBounds<'_> {
        SpaceBounds {
            geometry: &self.geometry,
            dat_blocks: self.dat_blocks.load(Ordering::Relaxed),
            metadata_blocks: self.metadata_blocks.load(Ordering::Relaxed),
            cleaner_blocks: self.cleaner_blocks.load(Ordering::Relaxed),
        }
    }

    /// Blocks that a checkpoint in which nothing has changed takes at most, without those of the DAT.
    pub(crate) fn small_checkpoint_blocks(&self) -> u64 {
        self.bounds().small_checkpoint_blocks()
    }

    /// Segments of a checkpoint of what is dirty, and of what the cleaner is about to log.
    pub(crate) fn log_segments(&self) -> u64 {
        self.bounds().log_segments(self.dirty_blocks())
    }

    /// Segments that only removals and the cleaner may use.
    pub(crate) fn reserved_segments(&self) -> u64 {
        self.bounds().reserved_segments()
    }

    /// Whether so many more blocks than are dirty are fewer than a limit.
    fn is_below(&self, limit: u64, more: u64) -> bool {
        let seen = (self.dirty_blocks.roughly() + self.unseen_max).max(0).cast_unsigned();
        seen + more < limit || self.dirty_blocks() + more < limit
    }

    /// Whether there is room for what is dirty, and so many more blocks.
    pub(crate) fn has_room(&self, more: u64) -> bool {
        self.is_below(self.limits.additions.load(Ordering::Relaxed), more)
    }

    /// Whether a data log of what is dirty leaves room for a recovery, which may have to log it again.
    pub(crate) fn has_room_for_data_log(&self) -> bool {
        let (bounds, dirty) = (self.bounds(), self.dirty_blocks());
        let recovery = bounds.log_segments(dirty) + bounds.cleaner_segments() + RECOVERY_SEGMENTS;
        self.clean_segments() >= bounds.segments_for(dirty) + recovery
    }

    /// Whether not even a log of removals may have room: they may end blocks all over the DAT.
    pub(crate) fn is_exhausted(&self) -> bool {
        !self.is_below(self.limits.removals.load(Ordering::Relaxed), 0)
    }

    /// Whether no log is needed yet: at most `blocks_max` blocks are dirty, and a log of them leaves most of the space.
    pub(crate) fn has_plenty(&self, blocks_max: u64) -> bool {
        let plenty = self.limits.plenty.load(Ordering::Relaxed);
        self.is_below(plenty.min(blocks_max + 1), 0)
    }
}

/// The first number for which a condition fails, `end` at most. It fails for all greater ones, too.
fn first_without(end: u64, holds: &dyn Fn(u64) -> bool) -> u64 {
    let (mut low, mut high) = (0, end);
    while low < high {
        let middle = low + (high - low) / 2;
        if holds(middle) { low = middle + 1 } else { high = middle }
    }
    low
}

/// What has to stay clean, given how large the metadata files are.
#[derive(Clone, Copy, Debug)]
pub struct SpaceBounds<'a> {
    geometry: &'a Geometry,
    dat_blocks: u64,
    metadata_blocks: u64,
    cleaner_blocks: u64,
}

impl<'a> SpaceBounds<'a> {
    /// The bounds of a volume whose DAT and other metadata files have so many blocks, nodes of their maps
    /// included.
    #[must_use]
    pub fn new(geometry: &'a Geometry, dat_blocks: u64, other_blocks: u64) -> Self {
        // The DAT grows until it has an entry for each block. To count it so from the start keeps the
        // reserve as it is.
        let blocks = geometry.segments() * geometry.blocks_per_segment();
        let entries_per_block = (geometry.block_bytes() / ENTRY_BYTES) as u64;
        let dat_blocks = dat_blocks.max(blocks / entries_per_block).min(blocks);
        let metadata_blocks = dat_blocks + other_blocks.min(blocks);
        Self { geometry, dat_blocks, metadata_blocks, cleaner_blocks: 0 }
    }

    /// Segments that have to stay clean while so many blocks are dirty: an addition needs one more.
    #[must_use]
    pub fn segments_kept(&self, dirty: u64) -> u64 {
        self.reserved_segments() + self.log_segments(dirty)
    }

    /// Segments that so many blocks of logs take at most, with their summaries.
    #[must_use]
    pub fn segments_for(&self, blocks: u64) -> u64 {
        blocks.div_ceil(self.geometry.blocks_per_segment() - summary_blocks_max(self.geometry))
    }

    /// The same, and what the cleaner is about to log.
    fn segments_with(&self, blocks: u64) -> u64 {
        self.segments_for(blocks + self.cleaner_blocks)
    }

    /// So many blocks with what changes of the DAT for them.
    fn with_dat(&self, blocks: u64) -> u64 {
        blocks + blocks.saturating_mul(DAT_BLOCKS_PER_BLOCK).min(self.dat_blocks)
    }

    fn small_checkpoint_blocks(&self) -> u64 {
        CHECKPOINT_BLOCKS_MAX.min(self.metadata_blocks + METADATA_GROWTH_BLOCKS)
    }

    /// Blocks of a checkpoint of `dirty` blocks, without those of the DAT.
    fn blocks_without_dat(&self, dirty: u64) -> u64 {
        dirty + dirty / METADATA_SHARE + self.small_checkpoint_blocks()
    }

    fn log_segments(&self, dirty: u64) -> u64 {
        self.segments_with(self.with_dat(self.blocks_without_dat(dirty)))
    }

    /// Segments that a log of removals may need beside so many dirty blocks, with those for the cleaner.
    fn segments_for_removals(&self, dirty: u64) -> u64 {
        let blocks = self.blocks_without_dat(dirty) + self.dat_blocks;
        self.cleaner_segments() + self.segments_with(blocks)
    }

    /// What the cleaner needs: a checkpoint before it moves anything, and one that moves something.
    fn cleaner_segments(&self) -> u64 {
        self.segments_for(3 * self.with_dat(self.small_checkpoint_blocks()))
            .max(CLEANER_SEGMENTS_MIN)
    }

    /// As the superblock says, and at least what it takes to write all metadata, and the DAT once more.
    fn reserved_segments(&self) -> u64 {
        let metadata = self.segments_for(self.metadata_blocks + self.dat_blocks);
        (self.cleaner_segments() + metadata).max(self.geometry.reserved_segments())
    }
}

/// Blocks of a segment that summaries take at most.
fn summary_blocks_max(geometry: &Geometry) -> u64 {
    // An item with its share of a finfo has at most 40 bytes.
    geometry.blocks_per_segment() * 40 / geometry.block_bytes() as u64 + 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_the_first_number_that_does_not_fit() {
        for limit in 0..20 {
            assert_eq!(first_without(17, &|number| number < limit), limit.min(17));
        }
    }
}
