//! The cleaner: moves what is live out of old segments, so that they can be written again.
//!
//! # State
//! A block lives as long as the newest state has it, or a checkpoint that isn't to be given up:
//! snapshots, and all since the *first protected* one. Checkpoints that lose a block are deleted.
//!
//! # Crash
//! Moving, freeing and deleting is one minor checkpoint. Both superblocks are written before it, so that
//! no recovery starts in a segment that is cleaned; the segments are written again only after it is
//! durable.
//!
//! # Locking
//! All of it happens with the log locked, in the log writer's thread; files are changed meanwhile.

use crate::checkpoints::Checkpoints;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::log::{BlockContent, CleanerWork, LogState, LoggedBlock};
use crate::log_writer::LogWriter;
use crate::recovery::read_log;
use crate::volume::BlockBytes;
use drystone_nilfs2_format::cpfile::CheckpointFlags;
use drystone_nilfs2_format::dat::DatEntry;
use drystone_nilfs2_format::log::{Finfo, Item, LogHeader, read_sections};
use drystone_nilfs2_format::sufile::{SegmentUsage, UsageFlags};
use drystone_nilfs2_format::{CheckpointNumber, FileBlock, PhysicalBlock, SegmentNumber};
use drystone_sync::MutexGuard;
use drystone_sync::atomic::Ordering;
use std::ops::Deref;

/// Cleaning starts when fewer segments are clean, in percent.
const START_BELOW_PERCENT: u64 = 10;
/// Cleaning goes on until so many are.
const STOP_AT_PERCENT: u64 = 20;
/// Segments that are cleaned at once.
const SEGMENTS_AT_ONCE: usize = 2;
/// Segments that are gained at once when there is no room for what somebody wants to add.
const SEGMENTS_GAINED: u64 = 4;
/// Blocks that a checkpoint takes at least.
const CHECKPOINT_BLOCKS: u64 = 16;
/// A segment from which less can be taken back is left for later.
const GAIN_MIN_PERCENT: u64 = 10;
/// Checkpoints that are younger are kept, unless there is no room.
pub(crate) const PROTECTION_S: u64 = 3600;

/// What is to be cleaned at once.
#[derive(Debug, Default)]
struct CleanerBatch {
    work: CleanerWork,
    /// Periods of the blocks that are freed.
    periods: FreedPeriods,
}

impl CleanerBatch {
    fn append(&mut self, mut other: Self) {
        self.work.append(other.work);
        self.periods.append(&mut other.periods);
    }

    fn live_blocks(&self) -> u64 {
        self.work.live_blocks()
    }

    /// Blocks that the log takes: what is moved, its summaries, and the metadata that change with it.
    fn cost(&self) -> u64 {
        let changed = (self.work.moved.len() + self.work.freed.len()) as u64;
        self.live_blocks() + self.live_blocks() / 8 + changed / 16 + CHECKPOINT_BLOCKS
    }

    /// Blocks that are gained.
    fn gain(&self, blocks_per_segment: u64) -> i64 {
        let cleaned = self.work.cleaned.len() as u64 * blocks_per_segment;
        cleaned.cast_signed() - self.cost().cast_signed()
    }
}

/// Checkpoints whose blocks live.
#[derive(Debug)]
struct KeptCheckpoints {
    first_protected: CheckpointNumber,
    /// Snapshots before it, in order.
    snapshots: Vec<CheckpointNumber>,
}

impl KeptCheckpoints {
    fn needs(&self, entry: &DatEntry, finfo: &Finfo) -> bool {
        entry.is_live() || finfo.checkpoint.0 != 0 && self.has_period_of(entry)
    }

    /// Whether one of them has a block that the newest state hasn't.
    fn has_period_of(&self, entry: &DatEntry) -> bool {
        let index = self.snapshots.partition_point(|snapshot| *snapshot < entry.start);
        let in_snapshot = self.snapshots.get(index).is_some_and(|found| *found < entry.end);
        in_snapshot || entry.end > self.first_protected && entry.end > entry.start
    }
}

/// Periods of blocks that are freed.
type FreedPeriods = Vec<(CheckpointNumber, CheckpointNumber)>;

/// What cleans for an engine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cleaner<'a> {
    engine: &'a Engine,
}

impl Deref for Cleaner<'_> {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        self.engine
    }
}

impl<'a> Cleaner<'a> {
    pub(crate) fn new(engine: &'a Engine) -> Self {
        Self { engine }
    }

    /// Whether the cleaner has to work in the background.
    pub(crate) fn is_cleaning_due(&self, is_cleaning: bool) -> bool {
        let clean = self.clean_segments.load(Ordering::Relaxed);
        let percent = if is_cleaning { STOP_AT_PERCENT } else { START_BELOW_PERCENT };
        clean.saturating_mul(100) < self.volume.geometry.segments().saturating_mul(percent)
    }

    /// Cleans some segments, those first that were written longest ago. Says how many.
    pub(crate) fn clean_some(&self, protection_s: u64) -> Result<usize> {
        let mut log = self.log.lock();
        let kept = self.begin_cleaning(&mut log, protection_s)?;
        let mut batch = CleanerBatch::default();
        for (segment, usage) in self.candidates(&mut log)? {
            if batch.work.cleaned.len() >= SEGMENTS_AT_ONCE {
                break;
            }
            let Some(found) = self.examine(segment, usage, &kept)? else { continue };
            let dead = u64::from(usage.blocks).saturating_sub(found.live_blocks());
            if usage.blocks > 0 && dead * 100 < u64::from(usage.blocks) * GAIN_MIN_PERCENT {
                let usage = SegmentUsage { modified_s: self.volume.wall_s(), ..usage };
                log.segments.set_usage(segment, usage, &self.volume, &self.source())?;
                continue;
            }
            batch.append(found);
        }
        self.finish_cleaning(&mut log, &kept, batch)
    }

    /// Cleans until there is room for an addition, or nothing more can be taken back. History that
    /// isn't in a snapshot gives way.
    pub(crate) fn clean_for_space(&self) -> Result<()> {
        while !self.has_space() {
            let before = self.clean_segments.load(Ordering::Relaxed);
            self.clean_emptiest(0)?;
            // The gain was an estimate.
            if self.clean_segments.load(Ordering::Relaxed) <= before {
                break;
            }
        }
        Ok(())
    }

    /// Cleans as long as that gains segments. Says how many were cleaned.
    pub(crate) fn clean_all(&self, protection_s: u64) -> Result<usize> {
        let mut total = 0;
        loop {
            let before = self.clean_segments.load(Ordering::Relaxed);
            let cleaned = self.clean_emptiest(protection_s);
            total += cleaned.inspect_err(|error| self.requests.fail(error.clone()))?;
            // The gain was an estimate.
            if self.clean_segments.load(Ordering::Relaxed) <= before {
                return Ok(total);
            }
        }
    }

    /// Cleans if a checkpoint has taken from the segments that are kept for the log itself, so that what
    /// is removed from a full volume can always be logged.
    pub(crate) fn refill_reserve(&self) -> Result<()> {
        let clean = self.clean_segments.load(Ordering::Relaxed);
        if clean < self.volume.geometry.reserved_segments() {
            self.clean_emptiest(0)?;
        }
        Ok(())
    }

    /// Cleans the segments with the fewest live blocks, if that gains at least a segment. Says how many.
    fn clean_emptiest(&self, protection_s: u64) -> Result<usize> {
        let mut log = self.log.lock();
        let kept = self.begin_cleaning(&mut log, protection_s)?;
        let live_blocks = self.live_blocks(&kept)?;
        let mut candidates: Vec<_> = self
            .candidates(&mut log)?
            .into_iter()
            .map(|(segment, usage)| (live_blocks[segment.0 as usize], segment, usage))
            .collect();
        candidates.sort_by_key(|(live, segment, _)| (*live, *segment));
        let per_segment = self.volume.geometry.blocks_per_segment();
        // What is moved needs room itself.
        let room = log.segments.header.clean.saturating_sub(2) * per_segment / 2;
        let mut batch = CleanerBatch::default();
        for (live, segment, usage) in candidates {
            let is_enough =
                batch.gain(per_segment) >= (SEGMENTS_GAINED * per_segment).cast_signed();
            if is_enough || batch.cost() + live > room || live >= per_segment {
                break;
            }
            if let Some(found) = self.examine(segment, usage, &kept)? {
                batch.append(found);
            }
        }
        if batch.gain(per_segment) < per_segment.cast_signed() {
            return Ok(0);
        }
        self.finish_cleaning(&mut log, &kept, batch)
    }

    /// Blocks that live in each segment, by the DAT, which is read as a whole. That is a hundredth of what
    /// the segments hold. Nodes of the DAT's own map aren't counted.
    fn live_blocks(&self, kept: &KeptCheckpoints) -> Result<Vec<u64>> {
        let geometry = &self.volume.geometry;
        // There is room for all segments' usages on the device, and so for their counts in memory.
        let mut live = vec![0; geometry.segments() as usize];
        let mut count = |block| {
            if let Some(segment) = geometry.segment_of(block) {
                live[segment.0 as usize] += 1;
            }
        };
        let mut from = FileBlock(0);
        loop {
            // Only the log writer changes the DAT; readers get in between two blocks.
            let Some(block) = self.dat.read().next_block(from, &self.volume)? else { break };
            from = FileBlock(block.key.0 + 1);
            count(block.place);
            for entry in block.entries {
                if entry.is_live() || kept.has_period_of(&entry) {
                    count(entry.block);
                }
            }
        }
        Ok(live)
    }

    /// Makes the newest state durable, and both superblocks lead to it.
    fn begin_cleaning(
        &self,
        log: &mut MutexGuard<'_, LogState>,
        protection_s: u64,
    ) -> Result<KeptCheckpoints> {
        LogWriter::new(self.engine).log_checkpoint(log, CleanerWork::default())?;
        log.superblocks.write_both(&self.volume)?;
        self.kept_checkpoints(log, protection_s)
    }

    fn finish_cleaning(
        &self,
        log: &mut MutexGuard<'_, LogState>,
        kept: &KeptCheckpoints,
        batch: CleanerBatch,
    ) -> Result<usize> {
        let cleaned = batch.work.cleaned.len();
        if cleaned > 0 {
            self.delete_broken(log, kept, batch.periods)?;
            LogWriter::new(self.engine).log_checkpoint(log, batch.work)?;
        }
        Ok(cleaned)
    }

    fn kept_checkpoints(&self, log: &mut LogState, protection_s: u64) -> Result<KeptCheckpoints> {
        let newest = CheckpointNumber(log.checkpoint.0 - 1);
        let all = Checkpoints::new(self.engine).list_checkpoints(log)?;
        let oldest_s = self.volume.wall_s().saturating_sub(protection_s);
        let young = all.iter().find(|found| protection_s > 0 && found.created_s >= oldest_s);
        let first_protected = young.map_or(newest, |found| found.number.min(newest));
        let snapshots = all
            .iter()
            .filter(|found| found.flags.contains(CheckpointFlags::SNAPSHOT))
            .map(|found| found.number)
            .collect();
        Ok(KeptCheckpoints { first_protected, snapshots })
    }

    /// Deletes plain checkpoints that have lost a block.
    fn delete_broken(
        &self,
        log: &mut LogState,
        kept: &KeptCheckpoints,
        mut periods: FreedPeriods,
    ) -> Result<()> {
        periods.sort_unstable();
        let mut merged = FreedPeriods::new();
        for (start, end) in periods {
            match merged.last_mut() {
                Some(last) if start <= last.1 => last.1 = last.1.max(end),
                _ => merged.push((start, end)),
            }
        }
        for checkpoint in Checkpoints::new(self.engine).list_checkpoints(log)? {
            let number = checkpoint.number;
            let index = merged.partition_point(|(_, end)| *end <= number);
            let is_broken = merged.get(index).is_some_and(|(start, _)| *start <= number);
            let is_plain = !checkpoint.flags.contains(CheckpointFlags::SNAPSHOT);
            if is_broken && is_plain && number < kept.first_protected {
                Checkpoints::new(self.engine).remove_checkpoint(log, number)?;
            }
        }
        Ok(())
    }

    /// Segments that may be cleaned, those first that were written longest ago.
    fn candidates(&self, log: &mut LogState) -> Result<Vec<(SegmentNumber, SegmentUsage)>> {
        let geometry = &self.volume.geometry;
        let position = log.segments.position;
        let cursor = geometry.segment_of(log.superblocks.current.cursor().block);
        let mut candidates = Vec::new();
        for segment in (0..geometry.segments()).map(SegmentNumber) {
            let usage = log.segments.usage(segment, &self.volume, &self.source())?;
            let is_in_use =
                segment == position.segment || segment == position.next || Some(segment) == cursor;
            let flags = usage.flags - UsageFlags::ACTIVE;
            if flags == UsageFlags::DIRTY && !is_in_use {
                candidates.push((segment, usage));
            }
        }
        candidates.sort_by_key(|(segment, usage)| (usage.modified_s, *segment));
        Ok(candidates)
    }

    /// Finds what lives in a segment; nothing if its logs can't be read.
    fn examine(
        &self,
        segment: SegmentNumber,
        usage: SegmentUsage,
        kept: &KeptCheckpoints,
    ) -> Result<Option<CleanerBatch>> {
        let mut batch = CleanerBatch::default();
        batch.work.cleaned.push(segment);
        let mut block = self.volume.geometry.segment_start(segment);
        let mut left = usage.blocks;
        let mut sequence = None;
        while left > 0 {
            let log = match self.log_at(block, sequence) {
                Ok(log) => log,
                Err(Error::Corrupt(problem)) => {
                    tracing::warn!(%segment, %problem, "the segment is kept as it is");
                    return Ok(None);
                }
                Err(error) => return Err(error),
            };
            let (header, bytes) = log;
            if header.blocks > left {
                return Ok(None);
            }
            sequence = Some(header.sequence);
            self.examine_log(&header, block, &bytes, kept, &mut batch)?;
            left -= header.blocks;
            block = PhysicalBlock(block.0 + u64::from(header.blocks));
        }
        Ok(Some(batch))
    }

    fn log_at(&self, block: PhysicalBlock, sequence: Option<u64>) -> Result<(LogHeader, Vec<u8>)> {
        let sequence = match sequence {
            Some(sequence) => sequence,
            None => {
                let first = self.volume.read_block(block)?;
                LogHeader::check(&first, &self.volume.geometry, block)?.sequence
            }
        };
        let log = read_log(&self.volume, block, sequence)?;
        Ok((log.header, log.bytes))
    }

    fn examine_log(
        &self,
        header: &LogHeader,
        start: PhysicalBlock,
        bytes: &[u8],
        kept: &KeptCheckpoints,
        batch: &mut CleanerBatch,
    ) -> Result<()> {
        let work = &mut batch.work;
        let block_bytes = self.volume.block_bytes();
        let mut dat = self.dat.write();
        for section in read_sections(bytes, header, &self.volume.geometry, start)? {
            for (block, item) in section.blocks() {
                match *item {
                    Item::DatData { key } => {
                        if dat.file.map.get(key, &self.volume)? == block.0 {
                            work.dat_blocks.push(key);
                        }
                    }
                    Item::DatNode { key, level } => {
                        if dat.file.map.node_pointer(level, key, &self.volume)? == block.0 {
                            work.dat_nodes.push((level, key));
                        }
                    }
                    Item::Data { virtual_block, .. } | Item::Node { virtual_block } => {
                        let Some(entry) = dat.find(virtual_block, &self.volume)? else { continue };
                        if entry.block != block {
                            continue;
                        }
                        if !kept.needs(&entry, &section.finfo) {
                            work.freed.push(virtual_block);
                            batch.periods.push((entry.start, entry.end));
                            continue;
                        }
                        let offset = (block.0 - start.0) as usize * block_bytes;
                        let content: BlockBytes = bytes[offset..offset + block_bytes].into();
                        work.moved.push(LoggedBlock {
                            inode: section.finfo.inode,
                            checkpoint: section.finfo.checkpoint,
                            item: *item,
                            content: BlockContent::Ready(content),
                            is_moved: true,
                        });
                    }
                }
            }
        }
        Ok(())
    }
}
