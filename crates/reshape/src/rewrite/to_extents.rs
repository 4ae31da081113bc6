//! Turns block maps into extent trees.

use super::Rewriter;
use super::map::ReadTree;
use crate::error::Result;
use drystone_ext4_format::block_map::{
    self, ROOT_POINTERS, blocks_under, levels_of_root_pointer, logical_of_root_pointer,
};
use drystone_ext4_format::extent::Extent;
use drystone_ext4_format::features::Compat;
use drystone_ext4_format::inode::{Inode, InodeFlags};
use drystone_ext4_format::{GroupNumber, InodeNumber, LogicalBlock};

impl Rewriter<'_, '_> {
    /// Maps the files of a group by extents. Returns how many there were with block maps.
    pub fn group_to_extents(&mut self, group: GroupNumber) -> Result<u64> {
        let mut count = 0;
        for number in self.image.used_inodes(group)? {
            // Both are lists of blocks rather than files.
            let is_list = number == InodeNumber::BAD_BLOCKS
                || number == InodeNumber::RESIZE
                    && self.old.features().compat.contains(Compat::RESIZE_INODE);
            let (mut inode, mut bytes) = self.image.read_inode(number)?;
            if is_list || !inode.has_block_mapping() || inode.flags.contains(InodeFlags::EXTENTS) {
                continue;
            }
            let sectors = inode.sectors;
            let tree = self.read_pointers(&inode)?;
            inode.flags |= InodeFlags::EXTENTS;
            let seed = inode.seed(&self.image.layout);
            self.build_tree(&mut inode, &tree, seed)?;
            self.image.write_inode(&inode, &mut bytes)?;
            self.count_usage(inode.number, &inode, sectors);
            count += 1;
        }
        Ok(count)
    }

    /// A block map as extents; the blocks of pointers are the nodes.
    pub(super) fn read_pointers(&self, inode: &Inode) -> Result<ReadTree> {
        let mut tree = ReadTree::default();
        for index in 0..ROOT_POINTERS as u32 {
            let levels = levels_of_root_pointer(index);
            if let Some(logical) = logical_of_root_pointer(index, &self.old) {
                self.read_pointer(inode, &inode.block_area, index, levels, logical, &mut tree)?;
            }
        }
        Ok(tree)
    }

    fn read_pointer(
        &self,
        inode: &Inode,
        holder: &[u8],
        index: u32,
        levels: usize,
        logical: u64,
        tree: &mut ReadTree,
    ) -> Result<()> {
        let found = block_map::pointer(holder, index, inode.number, None, &self.old)?;
        let Some(block) = found.map(|block| self.translated(block)) else { return Ok(()) };
        if levels == 0 {
            // No file has more blocks than that.
            if let Ok(logical) = u32::try_from(logical) {
                Extent::of_block(LogicalBlock::new(logical), block).append_to(&mut tree.extents);
            }
            return Ok(());
        }
        tree.nodes.push(block);
        let bytes = self.image.read_block(block)?;
        let below = blocks_under(levels - 1, &self.old);
        for index in 0..block_map::pointers_per_block(&self.old) {
            let logical = logical + u64::from(index) * below;
            self.read_pointer(inode, &bytes, index, levels - 1, logical, tree)?;
        }
        Ok(())
    }
}
