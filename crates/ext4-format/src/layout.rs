//! Where an image keeps its parts: arithmetic over a geometry that was checked once.
//!
//! [`Layout::new`] proves bounds that make the rest safe: groups and inodes can be numbered, a
//! group's bitmaps fit one block each, sizes are powers of two in range. Everything else here is
//! total for numbers inside the image, and returns an error or nothing for numbers outside.
//!
//! # Reference
//! "Layout", "Flexible Block Groups", "Meta Block Groups" and "Bigalloc" in the kernel's ext4
//! data structure pages.

mod fixed;
mod limits;
mod places;
#[cfg(test)]
mod tests;

pub use fixed::GroupBase;
pub use limits::LINKS_MAX;

use crate::checksum::{ChecksumSeed, Checksums};
use crate::error::{Corrupt, FormatError};
use crate::features::{Features, Incompat, ReadOnlyCompat};
use crate::ids::{GroupNumber, InodeNumber};
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
}
