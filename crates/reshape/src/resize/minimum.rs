//! Finds the smallest size that holds all files.

use super::evacuation::Evacuation;
use super::geometry::resized;
use crate::error::{Refusal, ReshapeError, Result};
use crate::image::Image;
use drystone_ext4_format::GroupNumber;
use drystone_ext4_format::features::Compat;
use drystone_ext4_format::group::GroupDescriptor;
use drystone_ext4_format::layout::Geometry;

/// Sizes that are tried.
const TRIES_MAX: u32 = 64;

/// The smallest geometry, and the plan for it.
pub(super) fn minimum(image: &mut Image<'_>) -> Result<(Geometry, Option<Evacuation>)> {
    let before = image.layout.blocks_count();
    let shift = image.layout.log_block_size();
    let mut blocks = lower_bound(image)?;
    for _ in 0..TRIES_MAX {
        if blocks >= before {
            break;
        }
        image.block_bitmaps.clear();
        let geometry = resized(&image.superblock, blocks << shift)?;
        // A last group that is too small is left out, and then there is too little.
        if geometry.blocks_count < blocks {
            blocks += (blocks - geometry.blocks_count).clamp(1, 64);
            continue;
        }
        match Evacuation::plan(image, &geometry) {
            // Each extent that is cut may take a block of the map.
            Ok(plan) if free_before(image, &geometry)? >= plan.cuts => {
                return Ok((geometry, Some(plan)));
            }
            Ok(plan) => blocks += plan.cuts << image.layout.log_cluster_ratio(),
            Err(ReshapeError::Refused(Refusal::NoSpace { .. })) => blocks += blocks / 256 + 16,
            Err(error) => return Err(error),
        }
    }
    image.block_bitmaps.clear();
    Ok((image.superblock.geometry(), None))
}

/// Clusters that are free after a plan.
fn free_before(image: &mut Image<'_>, geometry: &Geometry) -> Result<u64> {
    let new = drystone_ext4_format::layout::Layout::new(geometry)?;
    let mut free = 0;
    for group in new.groups() {
        free += match image.block_bitmaps.get(&group.get()) {
            Some(bits) => {
                let count = new.group_cluster_count(group) as usize;
                drystone_ondisk::bitmap::count_zeros(bits, 0..count) as u64
            }
            None => u64::from(image.groups[group.index()].free_clusters_count),
        };
    }
    Ok(free)
}

/// The blocks that files and the metadata of so few groups take.
fn lower_bound(image: &Image<'_>) -> Result<u64> {
    let layout = &image.layout;
    let ratio = layout.log_cluster_ratio();
    let free: u64 = image.groups.iter().map(|group| u64::from(group.free_clusters_count)).sum();
    let clusters: u64 =
        layout.groups().map(|group| u64::from(layout.group_cluster_count(group))).sum();
    let own = u64::from(2 + layout.inode_table_blocks());
    let base = |group| u64::from(layout.group_base(group).blocks);
    let fixed: u64 = layout.groups().map(|group| base(group) + own).sum();
    let data = ((clusters - free) << ratio).saturating_sub(fixed);
    let inodes: u64 = image
        .groups
        .iter()
        .map(|group| u64::from(layout.inodes_per_group() - group.free_inodes_count))
        .sum();
    // Inodes that must keep their numbers keep their groups.
    let is_stable = layout.features().compat.contains(Compat::STABLE_INODES);
    let has_inodes = |group: &GroupDescriptor| group.free_inodes_count < layout.inodes_per_group();
    let last = image.groups.iter().rposition(has_inodes).filter(|_| is_stable).unwrap_or(0);
    let mut needed = data + u64::from(layout.first_data_block());
    for number in 0..layout.group_count() {
        let group = GroupNumber::new(number);
        needed += base(group) + own;
        let end = layout.group_first_block(group).get() + u64::from(layout.blocks_per_group());
        let held = u64::from(number + 1) * u64::from(layout.inodes_per_group());
        if needed <= end && held >= inodes && group.index() >= last {
            // The last group has at least its own metadata, and some more.
            return Ok(needed.max(layout.group_first_block(group).get() + base(group) + own + 51));
        }
    }
    Ok(layout.blocks_count())
}
