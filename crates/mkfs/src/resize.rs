//! The resize inode, which holds the blocks that are reserved for growth of the descriptor table.
//!
//! Its map is a table turned on its side: the double indirect block points to the reserved blocks
//! behind the primary descriptors, each at the index of its place in the grown table; and each of these
//! lists its own copies in the groups that have backups.
//!
//! # Reference
//! "resize_inode" in the manual of the tools; the layout as `debugfs` shows it.

use crate::error::Result;
use crate::map::{BlocksToWrite, take_block};
use crate::space::Space;
use drystone_ext4_format::block_map::{self, DIRECT_POINTERS, set_pointer};
use drystone_ext4_format::inode::Inode;
use drystone_ext4_format::layout::Layout;
use drystone_ext4_format::{GroupNumber, PhysicalBlock};

/// Index of the double indirect pointer in an inode.
const DOUBLE_INDIRECT: u32 = DIRECT_POINTERS + 1;

/// Maps the reserved blocks.
pub(crate) fn map_reserved(
    inode: &mut Inode,
    layout: &Layout,
    space: &mut Space,
    blocks: &mut BlocksToWrite,
) -> Result<()> {
    let reserved = layout.reserved_descriptor_blocks();
    let pointers = block_map::pointers_per_block(layout);
    let backups: Vec<GroupNumber> = layout.superblock_groups().skip(1).collect();
    let root = take_block(space, "the inode for growth")?;
    let mut table = vec![0; layout.block_size()];
    let first = layout
        .group_base(GroupNumber::FIRST)
        .descriptors
        .map_or(0, |base| base.get() + u64::from(layout.descriptor_blocks()));
    for offset in 0..reserved {
        let block = first + u64::from(offset);
        let index = (layout.descriptor_blocks() + offset) % pointers;
        set_pointer(&mut table, index, Some(PhysicalBlock::new(block)));
        let mut copies = vec![0; layout.block_size()];
        for (position, &group) in backups.iter().enumerate() {
            let distance = layout.group_first_block(group).get()
                - layout.group_first_block(GroupNumber::FIRST).get();
            set_pointer(&mut copies, position as u32, Some(PhysicalBlock::new(block + distance)));
        }
        blocks.insert(block, copies);
    }
    blocks.insert(root.get(), table);
    set_pointer(&mut inode.block_area, DOUBLE_INDIRECT, Some(root));
    let pointers = u64::from(pointers);
    let length = u64::from(DIRECT_POINTERS) + pointers + pointers * pointers;
    inode.size_bytes = length * layout.block_size() as u64;
    let used = 1 + u64::from(reserved) * (1 + backups.len() as u64);
    // With clusters each block counts as one cluster, although they are adjacent.
    inode.sectors = used * u64::from(layout.blocks_per_cluster()) * layout.sectors_per_block();
    Ok(())
}
