//! The layout of a superblock.

use super::LABEL_BYTES;
use crate::sum::Sum;
use drystone_ondisk::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct RawSuperblock {
    pub rev_level: U32,
    pub minor_rev_level: U16,
    pub magic: U16,
    pub bytes: U16,
    pub flags: U16,
    pub crc_seed: U32,
    pub sum: U32,
    pub log_block_size: U32,
    pub nsegments: U64,
    pub dev_size: U64,
    pub first_data_block: U64,
    pub blocks_per_segment: U32,
    pub r_segments_percentage: U32,
    pub last_cno: U64,
    pub last_pseg: U64,
    pub last_seq: U64,
    pub free_blocks_count: U64,
    pub ctime: U64,
    pub mtime: U64,
    pub wtime: U64,
    pub mnt_count: U16,
    pub max_mnt_count: U16,
    pub state: U16,
    pub errors: U16,
    pub lastcheck: U64,
    pub checkinterval: U32,
    pub creator_os: U32,
    pub def_resuid: U16,
    pub def_resgid: U16,
    pub first_ino: U32,
    pub inode_size: U16,
    pub dat_entry_size: U16,
    pub checkpoint_size: U16,
    pub segment_usage_size: U16,
    pub uuid: [u8; 16],
    pub volume_name: [u8; LABEL_BYTES],
    pub c_interval: U32,
    pub c_block_max: U32,
    pub feature_compat: U64,
    pub feature_compat_ro: U64,
    pub feature_incompat: U64,
    pub reserved: [U32; 186],
}

pin_layout!(RawSuperblock, size 1024, {
    magic: 6, sum: 16, nsegments: 24, blocks_per_segment: 48, last_cno: 56, free_blocks_count: 80,
    mnt_count: 112, lastcheck: 120, def_resuid: 136, first_ino: 140, inode_size: 144, uuid: 152,
    volume_name: 168, c_interval: 248, feature_compat: 256, feature_incompat: 272, reserved: 280,
});

impl RawSuperblock {
    /// The sum of the first `summed` bytes, at most all, as if the field of the sum were zero.
    pub fn computed_sum(&self, summed: usize) -> u32 {
        let mut copy = self.clone();
        copy.sum.set(0);
        Sum::of(self.crc_seed.get(), &copy.as_bytes()[..summed])
    }
}
