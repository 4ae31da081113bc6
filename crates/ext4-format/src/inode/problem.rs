//! What can be wrong with an inode.

use crate::ids::PhysicalBlock;
use thiserror::Error;

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
