//! The log writer: takes what is dirty, gives it blocks, and writes it as a log.
//!
//! # State
//! [`LogState`] is what only the log writer changes: the checkpoint and segment usage files, and where
//! the next log goes.
//!
//! # Locking
//! One lock for the whole state, held while a log is built and written. Changes are kept out only while
//! `freeze` takes what is dirty.
//!
//! # Crash
//! A log is valid only as a whole, by its sums. If a checkpoint needs several logs, all but the one with
//! the super root are flushed before that is written. What isn't in a valid log never was.

mod build;
mod freeze;
mod layout;
mod requests;
mod segments;
mod superblocks;
mod write;

pub(crate) use layout::{BlockContent, CleanerWork, LoggedBlock};
pub(crate) use requests::{LogRequests, run};
pub(crate) use segments::{LogPosition, Segments};
pub(crate) use superblocks::{Superblocks, wall_s};

use crate::metadata_file::MetadataFile;
use drystone_nilfs2_format::CheckpointNumber;

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
}
