//! Bitmaps and counts, rebuilt from what the check has found in use.

use super::repairer::{Done, Repairer};
use crate::image::Error;
use crate::issue::SuperblockIssue;
use drystone_ext4_format::GroupNumber;
use drystone_ext4_format::bitmap_checksum::{block_bitmap_checksum, inode_bitmap_checksum};
use drystone_ext4_format::checksum::Checksums;
use drystone_ext4_format::group::GroupFlags;
use drystone_ext4_format::superblock::StateFlags;
use drystone_ondisk::bitmap;

/// Writes the bitmaps and counts of a group anew.
pub(super) fn rebuild(repairer: &mut Repairer<'_, '_>, group: GroupNumber) -> Result<Done, Error> {
    const DONE: Done = Some("bitmaps and counts of the group were written anew");
    if !repairer.rebuilt_groups.insert(group.get()) {
        return Ok(DONE);
    }
    let layout = repairer.checker.image.layout;
    let state = &repairer.checker.image.groups[group.index()];
    if !state.has_block_bitmap || !state.has_inode_bitmap || !state.has_inode_table {
        return Ok(None);
    }
    let mut descriptor = state.descriptor.clone();
    let directories = repairer.checker.found.directories.count_in(group);

    let clusters = layout.group_cluster_count(group) as usize;
    let first = u64::from(group.get()) * u64::from(layout.clusters_per_group());
    let used =
        repairer.checker.found.claims.used.bytes(first, u64::from(layout.clusters_per_group()));
    descriptor.free_clusters_count = bitmap::count_zeros(&used, 0..clusters) as u32;
    if !state.flags.contains(GroupFlags::BLOCK_UNINIT) || holds_more_than_fixed(repairer, group) {
        descriptor.flags.remove(GroupFlags::BLOCK_UNINIT);
        let bytes = padded(&used, clusters, layout.block_size());
        descriptor.block_bitmap_checksum = block_bitmap_checksum(&bytes, &layout);
        repairer.write_block(descriptor.block_bitmap, &bytes)?;
    }

    let inodes = layout.inodes_per_group() as usize;
    let used = repairer.checker.states.bitmap(group);
    descriptor.free_inodes_count = bitmap::count_zeros(&used, 0..inodes) as u32;
    descriptor.used_directories_count = directories;
    if !descriptor.flags.contains(GroupFlags::INODE_UNINIT) {
        let bytes = padded(&used, inodes, layout.block_size());
        descriptor.inode_bitmap_checksum = inode_bitmap_checksum(&bytes, &layout);
        repairer.write_block(descriptor.inode_bitmap, &bytes)?;
    }
    if layout.checksums() != Checksums::None {
        let behind = used
            .iter()
            .rposition(|&byte| byte != 0)
            .map_or(0, |last| last * 8 + 8 - used[last].leading_zeros() as usize);
        let unused = (inodes - behind) as u32;
        descriptor.unused_inodes_count = descriptor.unused_inodes_count.min(unused);
    }
    repairer.edit_descriptor(group, |stored| *stored = descriptor)?;
    Ok(DONE)
}

/// A bitmap's block: what follows the last bit is marked.
fn padded(used: &[u8], bits: usize, length: usize) -> Vec<u8> {
    let mut bytes = vec![0xff; length];
    bytes[..used.len()].copy_from_slice(used);
    bitmap::set_range(&mut bytes, bits..length * 8);
    bytes
}

/// Whether something else than fixed metadata is in use in a group.
fn holds_more_than_fixed(repairer: &Repairer<'_, '_>, group: GroupNumber) -> bool {
    let layout = repairer.checker.image.layout;
    let claims = &repairer.checker.found.claims;
    let first = u64::from(group.get()) * u64::from(layout.clusters_per_group());
    let range = first..first + u64::from(layout.group_cluster_count(group));
    claims.used.runs(range).into_iter().flatten().any(|cluster| {
        let block = claims.block(cluster).get();
        claims.fixed_at(block, block + u64::from(layout.blocks_per_cluster())).is_none()
    })
}

/// Corrects a count of the superblock.
pub(super) fn repair_superblock(
    repairer: &Repairer<'_, '_>,
    issue: &SuperblockIssue,
) -> Result<Done, Error> {
    repairer.edit_superblock(|superblock| match issue {
        SuperblockIssue::FreeBlocks { counted, .. } => superblock.set_free_blocks_count(*counted),
        // Counted among the image's inodes, whose number has 32 bits.
        SuperblockIssue::FreeInodes { counted, .. } => {
            superblock.set_free_inodes_count(*counted as u32);
        }
        _ => {
            superblock.clear_errors();
            superblock.set_state(superblock.state() - StateFlags::ERRORS);
        }
    })
}
