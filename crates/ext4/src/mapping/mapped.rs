//! Answers about mappings.

use drystone_ext4_format::PhysicalBlock;

/// What is at a block of a file, and for how many blocks from there on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mapped {
    /// Where the block is; `None` in a hole.
    pub physical: Option<PhysicalBlock>,
    /// Allocated, but reads as zeros.
    pub unwritten: bool,
    /// Data that waits for its block.
    pub delayed: bool,
    /// Blocks for which this holds; what follows may be the same again.
    pub length: u32,
}

/// Whether work that is done in steps, each in a handle of its own, has come to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Progress {
    /// All is done.
    Done,
    /// The caller gets a new handle and goes on from here.
    More {
        /// The new end of the range for work that goes downwards, its new start otherwise.
        next: u64,
    },
}
