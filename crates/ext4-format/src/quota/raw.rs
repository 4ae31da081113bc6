//! Layouts of quota files.

use super::{QuotaEntry, QuotaInfo};
use std::mem::{offset_of, size_of};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

drystone_ondisk::with_fields! {
    /// The first bytes of the file.
    #[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
    #[repr(C)]
    pub struct RawQuotaHeader {
        /// Magic number of the kind.
        pub magic: U32,
        /// Version of the format.
        pub version: U32,
    }
}

drystone_ondisk::with_fields! {
    /// The information after the header.
    #[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
    #[repr(C)]
    pub struct RawQuotaInfo {
        /// Grace of space, in seconds.
        pub space_grace: U32,
        /// Grace of inodes, in seconds.
        pub inode_grace: U32,
        /// Flags.
        pub flags: U32,
        /// Blocks of the file.
        pub blocks: U32,
        /// First unused block.
        pub free_block: U32,
        /// First data block with room.
        pub free_entry_block: U32,
    }
}

drystone_ondisk::with_fields! {
    /// The head of a data block.
    #[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
    #[repr(C)]
    pub struct RawDataBlockHeader {
        /// Next block of its list.
        pub next: U32,
        /// Previous block of its list.
        pub previous: U32,
        /// Entries in use.
        pub entries: U16,
        /// Unused.
        pub padding: U16,
        /// Unused.
        pub padding2: U32,
    }
}

drystone_ondisk::with_fields! {
    /// One entry of a data block; all zeros if unused.
    #[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
    #[repr(C)]
    pub struct RawQuotaEntry {
        /// The id.
        pub id: U32,
        /// Unused.
        pub padding: U32,
        /// Hard limit of inodes.
        pub inode_hard_limit: U64,
        /// Soft limit of inodes.
        pub inode_soft_limit: U64,
        /// Inodes in use.
        pub inodes: U64,
        /// Hard limit of space.
        pub space_hard_limit: U64,
        /// Soft limit of space.
        pub space_soft_limit: U64,
        /// Space in use, in bytes.
        pub space: U64,
        /// End of the grace of space.
        pub space_grace_end: U64,
        /// End of the grace of inodes.
        pub inode_grace_end: U64,
    }
}

const _: () = assert!(size_of::<RawQuotaHeader>() == 8);
const _: () = assert!(size_of::<RawQuotaInfo>() == 24);
const _: () = assert!(offset_of!(RawQuotaInfo, blocks) == 12);
const _: () = assert!(size_of::<RawDataBlockHeader>() == 16);
const _: () = assert!(offset_of!(RawDataBlockHeader, entries) == 8);
const _: () = assert!(size_of::<RawQuotaEntry>() == 72);
const _: () = assert!(offset_of!(RawQuotaEntry, space) == 48);

impl From<&RawQuotaInfo> for QuotaInfo {
    fn from(raw: &RawQuotaInfo) -> Self {
        Self {
            space_grace_seconds: raw.space_grace.get(),
            inode_grace_seconds: raw.inode_grace.get(),
            flags: raw.flags.get(),
            blocks: raw.blocks.get(),
            free_block: raw.free_block.get(),
            free_entry_block: raw.free_entry_block.get(),
        }
    }
}

impl From<&QuotaInfo> for RawQuotaInfo {
    fn from(info: &QuotaInfo) -> Self {
        Self {
            space_grace: info.space_grace_seconds.into(),
            inode_grace: info.inode_grace_seconds.into(),
            flags: info.flags.into(),
            blocks: info.blocks.into(),
            free_block: info.free_block.into(),
            free_entry_block: info.free_entry_block.into(),
        }
    }
}

impl From<&RawQuotaEntry> for QuotaEntry {
    fn from(raw: &RawQuotaEntry) -> Self {
        let mut entry = Self {
            id: raw.id.get(),
            space_bytes: raw.space.get(),
            inodes: raw.inodes.get(),
            space_hard_limit: raw.space_hard_limit.get(),
            space_soft_limit: raw.space_soft_limit.get(),
            inode_hard_limit: raw.inode_hard_limit.get(),
            inode_soft_limit: raw.inode_soft_limit.get(),
            space_grace_end_seconds: raw.space_grace_end.get(),
            inode_grace_end_seconds: raw.inode_grace_end.get(),
        };
        // Keeps an entry without content from looking unused; see below.
        let placeholder = Self { id: entry.id, inode_grace_end_seconds: 1, ..Self::default() };
        if entry == placeholder {
            entry.inode_grace_end_seconds = 0;
        }
        entry
    }
}

impl From<&QuotaEntry> for RawQuotaEntry {
    fn from(entry: &QuotaEntry) -> Self {
        // The empty entry of id 0 would be all zeros, which means unused.
        let empty = *entry == QuotaEntry::default();
        Self {
            id: entry.id.into(),
            padding: 0.into(),
            inode_hard_limit: entry.inode_hard_limit.into(),
            inode_soft_limit: entry.inode_soft_limit.into(),
            inodes: entry.inodes.into(),
            space_hard_limit: entry.space_hard_limit.into(),
            space_soft_limit: entry.space_soft_limit.into(),
            space: entry.space_bytes.into(),
            space_grace_end: entry.space_grace_end_seconds.into(),
            inode_grace_end: if empty { 1 } else { entry.inode_grace_end_seconds }.into(),
        }
    }
}
