//! Where the copies of the superblock and of the descriptors lie.

use super::Layout;
use crate::features::{Compat, Incompat, ReadOnlyCompat};
use crate::ids::{GroupNumber, PhysicalBlock};

/// Where the copy of a descriptor block and of the superblock lies, if a group has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupBase {
    /// Block of the superblock's copy.
    pub superblock: Option<PhysicalBlock>,
    /// First of the descriptor blocks.
    pub descriptors: Option<PhysicalBlock>,
    /// Number of the descriptor blocks.
    pub descriptor_blocks: u32,
    /// Blocks reserved after them for growth.
    pub reserved_blocks: u32,
    /// Blocks from the group's start that all of these take.
    pub blocks: u32,
}

impl Layout {
    /// Whether a group holds a copy of the superblock.
    #[must_use]
    pub fn has_superblock(&self, group: GroupNumber) -> bool {
        let number = group.get();
        if number == 0 {
            return true;
        }
        if self.features.compat.contains(Compat::SPARSE_SUPER2) {
            return self.backup_groups.contains(&number);
        }
        if number == 1 || !self.features.read_only_compat.contains(ReadOnlyCompat::SPARSE_SUPER) {
            return true;
        }
        [3, 5, 7].into_iter().any(|base| is_power_of(number, base))
    }

    /// The groups that hold a copy of the superblock, the primary first.
    pub fn superblock_groups(&self) -> impl Iterator<Item = GroupNumber> + '_ {
        self.groups().filter(|&group| self.has_superblock(group))
    }

    /// The block with a group's copy of the superblock, if it has one, and the copy's offset in
    /// it in bytes.
    #[must_use]
    pub fn superblock_location(&self, group: GroupNumber) -> Option<(PhysicalBlock, usize)> {
        let block = self.group_base(group).superblock?;
        let is_behind_boot_sector = block.get() == 0 && self.block_size() > 1024;
        Some((block, if is_behind_boot_sector { 1024 } else { 0 }))
    }

    /// The fixed metadata at the start of a group: superblock, descriptors, reserved blocks.
    ///
    /// In a group whose block bitmap is not initialised these, and the bitmaps and inode tables
    /// that lie in it, are what is in use.
    #[must_use]
    pub fn group_base(&self, group: GroupNumber) -> GroupBase {
        let first = self.group_first_block(group).get();
        // With clusters of 1 KiB blocks the first group starts with the boot sector.
        let skipped = u32::from(group.get() == 0 && first == 0 && self.log_block_size == 10);
        let has_superblock = self.has_superblock(group);
        let superblock = has_superblock.then(|| PhysicalBlock::new(first + u64::from(skipped)));
        let used = if has_superblock { skipped + 1 } else { 0 };
        let meta = self.features.incompat.contains(Incompat::META_BG);
        let meta_group = group.get() / self.descriptors_per_block();
        let (descriptor_blocks, reserved_blocks) = if meta && meta_group >= self.first_meta_group {
            let place = group.get() % self.descriptors_per_block();
            let holds = place <= 1 || place == self.descriptors_per_block() - 1;
            (u32::from(holds), 0)
        } else if !has_superblock {
            (0, 0)
        } else if meta {
            (self.first_meta_group, u32::from(self.reserved_descriptor_blocks))
        } else {
            (self.descriptor_blocks, u32::from(self.reserved_descriptor_blocks))
        };
        let descriptors =
            (descriptor_blocks > 0).then(|| PhysicalBlock::new(first + u64::from(used)));
        // At most 2^32 / 16 descriptor blocks and 2^14 reserved ones: the sum fits.
        let blocks = used + descriptor_blocks + reserved_blocks;
        GroupBase { superblock, descriptors, descriptor_blocks, reserved_blocks, blocks }
    }

    /// The primary block of the descriptors that `index` counts; nothing beyond the last.
    #[must_use]
    pub fn descriptor_block(&self, index: u32) -> Option<PhysicalBlock> {
        if index >= self.descriptor_blocks {
            return None;
        }
        let meta = self.features.incompat.contains(Incompat::META_BG);
        if meta && index >= self.first_meta_group {
            let group = GroupNumber::new(index * self.descriptors_per_block());
            return self.group_base(group).descriptors;
        }
        let base = self.group_base(GroupNumber::FIRST).descriptors?;
        base.checked_add(u64::from(index))
    }

    /// The backups of a descriptor block, in the order of groups.
    #[must_use]
    pub fn descriptor_backups(&self, index: u32) -> Vec<PhysicalBlock> {
        if index >= self.descriptor_blocks {
            return Vec::new();
        }
        let meta = self.features.incompat.contains(Incompat::META_BG);
        if meta && index >= self.first_meta_group {
            let first = index * self.descriptors_per_block();
            let last = first.saturating_add(self.descriptors_per_block() - 1);
            return [first.saturating_add(1), last]
                .into_iter()
                .filter(|&group| group < self.group_count)
                .filter_map(|group| self.group_base(GroupNumber::new(group)).descriptors)
                .collect();
        }
        let per_block = self.descriptors_per_block();
        self.superblock_groups()
            .skip(1)
            // A group in a meta block group has no copy of the old part of the table.
            .filter(|group| !meta || group.get() / per_block < self.first_meta_group)
            .filter_map(|group| self.group_base(group).descriptors)
            .filter_map(|base| base.checked_add(u64::from(index)))
            .collect()
    }

    /// The block and the offset in bytes of a group's primary descriptor.
    #[must_use]
    pub fn descriptor_location(&self, group: GroupNumber) -> Option<(PhysicalBlock, usize)> {
        if group.get() >= self.group_count {
            return None;
        }
        let per_block = self.descriptors_per_block();
        let block = self.descriptor_block(group.get() / per_block)?;
        Some((block, (group.get() % per_block) as usize * self.descriptor_size()))
    }
}

fn is_power_of(number: u32, base: u32) -> bool {
    let mut power = u64::from(base);
    while power < u64::from(number) {
        power *= u64::from(base);
    }
    power == u64::from(number)
}
