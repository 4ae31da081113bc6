//! A cached extent: what is known about a run of blocks of a file.

use super::mapped::MappedRun;
use drystone_ext4_format::extent::Extent;
use drystone_ext4_format::{LogicalBlock, PhysicalBlock};

/// The state of a block of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExtentState {
    /// A block with data.
    Written,
    /// An allocated block that reads as zeros.
    Unwritten,
    /// Data without a block yet.
    Delayed,
    /// Neither a block nor delayed data.
    Hole,
}

impl ExtentState {
    /// Whether a block is allocated.
    pub fn is_mapped(self) -> bool {
        matches!(self, ExtentState::Written | ExtentState::Unwritten)
    }

    /// Whether the cache may drop it, because the image has it too.
    pub fn is_droppable(self) -> bool {
        self != ExtentState::Delayed
    }
}

/// What is known about a run of blocks of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CachedExtent {
    /// First block of the file.
    pub logical: u32,
    /// Number of blocks; not 0.
    pub length: u32,
    /// First block of the device; 0 if none is mapped.
    pub physical: u64,
    /// The state of the blocks.
    pub status: ExtentState,
}

impl CachedExtent {
    /// A hole from `logical` up to `end`.
    pub fn hole(logical: u32, end: u64) -> CachedExtent {
        let length = u32::try_from(end - u64::from(logical)).unwrap_or(u32::MAX);
        CachedExtent { logical, length, physical: 0, status: ExtentState::Hole }
    }

    /// The extent that a run of a block map describes.
    pub fn of_map(logical: LogicalBlock, mapped: &MappedRun) -> CachedExtent {
        CachedExtent {
            logical: logical.get(),
            length: mapped.length,
            physical: mapped.physical.map_or(0, PhysicalBlock::get),
            status: if mapped.physical.is_some() {
                ExtentState::Written
            } else {
                ExtentState::Hole
            },
        }
    }

    /// The block after the last one.
    pub fn end(&self) -> u64 {
        u64::from(self.logical) + u64::from(self.length)
    }

    /// The part inside `[from, to)`.
    pub fn overlap(&self, from: u64, to: u64) -> Option<CachedExtent> {
        let start = from.max(u64::from(self.logical));
        let end = to.min(self.end());
        if start >= end {
            return None;
        }
        let skipped = start - u64::from(self.logical);
        let physical = if self.status.is_mapped() { self.physical + skipped } else { 0 };
        // Fits: both are within the extent.
        Some(CachedExtent {
            logical: start as u32,
            length: (end - start) as u32,
            physical,
            status: self.status,
        })
    }

    /// Both as one extent, if `next` continues this one.
    pub fn merge(&self, next: &CachedExtent) -> Option<CachedExtent> {
        let continues = self.status == next.status
            && self.end() == u64::from(next.logical)
            && (!self.status.is_mapped()
                || self.physical + u64::from(self.length) == next.physical);
        let length = self.length.checked_add(next.length).filter(|_| continues)?;
        Some(CachedExtent { length, ..*self })
    }

    /// The mapping of at most `length_max` blocks from `logical` on, which must be in the extent.
    pub fn mapped(&self, logical: u32, length_max: u32) -> MappedRun {
        let skipped = logical - self.logical;
        let physical = self.physical + u64::from(skipped);
        MappedRun {
            physical: self.status.is_mapped().then(|| PhysicalBlock::new(physical)),
            unwritten: self.status == ExtentState::Unwritten,
            delayed: self.status == ExtentState::Delayed,
            length: (self.length - skipped).min(length_max),
        }
    }
}

impl From<Extent> for CachedExtent {
    fn from(extent: Extent) -> CachedExtent {
        CachedExtent {
            logical: extent.logical.get(),
            length: extent.length,
            physical: extent.physical.get(),
            status: if extent.unwritten { ExtentState::Unwritten } else { ExtentState::Written },
        }
    }
}
