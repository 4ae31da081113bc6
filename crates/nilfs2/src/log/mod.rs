//! The log: its state, the places of its blocks, how it is written, and the superblocks that lead to it.
//!
//! # State
//! [`LogState`] is what only the log writer changes: the checkpoint and segment usage files, and where
//! the next log goes.
//!
//! # Locking
//! One lock for the whole state, held while a log is built and written.
//!
//! # Crash
//! Checksums cover a log as a whole. If a checkpoint needs several logs, all others are flushed before the one with
//! the super root is written. Recovery ignores everything that isn't in a valid log.

mod layout;
mod segments;
mod superblocks;
mod write;

pub(crate) use layout::{BlockContent, CleanerWork, LogPlan, LoggedBlock, plan};
pub(crate) use segments::{LogPosition, Segments};
pub(crate) use superblocks::Superblocks;
pub(crate) use write::{LogicalSegment, places, write};

use crate::metadata_file::MetadataFile;
use drystone_nilfs2_format::{CheckpointNumber, SegmentNumber};
use std::collections::HashMap;

/// See the module.
#[derive(Debug)]
pub(crate) struct LogState {
    pub(crate) cpfile: MetadataFile,
    pub(crate) segments: Segments,
    pub(crate) superblocks: Superblocks,
    /// The checkpoint that is built next.
    pub(crate) checkpoint: CheckpointNumber,
    /// When the newest log was written that isn't the cleaner's, in seconds since 1970.
    pub(crate) changed_s: u64,
    /// Blocks of all files in the ifile, with the nodes of their maps.
    pub(crate) file_blocks: u64,
    /// Data may have been logged since the newest checkpoint: recovery reads on after that.
    pub(crate) has_data_logs: bool,
    /// What data logs since the newest checkpoint have, as it is counted as dirty.
    pub(crate) data_log_blocks: i64,
    /// Blocks that have died since the mount.
    pub(crate) dead_blocks: u64,
    /// Until so many have, and while so many segments are clean, cleaning probably gains nothing.
    pub(crate) futile_until: u64,
    pub(crate) futile_clean: u64,
    /// A log couldn't be written. What is in memory refers to places that hold something else.
    pub(crate) has_failed: bool,
    /// When the cleaner left segments for later, in seconds since 1970.
    pub(crate) left_for_later: HashMap<SegmentNumber, u64>,
}

impl LogState {
    /// Notes that cleaning would have needed so many more dead blocks. Half of them are enough to look
    /// again: nodes of the DAT that die aren't counted.
    pub(crate) fn note_futile(&mut self, missing_blocks: u64) {
        self.futile_until = self.dead_blocks + missing_blocks.div_ceil(2).max(1);
        self.futile_clean = self.segments.header.clean;
    }
}
