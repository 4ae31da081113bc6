//! Extended attributes: small named values of an inode.
//!
//! They live in up to three places: after the fixed fields of the inode itself, in one block
//! that inodes with equal attributes share, and, for large values, in inodes of their own that
//! entries of the first two point to. Inode area and block have the same shape: entries from the
//! front, values from the back. A name is stored as the number of its prefix and the rest.
//!
//! [`XattrView`] reads an area or a block, [`AttributeSet`] builds one: an edit reads a set,
//! changes it and packs it again.
//!
//! # Reference
//! Kernel documentation, "ext4 Data Structures and Algorithms", Extended Attributes.

mod build;
mod hash;
mod inode_value;
mod name;
mod raw;
#[cfg(test)]
mod tests;
mod view;

pub use build::{Attribute, AttributeSet, AttributeValue, NoAttributeRoom, set_reference_count};
pub use hash::{block_hash, entry_hash, entry_hash_fits, inode_value_entry_hash};
pub use inode_value::{InodeValueFields, inode_value_hash};
pub use name::AttributeName;
pub use raw::{RawAttributeBlockHeader, RawAttributeEntry};
pub use view::{AttributeEntry, AttributesBlock, Value, XattrView, seal_block, verify_block};

use crate::error::{AttributeProblem, Corrupt};
use crate::ids::{InodeNumber, PhysicalBlock};

/// The magic number in front of attributes.
pub const MAGIC: u32 = 0xea02_0000;

/// Longest name after the prefix, in bytes.
pub const NAME_LENGTH_MAX: usize = 255;

/// Largest value, in bytes, also in an inode of its own.
pub const VALUE_LENGTH_MAX: usize = 65536;

/// Most inodes that may share one attribute block.
pub const REFERENCE_COUNT_MAX: u32 = 1024;

/// The owner and place of attributes, for errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttributePlace {
    /// The inode.
    pub inode: InodeNumber,
    /// The attribute block, or `None` for the area in the inode.
    pub block: Option<PhysicalBlock>,
}

impl AttributePlace {
    pub(crate) fn corrupt(self, offset: usize, problem: AttributeProblem) -> Corrupt {
        Corrupt::Attributes { inode: self.inode, block: self.block, offset, problem }
    }
}
