//! Bitmaps and counters of all groups against what is in use.

use crate::checker::Checker;
use crate::image::Error;
use crate::issue::{GroupIssue, Issue, SuperblockIssue};
use crate::report::Pass;
use drystone_ext4_format::bitmap_checksum::{check_block_bitmap, check_inode_bitmap};
use drystone_ext4_format::error::GroupPart;
use drystone_ext4_format::group::GroupFlags;
use drystone_ext4_format::{GroupNumber, InodeNumber};
use drystone_ondisk::bitmap;
use std::ops::Range;

/// Compares all bitmaps and counters.
pub(crate) fn check(checker: &mut Checker<'_>) -> Result<(), Error> {
    let layout = checker.image.layout;
    let (mut free_clusters, mut free_inodes) = (0, 0);
    for group in layout.groups() {
        free_clusters += u64::from(check_blocks(checker, group)?);
        free_inodes += u64::from(check_inodes(checker, group)?);
        checker.reporter.step(Pass::Bitmaps, u64::from(group.get()) + 1, checker.group_count());
    }
    let free_blocks = free_clusters << layout.log_cluster_ratio();
    let blocks_used = layout.blocks_count().saturating_sub(free_blocks);
    checker.reporter.summarize(|summary| summary.blocks_used = blocks_used);
    if !checker.counts_settled {
        return Ok(());
    }
    let superblock = &checker.image.superblock;
    let stored = superblock.free_blocks_count();
    let counted = free_blocks;
    let stored_inodes = u64::from(superblock.free_inodes_count());
    if stored != counted {
        checker.reporter.report(SuperblockIssue::FreeBlocks { stored, counted });
    }
    if stored_inodes != free_inodes {
        let (stored, counted) = (stored_inodes, free_inodes);
        checker.reporter.report(SuperblockIssue::FreeInodes { stored, counted });
    }
    Ok(())
}

/// Compares the block bitmap of a group; returns how many clusters are free.
fn check_blocks(checker: &mut Checker<'_>, group: GroupNumber) -> Result<u32, Error> {
    let layout = checker.image.layout;
    let count = layout.group_cluster_count(group);
    let first = u64::from(group.get()) * u64::from(layout.clusters_per_group());
    let used = checker.found.claims.used.bytes(first, u64::from(layout.clusters_per_group()));
    let bits = 0..count as usize;
    // At most as many as the group has.
    let free = bitmap::count_zeros(&used, bits.clone()) as u32;
    let state = &checker.image.groups[group.index()];
    let stored = state.descriptor.free_clusters_count;
    let block_at = |bit: usize| layout.block_of_bit(group, bit as u32);
    let mut issues = Vec::new();
    if state.flags.contains(GroupFlags::BLOCK_UNINIT) {
        // Fixed metadata are in use even here.
        for run in runs(&used, bits.clone()) {
            let fixed = |bit: &usize| {
                let block = block_at(*bit).get();
                let end = block + u64::from(layout.blocks_per_cluster());
                checker.found.claims.fixed_at(block, end).is_none()
            };
            if let Some(bit) = run.clone().find(fixed) {
                issues.push(GroupIssue::BlockInUninitialised { block: block_at(bit) });
                break;
            }
        }
    } else if state.has_block_bitmap {
        let bytes = checker.image.read_block(state.descriptor.block_bitmap)?;
        if let Err(corrupt) = check_block_bitmap(&bytes, group, &state.descriptor, &layout) {
            checker.reporter.report(corrupt);
        }
        for (run, is_used) in differences(&used, &bytes, bits.clone()) {
            let (block, count) = (block_at(run.start), run.len() as u64);
            issues.push(if is_used {
                GroupIssue::BlocksNotMarked { block, count }
            } else {
                GroupIssue::BlocksNotUsed { block, count }
            });
        }
        if bitmap::find_zero(&bytes, bits.end..bytes.len() * 8).is_some() {
            issues.push(GroupIssue::Padding { part: GroupPart::BlockBitmap });
        }
    }
    if stored != free {
        issues.push(GroupIssue::FreeClusters { stored, counted: free });
    }
    for issue in issues {
        checker.reporter.report(Issue::Group { group, issue });
    }
    Ok(free)
}

/// Compares the inode bitmap of a group; returns how many inodes are free.
fn check_inodes(checker: &mut Checker<'_>, group: GroupNumber) -> Result<u32, Error> {
    let layout = checker.image.layout;
    let count = layout.inodes_per_group();
    let used = checker.states.bitmap(group);
    let bits = 0..count as usize;
    let free = bitmap::count_zeros(&used, bits.clone()) as u32;
    let state = &checker.image.groups[group.index()];
    let inode_at =
        |bit: usize| layout.inode_of_bit(group, bit as u32).unwrap_or(InodeNumber::new(0));
    let mut issues = Vec::new();
    if !state.flags.contains(GroupFlags::INODE_UNINIT) && state.has_inode_bitmap {
        let bytes = checker.image.read_block(state.descriptor.inode_bitmap)?;
        if let Err(corrupt) = check_inode_bitmap(&bytes, group, &state.descriptor, &layout) {
            checker.reporter.report(corrupt);
        }
        for (run, is_used) in differences(&used, &bytes, bits.clone()) {
            let (inode, count) = (inode_at(run.start), run.len() as u64);
            issues.push(if is_used {
                GroupIssue::InodesNotMarked { inode, count }
            } else {
                GroupIssue::InodesNotUsed { inode, count }
            });
        }
        if bitmap::find_zero(&bytes, bits.end..bytes.len() * 8).is_some() {
            issues.push(GroupIssue::Padding { part: GroupPart::InodeBitmap });
        }
    }
    let stored = state.descriptor.free_inodes_count;
    if stored != free {
        issues.push(GroupIssue::FreeInodes { stored, counted: free });
    }
    let (stored, counted) =
        (state.descriptor.used_directories_count, checker.found.directories.count_in(group));
    if stored != counted {
        issues.push(GroupIssue::Directories { stored, counted });
    }
    for issue in issues {
        checker.reporter.report(Issue::Group { group, issue });
    }
    Ok(free)
}

/// Runs of bits that differ, and whether they are set in `used`.
fn differences(used: &[u8], stored: &[u8], bits: Range<usize>) -> Vec<(Range<usize>, bool)> {
    let mut found: Vec<(Range<usize>, bool)> = Vec::new();
    for (index, (&ours, &theirs)) in used.iter().zip(stored).enumerate() {
        if ours == theirs {
            continue;
        }
        for bit in (index * 8..index * 8 + 8).filter(|bit| bits.contains(bit)) {
            let is_used = ours >> (bit % 8) & 1 == 1;
            if is_used == (theirs >> (bit % 8) & 1 == 1) {
                continue;
            }
            match found.last_mut() {
                Some((run, kind)) if run.end == bit && *kind == is_used => run.end = bit + 1,
                _ => found.push((bit..bit + 1, is_used)),
            }
        }
    }
    found
}

/// Runs of set bits.
fn runs(bytes: &[u8], bits: Range<usize>) -> Vec<Range<usize>> {
    let mut runs = Vec::new();
    let mut from = bits.start;
    while let Some(start) = bitmap::find_one(bytes, from..bits.end) {
        let end = bitmap::find_zero(bytes, start..bits.end).unwrap_or(bits.end);
        runs.push(start..end);
        from = end;
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_runs() {
        let found = differences(&[0b0000_1111, 0xff], &[0b0011_1100, 0xff], 0..16);
        assert_eq!(found, [(0..2, true), (4..6, false)]);
        assert!(differences(&[0xff], &[0x0f], 0..4).is_empty());
    }
}
