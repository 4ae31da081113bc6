//! What is known about some blocks of a file.

use super::mapped::Mapped;
use drystone_ext4_format::extent::Extent;
use drystone_ext4_format::{LogicalBlock, PhysicalBlock};

/// What is at a block of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// A block with data.
    Written,
    /// A block that reads as zeros.
    Unwritten,
    /// Data without a block yet.
    Delayed,
    /// Nothing.
    Hole,
}

impl Status {
    /// Whether there is a block.
    pub fn is_mapped(self) -> bool {
        matches!(self, Status::Written | Status::Unwritten)
    }

    /// Whether the image knows it too, so that it can be forgotten here.
    pub fn is_droppable(self) -> bool {
        self != Status::Delayed
    }
}

/// What is known about a run of blocks of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fact {
    /// First block of the file.
    pub logical: u32,
    /// Number of blocks; not 0.
    pub length: u32,
    /// First block of the device; 0 where there is none.
    pub physical: u64,
    /// What is there.
    pub status: Status,
}

impl Fact {
    /// A run of nothing from `logical` up to `end`.
    pub fn hole(logical: u32, end: u64) -> Fact {
        let length = u32::try_from(end - u64::from(logical)).unwrap_or(u32::MAX);
        Fact { logical, length, physical: 0, status: Status::Hole }
    }

    /// What a block map says.
    pub fn of_map(logical: LogicalBlock, mapped: &Mapped) -> Fact {
        Fact {
            logical: logical.get(),
            length: mapped.length,
            physical: mapped.physical.map_or(0, PhysicalBlock::get),
            status: if mapped.physical.is_some() { Status::Written } else { Status::Hole },
        }
    }

    /// The block behind the last one.
    pub fn end(&self) -> u64 {
        u64::from(self.logical) + u64::from(self.length)
    }

    /// The part inside `[from, to)`.
    pub fn overlap(&self, from: u64, to: u64) -> Option<Fact> {
        let start = from.max(u64::from(self.logical));
        let end = to.min(self.end());
        if start >= end {
            return None;
        }
        let skipped = start - u64::from(self.logical);
        let physical = if self.status.is_mapped() { self.physical + skipped } else { 0 };
        // Both are within the fact, and so within its numbers.
        Some(Fact {
            logical: start as u32,
            length: (end - start) as u32,
            physical,
            status: self.status,
        })
    }

    /// Both as one, if `next` continues this.
    pub fn merge(&self, next: &Fact) -> Option<Fact> {
        let continues = self.status == next.status
            && self.end() == u64::from(next.logical)
            && (!self.status.is_mapped()
                || self.physical + u64::from(self.length) == next.physical);
        let length = self.length.checked_add(next.length).filter(|_| continues)?;
        Some(Fact { length, ..*self })
    }

    /// What it says about at most `length_max` blocks from one of its blocks on.
    pub fn mapped(&self, logical: u32, length_max: u32) -> Mapped {
        let skipped = logical - self.logical;
        let physical = self.physical + u64::from(skipped);
        Mapped {
            physical: self.status.is_mapped().then(|| PhysicalBlock::new(physical)),
            unwritten: self.status == Status::Unwritten,
            delayed: self.status == Status::Delayed,
            length: (self.length - skipped).min(length_max),
        }
    }
}

impl From<Extent> for Fact {
    fn from(extent: Extent) -> Fact {
        Fact {
            logical: extent.logical.get(),
            length: extent.length,
            physical: extent.physical.get(),
            status: if extent.unwritten { Status::Unwritten } else { Status::Written },
        }
    }
}
