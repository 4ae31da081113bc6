//! Decides where blocks go: into which log, and where that log is.

use super::segments::LogPosition;
use crate::error::{Error, Result};
use crate::volume::{BlockBytes, Volume};
use drystone_nilfs2_format::log::{SummaryItem, SummaryWriter};
use drystone_nilfs2_format::{
    CheckpointNumber, FileBlock, InodeNumber, PhysicalBlock, SegmentNumber, VirtualBlock,
};
use drystone_vfs::Errno;

/// Fewer blocks than a log has at least.
const LOG_BLOCKS_MIN: u64 = 2;

/// What a block of the log holds.
#[derive(Clone, Debug)]
pub(crate) enum BlockContent {
    /// What it will hold is known.
    Ready(BlockBytes),
    /// A block of a metadata file, which changes until the log is written.
    Metadata(FileBlock),
    /// A node of the DAT's map, by its place among the dirty ones.
    DatNode(usize),
}

/// A block to be logged.
#[derive(Clone, Debug)]
pub(crate) struct LoggedBlock {
    pub(crate) inode: InodeNumber,
    /// What its section says: see `Finfo`.
    pub(crate) checkpoint: CheckpointNumber,
    pub(crate) item: SummaryItem,
    pub(crate) content: BlockContent,
    /// The cleaner moves it: its virtual block stays, and it isn't new in this checkpoint.
    pub(crate) is_moved: bool,
}

/// What a log does for the cleaner.
#[derive(Debug, Default)]
pub(crate) struct CleanerWork {
    /// Live blocks that get another place.
    pub(crate) moved: Vec<LoggedBlock>,
    /// Virtual blocks that nothing needs any more.
    pub(crate) freed: Vec<VirtualBlock>,
    /// Blocks of the DAT that are to be logged again.
    pub(crate) dat_blocks: Vec<FileBlock>,
    /// Nodes of the DAT's map that are: level and first key.
    pub(crate) dat_nodes: Vec<(u8, FileBlock)>,
    /// Segments that are clean then.
    pub(crate) cleaned: Vec<SegmentNumber>,
}

impl CleanerWork {
    pub(crate) fn is_empty(&self) -> bool {
        self.cleaned.is_empty()
    }

    pub(crate) fn live_blocks(&self) -> u64 {
        (self.moved.len() + self.dat_blocks.len() + self.dat_nodes.len()) as u64
    }

    pub(crate) fn append(&mut self, mut other: Self) {
        self.moved.append(&mut other.moved);
        self.freed.append(&mut other.freed);
        self.dat_blocks.append(&mut other.dat_blocks);
        self.dat_nodes.append(&mut other.dat_nodes);
        self.cleaned.append(&mut other.cleaned);
    }
}

/// A log with its place.
#[derive(Debug)]
pub(crate) struct PlannedLog {
    pub(crate) position: LogPosition,
    /// The first block after the summary.
    pub(crate) payload: PhysicalBlock,
    /// Which of the blocks are in it.
    pub(crate) blocks: std::ops::Range<usize>,
    pub(crate) has_super_root: bool,
    pub(crate) summary: SummaryWriter,
}

impl PlannedLog {
    fn new(position: LogPosition, first: usize, block_bytes: usize) -> Self {
        Self {
            position,
            payload: position.block,
            blocks: first..first,
            has_super_root: false,
            summary: SummaryWriter::new(block_bytes),
        }
    }

    /// Blocks of the log, with the summary.
    pub(crate) fn length(&self) -> u64 {
        (self.summary.blocks() + self.blocks.len()) as u64 + u64::from(self.has_super_root)
    }
}

/// Logs with their places, and where the next one goes.
#[derive(Debug)]
pub(crate) struct LogPlan {
    pub(crate) logs: Vec<PlannedLog>,
    pub(crate) end: LogPosition,
    /// How many of the segments that could be used were.
    pub(crate) segments_used: usize,
}

/// Places blocks from a position on. `spare` are the segments that may follow the next one.
pub(crate) fn plan(
    volume: &Volume,
    start: LogPosition,
    blocks: &[LoggedBlock],
    has_super_root: bool,
    spare: &[SegmentNumber],
) -> Result<LogPlan> {
    let mut planner =
        Planner { volume, position: start, spare, used: 0, logs: Vec::new(), log: None };
    for (index, block) in blocks.iter().enumerate() {
        planner.push(index, blocks, block)?;
    }
    if has_super_root {
        planner.push_super_root(blocks.len())?;
    }
    planner.close();
    Ok(LogPlan { logs: planner.logs, end: planner.position, segments_used: planner.used })
}

struct Planner<'a> {
    volume: &'a Volume,
    position: LogPosition,
    spare: &'a [SegmentNumber],
    used: usize,
    logs: Vec<PlannedLog>,
    log: Option<PlannedLog>,
}

impl Planner<'_> {
    fn room(&self) -> u64 {
        let end = self.volume.geometry.segment_end(self.position.segment);
        end.0 - self.position.block.0
    }

    /// The log that is open, or a new one, in the next segment if this one is full.
    fn open(&mut self, first: usize) -> Result<PlannedLog> {
        if let Some(log) = self.log.take() {
            return Ok(log);
        }
        if self.room() < LOG_BLOCKS_MIN {
            let Some(next) = self.spare.get(self.used) else {
                return Err(Error::Errno(Errno::ENOSPC));
            };
            self.used += 1;
            let segment = self.position.next;
            self.position = LogPosition {
                segment,
                next: *next,
                block: self.volume.geometry.segment_start(segment),
                sequence: self.position.sequence + 1,
            };
        }
        Ok(PlannedLog::new(self.position, first, self.volume.block_bytes()))
    }

    fn close(&mut self) {
        let Some(mut log) = self.log.take() else { return };
        log.payload = PhysicalBlock(log.position.block.0 + log.summary.blocks() as u64);
        self.position.block = PhysicalBlock(log.position.block.0 + log.length());
        self.logs.push(log);
    }

    fn push(&mut self, index: usize, blocks: &[LoggedBlock], block: &LoggedBlock) -> Result<()> {
        loop {
            let mut log = self.open(index)?;
            let before = blocks[log.blocks.clone()].last();
            let starts_section = before.is_none_or(|before| {
                before.inode != block.inode
                    || before.checkpoint != block.checkpoint
                    || !before.item.is_data() && block.item.is_data()
            });
            let summary = log.summary.blocks_with(&block.item, starts_section);
            if (summary + log.blocks.len() + 1) as u64 <= self.room() {
                if starts_section {
                    log.summary.start_section(block.inode, block.checkpoint);
                }
                log.summary.push(&block.item);
                log.blocks.end = index + 1;
                self.log = Some(log);
                return Ok(());
            }
            self.log = Some(log);
            self.close();
        }
    }

    fn push_super_root(&mut self, index: usize) -> Result<()> {
        loop {
            let mut log = self.open(index)?;
            let fits = log.length() < self.room();
            log.has_super_root = fits;
            self.log = Some(log);
            if fits {
                return Ok(());
            }
            self.close();
        }
    }
}
