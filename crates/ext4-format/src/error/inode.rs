//! What can be wrong with an inode, its inline data and its extent tree.

use crate::ids::{InodeNumber, LogicalBlock, PhysicalBlock};
use thiserror::Error;

/// Why an inode may not map a block of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum MappedBlockProblem {
    /// It holds fixed metadata or the journal.
    #[error("is mapped, but it holds metadata of the file system")]
    Metadata,
    /// The inode maps it elsewhere too.
    #[error("is mapped twice")]
    Twice,
}

/// An impossible field of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum InodeProblem {
    /// The number is 0 or beyond the last inode.
    #[error("no such inode")]
    Number,
    /// The inode is free in the inode bitmap, or is not for files.
    #[error("referred to, but it is free or reserved")]
    NotInUse,
    /// The mode has no known file type.
    #[error("mode {mode:#o} has no file type")]
    FileType {
        /// The stored mode.
        mode: u16,
    },
    /// The extra fields don't fit the inode or are not aligned.
    #[error("extra size is {bytes}")]
    ExtraSize {
        /// The stored number.
        bytes: u16,
    },
    /// The size is larger than a file can be.
    #[error("size is {bytes}")]
    Size {
        /// The stored number.
        bytes: u64,
    },
    /// It maps more blocks than the image has.
    #[error("maps more blocks than there are")]
    MappedTwice,
    /// More space is in use than can be counted.
    #[error("{sectors} sectors in use")]
    Sectors {
        /// The number, in units of 512 bytes.
        sectors: u64,
    },
    /// The block of extended attributes lies outside the device.
    #[error("attribute block is {block}")]
    AttributeBlock {
        /// The stored number.
        block: PhysicalBlock,
    },
}

/// What is wrong with inline data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum InlineProblem {
    /// The inode has no attribute `system.data`.
    #[error("no system.data attribute")]
    MissingAttribute,
    /// The size is larger than what the inode holds.
    #[error("size is {size}, the inode holds {held}")]
    Size {
        /// Size of the file.
        size: u64,
        /// Bytes of both pieces.
        held: usize,
    },
    /// The value of the attribute can't hold records.
    #[error("a piece of {length} bytes can't hold records")]
    PieceLength {
        /// Its length.
        length: usize,
    },
    /// The directory's parent is not an inode.
    #[error("parent is inode {inode}, the last is {last}")]
    Parent {
        /// Stored number.
        inode: InodeNumber,
        /// The last inode.
        last: InodeNumber,
    },
}

/// What is wrong with the header of an extent node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ExtentHeaderProblem {
    /// The magic number is wrong.
    #[error("magic is {found:#06x}, not 0xf30a")]
    Magic {
        /// What is stored.
        found: u16,
    },
    /// The node claims more room than it has, or much less.
    #[error("room for {max} entries, there is room for {fits}")]
    Max {
        /// What is stored.
        max: u16,
        /// What fits.
        fits: u16,
    },
    /// There are more entries than room.
    #[error("{entries} entries, room for {max}")]
    Entries {
        /// How many are stored.
        entries: u16,
        /// The room that is stored.
        max: u16,
    },
    /// The depth is not one less than the parent's, or above the limit.
    #[error("depth is {found}, expected {expected}")]
    Depth {
        /// What is stored.
        found: u16,
        /// What the parent asks for; the limit for a root.
        expected: u16,
    },
    /// A node other than the root of a file without blocks has no entries.
    #[error("no entries")]
    Empty,
}

/// What is wrong with an entry of an extent node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ExtentEntryProblem {
    /// The extent has no blocks.
    #[error("length is 0")]
    Length,
    /// The extent ends beyond the last block that a file can have.
    #[error("blocks {start} + {length} exceed the largest file")]
    LogicalRange {
        /// First block of the file.
        start: LogicalBlock,
        /// Number of blocks.
        length: u32,
    },
    /// The entry starts before the end of its predecessor.
    #[error("starts at {start}, before {previous_end}")]
    Order {
        /// First block of this entry.
        start: LogicalBlock,
        /// First block that the entry could have.
        previous_end: u64,
    },
    /// The entry starts outside the range that the parent gives.
    #[error("covers {start} to {end}, outside of the parent's range")]
    OutsideParent {
        /// First block of the entry.
        start: LogicalBlock,
        /// First block after the entry.
        end: u64,
    },
    /// The blocks lie outside the device, or on its fixed metadata.
    #[error("device blocks {start} + {length} can't hold data")]
    PhysicalRange {
        /// First block of the device.
        start: PhysicalBlock,
        /// Number of blocks.
        length: u32,
    },
}
