//! What can be wrong with an image: kinds and places.
//!
//! [`Corrupt`] names a structure that contradicts the format or itself; [`Unsupported`] names
//! something valid that this code does not do. Both are values to compare and to print. A `…Problem`
//! says what is wrong with one kind of structure. They stand here, below the structures, because
//! the checks of the structures return them.

mod file;
mod volume;

pub use file::{CheckpointProblem, DatProblem, DirectoryProblem, InodeProblem, MapProblem};
pub use volume::{LogProblem, SuperblockProblem, UsageProblem};

use crate::ids::{
    CheckpointNumber, FileBlock, InodeNumber, PhysicalBlock, SegmentNumber, VirtualBlock,
};
use thiserror::Error;

/// Why bytes of an image could not be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FormatError {
    /// The bytes contradict the format.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
    /// The bytes use something that is not supported.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
}

/// Something in an image contradicts the format: which structure, where, and how.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Corrupt {
    /// Fewer bytes than the structure has.
    #[error("{structure} needs {needed} bytes, found {found}")]
    Truncated {
        /// The structure.
        structure: &'static str,
        /// Bytes that it has.
        needed: usize,
        /// Bytes that there are.
        found: usize,
    },
    /// A superblock is wrong.
    #[error("superblock: {problem}")]
    Superblock {
        /// What is wrong.
        problem: SuperblockProblem,
    },
    /// A log's summary is wrong.
    #[error("log at block {block}: {problem}")]
    Log {
        /// Where the log starts.
        block: PhysicalBlock,
        /// What is wrong.
        problem: LogProblem,
    },
    /// The sum of a super root is wrong.
    #[error("super root at block {block}: sum is {stored:#010x}, computed {computed:#010x}")]
    SuperRootSum {
        /// Where the super root is.
        block: PhysicalBlock,
        /// What is stored.
        stored: u32,
        /// What its content gives.
        computed: u32,
    },
    /// The length of a super root is wrong.
    #[error("super root at block {block}: has {stored} bytes, not {expected}")]
    SuperRootLength {
        /// Where the super root is.
        block: PhysicalBlock,
        /// What is stored.
        stored: u16,
        /// What three inodes need.
        expected: u16,
    },
    /// A field of an inode is impossible.
    #[error("inode {inode}: {problem}")]
    Inode {
        /// The inode.
        inode: InodeNumber,
        /// Which field, and why.
        problem: InodeProblem,
    },
    /// The root of an inode's map is wrong.
    #[error("inode {inode}: root of the map: {problem}")]
    MapRoot {
        /// The inode.
        inode: InodeNumber,
        /// What is wrong.
        problem: MapProblem,
    },
    /// A node of an inode's map is wrong.
    #[error("inode {inode}: node {pointer} of the map: {problem}")]
    MapNode {
        /// The inode.
        inode: InodeNumber,
        /// What leads to the node: a virtual block, or in the DAT's map a physical one.
        pointer: u64,
        /// What is wrong.
        problem: MapProblem,
    },
    /// An entry of the DAT is wrong.
    #[error("virtual block {block}: {problem}")]
    Dat {
        /// The entry's number.
        block: VirtualBlock,
        /// What is wrong.
        problem: DatProblem,
    },
    /// A block of the checkpoint file is wrong.
    #[error("checkpoint {checkpoint}: {problem}")]
    Checkpoint {
        /// The checkpoint.
        checkpoint: CheckpointNumber,
        /// What is wrong.
        problem: CheckpointProblem,
    },
    /// A segment's record is wrong.
    #[error("segment {segment}: {problem}")]
    Usage {
        /// The segment.
        segment: SegmentNumber,
        /// What is wrong.
        problem: UsageProblem,
    },
    /// A directory block is wrong.
    #[error("directory inode {inode}: file block {block}: offset {offset}: {problem}")]
    Directory {
        /// The directory.
        inode: InodeNumber,
        /// The block within it.
        block: FileBlock,
        /// The entry's place in the block.
        offset: usize,
        /// What is wrong.
        problem: DirectoryProblem,
    },
}

/// Something valid that is not supported.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Unsupported {
    /// Incompatible features: the image can't be used.
    #[error("unsupported incompatible features {bits:#x}")]
    IncompatFeatures {
        /// Their bits.
        bits: u64,
    },
    /// Read-only compatible features: the image can't be written.
    #[error("unsupported features {bits:#x}, the image can only be read")]
    ReadOnlyCompatFeatures {
        /// Their bits.
        bits: u64,
    },
    /// A revision of the format that is not known.
    #[error("unsupported revision {revision}")]
    Revision {
        /// The revision.
        revision: u32,
    },
    /// A record has another size than the one known.
    #[error("{record} has {found} bytes, only {supported} are supported")]
    RecordSize {
        /// The record.
        record: &'static str,
        /// Its size in this image.
        found: u16,
        /// The size that is known.
        supported: u16,
    },
}
