//! Whether the root is where a superblock says: a sound one leads to it, and one with another size of inodes or
//! without a feature doesn't, even if its checksum holds.

use crate::directory::DirectoryContext;
use crate::entries;
use crate::image::{Error, Image};
use drystone_blockdev::BlockDevice;
use drystone_ext4_format::extent::{DEPTH_MAX, ExtentNode, NodePlace};
use drystone_ext4_format::features::Incompat;
use drystone_ext4_format::group::GroupDescriptor;
use drystone_ext4_format::inode::{Inode, InodeFlags};
use drystone_ext4_format::superblock::Superblock;
use drystone_ext4_format::{GroupNumber, InodeNumber, PhysicalBlock, block_map};

/// Whether a superblock leads to a directory with the number of the root, whose first entry is its dot. A device that
/// can't be read says nothing of that, and is an error.
pub(super) fn leads_to_root(
    device: &dyn BlockDevice,
    superblock: &Superblock,
) -> Result<bool, Error> {
    let image = Image::new(device, superblock.clone());
    let Some(root) = root(&image)? else { return Ok(false) };
    if root.flags.contains(InodeFlags::INLINE_DATA) {
        return Ok(image.layout.features().incompat.contains(Incompat::INLINE_DATA));
    }
    let Some(block) = first_block(&image, &root)? else { return Ok(false) };
    let Some(bytes) = read(&image, block)? else { return Ok(false) };
    let context = DirectoryContext::new(&image, root);
    let mut starts_with_dot = false;
    entries::for_each(&bytes, &context.layout, &mut |offset, name, inode| {
        starts_with_dot |= offset == 0 && name == b"." && inode == InodeNumber::ROOT;
    });
    Ok(starts_with_dot)
}

/// The inode of the root, if it is a directory.
fn root(image: &Image<'_>) -> Result<Option<Inode>, Error> {
    let layout = &image.layout;
    let Some((block, offset)) = layout.descriptor_location(GroupNumber::FIRST) else {
        return Ok(None);
    };
    let Some(descriptors) = read(image, block)? else { return Ok(None) };
    let descriptor = descriptors.get(offset..).unwrap_or(&[]);
    let Ok(descriptor) = GroupDescriptor::read(descriptor, layout) else { return Ok(None) };
    let place = layout.inode_location(InodeNumber::ROOT, descriptor.inode_table);
    let Ok((block, offset)) = place else { return Ok(None) };
    let Some(inodes) = read(image, block)? else { return Ok(None) };
    let inode = inodes.get(offset..offset + layout.inode_size()).unwrap_or(&[]);
    Ok(Inode::read(inode, InodeNumber::ROOT, layout).ok().filter(Inode::is_directory))
}

/// The first block of a file. No more of its map is read: by a wrong superblock it may be anything.
fn first_block(image: &Image<'_>, inode: &Inode) -> Result<Option<PhysicalBlock>, Error> {
    let number = inode.number;
    if !inode.flags.contains(InodeFlags::EXTENTS) {
        let first = block_map::pointer(&inode.block_area, 0, number, None, &image.layout);
        return Ok(first.ok().flatten());
    }
    let mut place = NodePlace::root(number);
    let mut bytes = inode.block_area.to_vec();
    for _ in 0..=DEPTH_MAX {
        let Ok(node) = ExtentNode::reopen(&bytes, place) else { return Ok(None) };
        if let Some(first) = node.extent(0) {
            return Ok(Some(first.physical));
        }
        let Some(first) = node.index(0) else { return Ok(None) };
        let Some(child) = read(image, first.child)? else { return Ok(None) };
        (place, bytes) = (NodePlace { inode: number, block: Some(first.child) }, child);
    }
    Ok(None)
}

/// A block, if it is one of the image, and on the device.
fn read(image: &Image<'_>, block: PhysicalBlock) -> Result<Option<Vec<u8>>, Error> {
    let device_blocks = image.device.size_bytes() >> image.layout.log_block_size();
    if !image.layout.contains_blocks(block, 1) || block.get() >= device_blocks {
        return Ok(None);
    }
    Ok(Some(image.read_block(block)?))
}
