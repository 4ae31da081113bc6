//! The segment usage file: which segments are clean, and when the others were written.
//!
//! # Reference
//! `struct nilfs_segment_usage` and `struct nilfs_sufile_header` in `nilfs2_ondisk.h`.

use crate::error::Corrupt;
use crate::ids::{FileBlock, SegmentNumber};
use drystone_ondisk::little_endian::{U32, U64};
use std::ops::Range;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a record.
pub const ENTRY_BYTES: usize = size_of::<RawUsage>();
/// Slots of the first block that its header takes.
const HEADER_SLOTS: u64 = 2;

#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawUsage {
    lastmod: U64,
    nblocks: U32,
    flags: U32,
}

#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawSufileHeader {
    ncleansegs: U64,
    ndirtysegs: U64,
    last_alloc: U64,
}

pin_layout!(RawUsage, size 16, { nblocks: 8, flags: 12 });
pin_layout!(RawSufileHeader, size 24, { ndirtysegs: 8, last_alloc: 16 });
const _: () = assert!(size_of::<RawSufileHeader>() <= HEADER_SLOTS as usize * ENTRY_BYTES);

bitflags::bitflags! {
    /// What a segment is.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct UsageFlags: u32 {
        /// Being written; not kept.
        const ACTIVE = 1;
        /// Holds logs, or is reserved for some.
        const DIRTY = 2;
        /// Can't be written.
        const ERROR = 4;
    }
}

/// The header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SufileHeader {
    /// Segments that may be allocated.
    pub clean: u64,
    /// Segments with logs.
    pub dirty: u64,
    /// Where the search for the next clean segment starts.
    pub last_allocated: SegmentNumber,
}

impl SufileHeader {
    /// Reads the header at the start of the first block.
    pub fn read(block: &[u8]) -> Result<Self, Corrupt> {
        let Ok((raw, _)) = RawSufileHeader::read_from_prefix(block) else {
            return Err(truncated("header of the segment usage file", block));
        };
        Ok(Self {
            clean: raw.ncleansegs.get(),
            dirty: raw.ndirtysegs.get(),
            last_allocated: SegmentNumber(raw.last_alloc.get()),
        })
    }

    /// Writes the header into the first block.
    ///
    /// # Panics
    /// If the block is shorter than a header.
    pub fn encode_into(&self, block: &mut [u8]) {
        let raw = RawSufileHeader {
            ncleansegs: U64::new(self.clean),
            ndirtysegs: U64::new(self.dirty),
            last_alloc: U64::new(self.last_allocated.0),
        };
        block[..size_of::<RawSufileHeader>()].copy_from_slice(raw.as_bytes());
    }
}

/// A segment's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SegmentUsage {
    /// When it was last written, in seconds since 1970.
    pub modified_s: u64,
    /// Blocks written to it, live or not.
    pub blocks: u32,
    /// What it is.
    pub flags: UsageFlags,
}

impl SegmentUsage {
    /// Reads a record.
    pub fn read(bytes: &[u8]) -> Result<Self, Corrupt> {
        let Ok((raw, _)) = RawUsage::read_from_prefix(bytes) else {
            return Err(truncated("segment usage", bytes));
        };
        Ok(Self {
            modified_s: raw.lastmod.get(),
            blocks: raw.nblocks.get(),
            flags: UsageFlags::from_bits_retain(raw.flags.get()),
        })
    }

    /// The bytes to store.
    #[must_use]
    pub fn encode(&self) -> [u8; ENTRY_BYTES] {
        let raw = RawUsage {
            lastmod: U64::new(self.modified_s),
            nblocks: U32::new(self.blocks),
            flags: U32::new(self.flags.bits()),
        };
        zerocopy::transmute!(raw)
    }

    /// Whether the segment may be allocated.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        (self.flags - UsageFlags::ACTIVE).is_empty()
    }
}

/// The block of a segment's record, and where in it the record starts.
#[must_use]
pub const fn place_of(segment: SegmentNumber, block_bytes: usize) -> (FileBlock, usize) {
    let per_block = (block_bytes / ENTRY_BYTES) as u64;
    let slot = segment.0.saturating_add(HEADER_SLOTS);
    (FileBlock(slot / per_block), (slot % per_block) as usize * ENTRY_BYTES)
}

/// The segments whose records are in a block.
#[must_use]
pub const fn segments_of(block: FileBlock, block_bytes: usize) -> Range<u64> {
    let per_block = (block_bytes / ENTRY_BYTES) as u64;
    let first = block.0.saturating_mul(per_block);
    let start = first.saturating_sub(HEADER_SLOTS);
    start..first.saturating_add(per_block).saturating_sub(HEADER_SLOTS)
}

fn truncated(structure: &'static str, bytes: &[u8]) -> Corrupt {
    Corrupt::Truncated { structure, needed: ENTRY_BYTES, found: bytes.len() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usages_survive_in_their_slots() {
        assert_eq!(place_of(SegmentNumber(0), 1024), (FileBlock(0), 32));
        assert_eq!(place_of(SegmentNumber(62), 1024), (FileBlock(1), 0));
        let places = [(0, 0..62), (1, 62..126)];
        for (block, segments) in places {
            assert_eq!(segments_of(FileBlock(block), 1024), segments);
        }
        assert!(segments_of(FileBlock(u64::MAX), 1024).is_empty());
        let usage = SegmentUsage { modified_s: 1, blocks: 2, flags: UsageFlags::DIRTY };
        assert_eq!(SegmentUsage::read(&usage.encode()), Ok(usage));
        assert!(!usage.is_clean() && SegmentUsage::default().is_clean());
        let header = SufileHeader { clean: 1, dirty: 2, last_allocated: SegmentNumber(3) };
        let mut block = vec![0; 1024];
        header.encode_into(&mut block);
        assert_eq!(SufileHeader::read(&block), Ok(header));
    }
}
