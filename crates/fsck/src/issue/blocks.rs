//! Owners of blocks, and what can be wrong with them.

use drystone_ext4_format::{GroupNumber, InodeNumber, PhysicalBlock};
use std::fmt;
use thiserror::Error;

/// A part of the fixed metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FixedPart {
    /// Boot sector, superblock or a copy, descriptors, and blocks reserved for those.
    Base(GroupNumber),
    /// A group's block bitmap.
    BlockBitmap(GroupNumber),
    /// A group's inode bitmap.
    InodeBitmap(GroupNumber),
    /// A group's inode table.
    InodeTable(GroupNumber),
    /// The block of multi-mount protection.
    Mmp,
}

impl fmt::Display for FixedPart {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Base(group) => {
                write!(formatter, "superblock or descriptors of group {group}")
            }
            Self::BlockBitmap(group) => write!(formatter, "block bitmap of group {group}"),
            Self::InodeBitmap(group) => write!(formatter, "inode bitmap of group {group}"),
            Self::InodeTable(group) => write!(formatter, "inode table of group {group}"),
            Self::Mmp => formatter.write_str("block of multi-mount protection"),
        }
    }
}

/// Who owns a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// Fixed metadata.
    Fixed(FixedPart),
    /// An inode: its data, its map or its attributes.
    Inode(InodeNumber),
    /// One that was not found again.
    Unknown,
}

impl fmt::Display for Owner {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(part) => fmt::Display::fmt(part, formatter),
            Self::Inode(inode) => write!(formatter, "inode {inode}"),
            Self::Unknown => formatter.write_str("another owner"),
        }
    }
}

/// What is wrong with the ownership of blocks.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BlockIssue {
    /// Two owners.
    #[error("claimed by {first} and by {second}")]
    ClaimedTwice {
        /// An owner.
        first: Owner,
        /// The other.
        second: Owner,
    },
    /// Two parts of the fixed metadata overlap.
    #[error("{first} overlaps {second}")]
    FixedOverlap {
        /// A part.
        first: FixedPart,
        /// The other.
        second: FixedPart,
    },
}

impl BlockIssue {
    pub(super) const fn inode(&self) -> Option<InodeNumber> {
        match self {
            Self::ClaimedTwice { second: Owner::Inode(inode), .. }
            | Self::ClaimedTwice { first: Owner::Inode(inode), .. } => Some(*inode),
            _ => None,
        }
    }
}

/// Prints a run of blocks.
pub(super) struct BlockRunText {
    pub block: PhysicalBlock,
    pub count: u64,
}

impl fmt::Display for BlockRunText {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.count {
            1 => write!(formatter, "block {}", self.block),
            count => {
                let last = self.block.get().saturating_add(count).saturating_sub(1);
                write!(formatter, "blocks {} to {last}", self.block)
            }
        }
    }
}
