//! The parts and counters of a block group, as errors name them.

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
