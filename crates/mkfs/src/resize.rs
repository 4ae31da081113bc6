//! The resize inode, which holds the blocks that are reserved for growth of the descriptor table.
//!
//! Its map is a table turned on its side: the double indirect block points to the reserved blocks
//! after the primary descriptors, each at the index of its place in the grown table; and each of these
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
pub const RESERVED_MAP_POINTER: u32 = DIRECT_POINTERS + 1;

/// The map of the reserved blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReservedMap {
    /// The blocks of pointers, the double indirect one among them.
    pub blocks: Vec<(PhysicalBlock, Vec<u8>)>,
    /// Size of the resize inode.
    pub size_bytes: u64,
    /// Space that it counts, in units of 512 bytes.
    pub sectors: u64,
}

impl ReservedMap {
    /// The map of a layout's reserved blocks; `root` is the double indirect block.
    #[must_use]
    pub fn new(layout: &Layout, root: PhysicalBlock) -> ReservedMap {
        let reserved = layout.reserved_descriptor_blocks();
        let pointers = block_map::pointers_per_block(layout);
        let backups: Vec<GroupNumber> = layout.superblock_groups().skip(1).collect();
        let mut blocks = Vec::new();
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
                let copy = PhysicalBlock::new(block + distance);
                set_pointer(&mut copies, position as u32, Some(copy));
            }
            blocks.push((PhysicalBlock::new(block), copies));
        }
        blocks.push((root, table));
        let pointers = u64::from(pointers);
        let length = u64::from(DIRECT_POINTERS) + pointers + pointers * pointers;
        let used = 1 + u64::from(reserved) * (1 + backups.len() as u64);
        ReservedMap {
            blocks,
            size_bytes: length * layout.block_size() as u64,
            // With clusters each block counts as one cluster, although they are adjacent.
            sectors: used * u64::from(layout.blocks_per_cluster()) * layout.sectors_per_block(),
        }
    }
}

/// Maps the reserved blocks.
pub(crate) fn map_reserved(
    inode: &mut Inode,
    layout: &Layout,
    space: &mut Space,
    blocks: &mut BlocksToWrite,
) -> Result<()> {
    let root = take_block(space, "the inode for growth")?;
    let map = ReservedMap::new(layout, root);
    blocks.extend(map.blocks.into_iter().map(|(block, bytes)| (block.get(), bytes)));
    set_pointer(&mut inode.block_area, RESERVED_MAP_POINTER, Some(root));
    inode.size_bytes = map.size_bytes;
    inode.sectors = map.sectors;
    Ok(())
}
