//! Checksums of block and inode bitmaps, which their group descriptor stores.
//!
//! They exist with `metadata_csum` only. An uninitialised bitmap has no checksum: the caller asks
//! only for initialised ones.
//!
//! # Reference
//! "Checksums" and "Block and Inode Bitmaps" in the kernel's ext4 data structure pages.

use crate::error::{Corrupt, GroupPart};
use crate::group::GroupDescriptor;
use crate::ids::GroupNumber;
use crate::layout::{LARGE_DESCRIPTOR_BYTES, Layout};

/// The checksum to store for a block bitmap, or 0 where there are no checksums.
///
/// # Panics
/// If `bitmap` is shorter than a block.
#[must_use]
pub fn block_bitmap_checksum(bitmap: &[u8], layout: &Layout) -> u32 {
    computed(bitmap, layout.clusters_per_group(), layout)
}

/// The checksum to store for an inode bitmap, or 0 where there are no checksums.
///
/// # Panics
/// If `bitmap` is shorter than a block.
#[must_use]
pub fn inode_bitmap_checksum(bitmap: &[u8], layout: &Layout) -> u32 {
    computed(bitmap, layout.inodes_per_group(), layout)
}

/// Checks a block bitmap against its descriptor.
pub fn check_block_bitmap(
    bitmap: &[u8],
    group: GroupNumber,
    descriptor: &GroupDescriptor,
    layout: &Layout,
) -> Result<(), Corrupt> {
    check_length(bitmap, layout)?;
    let computed = block_bitmap_checksum(bitmap, layout);
    compare(group, GroupPart::BlockBitmap, descriptor.block_bitmap_checksum, computed, layout)
}

/// Checks an inode bitmap against its descriptor.
pub fn check_inode_bitmap(
    bitmap: &[u8],
    group: GroupNumber,
    descriptor: &GroupDescriptor,
    layout: &Layout,
) -> Result<(), Corrupt> {
    check_length(bitmap, layout)?;
    let computed = inode_bitmap_checksum(bitmap, layout);
    compare(group, GroupPart::InodeBitmap, descriptor.inode_bitmap_checksum, computed, layout)
}

fn computed(bitmap: &[u8], bits: u32, layout: &Layout) -> u32 {
    let Some(seed) = layout.checksum_seed() else { return 0 };
    // Both numbers of bits are multiples of 8 and fit a block: the layout checked it.
    let checksum = seed.append(&bitmap[..bits as usize / 8]);
    if layout.descriptor_size() >= usize::from(LARGE_DESCRIPTOR_BYTES) {
        checksum
    } else {
        checksum & 0xffff
    }
}

fn check_length(bitmap: &[u8], layout: &Layout) -> Result<(), Corrupt> {
    let (needed, found) = (layout.block_size(), bitmap.len());
    if found < needed {
        return Err(Corrupt::Truncated { structure: "bitmap", needed, found });
    }
    Ok(())
}

fn compare(
    group: GroupNumber,
    part: GroupPart,
    stored: u32,
    computed: u32,
    layout: &Layout,
) -> Result<(), Corrupt> {
    if layout.checksum_seed().is_none() || stored == computed {
        return Ok(());
    }
    Err(Corrupt::BitmapChecksum { group, part, stored, computed })
}
