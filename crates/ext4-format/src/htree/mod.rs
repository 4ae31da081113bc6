//! The index of a hashed directory.
//!
//! Block 0 of the directory is the root, hidden behind the records `.` and `..`; below it is at
//! most one level of index nodes (two with the `large_dir` feature), each hidden in one unused
//! record; the leaves are ordinary directory blocks. An index entry pairs a hash with a block of
//! the directory: the block holds names whose hashes are that or above, up to the next entry's.
//! The first entry of a block has no hash, its place holds the count and the limit of entries.
//!
//! Hashes are even. An odd one in an entry means that names of the hash without that bit also lie
//! at the end of the entry before: a search for that hash must go on there.
//!
//! # Reference
//! Kernel documentation, "ext4 Data Structures and Algorithms", Hash Tree Directories.

mod build;
mod edit;
mod raw;
mod split;
#[cfg(test)]
mod tests;
mod view;

pub use build::{
    DirectoryPlan, DirectorySize, build_hashed, build_linear, measure_hashed, measure_linear,
};
pub use edit::{IndexBlockMut, init_node, init_root};
pub use raw::{RawCountLimit, RawIndexEntry, RawIndexNode, RawIndexRoot, RawIndexTail};
pub use split::LeafSplit;
pub use view::{IndexBlock, IndexEntry, IndexKind, seal, verify};

use crate::ids::LogicalBlock;
use thiserror::Error;

/// The bit of an index entry's hash that says that its names started in the block before.
pub const CONTINUATION: u32 = 1;

/// Levels of index nodes below the root without the `large_dir` feature.
pub const LEVELS_MAX: u8 = 1;

/// Levels of index nodes below the root with the `large_dir` feature.
pub const LEVELS_MAX_LARGE: u8 = 2;

/// What an index block must agree with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexLimits {
    /// Blocks of the directory: entries must point below.
    pub directory_blocks: u32,
    /// Whether the filesystem has the `large_dir` feature, which allows one more level.
    pub large_directory: bool,
}

impl IndexLimits {
    /// Most levels of index nodes below the root.
    #[must_use]
    pub const fn levels_max(&self) -> u8 {
        if self.large_directory { LEVELS_MAX_LARGE } else { LEVELS_MAX }
    }
}

/// What is wrong with an index block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum IndexProblem {
    /// The block is too short to be an index block.
    #[error("a block of {length} bytes can't hold an index")]
    BlockLength {
        /// Length of the block.
        length: usize,
    },
    /// The records that hide the index are not those of a root or a node.
    #[error("not disguised as the records of an index block")]
    Disguise,
    /// The root names a hash function that the format does not define.
    #[error("hash version {found}")]
    HashVersion {
        /// Stored number.
        found: u8,
    },
    /// The root's information has another length than 8, or reserved fields are set.
    #[error("root information is malformed")]
    RootInfo,
    /// More levels than allowed.
    #[error("{found} levels of index nodes, at most {limit} are allowed")]
    Levels {
        /// Stored number.
        found: u8,
        /// Most that the filesystem allows.
        limit: u8,
    },
    /// The stored limit is not what the block has room for.
    #[error("limit is {found}, the block has room for {expected}")]
    Limit {
        /// Stored limit.
        found: u16,
        /// What fits.
        expected: u16,
    },
    /// No entries, or more than the limit.
    #[error("{count} entries, limit {limit}")]
    Count {
        /// Stored count.
        count: u16,
        /// Stored limit.
        limit: u16,
    },
    /// A hash is below the one before it.
    #[error("entry {position} has hash {hash:#010x}, below {previous:#010x} before it")]
    HashOrder {
        /// The entry.
        position: u16,
        /// Its hash.
        hash: u32,
        /// The hash before.
        previous: u32,
    },
    /// The entries of all index blocks lead to more leaves than there can be.
    #[error("the index leads to more leaves than the directory has blocks ({blocks})")]
    Leaves {
        /// Blocks of the directory.
        blocks: u32,
    },
    /// An entry points at block 0 or behind the end of the directory.
    #[error("entry {position} points at {block}, the directory has {blocks}")]
    Target {
        /// The entry.
        position: u16,
        /// Where it points.
        block: LogicalBlock,
        /// Blocks of the directory.
        blocks: u32,
    },
}
