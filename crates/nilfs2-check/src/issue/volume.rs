//! What can be wrong with superblocks, logs and segments.

use drystone_nilfs2_format::{
    CheckpointNumber, Corrupt, FormatError, InodeNumber, PhysicalBlock, Unsupported, VirtualBlock,
};
use std::fmt;
use thiserror::Error;

/// Which superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SuperblockCopy {
    /// The one at the start of the device.
    First,
    /// The one at its end.
    Second,
}

impl fmt::Display for SuperblockCopy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::First => "first",
            Self::Second => "second",
        })
    }
}

/// What is wrong with a superblock.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SuperblockCopyIssue {
    /// It can't be used.
    #[error("{0}")]
    Unusable(FormatError),
    /// It lies in the last segment.
    #[error("lies in a segment")]
    InSegment,
    /// It says something else than the other one of what never changes.
    #[error("{what} differs from the other superblock")]
    Differs {
        /// What differs.
        what: &'static str,
    },
    /// It doesn't lead to a log with a super root.
    #[error("doesn't lead to a checkpoint: {0}")]
    Cursor(Corrupt),
    /// The log that it leads to is another checkpoint's.
    #[error("leads to checkpoint {found}, not {expected}")]
    CursorCheckpoint {
        /// The checkpoint of the log.
        found: CheckpointNumber,
        /// What the superblock says.
        expected: CheckpointNumber,
    },
    /// The volume is said to be clean, but there is a newer checkpoint.
    #[error("says that the volume is clean, but a newer checkpoint is at block {block}")]
    NotClean {
        /// Where its log starts.
        block: PhysicalBlock,
    },
    /// The volume is marked as damaged.
    #[error("says that errors were found")]
    Damaged,
    /// Features that others may ignore are unknown.
    #[error("{0}")]
    Feature(Unsupported),
    /// States that have no meaning.
    #[error("unknown state {state:#x}")]
    UnknownState {
        /// What is stored.
        state: u16,
    },
    /// The number of free blocks isn't that of the clean segments.
    #[error("{stored} free blocks, clean segments have {counted}")]
    FreeBlocks {
        /// What is stored.
        stored: u64,
        /// What there are.
        counted: u64,
    },
}

/// What is wrong with a log.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LogIssue {
    /// The next segment isn't the one that other logs name.
    #[error("the next segment is at block {found}, other logs say {expected}")]
    Next {
        /// What is stored.
        found: PhysicalBlock,
        /// What others say.
        expected: PhysicalBlock,
    },
    /// The sequence number is newer than the newest log's.
    #[error("sequence number {found} is newer than {newest}")]
    Sequence {
        /// What is stored.
        found: u64,
        /// That of the newest log with a super root.
        newest: u64,
    },
    /// It was written for a checkpoint that is newer than the newest.
    #[error("written for checkpoint {found}, newer than {newest}")]
    Checkpoint {
        /// What is stored.
        found: CheckpointNumber,
        /// The newest.
        newest: CheckpointNumber,
    },
    /// Another segment has this sequence number.
    #[error("sequence number {found} is that of another segment")]
    SequenceTwice {
        /// What is stored.
        found: u64,
    },
    /// It isn't of the checkpoint that follows from the log before.
    #[error("written for checkpoint {found}, after the log before it has to be {expected}")]
    CheckpointOrder {
        /// What is stored.
        found: CheckpointNumber,
        /// What belongs here.
        expected: CheckpointNumber,
    },
    /// Logical segments don't begin and end in turn.
    #[error("flags {flags:#x} don't continue the logical segment before")]
    Flags {
        /// What is stored.
        flags: u16,
    },
    /// Flags that have no meaning, alone or together.
    #[error("impossible flags {flags:#x}")]
    ImpossibleFlags {
        /// What is stored.
        flags: u16,
    },
    /// Blocks of a file without history aren't said to be so.
    #[error("blocks of inode {inode} are said to be of checkpoint {found}")]
    History {
        /// The file.
        inode: InodeNumber,
        /// What is stored.
        found: CheckpointNumber,
    },
    /// Bytes of the super root that mean nothing aren't zero.
    #[error("the super root has flags {flags:#x}")]
    SuperRootFlags {
        /// What is stored.
        flags: u16,
    },
    /// A file's blocks were written for another checkpoint than the DAT says.
    #[error("virtual block {block} was written for checkpoint {found}, the DAT says {expected}")]
    Start {
        /// The virtual block.
        block: VirtualBlock,
        /// What the log says.
        found: CheckpointNumber,
        /// What the DAT says.
        expected: CheckpointNumber,
    },
}

/// What is wrong with a segment.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SegmentIssue {
    /// Its logs have more or fewer blocks than its record says.
    #[error("{stored} blocks are said to be written, logs have {counted}")]
    Blocks {
        /// What is stored.
        stored: u32,
        /// What the logs have.
        counted: u64,
    },
    /// It is clean, but blocks are said to be written.
    #[error("clean, with {blocks} blocks written")]
    CleanBlocks {
        /// What is stored.
        blocks: u32,
    },
    /// The log goes on here, but the segment is clean.
    #[error("clean, though the log is there or goes on there")]
    CleanLog,
    /// Flags that have no meaning.
    #[error("unknown flags {flags:#x}")]
    UnknownFlags {
        /// What is stored.
        flags: u32,
    },
    /// It is marked as unusable.
    #[error("marked as bad")]
    Bad,
    /// Its logs say that blocks which live belong elsewhere than where they are referred to.
    #[error("its logs name other files or places for blocks that live")]
    Owners,
}
