//! Finds the live blocks of a segment, and what it costs to move them.

use super::Cleaner;
use crate::error::{Error, Result};
use crate::log::{BlockContent, CleanerWork, LoggedBlock};
use crate::recovery::{FoundLog, read_log};
use drystone_nilfs2_format::cpfile;
use drystone_nilfs2_format::dat::DatEntry;
use drystone_nilfs2_format::error::{DatProblem, UsageProblem};
use drystone_nilfs2_format::log::{Finfo, LogHeader, SummaryItem, read_sections};
use drystone_nilfs2_format::sufile::SegmentUsage;
use drystone_nilfs2_format::{CheckpointNumber, Corrupt, FileBlock, PhysicalBlock, SegmentNumber};
use std::collections::HashSet;

/// Bytes of a segment that are read at once.
const PIECE_BYTES: usize = 1 << 20;

/// What is to be cleaned at once.
#[derive(Debug, Default)]
pub(super) struct CleanerBatch {
    pub(super) work: CleanerWork,
    /// Periods of the blocks that are freed.
    pub(super) periods: FreedPeriods,
    /// Blocks of the DAT that have entries of what is moved or freed.
    dat_blocks: HashSet<FileBlock>,
    /// Blocks of the checkpoint file with checkpoints that lose a block.
    checkpoint_blocks: HashSet<FileBlock>,
}

impl CleanerBatch {
    pub(super) fn append(&mut self, mut other: Self) {
        self.work.append(other.work);
        self.periods.append(&mut other.periods);
        self.dat_blocks.extend(other.dat_blocks);
        self.checkpoint_blocks.extend(other.checkpoint_blocks);
    }

    pub(super) fn live_blocks(&self) -> u64 {
        self.work.live_blocks()
    }

    /// Blocks that are probably logged: what is moved, and the metadata that change with it, but for what
    /// any checkpoint takes.
    pub(super) fn cost(&self) -> u64 {
        self.live_blocks() + self.metadata_blocks()
    }

    fn metadata_blocks(&self) -> u64 {
        (self.dat_blocks.len() + self.checkpoint_blocks.len()) as u64
    }

    /// The same at most: each of the metadata has a node of its own.
    pub(super) fn cost_max(&self) -> u64 {
        self.cost() + self.metadata_blocks()
    }
}

/// Checkpoints whose blocks live.
#[derive(Debug)]
pub(super) struct KeptCheckpoints {
    pub(super) first_protected: CheckpointNumber,
    /// Snapshots before it, in order.
    pub(super) snapshots: Vec<CheckpointNumber>,
    /// Others before it, in order.
    pub(super) plain: Vec<CheckpointNumber>,
}

impl KeptCheckpoints {
    fn needs(&self, entry: &DatEntry, finfo: &Finfo) -> bool {
        entry.is_live() || finfo.checkpoint.0 != 0 && self.has_period_of(entry)
    }

    /// Those that lose a block of one of the periods.
    pub(super) fn broken_by(
        &self,
        periods: &FreedPeriods,
    ) -> impl Iterator<Item = CheckpointNumber> {
        merged(periods)
            .into_iter()
            .flat_map(|(start, end)| {
                let from = self.plain.partition_point(|number| *number < start);
                let to = self.plain.partition_point(|number| *number < end);
                &self.plain[from..to]
            })
            .copied()
    }

    /// Whether one of them has a block that the newest state hasn't.
    pub(super) fn has_period_of(&self, entry: &DatEntry) -> bool {
        let index = self.snapshots.partition_point(|snapshot| *snapshot < entry.start);
        let in_snapshot = self.snapshots.get(index).is_some_and(|found| *found < entry.end);
        in_snapshot || entry.end > self.first_protected && entry.end > entry.start
    }
}

/// Periods of blocks that are freed.
pub(super) type FreedPeriods = Vec<(CheckpointNumber, CheckpointNumber)>;

/// Periods in order and apart.
fn merged(periods: &FreedPeriods) -> FreedPeriods {
    let mut sorted = periods.clone();
    sorted.sort_unstable();
    let mut merged = FreedPeriods::new();
    for (start, end) in sorted {
        match merged.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ => merged.push((start, end)),
        }
    }
    merged
}

impl Cleaner<'_> {
    /// Finds what lives in a segment; nothing if that can't be read.
    pub(super) fn examine(
        &self,
        segment: SegmentNumber,
        usage: SegmentUsage,
        kept: &KeptCheckpoints,
    ) -> Option<CleanerBatch> {
        self.examine_logs(segment, usage, kept).unwrap_or_else(|error| {
            tracing::warn!(%segment, %error, "the segment is kept as it is");
            None
        })
    }

    fn examine_logs(
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
            let log = self.log_at(block, sequence)?;
            let blocks = log.header.blocks;
            if blocks > left {
                return Ok(None);
            }
            sequence = Some(log.header.sequence);
            self.examine_log(&log, kept, &mut batch)?;
            left -= blocks;
            block = PhysicalBlock(block.0 + u64::from(blocks));
        }
        if self.has_live_after(block, segment, sequence, kept)? {
            let problem = UsageProblem::Uncounted { blocks: usage.blocks };
            return Err(Corrupt::Usage { segment, problem }.into());
        }
        let places = kept
            .broken_by(&batch.periods)
            .map(|number| cpfile::place_of(number, self.volume.block_bytes()).0);
        batch.checkpoint_blocks = places.collect();
        Ok(Some(batch))
    }

    /// Whether anything lives in logs of the segment that its record doesn't count, because it is damaged.
    fn has_live_after(
        &self,
        mut block: PhysicalBlock,
        segment: SegmentNumber,
        mut sequence: Option<u64>,
        kept: &KeptCheckpoints,
    ) -> Result<bool> {
        let end = self.volume.geometry.segment_end(segment);
        while block < end {
            let log = match self.log_at(block, sequence) {
                Ok(log) => log,
                Err(Error::Corrupt(_)) => return Ok(false),
                Err(error) => return Err(error),
            };
            let mut batch = CleanerBatch::default();
            self.examine_log(&log, kept, &mut batch)?;
            if batch.live_blocks() > 0 {
                return Ok(true);
            }
            sequence = Some(log.header.sequence);
            block = PhysicalBlock(block.0 + u64::from(log.header.blocks));
        }
        Ok(false)
    }

    fn log_at(&self, block: PhysicalBlock, sequence: Option<u64>) -> Result<FoundLog> {
        let sequence = match sequence {
            Some(sequence) => sequence,
            None => {
                let first = self.volume.read_block(block)?;
                LogHeader::check(&first, &self.volume.geometry, block)?.sequence
            }
        };
        read_log(&self.volume, block, sequence)
    }

    fn examine_log(
        &self,
        log: &FoundLog,
        kept: &KeptCheckpoints,
        batch: &mut CleanerBatch,
    ) -> Result<()> {
        let work = &mut batch.work;
        let mut live = Vec::new();
        let mut dat = self.dat.write();
        for section in read_sections(&log.summary, &log.header, &self.volume.geometry, log.block)? {
            for (block, item) in section.blocks() {
                match *item {
                    SummaryItem::DatData { key } => {
                        if dat.file.map.get(key, &self.volume)? == block.0 {
                            work.dat_blocks.push(key);
                        }
                    }
                    SummaryItem::DatNode { key, level } => {
                        if dat.file.map.node_pointer(level, key, &self.volume)? == block.0 {
                            work.dat_nodes.push((level, key));
                        }
                    }
                    SummaryItem::Data { virtual_block, .. }
                    | SummaryItem::Node { virtual_block } => {
                        let Some(entry) = dat.find(virtual_block, &self.volume)? else {
                            if dat.live_place(virtual_block, &self.volume) == Some(block) {
                                // Damage has cleared its bit.
                                let problem = DatProblem::Free;
                                return Err(Corrupt::Dat { block: virtual_block, problem }.into());
                            }
                            continue;
                        };
                        if entry.block != block {
                            continue;
                        }
                        batch.dat_blocks.extend(dat.blocks_of(virtual_block));
                        if !kept.needs(&entry, &section.finfo) {
                            work.freed.push(virtual_block);
                            batch.periods.push((entry.start, entry.end));
                            continue;
                        }
                        live.push((block, section.finfo, *item));
                    }
                }
            }
        }
        drop(dat);
        self.read_live(&live, work)
    }

    /// Has blocks moved, which are given in order.
    fn read_live(
        &self,
        live: &[(PhysicalBlock, Finfo, SummaryItem)],
        work: &mut CleanerWork,
    ) -> Result<()> {
        let block_bytes = self.volume.block_bytes();
        let per_piece = (PIECE_BYTES / block_bytes).max(1);
        let mut bytes = Vec::new();
        let runs = live.chunk_by(|(before, ..), (next, ..)| before.0 + 1 == next.0);
        for piece in runs.flat_map(|run| run.chunks(per_piece)) {
            // A piece of a run has a block at least.
            let start = piece[0].0;
            bytes.resize(piece.len() * block_bytes, 0);
            self.volume.read_blocks(start, &mut bytes)?;
            for (&(_, finfo, item), content) in piece.iter().zip(bytes.chunks_exact(block_bytes)) {
                work.moved.push(LoggedBlock {
                    inode: finfo.inode,
                    checkpoint: finfo.checkpoint,
                    item,
                    content: BlockContent::Ready(content.into()),
                    is_moved: true,
                });
            }
        }
        Ok(())
    }
}
