//! Answers about mappings.

use drystone_ext4_format::PhysicalBlock;

/// What is at a block of a file, and for how many blocks from there on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MappedRun {
    /// Where the block is; `None` in a hole.
    pub physical: Option<PhysicalBlock>,
    /// Allocated, but reads as zeros.
    pub unwritten: bool,
    /// Data that waits for its block.
    pub delayed: bool,
    /// Blocks for which this holds; what follows may be the same again.
    pub length: u32,
}
