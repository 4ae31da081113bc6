//! Where an image keeps its parts: arithmetic over a geometry that was checked once.
//!
//! [`Layout::new`] proves bounds that make the rest safe: groups and inodes can be numbered, a
//! group's bitmaps fit one block each, sizes are powers of two in range. Everything else here is
//! total for numbers inside the image, and returns an error or nothing for numbers outside.
//!
//! # Reference
//! "Layout", "Flexible Block Groups", "Meta Block Groups" and "Bigalloc" in the kernel's ext4
//! data structure pages.

mod check;
mod fixed;
mod geometry;
mod limits;
mod places;
#[cfg(test)]
mod tests;

pub use fixed::GroupBase;
pub use geometry::Geometry;
pub use limits::LINKS_MAX;

use crate::checksum::{ChecksumSeed, Checksums};
use crate::error::{Corrupt, FormatError, GeometryProblem};
use crate::features::{Features, Incompat};
use crate::ids::{GroupNumber, InodeNumber};

/// Bytes of the part of an inode that all revisions have.
pub const BASE_INODE_BYTES: u16 = 128;
/// Bytes of a descriptor without the 64bit feature.
pub const SMALL_DESCRIPTOR_BYTES: u16 = 32;
/// Bytes of a descriptor with the 64bit feature, at least.
pub const LARGE_DESCRIPTOR_BYTES: u16 = 64;

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
        let log_block_size = check::log_block_size(geometry)?;
        let block_size = 1024u32 << log_block_size;
        let log_cluster_ratio = check::log_cluster_ratio(geometry)?;
        let blocks_per_group = check::blocks_per_group(geometry, log_cluster_ratio)?;
        let first_data_block = Self::expected_first_data_block(geometry);
        let group_count = check::group_count(geometry, first_data_block, blocks_per_group)?;
        let inodes_count = check::inodes_count(geometry, group_count)?;
        // At most 2^19 inodes of at most 2^16 bytes: the product fits.
        let inode_table_blocks = (u64::from(geometry.inodes_per_group)
            * u64::from(geometry.inode_size))
        .div_ceil(u64::from(block_size)) as u32;
        let descriptor_size = check::descriptor_size(geometry)?;
        let descriptor_blocks = group_count.div_ceil(block_size / u32::from(descriptor_size));
        check::descriptors(geometry, descriptor_blocks, blocks_per_group)?;

        let layout = Self {
            features,
            checksums: geometry.checksums(),
            blocks_count: geometry.blocks_count,
            first_data_block,
            blocks_per_group,
            clusters_per_group: geometry.clusters_per_group,
            inodes_per_group: geometry.inodes_per_group,
            inodes_count,
            first_inode: geometry.first_inode,
            group_count,
            descriptor_blocks,
            first_meta_group: geometry.first_meta_group,
            inode_table_blocks,
            backup_groups: geometry.backup_groups,
            inode_size: geometry.inode_size,
            descriptor_size,
            reserved_descriptor_blocks: geometry.reserved_descriptor_blocks,
            extra_inode_size: geometry.extra_inode_size,
            // Bounded by the checks, each fits 8 bits.
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
