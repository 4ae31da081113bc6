//! Layouts of attribute entries and blocks.

use std::mem::{offset_of, size_of};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

drystone_ondisk::with_fields! {
    /// The head of an attribute block.
    #[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
    #[repr(C)]
    pub struct RawAttributeBlockHeader {
        /// The magic number.
        pub magic: U32,
        /// Inodes that share the block.
        pub reference_count: U32,
        /// Blocks used: 1.
        pub blocks: U32,
        /// Hash of all entries, or 0 if the block can't be shared.
        pub hash: U32,
        /// The checksum of the block.
        pub checksum: U32,
        /// Unused.
        pub reserved: [U32; 3],
    }
}

const _: () = assert!(size_of::<RawAttributeBlockHeader>() == 32);
const _: () = assert!(offset_of!(RawAttributeBlockHeader, hash) == 12);
const _: () = assert!(offset_of!(RawAttributeBlockHeader, checksum) == 16);

drystone_ondisk::with_fields! {
    /// The fixed part of an entry; the name follows, padded to 4 bytes.
    #[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
    #[repr(C)]
    pub struct RawAttributeEntry {
        /// Length of the name after the prefix.
        pub name_length: u8,
        /// Number of the prefix.
        pub name_index: u8,
        /// Where the value starts: from the start of a block, or from the first entry in an inode.
        pub value_offset: U16,
        /// The inode that holds the value, or 0.
        pub value_inode: U32,
        /// Length of the value.
        pub value_size: U32,
        /// Hash of name and value.
        pub hash: U32,
    }
}

const _: () = assert!(size_of::<RawAttributeEntry>() == 16);
const _: () = assert!(offset_of!(RawAttributeEntry, value_inode) == 4);
const _: () = assert!(offset_of!(RawAttributeEntry, hash) == 12);

pub(super) const HEADER_LENGTH: usize = size_of::<RawAttributeBlockHeader>();
pub(super) const ENTRY_LENGTH: usize = size_of::<RawAttributeEntry>();

/// Entries, values and the area's magic number are multiples of this.
pub(super) const ALIGNMENT: usize = 4;

/// Bytes of an entry with a name of this length.
pub(super) const fn entry_length(name_length: usize) -> usize {
    (ENTRY_LENGTH + name_length).next_multiple_of(ALIGNMENT)
}
