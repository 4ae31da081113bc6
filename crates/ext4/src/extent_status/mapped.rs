//! The answer of a look-up of a mapping.

use drystone_ext4_format::PhysicalBlock;

/// The mapping of a block of a file, and for how many blocks from there on it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MappedRun {
    /// The block of the device; `None` in a hole or where data is delayed.
    pub physical: Option<PhysicalBlock>,
    /// The block is allocated, but reads as zeros.
    pub unwritten: bool,
    /// The data is in delayed allocation.
    pub delayed: bool,
    /// The number of blocks for which this holds; the run after them may continue it.
    pub length: u32,
}
