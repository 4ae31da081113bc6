//! Superblock, groups, inodes and the maps of blocks.

use crate::input::{BLOCK, Input, geometry, layout};
use drystone_ext4_format::bitmap_checksum::{check_block_bitmap, check_inode_bitmap};
use drystone_ext4_format::extent::{
    Extent, ExtentNode, ExtentNodeMut, NodeExpectation, NodePlace, check_checksum,
};
use drystone_ext4_format::group::GroupDescriptor;
use drystone_ext4_format::inode::Inode;
use drystone_ext4_format::superblock::Superblock;
use drystone_ext4_format::{GroupNumber, InodeNumber, LogicalBlock, PhysicalBlock, block_map};

/// Superblocks and the arithmetic on their geometry.
pub fn superblock(data: &[u8]) {
    let mut input = Input(data);
    let number = input.u64();
    let sound = Superblock::create(&geometry()).expect("the geometry is sound").encode();
    let bytes = input.change(&sound);
    let Ok(superblock) = Superblock::check_unsealed(&bytes) else { return };
    let layout = superblock.layout();
    let group = GroupNumber::new(number as u32);
    for group in [GroupNumber::FIRST, layout.last_group(), group] {
        let _ = layout.group_base(group);
        let _ = layout.group_first_block(group);
        let _ = layout.group_cluster_count(group);
        let _ = layout.superblock_location(group);
        let _ = layout.descriptor_location(group);
        let _ = layout.inode_of_bit(group, number as u32);
        let _ = layout.block_of_bit(group, layout.clusters_per_group() - 1);
    }
    let _ = layout.bit_of_block(PhysicalBlock::new(number));
    let _ = layout.contains_blocks(PhysicalBlock::new(number), number);
    let _ = layout.inode_location(InodeNumber::new(number as u32), PhysicalBlock::new(number));
    let _ = layout.extent_file_bytes_max();
    let _ = layout.mapped_file_bytes_max();
    let _ = layout.descriptor_block(number as u32);
    let _ = block_map::MapPath::new(LogicalBlock::new(number as u32), layout);
    let _ = block_map::logical_end(layout);
    let _ = (superblock.first_error(), superblock.last_error(), superblock.journal_backup());
    let again = superblock.encode();
    assert!(Superblock::check(&again).is_ok(), "what was read can't be read back");
}

/// Group descriptors.
pub fn group_descriptor(data: &[u8]) {
    let layout = layout();
    let mut input = Input(data);
    let group = GroupNumber::new(u32::from(input.u8()) % layout.group_count());
    let bytes = input.change(&[0; 64]);
    let bitmap = [0; BLOCK];
    if let Ok(descriptor) = GroupDescriptor::check(&bytes, group, &layout) {
        let _ = descriptor.check_locations(group, &layout);
        let _ = descriptor.check_counts(group, &layout);
        let _ = check_block_bitmap(&bitmap, group, &descriptor, &layout);
        let _ = check_inode_bitmap(&bitmap, group, &descriptor, &layout);
        let mut again = [0; 64];
        descriptor.encode_into(&mut again, group, &layout);
        assert_eq!(GroupDescriptor::read(&again, &layout).as_ref(), Ok(&descriptor));
    }
}

/// Inodes.
pub fn inode(data: &[u8]) {
    let layout = layout();
    let number = layout.first_inode();
    let mut input = Input(data);
    let mut sound = vec![0; layout.inode_size()];
    let empty = Inode::new(number, 0o100_644, Default::default(), &layout);
    empty.encode_into(&mut sound, &layout).expect("a new inode can be stored");
    let bytes = input.change(&sound);
    let Ok(inode) = Inode::check(&bytes, number, &layout) else { return };
    let _ = (inode.file_type(), inode.fast_symlink_target(), inode.device());
    let area = inode.attribute_area(&layout);
    assert!(area.end <= bytes.len() && area.start <= area.end);
    let mut again = bytes.clone();
    if inode.encode_into(&mut again, &layout).is_ok() {
        // Times at the ends of what an inode can hold lose their nanoseconds, once.
        let read = Inode::read(&again, number, &layout).expect("what was written can be read");
        let mut third = again.clone();
        read.encode_into(&mut third, &layout).expect("what was read can be written");
        assert_eq!(third, again);
    }
}

/// Nodes of extent trees: checks, searches, changes.
pub fn extent_node(data: &[u8]) {
    let layout = layout();
    let mut input = Input(data);
    let number = InodeNumber::new(12);
    let is_root = input.u8() % 2 == 0;
    let (place, length, depth) = if is_root {
        (NodePlace::root(number), 60, 0)
    } else {
        (NodePlace::block(number, PhysicalBlock::new(77)), BLOCK, u16::from(input.u8() % 2))
    };
    let mut sound = vec![0; length];
    {
        let mut node = ExtentNodeMut::init(&mut sound, place, depth);
        if depth == 0 {
            for index in 0..3_u32 {
                node.insert_extent(
                    index as usize,
                    &Extent {
                        logical: LogicalBlock::new(index * 100),
                        physical: PhysicalBlock::new(1000 + u64::from(index) * 200),
                        length: 10 + index,
                        unwritten: index == 1,
                    },
                );
            }
        }
    }
    let bytes = input.change(&sound);
    let _ = check_checksum(&bytes, number, PhysicalBlock::new(77), None);
    let expectation = match is_root {
        true => NodeExpectation::ROOT,
        false => NodeExpectation::child(depth, LogicalBlock::new(0), 1 << 32),
    };
    let Ok(node) = ExtentNode::check(&bytes, place, &expectation, &layout) else { return };
    let logical = LogicalBlock::new(input.u32());
    let _ = (node.find(logical), node.position_of(logical));
    for extent in node.extents() {
        assert!(layout.contains_blocks(extent.physical, u64::from(extent.length)));
        assert!(extent.logical_end() <= 1 << 32);
        let _ = (extent.split(logical), extent.overlap(logical.as_u64(), 1 << 32));
    }
    for position in 0..node.len() {
        let _ = (node.index(position), node.child(position, &expectation));
    }
    let mut changed = bytes.clone();
    let Ok(mut node) = ExtentNodeMut::check(&mut changed, place, &expectation, &layout) else {
        return;
    };
    let length = node.as_node().len();
    if length > 0 {
        let at = usize::from(input.u8()) % length;
        node.remove(at..length);
    }
    if is_root && !node.as_node().is_empty() {
        let mut child = vec![0; BLOCK];
        let _ = node.deepen(&mut child, PhysicalBlock::new(78));
    }
}

/// Block maps.
pub fn block_map(data: &[u8]) {
    let layout = layout();
    let mut input = Input(data);
    let logical = LogicalBlock::new(input.u32());
    let index = input.u32();
    let bytes = input.change(&[0; BLOCK]);
    let number = InodeNumber::new(12);
    let holder = Some(PhysicalBlock::new(50));
    let _ = block_map::check_pointers(&bytes, number, holder, &layout);
    if let Some(path) = block_map::MapPath::new(logical, &layout) {
        for &index in path.indexes() {
            let _ = block_map::pointer(&bytes, index, number, holder, &layout);
        }
    }
    if let Ok(Some(block)) = block_map::pointer(&bytes, index, number, None, &layout) {
        assert!(layout.contains_blocks(block, 1));
    }
    let _ = block_map::logical_of_root_pointer(index % 100, &layout);
}
