//! Where an image keeps its parts: blocks, segments, superblocks.
//!
//! A [`Geometry`] can only be made from numbers with which all arithmetic here is safe.

use crate::error::SuperblockProblem;
use crate::ids::{PhysicalBlock, SegmentNumber};

/// Where the first superblock starts, in bytes.
pub const SUPERBLOCK_OFFSET_BYTES: u64 = 1024;
/// What a superblock occupies, in bytes.
pub const SUPERBLOCK_BYTES: usize = 1024;
/// The smallest block, in bytes.
pub const BLOCK_BYTES_MIN: u32 = 1024;
/// The largest block, in bytes.
pub const BLOCK_BYTES_MAX: u32 = 65536;
/// The fewest blocks of a segment.
pub const SEGMENT_BLOCKS_MIN: u32 = 16;
/// The most blocks of a segment.
pub const SEGMENT_BLOCKS_MAX: u32 = 1 << 20;
/// Segments that are always kept for the log itself.
pub const RESERVED_SEGMENTS_MIN: u64 = 8;

/// Sizes and places. They never change, except that a volume that grows gets more segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    block_bytes: u32,
    blocks_per_segment: u32,
    segments: u64,
    reserved_percent: u32,
    device_bytes: u64,
}

impl Geometry {
    /// Checks the numbers of a volume.
    pub fn new(
        block_bytes: u32,
        blocks_per_segment: u32,
        segments: u64,
        reserved_percent: u32,
        device_bytes: u64,
    ) -> Result<Self, SuperblockProblem> {
        let block_ok = block_bytes.is_power_of_two()
            && (BLOCK_BYTES_MIN..=BLOCK_BYTES_MAX).contains(&block_bytes);
        if !block_ok {
            return Err(SuperblockProblem::BlockSize { bytes: u64::from(block_bytes) });
        }
        if !(SEGMENT_BLOCKS_MIN..=SEGMENT_BLOCKS_MAX).contains(&blocks_per_segment) {
            return Err(SuperblockProblem::SegmentBlocks { blocks: blocks_per_segment });
        }
        let geometry =
            Self { block_bytes, blocks_per_segment, segments, reserved_percent, device_bytes };
        let possible = Self::segments_for(device_bytes, block_bytes, blocks_per_segment);
        if segments == 0 || segments > possible {
            return Err(SuperblockProblem::Segments { segments, possible });
        }
        if reserved_percent >= 100 {
            return Err(SuperblockProblem::ReservedPercent { percent: reserved_percent });
        }
        if geometry.first_data_block().0 + 2 > u64::from(blocks_per_segment) {
            return Err(SuperblockProblem::SegmentBlocks { blocks: blocks_per_segment });
        }
        Ok(geometry)
    }

    /// How many segments a device has room for.
    #[must_use]
    pub fn segments_for(device_bytes: u64, block_bytes: u32, blocks_per_segment: u32) -> u64 {
        second_superblock_offset(device_bytes)
            / u64::from(block_bytes)
            / u64::from(blocks_per_segment)
    }

    /// Bytes in a block.
    #[must_use]
    pub const fn block_bytes(&self) -> usize {
        self.block_bytes as usize
    }

    /// Blocks in a segment.
    #[must_use]
    pub const fn blocks_per_segment(&self) -> u64 {
        self.blocks_per_segment as u64
    }

    /// Segments of the volume.
    #[must_use]
    pub const fn segments(&self) -> u64 {
        self.segments
    }

    /// The share of segments that is kept for the log itself, in percent.
    #[must_use]
    pub const fn reserved_percent(&self) -> u32 {
        self.reserved_percent
    }

    /// Bytes of the device.
    #[must_use]
    pub const fn device_bytes(&self) -> u64 {
        self.device_bytes
    }

    /// Segments that are kept for the log itself.
    #[must_use]
    pub fn reserved_segments(&self) -> u64 {
        let share = u128::from(self.segments) * u128::from(self.reserved_percent);
        // A share below 100 % fits.
        (share.div_ceil(100) as u64).max(RESERVED_SEGMENTS_MIN)
    }

    /// The first block of segment 0 that a log may use.
    #[must_use]
    pub const fn first_data_block(&self) -> PhysicalBlock {
        PhysicalBlock(4096_u64.div_ceil(self.block_bytes as u64))
    }

    /// The first block after all segments.
    #[must_use]
    pub const fn end(&self) -> PhysicalBlock {
        PhysicalBlock(self.segments * self.blocks_per_segment as u64)
    }

    /// The segment of a block, if one has it.
    #[must_use]
    pub fn segment_of(&self, block: PhysicalBlock) -> Option<SegmentNumber> {
        let inside = block >= self.first_data_block() && block < self.end();
        inside.then(|| SegmentNumber(block.0 / self.blocks_per_segment()))
    }

    /// The first block of a segment, where its first log starts.
    #[must_use]
    pub fn segment_start(&self, segment: SegmentNumber) -> PhysicalBlock {
        let start = PhysicalBlock(segment.0 * self.blocks_per_segment());
        start.max(self.first_data_block())
    }

    /// The first block after a segment.
    #[must_use]
    pub const fn segment_end(&self, segment: SegmentNumber) -> PhysicalBlock {
        PhysicalBlock((segment.0 + 1) * self.blocks_per_segment as u64)
    }

    /// The segment that starts at a block, if one does.
    #[must_use]
    pub fn segment_starting_at(&self, block: PhysicalBlock) -> Option<SegmentNumber> {
        self.segment_of(block).filter(|segment| self.segment_start(*segment) == block)
    }

    /// A block's place on the device, in bytes.
    #[must_use]
    pub const fn offset_of(&self, block: PhysicalBlock) -> u64 {
        block.0 * self.block_bytes as u64
    }

    /// Where the second superblock starts, in bytes.
    #[must_use]
    pub fn second_superblock_offset(&self) -> u64 {
        second_superblock_offset(self.device_bytes)
    }
}

/// Where the second superblock of a device starts, in bytes: the last whole 4 KiB of it.
#[must_use]
pub const fn second_superblock_offset(device_bytes: u64) -> u64 {
    (device_bytes >> 12).saturating_sub(1) << 12
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_tile_the_device() {
        let geometry = Geometry::new(4096, 2048, 15, 5, 128 << 20).unwrap();
        assert_eq!(geometry.first_data_block(), PhysicalBlock(1));
        assert_eq!(geometry.segment_start(SegmentNumber(0)), PhysicalBlock(1));
        assert_eq!(geometry.segment_end(SegmentNumber(0)), PhysicalBlock(2048));
        assert_eq!(geometry.segment_of(PhysicalBlock(0)), None);
        assert_eq!(geometry.segment_of(PhysicalBlock(2048)), Some(SegmentNumber(1)));
        assert_eq!(geometry.segment_of(geometry.end()), None);
        assert_eq!(geometry.segment_starting_at(PhysicalBlock(1)), Some(SegmentNumber(0)));
        assert_eq!(geometry.segment_starting_at(PhysicalBlock(2049)), None);
        assert_eq!(geometry.reserved_segments(), 8);
    }

    #[test]
    fn impossible_numbers_are_refused() {
        assert!(Geometry::new(4096, 2048, 16, 5, 128 << 20).is_err());
        assert!(Geometry::new(512, 2048, 1, 5, 128 << 20).is_err());
        assert!(Geometry::new(4096, 8, 1, 5, 128 << 20).is_err());
        assert!(Geometry::new(4096, 2048, 15, 100, 128 << 20).is_err());
        assert!(Geometry::new(4096, 2048, u64::MAX, 5, u64::MAX).is_err());
    }
}
