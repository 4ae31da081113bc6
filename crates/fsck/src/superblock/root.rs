//! Whether the root is where a superblock says: a sound one leads to it, and one with another size of inodes or
//! without a feature doesn't, even if its checksum holds.

use crate::directory::DirectoryContext;
use crate::entries;
use crate::image::Image;
use crate::mapping;
use drystone_blockdev::BlockDevice;
use drystone_ext4_format::group::GroupDescriptor;
use drystone_ext4_format::inode::{Inode, InodeFlags};
use drystone_ext4_format::superblock::Superblock;
use drystone_ext4_format::{GroupNumber, InodeNumber, LogicalBlock, PhysicalBlock};

/// Whether a superblock leads to a directory with the number of the root, whose first entry is its dot.
pub(super) fn leads_to_root(device: &dyn BlockDevice, superblock: &Superblock) -> bool {
    let image = Image::new(device, superblock.clone());
    let layout = image.layout;
    let block = |block: PhysicalBlock| {
        layout.contains_blocks(block, 1).then(|| image.read_block(block).ok()).flatten()
    };
    let root = || {
        let (place, offset) = layout.descriptor_location(GroupNumber::FIRST)?;
        let descriptors = block(place)?;
        let descriptor = descriptors.get(offset..offset + layout.descriptor_size())?;
        let table = GroupDescriptor::read(descriptor, &layout).ok()?.inode_table;
        let (place, offset) = layout.inode_location(InodeNumber::ROOT, table).ok()?;
        let inodes = block(place)?;
        let inode = inodes.get(offset..offset + layout.inode_size())?;
        Inode::read(inode, InodeNumber::ROOT, &layout).ok().filter(Inode::is_directory)
    };
    let Some(root) = root() else { return false };
    if root.flags.contains(InodeFlags::INLINE_DATA) {
        return true;
    }
    let extents = mapping::extents_of(&image, &root).unwrap_or_default();
    let Some(bytes) = mapping::find(&extents, LogicalBlock::FIRST).and_then(block) else {
        return false;
    };
    let context = DirectoryContext::new(&image, root);
    let mut starts_with_dot = false;
    entries::for_each(&bytes, &context.layout, &mut |offset, name, inode| {
        starts_with_dot |= offset == 0 && name == b"." && inode == InodeNumber::ROOT;
    });
    starts_with_dot
}
