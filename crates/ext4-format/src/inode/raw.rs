//! The bytes of an inode.

use drystone_ondisk::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

drystone_ondisk::with_fields! {
    /// The part that all revisions have.
    #[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
    #[repr(C)]
    pub(super) struct RawInode {
        pub mode: U16,
        pub uid_lo: U16,
        pub size_lo: U32,
        pub atime: U32,
        pub ctime: U32,
        pub mtime: U32,
        pub dtime: U32,
        pub gid_lo: U16,
        pub links_count: U16,
        pub blocks_lo: U32,
        pub flags: U32,
        pub version_lo: U32,
        pub block: [u8; 60],
        pub generation: U32,
        pub file_acl_lo: U32,
        pub size_hi: U32,
        pub obsolete_fragment: U32,
        pub blocks_hi: U16,
        pub file_acl_hi: U16,
        pub uid_hi: U16,
        pub gid_hi: U16,
        pub checksum_lo: U16,
        pub reserved: U16,
    }
}

pin_layout!(RawInode, size 128, {
    size_lo: 0x4,
    atime: 0x8,
    dtime: 0x14,
    gid_lo: 0x18,
    blocks_lo: 0x1c,
    flags: 0x20,
    version_lo: 0x24,
    block: 0x28,
    generation: 0x64,
    file_acl_lo: 0x68,
    size_hi: 0x6c,
    blocks_hi: 0x74,
    file_acl_hi: 0x76,
    uid_hi: 0x78,
    checksum_lo: 0x7c,
});

drystone_ondisk::with_fields! {
    /// The fields after it; how many of them an inode has, its `extra_isize` tells.
    #[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
    #[repr(C)]
    pub(super) struct RawExtra {
        pub extra_isize: U16,
        pub checksum_hi: U16,
        pub ctime_extra: U32,
        pub mtime_extra: U32,
        pub atime_extra: U32,
        pub crtime: U32,
        pub crtime_extra: U32,
        pub version_hi: U32,
        pub projid: U32,
    }
}

pin_layout!(RawExtra, size 32, {
    checksum_hi: 0x2,
    ctime_extra: 0x4,
    mtime_extra: 0x8,
    atime_extra: 0xc,
    crtime: 0x10,
    crtime_extra: 0x14,
    version_hi: 0x18,
    projid: 0x1c,
});
