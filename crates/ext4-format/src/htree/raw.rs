//! Layouts of index blocks.

use crate::dir::RawRecordHeader;
use std::mem::{offset_of, size_of};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

drystone_ondisk::with_fields! {
    /// The head of the root: two records of a directory, then what the index is.
    #[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
    #[repr(C)]
    pub struct RawIndexRoot {
        /// The record of `.`, 12 bytes long.
        pub dot: RawRecordHeader,
        /// `.` and padding.
        pub dot_name: [u8; 4],
        /// The record of `..`, which claims the rest of the block.
        pub dotdot: RawRecordHeader,
        /// `..` and padding.
        pub dotdot_name: [u8; 4],
        /// Zero.
        pub reserved: U32,
        /// Number of the hash function.
        pub hash_version: u8,
        /// Length of this information: 8.
        pub info_length: u8,
        /// Levels of index nodes below the root.
        pub levels: u8,
        /// Zero.
        pub unused_flags: u8,
    }
}

const _: () = assert!(size_of::<RawIndexRoot>() == 32);
const _: () = assert!(offset_of!(RawIndexRoot, dotdot) == 12);
const _: () = assert!(offset_of!(RawIndexRoot, hash_version) == 28);

/// The head of a node: one unused record that claims the whole block.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RawIndexNode {
    /// The unused record.
    pub record: RawRecordHeader,
}

const _: () = assert!(size_of::<RawIndexNode>() == 8);

drystone_ondisk::with_fields! {
    /// What the first entry of an index block holds in place of a hash.
    #[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
    #[repr(C)]
    pub struct RawCountLimit {
        /// Entries that fit, the first included.
        pub limit: U16,
        /// Entries in use, the first included.
        pub count: U16,
    }
}

const _: () = assert!(size_of::<RawCountLimit>() == 4);
const _: () = assert!(offset_of!(RawCountLimit, count) == 2);

drystone_ondisk::with_fields! {
    /// One entry of an index block.
    #[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
    #[repr(C)]
    pub struct RawIndexEntry {
        /// Least hash of the names below; limit and count in the first entry.
        pub hash: U32,
        /// Block of the directory in the low 28 bits.
        pub block: U32,
    }
}

const _: () = assert!(size_of::<RawIndexEntry>() == 8);
const _: () = assert!(offset_of!(RawIndexEntry, block) == 4);

drystone_ondisk::with_fields! {
    /// The checksum after the last entry that fits.
    #[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
    #[repr(C)]
    pub struct RawIndexTail {
        /// Left over from earlier use of the block; part of the checksum.
        pub reserved: U32,
        /// The checksum.
        pub checksum: U32,
    }
}

const _: () = assert!(size_of::<RawIndexTail>() == 8);
const _: () = assert!(offset_of!(RawIndexTail, checksum) == 4);

/// Bits of an entry's block that are a block number.
pub(super) const BLOCK_MASK: u32 = 0x0fff_ffff;
