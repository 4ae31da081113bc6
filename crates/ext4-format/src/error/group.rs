//! The parts and counters of a block group, as errors name them, and what can be wrong with a block.

use thiserror::Error;

/// A part of a group that its descriptor locates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum GroupPart {
    /// The bitmap of blocks (or clusters).
    #[error("block bitmap")]
    BlockBitmap,
    /// The bitmap of inodes.
    #[error("inode bitmap")]
    InodeBitmap,
    /// The inode table.
    #[error("inode table")]
    InodeTable,
}

/// A number that a group descriptor counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum GroupCounter {
    /// Free blocks (clusters).
    #[error("free clusters")]
    FreeClusters,
    /// Free inodes.
    #[error("free inodes")]
    FreeInodes,
    /// Directories.
    #[error("used directories")]
    UsedDirectories,
    /// Inodes at the end of the table that were never used.
    #[error("unused inodes")]
    UnusedInodes,
}

/// Why a block isn't what something takes it for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BlockProblem {
    /// Something refers to it.
    #[error("is referred to, but it is free")]
    Free,
    /// It is to be given out.
    #[error("is in use, but something takes it for free")]
    Used,
    /// Something claims it.
    #[error("is claimed, but it holds fixed metadata")]
    Fixed,
    /// It holds metadata of two structures.
    #[error("is claimed by two structures, or twice by one")]
    TwoUses,
}
