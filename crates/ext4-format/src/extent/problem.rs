//! What can be wrong with a node of an extent tree.

use crate::ids::{LogicalBlock, PhysicalBlock};
use thiserror::Error;

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
    /// An index node has no entries.
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
        /// First block behind the entry.
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
