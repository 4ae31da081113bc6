//! The copies of the superblock and of the descriptors.

use crate::checker::Checker;
use crate::image::Error;
use crate::issue::{BackupIssue, Issue};
use drystone_ext4_format::PhysicalBlock;
use drystone_ext4_format::features::{Features, Incompat, ReadOnlyCompat};
use drystone_ext4_format::group::GroupDescriptor;
use drystone_ext4_format::superblock::Superblock;

/// Flags that change while an image is in use, and that copies don't follow.
fn settled(features: Features) -> Features {
    Features {
        compat: features.compat,
        incompat: features.incompat.difference(Incompat::RECOVER),
        read_only_compat: features
            .read_only_compat
            .difference(ReadOnlyCompat::ORPHAN_PRESENT | ReadOnlyCompat::LARGE_FILE),
    }
}

/// Checks the copies of the superblock and of the descriptors.
pub(crate) fn check_backups(checker: &mut Checker<'_>) -> Result<(), Error> {
    let layout = checker.image.layout;
    for group in layout.superblock_groups().skip(1) {
        let Some((block, offset)) = layout.superblock_location(group) else { continue };
        let bytes = checker.image.read_block(block)?;
        let primary = &checker.image.superblock;
        let issue = match Superblock::check(&bytes[offset..]) {
            Err(error) => Some(BackupIssue::Unusable(error)),
            Ok(copy) => compare(primary, &copy),
        };
        if let Some(issue) = issue {
            checker.reporter.report(Issue::Backup { group, block, issue });
        }
    }
    check_descriptor_backups(checker)
}

/// Compares the copies of descriptors.
fn check_descriptor_backups(checker: &mut Checker<'_>) -> Result<(), Error> {
    let layout = checker.image.layout;
    if layout.features().incompat.contains(Incompat::META_BG) {
        for index in 0..layout.descriptor_blocks() {
            for block in layout.descriptor_backups(index) {
                check_descriptor_backup(checker, index, block)?;
            }
        }
        return Ok(());
    }
    for group in layout.superblock_groups().skip(1) {
        let base = layout.group_base(group);
        let Some(first) = base.descriptors else { continue };
        for index in 0..base.descriptor_blocks {
            let block = PhysicalBlock::new(first.get() + u64::from(index));
            check_descriptor_backup(checker, index, block)?;
        }
    }
    Ok(())
}

/// Compares a copy of a block of descriptors.
fn check_descriptor_backup(
    checker: &mut Checker<'_>,
    index: u32,
    block: PhysicalBlock,
) -> Result<(), Error> {
    let layout = checker.image.layout;
    let Some(group) = layout.group_of_block(block) else { return Ok(()) };
    let bytes = checker.image.read_block(block)?;
    let copies = bytes.chunks_exact(layout.descriptor_size());
    let numbers = index * layout.descriptors_per_block()..layout.group_count();
    let different = numbers.zip(copies).find(|(number, copy)| {
        let own = &checker.image.groups[*number as usize].descriptor;
        GroupDescriptor::read(copy, &layout).is_ok_and(|copy| {
            copy.block_bitmap != own.block_bitmap
                || copy.inode_bitmap != own.inode_bitmap
                || copy.inode_table != own.inode_table
        })
    });
    if let Some((descriptor, _)) = different {
        let issue = BackupIssue::Descriptor { descriptor };
        checker.reporter.report(Issue::Backup { group, block, issue });
    }
    Ok(())
}

/// What a copy says otherwise than the primary superblock.
pub(super) fn compare(primary: &Superblock, copy: &Superblock) -> Option<BackupIssue> {
    let (ours, theirs) = (primary.layout(), copy.layout());
    let different = [
        ("s_uuid", primary.uuid() == copy.uuid()),
        ("s_blocks_count", ours.blocks_count() == theirs.blocks_count()),
        ("s_inodes_count", ours.inodes_count() == theirs.inodes_count()),
        ("s_log_block_size", ours.log_block_size() == theirs.log_block_size()),
        ("s_log_cluster_size", ours.log_cluster_ratio() == theirs.log_cluster_ratio()),
        ("s_blocks_per_group", ours.blocks_per_group() == theirs.blocks_per_group()),
        ("s_inodes_per_group", ours.inodes_per_group() == theirs.inodes_per_group()),
        ("s_inode_size", ours.inode_size() == theirs.inode_size()),
        ("s_desc_size", ours.descriptor_size() == theirs.descriptor_size()),
    ];
    if let Some((field, _)) = different.into_iter().find(|(_, is_same)| !is_same) {
        return Some(BackupIssue::Differs { field });
    }
    let found = settled(copy.features());
    (found != settled(primary.features()))
        .then(|| BackupIssue::Features { found: found.to_string() })
}
