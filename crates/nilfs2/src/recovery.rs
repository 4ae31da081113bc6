//! Finds the newest state of a volume: starts at the log that the superblock names, and follows the logs after it.
//!
//! # Crash
//! A checkpoint counts if all logs of its logical segment are valid, from the first one on. Data logs after the
//! newest checkpoint count under the same condition, and their blocks are written again.

use crate::error::{Error, Result};
use crate::volume::Volume;
use drystone_nilfs2_format::error::LogProblem;
use drystone_nilfs2_format::log::{LogFlags, LogHeader, SummaryItem, read_sections};
use drystone_nilfs2_format::super_root::SuperRoot;
use drystone_nilfs2_format::superblock::LogCursor;
use drystone_nilfs2_format::{Corrupt, FileBlock, InodeNumber, PhysicalBlock, SegmentNumber};

/// Bytes of a log that are read at once.
const PIECE_BYTES: usize = 1 << 20;

/// A log with right sums. What it holds beside its summary stays on the device: a log may claim a whole segment.
#[derive(Clone, Debug)]
pub(crate) struct FoundLog {
    pub(crate) header: LogHeader,
    pub(crate) block: PhysicalBlock,
    /// The blocks of its summary.
    pub(crate) summary: Vec<u8>,
}

/// A block of data that a crash kept from its checkpoint.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SalvagedBlock {
    pub(crate) inode: InodeNumber,
    pub(crate) key: FileBlock,
    pub(crate) block: PhysicalBlock,
}

/// What is on the volume.
#[derive(Debug)]
pub(crate) struct NewestState {
    /// The log with the newest super root.
    pub(crate) newest: FoundLog,
    pub(crate) salvaged: Vec<SalvagedBlock>,
    /// Where the first log is that has some.
    pub(crate) first_salvaged: Option<PhysicalBlock>,
    /// Segments that logs after the newest super root have reached or reserved.
    pub(crate) reached: Vec<SegmentNumber>,
    /// Where these logs are.
    pub(crate) found: Vec<PhysicalBlock>,
    /// The sequence number of the last log.
    pub(crate) last_sequence: u64,
}

/// Reads the log at a block of a segment with a sequence number.
pub(crate) fn read_log(volume: &Volume, block: PhysicalBlock, sequence: u64) -> Result<FoundLog> {
    let mut first = vec![0; volume.block_bytes()];
    volume.read_blocks(block, &mut first)?;
    let header = LogHeader::check(&first, &volume.geometry, block)?;
    if header.sequence != sequence {
        let problem = LogProblem::Sequence { found: header.sequence, expected: sequence };
        return Err(Corrupt::Log { block, problem }.into());
    }
    let block_bytes = volume.block_bytes();
    let summary_blocks = header.summary_blocks(&volume.geometry);
    let mut summary = vec![0; summary_blocks as usize * block_bytes];
    volume.read_blocks(block, &mut summary)?;
    header.check_summary(volume.seed, &summary, block)?;
    let mut sum = LogHeader::begin_data_sum(volume.seed, &summary);
    let per_piece = (PIECE_BYTES / block_bytes).max(1) as u64;
    let mut at = block.0 + u64::from(summary_blocks);
    let end = block.0 + u64::from(header.blocks);
    let mut piece = Vec::new();
    while at < end {
        let count = per_piece.min(end - at);
        piece.resize(count as usize * block_bytes, 0);
        volume.read_blocks(PhysicalBlock(at), &mut piece)?;
        sum.update(&piece);
        at += count;
    }
    header.check_data(&sum, block)?;
    Ok(FoundLog { header, block, summary })
}

/// The super root of a log that has one.
pub(crate) fn super_root(volume: &Volume, log: &FoundLog) -> Result<SuperRoot> {
    if !log.header.flags.contains(LogFlags::SUPER_ROOT) {
        let problem = LogProblem::NoSuperRoot;
        return Err(Corrupt::Log { block: log.block, problem }.into());
    }
    let last = PhysicalBlock(log.block.0 + u64::from(log.header.blocks) - 1);
    Ok(SuperRoot::check(&volume.read_block(last)?, volume.seed, last, volume.block_bytes())?)
}

/// Reads the log that a superblock names.
pub(crate) fn at_cursor(volume: &Volume, cursor: LogCursor) -> Result<FoundLog> {
    let log = read_log(volume, cursor.block, cursor.sequence)?;
    super_root(volume, &log)?;
    Ok(log)
}

/// Walks on after a log with a super root, to the end of what is valid.
pub(crate) fn roll_forward(volume: &Volume, newest: FoundLog) -> Result<NewestState> {
    let mut walk = Walk {
        volume,
        run: Vec::new(),
        state: NewestState {
            last_sequence: newest.header.sequence,
            newest,
            salvaged: Vec::new(),
            first_salvaged: None,
            reached: Vec::new(),
            found: Vec::new(),
        },
    };
    let first = &walk.state.newest;
    let mut next = following(volume, first.block, &first.header)?;
    while let Some(log) = next {
        next = following(volume, log.block, &log.header)?;
        walk.visit(log)?;
    }
    Ok(walk.state)
}

/// The log after a log, in the same segment or at the start of the next.
fn following(
    volume: &Volume,
    block: PhysicalBlock,
    header: &LogHeader,
) -> Result<Option<FoundLog>> {
    let geometry = &volume.geometry;
    let behind = PhysicalBlock(block.0 + u64::from(header.blocks));
    if let Some(segment) = geometry.segment_of(block)
        && geometry.segment_end(segment).0 >= behind.0 + 2
        && let Some(log) = valid(read_log(volume, behind, header.sequence))?
    {
        return Ok(Some(log));
    }
    let Some(sequence) = header.sequence.checked_add(1) else { return Ok(None) };
    valid(read_log(volume, header.next, sequence))
}

/// Nothing for a log that isn't one; a device that fails is an error.
fn valid(log: Result<FoundLog>) -> Result<Option<FoundLog>> {
    match log {
        Ok(log) => Ok(Some(log)),
        Err(Error::Corrupt(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

struct Walk<'a> {
    volume: &'a Volume,
    /// The logs of a logical segment that isn't complete.
    run: Vec<FoundLog>,
    state: NewestState,
}

impl Walk<'_> {
    fn visit(&mut self, log: FoundLog) -> Result<()> {
        let geometry = &self.volume.geometry;
        self.state.last_sequence = log.header.sequence;
        self.state.found.push(log.block);
        let reached = [log.block, log.header.next];
        for segment in reached.into_iter().filter_map(|block| geometry.segment_of(block)) {
            if !self.state.reached.contains(&segment) {
                self.state.reached.push(segment);
            }
        }
        let flags = log.header.flags;
        if flags.contains(LogFlags::BEGIN) {
            self.run.clear();
        } else if self.run.is_empty() || !self.continues(&log.header) {
            self.run.clear();
            return Ok(());
        }
        self.run.push(log);
        if !flags.contains(LogFlags::END) {
            return Ok(());
        }
        let run = std::mem::take(&mut self.run);
        self.complete(run)
    }

    /// Whether a log belongs to the logical segment that was begun.
    fn continues(&self, header: &LogHeader) -> bool {
        self.run.last().is_some_and(|last| {
            let data = |header: &LogHeader| header.flags.contains(LogFlags::DATA_SYNC);
            last.header.checkpoint == header.checkpoint && data(&last.header) == data(header)
        })
    }

    fn complete(&mut self, mut run: Vec<FoundLog>) -> Result<()> {
        let expected = self.state.newest.header.checkpoint.next();
        let Some(last) = run.last() else { return Ok(()) };
        if Some(last.header.checkpoint) != expected {
            return Ok(());
        }
        if last.header.flags.contains(LogFlags::SUPER_ROOT) {
            super_root(self.volume, last)?;
            if let Some(last) = run.pop() {
                self.state.salvaged.clear();
                self.state.first_salvaged = None;
                self.state.reached.clear();
                self.state.found.clear();
                self.state.newest = last;
            }
            return Ok(());
        }
        if last.header.flags.contains(LogFlags::DATA_SYNC) {
            for log in &run {
                self.state.first_salvaged.get_or_insert(log.block);
                self.salvage(log)?;
            }
        }
        Ok(())
    }

    fn salvage(&mut self, log: &FoundLog) -> Result<()> {
        for section in read_sections(&log.summary, &log.header, &self.volume.geometry, log.block)? {
            let inode = section.finfo.inode;
            let salvaged = section.blocks().filter_map(|(block, item)| match item {
                SummaryItem::Data { key, .. } => Some(SalvagedBlock { inode, key: *key, block }),
                _ => None,
            });
            self.state.salvaged.extend(salvaged);
        }
        Ok(())
    }
}
