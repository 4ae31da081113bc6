//! What a geometry has to satisfy, number by number.

use super::{BASE_INODE_BYTES, Geometry, LARGE_DESCRIPTOR_BYTES, SMALL_DESCRIPTOR_BYTES};
use crate::error::GeometryProblem;
use crate::features::{Incompat, ReadOnlyCompat};
use crate::ids::InodeNumber;

const LOG_BLOCK_SIZE_MAX: u32 = 6;
const LOG_CLUSTER_SIZE_MAX: u32 = 19;
const LARGEST_DESCRIPTOR_BYTES: u16 = 1024;

pub(super) fn log_block_size(geometry: &Geometry) -> Result<u32, GeometryProblem> {
    let log = geometry.log_block_size;
    if log > LOG_BLOCK_SIZE_MAX { Err(GeometryProblem::BlockSize { log }) } else { Ok(log) }
}

/// Blocks of a cluster, as an exponent. The block size has been checked.
pub(super) fn log_cluster_ratio(geometry: &Geometry) -> Result<u32, GeometryProblem> {
    let log_block_size = geometry.log_block_size;
    let has_clusters = geometry.features.read_only_compat.contains(ReadOnlyCompat::BIGALLOC);
    let log_max = if has_clusters { LOG_CLUSTER_SIZE_MAX } else { log_block_size };
    let log = geometry.log_cluster_size;
    if !(log_block_size..=log_max).contains(&log) {
        return Err(GeometryProblem::ClusterSize { log });
    }
    Ok(log - log_block_size)
}

pub(super) fn blocks_per_group(
    geometry: &Geometry,
    log_cluster_ratio: u32,
) -> Result<u32, GeometryProblem> {
    let clusters = geometry.clusters_per_group;
    let blocks = clusters.checked_mul(1 << log_cluster_ratio);
    blocks
        .filter(|_| fits_bitmap(geometry, clusters))
        .ok_or(GeometryProblem::ClustersPerGroup { clusters })
}

pub(super) fn group_count(
    geometry: &Geometry,
    first_data_block: u32,
    blocks_per_group: u32,
) -> Result<u32, GeometryProblem> {
    let blocks = geometry.blocks_count;
    // Extents address 48 bits.
    let has_64_bits = geometry.features.incompat.contains(Incompat::SIXTY_FOUR_BIT);
    let bits = if has_64_bits { 48 } else { 32 };
    if blocks >> bits != 0 || blocks <= u64::from(first_data_block) {
        return Err(GeometryProblem::BlocksCount { blocks });
    }
    let groups = (blocks - u64::from(first_data_block)).div_ceil(u64::from(blocks_per_group));
    u32::try_from(groups).map_err(|_| GeometryProblem::GroupCount { groups })
}

/// Inodes of the image; all about inodes is checked.
pub(super) fn inodes_count(geometry: &Geometry, group_count: u32) -> Result<u32, GeometryProblem> {
    let bytes = geometry.inode_size;
    let block_size = 1024u32 << geometry.log_block_size;
    if !bytes.is_power_of_two() || bytes < BASE_INODE_BYTES || u32::from(bytes) > block_size {
        return Err(GeometryProblem::InodeSize { bytes });
    }
    let inodes = geometry.inodes_per_group;
    if !fits_bitmap(geometry, inodes) {
        return Err(GeometryProblem::InodesPerGroup { inodes });
    }
    let count = inodes
        .checked_mul(group_count)
        .ok_or(GeometryProblem::GroupCount { groups: u64::from(group_count) })?;
    let first = geometry.first_inode;
    if first < InodeNumber::FIRST_ORDINARY.get() || first > count {
        return Err(GeometryProblem::FirstInode { inode: first });
    }
    let extra = geometry.extra_inode_size;
    if !extra.is_multiple_of(4) || extra > bytes - BASE_INODE_BYTES {
        return Err(GeometryProblem::ExtraInodeSize { bytes: extra, inode_size: bytes });
    }
    Ok(count)
}

pub(super) fn descriptor_size(geometry: &Geometry) -> Result<u16, GeometryProblem> {
    if !geometry.features.incompat.contains(Incompat::SIXTY_FOUR_BIT) {
        return Ok(SMALL_DESCRIPTOR_BYTES);
    }
    let bytes = geometry.descriptor_size;
    let range = LARGE_DESCRIPTOR_BYTES..=LARGEST_DESCRIPTOR_BYTES;
    if bytes.is_power_of_two() && range.contains(&bytes) {
        Ok(bytes)
    } else {
        Err(GeometryProblem::DescriptorSize { bytes })
    }
}

/// Checks where descriptors may lie, and how many groups share.
pub(super) fn descriptors(
    geometry: &Geometry,
    descriptor_blocks: u32,
    blocks_per_group: u32,
) -> Result<(), GeometryProblem> {
    let reserved = geometry.reserved_descriptor_blocks;
    let pointers_per_block = (1024u32 << geometry.log_block_size) / 4;
    if u32::from(reserved) > pointers_per_block {
        return Err(GeometryProblem::ReservedDescriptorBlocks { blocks: reserved });
    }
    let first = geometry.first_meta_group;
    let has_meta_groups = geometry.features.incompat.contains(Incompat::META_BG);
    if has_meta_groups && first > descriptor_blocks {
        return Err(GeometryProblem::FirstMetaGroup { first, descriptor_blocks });
    }
    let table = if has_meta_groups { first } else { descriptor_blocks };
    // The superblock's copy lies in front of them.
    if u64::from(table) + u64::from(reserved) + 1 > u64::from(blocks_per_group) {
        let blocks = u64::from(table) + u64::from(reserved);
        return Err(GeometryProblem::DescriptorTable { blocks, blocks_per_group });
    }
    if geometry.log_groups_per_flex > 31 {
        return Err(GeometryProblem::FlexGroupSize { log: geometry.log_groups_per_flex });
    }
    Ok(())
}

/// Whether a bitmap of one block has a bit for each of them, and whole bytes.
fn fits_bitmap(geometry: &Geometry, count: u32) -> bool {
    let bits_per_block = 8 << (10 + geometry.log_block_size);
    (8..=bits_per_block).contains(&count) && count.is_multiple_of(8)
}
