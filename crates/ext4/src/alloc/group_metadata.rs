//! A group's descriptor and block bitmap as they are on disk, and what they must agree with.

use super::system_zones::SystemZones;
use crate::error::Result;
use crate::volume::Volume;
use drystone_ext4_format::error::GroupCounter;
use drystone_ext4_format::group::{GroupDescriptor, GroupFlags};
use drystone_ext4_format::layout::Layout;
use drystone_ext4_format::{Corrupt, GroupNumber, PhysicalBlock};
use drystone_ondisk::bitmap;

/// A group's descriptor from its buffer.
pub(super) fn read_descriptor(volume: &Volume, group: GroupNumber) -> Result<GroupDescriptor> {
    let layout = volume.layout();
    let (block, offset) = descriptor_location(layout, group);
    let buffer = volume.read(block)?;
    let bytes = buffer.read();
    Ok(descriptor_in(&bytes[offset..], group, layout)?)
}

/// Decodes a descriptor and checks it in every way that doesn't need the bitmaps.
pub(super) fn descriptor_in(
    bytes: &[u8],
    group: GroupNumber,
    layout: &Layout,
) -> std::result::Result<GroupDescriptor, Corrupt> {
    let mut descriptor = GroupDescriptor::check(bytes, group, layout)?;
    if !has_uninit(layout) {
        // Without descriptor checksums the flags mean nothing, and neither does the count of
        // unused inodes.
        descriptor.flags -= GroupFlags::BLOCK_UNINIT | GroupFlags::INODE_UNINIT;
        descriptor.unused_inodes_count = 0;
    }
    let (found, limit) = (descriptor.unused_inodes_count, descriptor.free_inodes_count);
    if found > limit {
        return Err(Corrupt::GroupCount {
            group,
            counted: GroupCounter::UnusedInodes,
            found,
            limit,
        });
    }
    Ok(descriptor)
}

/// Whether groups of this image may be uninitialised.
fn has_uninit(layout: &Layout) -> bool {
    layout.checksums() != drystone_ext4_format::checksum::Checksums::None
}

/// The block of a group's descriptor, and the offset in it.
pub(super) fn descriptor_location(layout: &Layout, group: GroupNumber) -> (PhysicalBlock, usize) {
    match layout.descriptor_location(group) {
        Some(location) => location,
        // Group numbers come from the layout's own count.
        None => unreachable!("group {group} does not exist"),
    }
}

/// The block bitmap of a group in which only fixed metadata is in use.
pub(super) fn initial_block_bitmap(
    volume: &Volume,
    group: GroupNumber,
    metadata: &SystemZones,
) -> Box<[u8]> {
    let layout = volume.layout();
    let mut bytes = vec![0; volume.block_size()].into_boxed_slice();
    let behind = bytes.len() * 8;
    bitmap::set_range(&mut bytes, layout.group_cluster_count(group) as usize..behind);
    for run in metadata_bits(volume, group, metadata) {
        bitmap::set_range(&mut bytes, run);
    }
    bytes
}

/// The bits of a group's block bitmap that stand for fixed metadata, in order.
fn metadata_bits(
    volume: &Volume,
    group: GroupNumber,
    metadata: &SystemZones,
) -> impl Iterator<Item = std::ops::Range<usize>> {
    let first = volume.layout().group_first_block(group).get();
    let end = first + u64::from(volume.layout().group_block_count(group));
    let ratio = volume.layout().log_cluster_ratio();
    metadata.within(first..end).map(move |run| {
        // Offsets in a group fit.
        let (start, last) = (run.start - first, run.end - 1 - first);
        (start >> ratio) as usize..(last >> ratio) as usize + 1
    })
}

/// Checks that a block bitmap has no block of fixed metadata free.
pub(super) fn check_metadata_is_marked(
    volume: &Volume,
    group: GroupNumber,
    metadata: &SystemZones,
    bytes: &[u8],
) -> Result<()> {
    for run in metadata_bits(volume, group, metadata) {
        if let Some(free) = bitmap::find_zero(bytes, run) {
            let block = volume.layout().block_of_bit(group, free as u32);
            return Err(Corrupt::BitmapMetadata { group, block }.into());
        }
    }
    Ok(())
}
