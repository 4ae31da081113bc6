//! Which group, bit and block a block or an inode belongs to.

use super::Layout;
use crate::error::{Corrupt, InodeProblem};
use crate::ids::{GroupNumber, InodeNumber, PhysicalBlock};

impl Layout {
    /// Whether all `count` blocks from `start` lie in the groups of the image.
    #[must_use]
    pub fn contains_blocks(&self, start: PhysicalBlock, count: u64) -> bool {
        start.get() >= u64::from(self.first_data_block)
            && start.get().checked_add(count).is_some_and(|end| end <= self.blocks_count)
            && start.get() < self.blocks_count
    }

    /// The group of a block, if the block lies in the image's groups.
    #[must_use]
    pub fn group_of_block(&self, block: PhysicalBlock) -> Option<GroupNumber> {
        if !self.contains_blocks(block, 1) {
            return None;
        }
        let offset = block.get() - u64::from(self.first_data_block);
        // Below the group count, which fits.
        Some(GroupNumber::new((offset / u64::from(self.blocks_per_group)) as u32))
    }

    /// A block's bit in the block bitmap of its group: its cluster.
    #[must_use]
    pub fn bit_of_block(&self, block: PhysicalBlock) -> Option<(GroupNumber, u32)> {
        let group = self.group_of_block(block)?;
        let offset = block.get() - self.group_first_block(group).get();
        // Below the blocks of a group, which fit.
        Some((group, (offset >> self.log_cluster_ratio) as u32))
    }

    /// The first block of the cluster that a bit in a group's bitmap stands for.
    #[must_use]
    pub fn block_of_bit(&self, group: GroupNumber, bit: u32) -> PhysicalBlock {
        let offset = u64::from(bit) << self.log_cluster_ratio;
        PhysicalBlock::new(self.group_first_block(group).get() + offset)
    }

    /// The first block of a group. The group need not exist; the result then lies beyond the end.
    #[must_use]
    pub fn group_first_block(&self, group: GroupNumber) -> PhysicalBlock {
        // 32 bits times 32 bits plus 1 fits.
        let start = u64::from(group.get()) * u64::from(self.blocks_per_group);
        PhysicalBlock::new(start + u64::from(self.first_data_block))
    }

    /// Blocks of a group: fewer in the last one, none after it.
    #[must_use]
    pub fn group_block_count(&self, group: GroupNumber) -> u32 {
        let left = self.blocks_count.saturating_sub(self.group_first_block(group).get());
        // The minimum fits because one side does.
        left.min(u64::from(self.blocks_per_group)) as u32
    }

    /// Clusters of a group: fewer in the last one, where a part of a cluster counts.
    #[must_use]
    pub fn group_cluster_count(&self, group: GroupNumber) -> u32 {
        self.group_block_count(group).div_ceil(self.blocks_per_cluster())
    }

    /// Clusters that hold `blocks` blocks.
    #[must_use]
    pub const fn clusters_for(&self, blocks: u64) -> u64 {
        blocks.div_ceil(1 << self.log_cluster_ratio)
    }

    /// Whether there is such an inode.
    #[must_use]
    pub const fn contains_inode(&self, inode: InodeNumber) -> bool {
        inode.get() != 0 && inode.get() <= self.inodes_count
    }

    /// The group of an inode and its bit in the group's inode bitmap.
    pub fn bit_of_inode(&self, inode: InodeNumber) -> Result<(GroupNumber, u32), Corrupt> {
        if !self.contains_inode(inode) {
            return Err(Corrupt::Inode { inode, problem: InodeProblem::Number });
        }
        let index = inode.get() - 1;
        Ok((GroupNumber::new(index / self.inodes_per_group), index % self.inodes_per_group))
    }

    /// The group of an inode.
    pub fn group_of_inode(&self, inode: InodeNumber) -> Result<GroupNumber, Corrupt> {
        self.bit_of_inode(inode).map(|(group, _)| group)
    }

    /// The inode that a bit in a group's inode bitmap stands for; nothing beyond the last inode.
    #[must_use]
    pub fn inode_of_bit(&self, group: GroupNumber, bit: u32) -> Option<InodeNumber> {
        if bit >= self.inodes_per_group {
            return None;
        }
        let number = group.get().checked_mul(self.inodes_per_group)?.checked_add(bit + 1)?;
        (number <= self.inodes_count).then_some(InodeNumber::new(number))
    }

    /// The block that holds an inode and the inode's offset in it in bytes, given the start of
    /// the inode table of its group.
    pub fn inode_location(
        &self,
        inode: InodeNumber,
        table_start: PhysicalBlock,
    ) -> Result<(PhysicalBlock, usize), Corrupt> {
        let (_, index) = self.bit_of_inode(inode)?;
        let per_block = self.inodes_per_block();
        let block = table_start
            .checked_add(u64::from(index / per_block))
            .ok_or(Corrupt::Inode { inode, problem: InodeProblem::Number })?;
        Ok((block, (index % per_block) as usize * self.inode_size()))
    }
}
