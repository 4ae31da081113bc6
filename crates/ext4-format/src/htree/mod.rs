//! The index of a hashed directory.
//!
//! Block 0 of the directory is the root, hidden behind the records `.` and `..`; below it is at
//! most one level of index nodes (two with the `large_dir` feature), each hidden in one unused
//! record; the leaves are ordinary directory blocks. An index entry pairs a hash with a block of
//! the directory: the block holds names whose hashes are that or above, up to the next entry's.
//! The first entry of a block has no hash, its place holds the count and the limit of entries.
//!
//! Hashes are even. An odd hash in an entry means that names with that hash (without the bit) also
//! are at the end of the previous entry's block, so a search for the hash must look at both.
//!
//! # Reference
//! Kernel documentation, "ext4 Data Structures and Algorithms", Hash Tree Directories.

mod build;
mod edit;
mod raw;
mod rehash;
mod split;
#[cfg(test)]
mod tests;
mod view;

pub use build::{
    DirectoryPlan, DirectorySize, build_hashed, build_linear, measure_hashed, measure_linear,
};
pub use edit::{IndexBlockMut, init_node, init_root};
pub use raw::{RawCountLimit, RawIndexEntry, RawIndexNode, RawIndexRoot, RawIndexTail};
pub use rehash::rehash;
pub use split::LeafSplit;
pub use view::{IndexBlock, IndexEntry, IndexKind, seal, verify};

/// The bit of an index entry's hash that says that its names started in the block before.
pub const CONTINUATION: u32 = 1;

/// Levels of index nodes below the root without the `large_dir` feature.
pub const LEVELS_MAX: u8 = 1;

/// Levels of index nodes below the root with the `large_dir` feature.
pub const LEVELS_MAX_LARGE: u8 = 2;

/// The directory's properties that an index block must agree with.
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
