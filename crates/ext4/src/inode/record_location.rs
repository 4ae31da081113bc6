//! Where an inode's record is in the inode table.

use crate::alloc;
use crate::volume::Volume;
use drystone_ext4_format::PhysicalBlock;
use drystone_ext4_format::layout::Layout;
use std::ops::Range;

/// The place, in few bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecordLocation {
    /// The block of the inode table.
    pub block: PhysicalBlock,
    /// Offset there in bytes.
    offset: u32,
    /// The part of the block that is noted as changed with the record, so that a commit computes its
    /// checksum; [`NO_PART`] if each change computes it.
    part: u32,
}

/// No part of a block.
const NO_PART: u32 = u32::MAX;

impl RecordLocation {
    pub fn new(volume: &Volume, (block, offset): (PhysicalBlock, usize)) -> RecordLocation {
        let part = alloc::part_of_record(volume.layout(), offset).unwrap_or(NO_PART);
        // Less than a block.
        RecordLocation { block, offset: offset as u32, part }
    }

    /// The bytes of the record in those of the block.
    pub fn record(self, layout: &Layout) -> Range<usize> {
        let offset = self.offset as usize;
        offset..offset + layout.inode_size()
    }

    /// The part of the block that is noted as changed with the record.
    pub fn part(self) -> Option<u32> {
        Some(self.part).filter(|&part| part != NO_PART)
    }
}
