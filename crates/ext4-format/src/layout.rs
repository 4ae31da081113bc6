//! Where an image keeps its parts: arithmetic over a geometry that was checked once.
//!
//! [`Layout::new`] proves bounds that make the rest safe: groups and inodes can be numbered, a
//! group's bitmaps fit one block each, sizes are powers of two in range. Everything else here is
//! total for numbers inside the image, and returns an error or nothing for numbers outside.
//!
//! # Reference
//! "Layout", "Flexible Block Groups", "Meta Block Groups" and "Bigalloc" in the kernel's ext4
//! data structure pages.

use crate::checksum::{ChecksumSeed, Checksums};
use crate::error::{Corrupt, FormatError};
use crate::features::{Compat, Features, Incompat, ReadOnlyCompat};
use crate::ids::{GroupNumber, InodeNumber, PhysicalBlock};
use crate::inode::InodeProblem;
use crate::superblock::{Geometry, GeometryProblem};

const LOG_BLOCK_SIZE_MAX: u32 = 6;
const LOG_CLUSTER_SIZE_MAX: u32 = 19;
/// Bytes of the part of an inode that all revisions have.
pub const BASE_INODE_BYTES: u16 = 128;
/// Bytes of a descriptor without the 64bit feature.
pub const SMALL_DESCRIPTOR_BYTES: u16 = 32;
/// Bytes of a descriptor with the 64bit feature, at least.
pub const LARGE_DESCRIPTOR_BYTES: u16 = 64;
const LARGEST_DESCRIPTOR_BYTES: u16 = 1024;
/// Most names that a file, or subdirectories that a directory, may have without `dir_nlink`.
pub const LINKS_MAX: u16 = 65_000;

/// The geometry of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    features: Features,
    checksums: Checksums,
    blocks_count: u64,
    first_data_block: u32,
    blocks_per_group: u32,
    clusters_per_group: u32,
    inodes_per_group: u32,
    inodes_count: u32,
    first_inode: u32,
    group_count: u32,
    descriptor_blocks: u32,
    first_meta_group: u32,
    inode_table_blocks: u32,
    backup_groups: [u32; 2],
    inode_size: u16,
    descriptor_size: u16,
    reserved_descriptor_blocks: u16,
    extra_inode_size: u16,
    log_block_size: u8,
    log_cluster_ratio: u8,
    log_groups_per_flex: u8,
}

/// Where the copy of a descriptor block and of the superblock lies, if a group has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupBase {
    /// Block of the superblock's copy.
    pub superblock: Option<PhysicalBlock>,
    /// First of the descriptor blocks.
    pub descriptors: Option<PhysicalBlock>,
    /// Number of the descriptor blocks.
    pub descriptor_blocks: u32,
    /// Blocks reserved behind them for growth.
    pub reserved_blocks: u32,
    /// Blocks from the group's start that all of these take.
    pub blocks: u32,
}

impl Layout {
    /// Checks a geometry and computes what follows from it.
    pub fn new(geometry: &Geometry) -> Result<Self, FormatError> {
        Self::compute(geometry).map_err(|problem| Corrupt::SuperblockGeometry { problem }.into())
    }

    fn compute(geometry: &Geometry) -> Result<Self, GeometryProblem> {
        let features = geometry.features;
        let log_block_size = geometry.log_block_size;
        if log_block_size > LOG_BLOCK_SIZE_MAX {
            return Err(GeometryProblem::BlockSize { log: log_block_size });
        }
        let block_size = 1024u32 << log_block_size;
        let bits_per_block = block_size * 8;

        let bigalloc = features.read_only_compat.contains(ReadOnlyCompat::BIGALLOC);
        let log_cluster_size = geometry.log_cluster_size;
        let ratio_range = if bigalloc {
            log_block_size..=LOG_CLUSTER_SIZE_MAX
        } else {
            log_block_size..=log_block_size
        };
        if !ratio_range.contains(&log_cluster_size) {
            return Err(GeometryProblem::ClusterSize { log: log_cluster_size });
        }
        let log_cluster_ratio = log_cluster_size - log_block_size;

        let clusters_per_group = geometry.clusters_per_group;
        if !(8..=bits_per_block).contains(&clusters_per_group)
            || !clusters_per_group.is_multiple_of(8)
        {
            return Err(GeometryProblem::ClustersPerGroup { clusters: clusters_per_group });
        }
        let blocks_per_group = clusters_per_group
            .checked_mul(1 << log_cluster_ratio)
            .ok_or(GeometryProblem::ClustersPerGroup { clusters: clusters_per_group })?;

        let first_data_block = Self::expected_first_data_block(geometry);
        let blocks_count = geometry.blocks_count;
        // Extents address 48 bits.
        if blocks_count >> 48 != 0 || blocks_count <= u64::from(first_data_block) {
            return Err(GeometryProblem::BlocksCount { blocks: blocks_count });
        }
        if !features.incompat.contains(Incompat::SIXTY_FOUR_BIT) && blocks_count >> 32 != 0 {
            return Err(GeometryProblem::BlocksCount { blocks: blocks_count });
        }
        let groups =
            (blocks_count - u64::from(first_data_block)).div_ceil(u64::from(blocks_per_group));
        let group_count =
            u32::try_from(groups).map_err(|_| GeometryProblem::GroupCount { groups })?;

        let inode_size = geometry.inode_size;
        if !inode_size.is_power_of_two()
            || inode_size < BASE_INODE_BYTES
            || u32::from(inode_size) > block_size
        {
            return Err(GeometryProblem::InodeSize { bytes: inode_size });
        }
        let inodes_per_group = geometry.inodes_per_group;
        if !(8..=bits_per_block).contains(&inodes_per_group) || !inodes_per_group.is_multiple_of(8)
        {
            return Err(GeometryProblem::InodesPerGroup { inodes: inodes_per_group });
        }
        let inodes_count = inodes_per_group
            .checked_mul(group_count)
            .ok_or(GeometryProblem::GroupCount { groups })?;
        // At most 2^19 inodes of at most 2^16 bytes: the product fits.
        let inode_table_blocks = (u64::from(inodes_per_group) * u64::from(inode_size))
            .div_ceil(u64::from(block_size)) as u32;
        let first_inode = geometry.first_inode;
        if first_inode < InodeNumber::FIRST_ORDINARY.get() || first_inode > inodes_count {
            return Err(GeometryProblem::FirstInode { inode: first_inode });
        }
        let extra_inode_size = geometry.extra_inode_size;
        if !extra_inode_size.is_multiple_of(4) || extra_inode_size > inode_size - BASE_INODE_BYTES {
            return Err(GeometryProblem::ExtraInodeSize { bytes: extra_inode_size, inode_size });
        }

        let descriptor_size = if features.incompat.contains(Incompat::SIXTY_FOUR_BIT) {
            let bytes = geometry.descriptor_size;
            if !bytes.is_power_of_two()
                || !(LARGE_DESCRIPTOR_BYTES..=LARGEST_DESCRIPTOR_BYTES).contains(&bytes)
            {
                return Err(GeometryProblem::DescriptorSize { bytes });
            }
            bytes
        } else {
            SMALL_DESCRIPTOR_BYTES
        };
        let descriptor_blocks = group_count.div_ceil(block_size / u32::from(descriptor_size));
        let reserved = geometry.reserved_descriptor_blocks;
        if u32::from(reserved) > block_size / 4 {
            return Err(GeometryProblem::ReservedDescriptorBlocks { blocks: reserved });
        }
        let first_meta_group = geometry.first_meta_group;
        if features.incompat.contains(Incompat::META_BG) && first_meta_group > descriptor_blocks {
            return Err(GeometryProblem::FirstMetaGroup {
                first: first_meta_group,
                descriptor_blocks,
            });
        }
        if geometry.log_groups_per_flex > 31 {
            return Err(GeometryProblem::FlexGroupSize { log: geometry.log_groups_per_flex });
        }

        let layout = Self {
            features,
            checksums: geometry.checksums(),
            blocks_count,
            first_data_block,
            blocks_per_group,
            clusters_per_group,
            inodes_per_group,
            inodes_count,
            first_inode,
            group_count,
            descriptor_blocks,
            first_meta_group,
            inode_table_blocks,
            backup_groups: geometry.backup_groups,
            inode_size,
            descriptor_size,
            reserved_descriptor_blocks: reserved,
            extra_inode_size,
            // Bounded above, each fits 8 bits.
            log_block_size: (log_block_size + 10) as u8,
            log_cluster_ratio: log_cluster_ratio as u8,
            log_groups_per_flex: geometry.log_groups_per_flex,
        };
        layout.check_group_base(GroupNumber::FIRST)?;
        layout.check_group_base(layout.last_group())?;
        Ok(layout)
    }

    /// The first group has the most fixed metadata and the last has the fewest blocks.
    fn check_group_base(&self, group: GroupNumber) -> Result<(), GeometryProblem> {
        if self.group_base(group).blocks > self.group_block_count(group) {
            return Err(GeometryProblem::GroupTooSmall { group });
        }
        Ok(())
    }

    /// The block in which the first group starts: 1 where a block is too small to hold both the
    /// boot sector and the superblock, unless clusters are larger.
    pub(crate) fn expected_first_data_block(geometry: &Geometry) -> u32 {
        u32::from(geometry.log_block_size == 0 && geometry.log_cluster_size == 0)
    }

    /// The features that the image had when the layout was computed.
    #[must_use]
    pub const fn features(&self) -> Features {
        self.features
    }

    /// Which checksums metadata have.
    #[must_use]
    pub const fn checksums(&self) -> Checksums {
        self.checksums
    }

    /// The seed of checksums, if all metadata have one.
    #[must_use]
    pub const fn checksum_seed(&self) -> Option<ChecksumSeed> {
        self.checksums.seed()
    }

    /// Bytes of a block.
    #[must_use]
    pub const fn block_size(&self) -> usize {
        1 << self.log_block_size
    }

    /// Bytes of a block as an exponent of two.
    #[must_use]
    pub const fn log_block_size(&self) -> u32 {
        self.log_block_size as u32
    }

    /// Units of 512 bytes in a block.
    #[must_use]
    pub const fn sectors_per_block(&self) -> u64 {
        1 << (self.log_block_size - 9)
    }

    /// Blocks of the image.
    #[must_use]
    pub const fn blocks_count(&self) -> u64 {
        self.blocks_count
    }

    /// The block in which the first group starts.
    #[must_use]
    pub const fn first_data_block(&self) -> u32 {
        self.first_data_block
    }

    /// Blocks of a full group.
    #[must_use]
    pub const fn blocks_per_group(&self) -> u32 {
        self.blocks_per_group
    }

    /// Clusters of a full group.
    #[must_use]
    pub const fn clusters_per_group(&self) -> u32 {
        self.clusters_per_group
    }

    /// Inodes of a group.
    #[must_use]
    pub const fn inodes_per_group(&self) -> u32 {
        self.inodes_per_group
    }

    /// Inodes of the image.
    #[must_use]
    pub const fn inodes_count(&self) -> u32 {
        self.inodes_count
    }

    /// First inode for files.
    #[must_use]
    pub const fn first_inode(&self) -> InodeNumber {
        InodeNumber::new(self.first_inode)
    }

    /// Groups of the image.
    #[must_use]
    pub const fn group_count(&self) -> u32 {
        self.group_count
    }

    /// The last group.
    #[must_use]
    pub const fn last_group(&self) -> GroupNumber {
        // There is at least one block, and so one group.
        GroupNumber::new(self.group_count - 1)
    }

    /// All groups.
    pub fn groups(&self) -> impl DoubleEndedIterator<Item = GroupNumber> + use<> {
        (0..self.group_count).map(GroupNumber::new)
    }

    /// Bytes of an inode.
    #[must_use]
    pub const fn inode_size(&self) -> usize {
        self.inode_size as usize
    }

    /// Bytes of the extra fields that new inodes get.
    #[must_use]
    pub const fn extra_inode_size(&self) -> u16 {
        self.extra_inode_size
    }

    /// Inodes of a block.
    #[must_use]
    pub const fn inodes_per_block(&self) -> u32 {
        (1u32 << self.log_block_size) / self.inode_size as u32
    }

    /// Blocks of a group's inode table.
    #[must_use]
    pub const fn inode_table_blocks(&self) -> u32 {
        self.inode_table_blocks
    }

    /// Bytes of a group descriptor.
    #[must_use]
    pub const fn descriptor_size(&self) -> usize {
        self.descriptor_size as usize
    }

    /// Descriptors of a block.
    #[must_use]
    pub const fn descriptors_per_block(&self) -> u32 {
        (1u32 << self.log_block_size) / self.descriptor_size as u32
    }

    /// Blocks of all descriptors.
    #[must_use]
    pub const fn descriptor_blocks(&self) -> u32 {
        self.descriptor_blocks
    }

    /// Descriptor blocks reserved for growth, in each group that holds the whole table.
    #[must_use]
    pub const fn reserved_descriptor_blocks(&self) -> u32 {
        self.reserved_descriptor_blocks as u32
    }

    /// Groups of a flexible group: 1 without that feature.
    #[must_use]
    pub const fn groups_per_flex(&self) -> u32 {
        if self.features.incompat.contains(Incompat::FLEX_BG) {
            1 << self.log_groups_per_flex
        } else {
            1
        }
    }

    /// Blocks of a cluster: 1 without bigalloc.
    #[must_use]
    pub const fn blocks_per_cluster(&self) -> u32 {
        1 << self.log_cluster_ratio
    }

    /// Blocks of a cluster as an exponent of two.
    #[must_use]
    pub const fn log_cluster_ratio(&self) -> u32 {
        self.log_cluster_ratio as u32
    }

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

    /// Blocks of a group: fewer in the last one, none behind it.
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

    /// Largest size in bytes of a file that extents map.
    #[must_use]
    pub fn extent_file_bytes_max(&self) -> u64 {
        let by_blocks = u64::from(u32::MAX) << self.log_block_size;
        by_blocks.min(self.counted_bytes_max())
    }

    /// Largest size in bytes of a file that a block map maps.
    #[must_use]
    pub fn mapped_file_bytes_max(&self) -> u64 {
        let pointers = 1u64 << (self.log_block_size - 2);
        let data = 12 + pointers + pointers.pow(2) + pointers.pow(3);
        // The map's own blocks count into the inode's sectors too.
        let map = 1 + (1 + pointers) + (1 + pointers + pointers.pow(2));
        let counted = (self.counted_bytes_max() >> self.log_block_size).saturating_sub(map);
        data.min(counted).min(u64::from(u32::MAX)) << self.log_block_size
    }

    /// Bytes that an inode can count as in use.
    fn counted_bytes_max(&self) -> u64 {
        if self.features.read_only_compat.contains(ReadOnlyCompat::HUGE_FILE) {
            // 48 bits of blocks; sizes are signed elsewhere.
            i64::MAX as u64
        } else {
            (u64::from(u32::MAX) >> (self.log_block_size - 9)) << self.log_block_size
        }
    }

    /// Whether a directory may have more than [`LINKS_MAX`] subdirectories.
    #[must_use]
    pub const fn has_unlimited_subdirectories(&self) -> bool {
        self.features.read_only_compat.contains(ReadOnlyCompat::DIR_NLINK)
    }
}

fn is_power_of(number: u32, base: u32) -> bool {
    let mut power = u64::from(base);
    while power < u64::from(number) {
        power *= u64::from(base);
    }
    power == u64::from(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    fn problem_of(change: impl Fn(&mut Geometry)) -> GeometryProblem {
        let mut geometry = testing::geometry();
        change(&mut geometry);
        match Layout::new(&geometry).unwrap_err() {
            FormatError::Corrupt(Corrupt::SuperblockGeometry { problem }) => problem,
            other => panic!("{other}"),
        }
    }

    #[test]
    fn impossible_numbers_are_named() {
        assert_eq!(problem_of(|g| g.log_block_size = 7), GeometryProblem::BlockSize { log: 7 });
        assert_eq!(problem_of(|g| g.log_cluster_size = 3), GeometryProblem::ClusterSize { log: 3 });
        assert_eq!(problem_of(|g| g.inode_size = 200), GeometryProblem::InodeSize { bytes: 200 });
        assert_eq!(
            problem_of(|g| g.inodes_per_group = 32_776),
            GeometryProblem::InodesPerGroup { inodes: 32_776 }
        );
        assert_eq!(
            problem_of(|g| g.descriptor_size = 32),
            GeometryProblem::DescriptorSize { bytes: 32 }
        );
        assert_eq!(problem_of(|g| g.blocks_count = 0), GeometryProblem::BlocksCount { blocks: 0 });
        assert_eq!(
            problem_of(|g| g.blocks_count = u64::MAX),
            GeometryProblem::BlocksCount { blocks: u64::MAX }
        );
        assert_eq!(
            problem_of(|g| g.blocks_count = 1 << 47),
            GeometryProblem::GroupCount { groups: 1 << 32 }
        );
        assert_eq!(
            problem_of(|g| g.blocks_count = 32_768 + 50),
            GeometryProblem::GroupTooSmall { group: GroupNumber::new(1) }
        );
        assert_eq!(problem_of(|g| g.first_inode = 10), GeometryProblem::FirstInode { inode: 10 });
    }

    #[test]
    fn sparse_groups_are_powers_of_three_five_and_seven() {
        let layout = testing::layout();
        let groups: Vec<u32> =
            (0..400).filter(|&group| layout.has_superblock(GroupNumber::new(group))).collect();
        assert_eq!(groups, [0, 1, 3, 5, 7, 9, 25, 27, 49, 81, 125, 243, 343]);
    }

    #[test]
    fn the_last_group_is_shorter() {
        let layout = testing::layout();
        assert_eq!(layout.group_count(), 10);
        let last = layout.last_group();
        assert_eq!(layout.group_block_count(last), 300_000 - 9 * 32_768);
        assert_eq!(layout.group_of_block(PhysicalBlock::new(299_999)), Some(last));
        assert_eq!(layout.group_of_block(PhysicalBlock::new(300_000)), None);
        assert_eq!(layout.group_block_count(GroupNumber::new(10)), 0);
        assert!(layout.contains_blocks(PhysicalBlock::new(299_999), 1));
        assert!(!layout.contains_blocks(PhysicalBlock::new(299_999), 2));
        assert!(!layout.contains_blocks(PhysicalBlock::new(u64::MAX), 1));
    }

    #[test]
    fn inodes_are_located() {
        let layout = testing::layout();
        let start = PhysicalBlock::new(1000);
        let locate = |inode| layout.inode_location(InodeNumber::new(inode), start);
        assert_eq!(locate(1), Ok((start, 0)));
        assert_eq!(locate(17), Ok((PhysicalBlock::new(1001), 0)));
        assert_eq!(locate(8192), Ok((PhysicalBlock::new(1511), 15 * 256)));
        assert_eq!(locate(8193), Ok((start, 0)));
        assert!(locate(0).is_err());
        assert!(locate(81_921).is_err());
        assert_eq!(layout.inode_of_bit(GroupNumber::new(1), 0), Some(InodeNumber::new(8193)));
        assert_eq!(layout.inode_of_bit(GroupNumber::new(10), 0), None);
    }

    #[test]
    fn files_are_limited_as_on_linux() {
        // Known from the kernel's documentation of 4 KiB blocks: 16 TiB, and 4 TiB and a bit.
        let layout = testing::layout();
        assert_eq!(layout.extent_file_bytes_max(), (1 << 44) - 4096);
        assert_eq!(layout.mapped_file_bytes_max(), 4_402_345_721_856);
    }
}
