//! The bytes of extent nodes.

use crate::ids::{LogicalBlock, PhysicalBlock};
use drystone_ondisk::Field;
use drystone_ondisk::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, transmute};

use super::{Extent, ExtentIndex};

pub(super) const MAGIC: u16 = 0xf30a;
pub(super) const HEADER_BYTES: usize = 12;
pub(super) const ENTRY_BYTES: usize = 12;
pub(super) const TAIL_BYTES: usize = 4;
/// A stored length above this one stands for an unwritten extent of the excess.
pub(super) const WRITTEN_LENGTH_MAX: u16 = 0x8000;

/// The bytes of an entry, of either kind.
pub type EntryBytes = [u8; ENTRY_BYTES];

drystone_ondisk::with_fields! {
    #[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
    #[repr(C)]
    pub(super) struct RawHeader {
        pub magic: U16,
        pub entries: U16,
        pub max: U16,
        pub depth: U16,
        pub generation: U32,
    }
}

pin_layout!(RawHeader, size 12, { entries: 2, max: 4, depth: 6, generation: 8 });

drystone_ondisk::with_fields! {
    #[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
    #[repr(C)]
    struct RawExtent {
        block: U32,
        length: U16,
        start_hi: U16,
        start_lo: U32,
    }
}

pin_layout!(RawExtent, size 12, { block: 0, length: 4, start_hi: 6, start_lo: 8 });

drystone_ondisk::with_fields! {
    #[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
    #[repr(C)]
    struct RawIndex {
        block: U32,
        leaf_lo: U32,
        leaf_hi: U16,
        unused: U16,
    }
}

pin_layout!(RawIndex, size 12, { block: 0, leaf_lo: 4, leaf_hi: 8, unused: 10 });

/// The fields of a node's header.
pub const HEADER_FIELDS: &[Field] = RawHeader::FIELDS;
/// The fields of an extent.
pub const EXTENT_FIELDS: &[Field] = RawExtent::FIELDS;
/// The fields of an entry of an index node.
pub const INDEX_FIELDS: &[Field] = RawIndex::FIELDS;

/// First block of the file that an entry of either kind stands for.
pub(super) fn logical_of(entry: &EntryBytes) -> LogicalBlock {
    let raw: RawIndex = transmute!(*entry);
    LogicalBlock::new(raw.block.get())
}

pub(super) fn decode_extent(entry: &EntryBytes) -> Extent {
    let raw: RawExtent = transmute!(*entry);
    let stored = raw.length.get();
    let unwritten = stored > WRITTEN_LENGTH_MAX;
    let length = if unwritten { stored - WRITTEN_LENGTH_MAX } else { stored };
    Extent {
        logical: LogicalBlock::new(raw.block.get()),
        length: u32::from(length),
        physical: PhysicalBlock::new(
            u64::from(raw.start_hi.get()) << 32 | u64::from(raw.start_lo.get()),
        ),
        unwritten,
    }
}

/// The length was checked against the limit of its kind, the block against 48 bits.
pub(super) fn encode_extent(extent: &Extent) -> EntryBytes {
    let length = extent.length as u16;
    transmute!(RawExtent {
        block: U32::new(extent.logical.get()),
        length: U16::new(if extent.unwritten { length + WRITTEN_LENGTH_MAX } else { length }),
        start_hi: U16::new((extent.physical.get() >> 32) as u16),
        start_lo: U32::new(extent.physical.get() as u32),
    })
}

pub(super) fn decode_index(entry: &EntryBytes) -> ExtentIndex {
    let raw: RawIndex = transmute!(*entry);
    ExtentIndex {
        logical: LogicalBlock::new(raw.block.get()),
        child: PhysicalBlock::new(
            u64::from(raw.leaf_hi.get()) << 32 | u64::from(raw.leaf_lo.get()),
        ),
    }
}

/// The block was checked against 48 bits.
pub(super) fn encode_index(index: &ExtentIndex) -> EntryBytes {
    transmute!(RawIndex {
        block: U32::new(index.logical.get()),
        leaf_lo: U32::new(index.child.get() as u32),
        leaf_hi: U16::new((index.child.get() >> 32) as u16),
        unused: U16::ZERO,
    })
}
