//! Block group descriptors: where a group keeps its bitmaps and inodes, and what is free.
//!
//! [`GroupDescriptor::check`] is the door. A checker that must go on despite a problem reads the
//! fields with [`GroupDescriptor::read`] and runs each check separately.
//!
//! # Reference
//! "Block Group Descriptors" in the kernel's ext4 data structure pages.

use crate::checksum::Checksums;
use crate::error::{Corrupt, GroupCounter, GroupPart};
use crate::features::Incompat;
use crate::ids::{GroupNumber, PhysicalBlock};
use crate::layout::{LARGE_DESCRIPTOR_BYTES, Layout};
use bitflags::bitflags;
use drystone_ondisk::little_endian::{U16, U32};
use drystone_ondisk::{Field, crc16, crc32c};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

drystone_ondisk::with_fields! {
    #[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
    #[repr(C)]
    struct RawLow {
        block_bitmap: U32,
        inode_bitmap: U32,
        inode_table: U32,
        free_blocks_count: U16,
        free_inodes_count: U16,
        used_dirs_count: U16,
        flags: U16,
        exclude_bitmap: U32,
        block_bitmap_csum: U16,
        inode_bitmap_csum: U16,
        itable_unused: U16,
        checksum: U16,
    }
}

pin_layout!(RawLow, size 32, {
    inode_table: 0x8,
    free_blocks_count: 0xc,
    flags: 0x12,
    exclude_bitmap: 0x14,
    block_bitmap_csum: 0x18,
    itable_unused: 0x1c,
    checksum: 0x1e,
});

drystone_ondisk::with_fields! {
    #[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
    #[repr(C)]
    struct RawHigh {
        block_bitmap: U32,
        inode_bitmap: U32,
        inode_table: U32,
        free_blocks_count: U16,
        free_inodes_count: U16,
        used_dirs_count: U16,
        itable_unused: U16,
        exclude_bitmap: U32,
        block_bitmap_csum: U16,
        inode_bitmap_csum: U16,
        reserved: U32,
    }
}

pin_layout!(RawHigh, size 32, {
    inode_table: 0x8,
    free_blocks_count: 0xc,
    itable_unused: 0x12,
    exclude_bitmap: 0x14,
    block_bitmap_csum: 0x18,
    reserved: 0x1c,
});

/// The fields that every descriptor has.
pub const FIELDS: &[Field] = RawLow::FIELDS;
/// The fields after them in large descriptors, counted from the first of these.
pub const HIGH_FIELDS: &[Field] = RawHigh::FIELDS;

const LOW_BYTES: usize = 32;
const HIGH_END: usize = 64;
const CHECKSUM_OFFSET: usize = core::mem::offset_of!(RawLow, checksum);

bitflags! {
    /// Which parts of a group are not initialised.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct GroupFlags: u16 {
        /// The inode bitmap and table are not initialised: no inode is in use.
        const INODE_UNINIT = 0x1;
        /// The block bitmap is not initialised: only fixed metadata is in use.
        const BLOCK_UNINIT = 0x2;
        /// The unused part of the inode table is zeroed.
        const INODE_ZEROED = 0x4;

        const _ = !0;
    }
}

/// A group descriptor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupDescriptor {
    /// Block of the block bitmap.
    pub block_bitmap: PhysicalBlock,
    /// Block of the inode bitmap.
    pub inode_bitmap: PhysicalBlock,
    /// First block of the inode table.
    pub inode_table: PhysicalBlock,
    /// Block of the bitmap of what snapshots exclude, never used by Linux.
    pub exclude_bitmap: PhysicalBlock,
    /// Free clusters (blocks without bigalloc).
    pub free_clusters_count: u32,
    /// Free inodes.
    pub free_inodes_count: u32,
    /// Inodes in use that are directories.
    pub used_directories_count: u32,
    /// Inodes at the end of the table that were never in use.
    pub unused_inodes_count: u32,
    /// What is not initialised.
    pub flags: GroupFlags,
    /// Checksum of the block bitmap; 16 bits in small descriptors.
    pub block_bitmap_checksum: u32,
    /// Checksum of the inode bitmap; 16 bits in small descriptors.
    pub inode_bitmap_checksum: u32,
}

fn join32(low: U16, high: Option<U16>) -> u32 {
    u32::from(high.map_or(0, U16::get)) << 16 | u32::from(low.get())
}

fn join_block(low: U32, high: Option<U32>) -> PhysicalBlock {
    PhysicalBlock::new(u64::from(high.map_or(0, U32::get)) << 32 | u64::from(low.get()))
}

impl GroupDescriptor {
    /// Checks a descriptor: its checksum, where it points, and what it counts.
    pub fn check(bytes: &[u8], group: GroupNumber, layout: &Layout) -> Result<Self, Corrupt> {
        let descriptor = Self::read(bytes, layout)?;
        Self::check_checksum(bytes, group, layout)?;
        descriptor.check_locations(group, layout)?;
        descriptor.check_counts(group, layout)?;
        Ok(descriptor)
    }

    /// Reads the fields and checks none.
    pub fn read(bytes: &[u8], layout: &Layout) -> Result<Self, Corrupt> {
        let bytes = whole(bytes, layout)?;
        // `whole` proved the length of the first part, and of the second if there is one.
        let truncated = || truncated(bytes.len(), layout);
        let (low, rest) = RawLow::ref_from_prefix(bytes).map_err(|_| truncated())?;
        let high = if layout.descriptor_size() >= HIGH_END {
            Some(RawHigh::ref_from_prefix(rest).map_err(|_| truncated())?.0)
        } else {
            None
        };
        Ok(Self {
            block_bitmap: join_block(low.block_bitmap, high.map(|high| high.block_bitmap)),
            inode_bitmap: join_block(low.inode_bitmap, high.map(|high| high.inode_bitmap)),
            inode_table: join_block(low.inode_table, high.map(|high| high.inode_table)),
            exclude_bitmap: join_block(low.exclude_bitmap, high.map(|high| high.exclude_bitmap)),
            free_clusters_count: join32(
                low.free_blocks_count,
                high.map(|high| high.free_blocks_count),
            ),
            free_inodes_count: join32(
                low.free_inodes_count,
                high.map(|high| high.free_inodes_count),
            ),
            used_directories_count: join32(
                low.used_dirs_count,
                high.map(|high| high.used_dirs_count),
            ),
            unused_inodes_count: join32(low.itable_unused, high.map(|high| high.itable_unused)),
            flags: GroupFlags::from_bits_retain(low.flags.get()),
            block_bitmap_checksum: join32(
                low.block_bitmap_csum,
                high.map(|high| high.block_bitmap_csum),
            ),
            inode_bitmap_checksum: join32(
                low.inode_bitmap_csum,
                high.map(|high| high.inode_bitmap_csum),
            ),
        })
    }

    /// Checks the checksum of a descriptor's bytes.
    pub fn check_checksum(
        bytes: &[u8],
        group: GroupNumber,
        layout: &Layout,
    ) -> Result<(), Corrupt> {
        let bytes = whole(bytes, layout)?;
        let Some(computed) = checksum(bytes, group, layout) else { return Ok(()) };
        let stored = u16::from_le_bytes([bytes[CHECKSUM_OFFSET], bytes[CHECKSUM_OFFSET + 1]]);
        if stored == computed {
            Ok(())
        } else {
            Err(Corrupt::GroupChecksum { group, stored, computed })
        }
    }

    /// Checks that the bitmaps and the inode table lie where those of this group may.
    pub fn check_locations(&self, group: GroupNumber, layout: &Layout) -> Result<(), Corrupt> {
        let flexible = layout.features().incompat.contains(Incompat::FLEX_BG);
        let first = layout.group_first_block(group);
        let behind = first.get() + u64::from(layout.group_block_count(group));
        let parts = [
            (GroupPart::BlockBitmap, self.block_bitmap, 1),
            (GroupPart::InodeBitmap, self.inode_bitmap, 1),
            (GroupPart::InodeTable, self.inode_table, u64::from(layout.inode_table_blocks())),
        ];
        for (part, block, count) in parts {
            let is_inside = layout.contains_blocks(block, count)
                && (flexible || block >= first && block.get() + count <= behind);
            if !is_inside || block.get() == 0 {
                return Err(Corrupt::GroupLocation { group, part, block });
            }
        }
        Ok(())
    }

    /// Checks that no count exceeds what the group has.
    pub fn check_counts(&self, group: GroupNumber, layout: &Layout) -> Result<(), Corrupt> {
        let clusters = layout.group_cluster_count(group);
        let inodes = layout.inodes_per_group();
        let counters = [
            (GroupCounter::FreeClusters, self.free_clusters_count, clusters),
            (GroupCounter::FreeInodes, self.free_inodes_count, inodes),
            (GroupCounter::UsedDirectories, self.used_directories_count, inodes),
            (GroupCounter::UnusedInodes, self.unused_inodes_count, inodes),
        ];
        for (counted, found, limit) in counters {
            if found > limit {
                return Err(Corrupt::GroupCount { group, counted, found, limit });
            }
        }
        Ok(())
    }

    /// Writes the fields into a descriptor's bytes and computes their checksum.
    ///
    /// Bytes without a field keep their value.
    ///
    /// # Panics
    /// If `bytes` is shorter than a descriptor of the layout.
    pub fn encode_into(&self, bytes: &mut [u8], group: GroupNumber, layout: &Layout) {
        let bytes = &mut bytes[..layout.descriptor_size()];
        let low_half = |number: u32| U16::new(number as u16);
        let low_block = |block: PhysicalBlock| U32::new(block.get() as u32);
        let low = RawLow {
            block_bitmap: low_block(self.block_bitmap),
            inode_bitmap: low_block(self.inode_bitmap),
            inode_table: low_block(self.inode_table),
            free_blocks_count: low_half(self.free_clusters_count),
            free_inodes_count: low_half(self.free_inodes_count),
            used_dirs_count: low_half(self.used_directories_count),
            flags: U16::new(self.flags.bits()),
            exclude_bitmap: low_block(self.exclude_bitmap),
            block_bitmap_csum: low_half(self.block_bitmap_checksum),
            inode_bitmap_csum: low_half(self.inode_bitmap_checksum),
            itable_unused: low_half(self.unused_inodes_count),
            checksum: U16::ZERO,
        };
        bytes[..LOW_BYTES].copy_from_slice(low.as_bytes());
        if layout.descriptor_size() >= HIGH_END {
            let high_half = |number: u32| U16::new((number >> 16) as u16);
            let high_block = |block: PhysicalBlock| U32::new((block.get() >> 32) as u32);
            let reserved = [bytes[60], bytes[61], bytes[62], bytes[63]];
            let high = RawHigh {
                block_bitmap: high_block(self.block_bitmap),
                inode_bitmap: high_block(self.inode_bitmap),
                inode_table: high_block(self.inode_table),
                free_blocks_count: high_half(self.free_clusters_count),
                free_inodes_count: high_half(self.free_inodes_count),
                used_dirs_count: high_half(self.used_directories_count),
                itable_unused: high_half(self.unused_inodes_count),
                exclude_bitmap: high_block(self.exclude_bitmap),
                block_bitmap_csum: high_half(self.block_bitmap_checksum),
                inode_bitmap_csum: high_half(self.inode_bitmap_checksum),
                reserved: U32::from_bytes(reserved),
            };
            bytes[LOW_BYTES..HIGH_END].copy_from_slice(high.as_bytes());
        }
        Self::seal(bytes, group, layout);
    }

    /// Computes and stores the checksum after bytes of a descriptor were changed in place.
    ///
    /// # Panics
    /// If `bytes` is shorter than a descriptor of the layout.
    pub fn seal(bytes: &mut [u8], group: GroupNumber, layout: &Layout) {
        let bytes = &mut bytes[..layout.descriptor_size()];
        if let Some(checksum) = checksum(bytes, group, layout) {
            bytes[CHECKSUM_OFFSET..LOW_BYTES].copy_from_slice(&checksum.to_le_bytes());
        }
    }
}

fn truncated(found: usize, layout: &Layout) -> Corrupt {
    Corrupt::Truncated { structure: "group descriptor", needed: layout.descriptor_size(), found }
}

/// Exactly the bytes of one descriptor.
fn whole<'a>(bytes: &'a [u8], layout: &Layout) -> Result<&'a [u8], Corrupt> {
    bytes.get(..layout.descriptor_size()).ok_or_else(|| truncated(bytes.len(), layout))
}

/// The checksum of one descriptor's bytes, if it has one.
fn checksum(bytes: &[u8], group: GroupNumber, layout: &Layout) -> Option<u16> {
    let number = group.get().to_le_bytes();
    let (head, tail) = (&bytes[..CHECKSUM_OFFSET], &bytes[LOW_BYTES..]);
    match layout.checksums() {
        Checksums::None => None,
        // The checksum's own field is left out.
        Checksums::Descriptors { uuid } => {
            let register = crc16(crc16(crc16(!0, &uuid), &number), head);
            Some(crc16(register, tail))
        }
        // The checksum's own field counts as zero; the low half is stored.
        Checksums::All(seed) => {
            let register = seed.append(&number);
            // One CRC call over a copy is cheaper than three.
            let mut copy = [0; LARGE_DESCRIPTOR_BYTES as usize];
            let Some(copy) = copy.get_mut(..bytes.len()) else {
                return Some(crc32c(crc32c(crc32c(register, head), &[0; 2]), tail) as u16);
            };
            copy.copy_from_slice(bytes);
            copy[CHECKSUM_OFFSET..LOW_BYTES].fill(0);
            Some(crc32c(register, copy) as u16)
        }
    }
}
