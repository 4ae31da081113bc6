//! Group descriptors and the fixed metadata that they locate.

use crate::checker::Checker;
use crate::image::{Error, GroupState, Image};
use crate::issue::{BlockIssue, FixedPart, GroupIssue, Issue, JournalIssue};
use crate::report::Reporter;
use drystone_blockdev::BlockDevice;
use drystone_ext4_format::checksum::Checksums;
use drystone_ext4_format::error::GroupPart;
use drystone_ext4_format::features::Incompat;
use drystone_ext4_format::group::{GroupDescriptor, GroupFlags};
use drystone_ext4_format::mmp::Mmp;
use drystone_ext4_format::{Corrupt, GroupNumber, PhysicalBlock};

/// Groups without any usable part with which an image is still checked: 1 MiB of descriptors.
const DAMAGED_MAX: u32 = 1 << 14;

/// Reads and checks all descriptors; nothing if so many are damaged that the image can't be what it
/// claims, which would take memory for groups that don't exist.
pub(crate) fn load(
    image: &Image<'_>,
    reporter: &mut Reporter<'_>,
) -> Result<Option<Vec<GroupState>>, Error> {
    let layout = image.layout;
    let mut groups = Vec::new();
    let mut damaged = 0;
    for index in 0..layout.descriptor_blocks() {
        let Some(block) = layout.descriptor_block(index) else { break };
        let bytes = image.read_block(block)?;
        let first = index * layout.descriptors_per_block();
        for (number, bytes) in
            (first..layout.group_count()).zip(bytes.chunks_exact(layout.descriptor_size()))
        {
            let group = GroupNumber::new(number);
            if let Err(corrupt) = GroupDescriptor::check_checksum(bytes, group, &layout) {
                reporter.report(corrupt);
            }
            let descriptor = match GroupDescriptor::read(bytes, &layout) {
                Ok(descriptor) => descriptor,
                Err(corrupt) => {
                    reporter.report(corrupt);
                    GroupDescriptor::default()
                }
            };
            let state = check_one(descriptor, group, image, reporter);
            damaged += u32::from(
                !(state.has_block_bitmap || state.has_inode_bitmap || state.has_inode_table),
            );
            if damaged > DAMAGED_MAX {
                reporter.report(Corrupt::GroupsDamaged { count: damaged, groups: number + 1 });
                return Ok(None);
            }
            groups.push(state);
        }
    }
    Ok(Some(groups))
}

/// Reports descriptors that are damaged on the image and sound once it is replayed: mounts read them before.
pub(crate) fn check_before_replay(
    image: &Image<'_>,
    replayed: &dyn BlockDevice,
    reporter: &mut Reporter<'_>,
) -> Result<(), Error> {
    let layout = image.layout;
    let problem = |bytes: &[u8], group| {
        let checked = GroupDescriptor::check_checksum(bytes, group, &layout);
        checked.and_then(|()| GroupDescriptor::read(bytes, &layout).map(drop)).err()
    };
    for index in 0..layout.descriptor_blocks() {
        let Some(block) = layout.descriptor_block(index) else { break };
        let before = image.read_block(block)?;
        let mut after = before.clone();
        replayed.read_at(block.get() << layout.log_block_size(), &mut after)?;
        if before == after {
            continue;
        }
        let size = layout.descriptor_size();
        let pairs = before.chunks_exact(size).zip(after.chunks_exact(size));
        let first = index * layout.descriptors_per_block();
        for (number, (before, after)) in (first..layout.group_count()).zip(pairs) {
            let group = GroupNumber::new(number);
            let corrupt = problem(before, group).filter(|_| problem(after, group).is_none());
            if let Some(corrupt) = corrupt {
                reporter.report(JournalIssue::Heals(corrupt));
            }
        }
    }
    Ok(())
}

fn check_one(
    descriptor: GroupDescriptor,
    group: GroupNumber,
    image: &Image<'_>,
    reporter: &mut Reporter<'_>,
) -> GroupState {
    let layout = image.layout;
    let known = match layout.checksums() {
        // The kernel says that it has zeroed a table whether or not anything depends on it.
        Checksums::None => GroupFlags::INODE_ZEROED,
        _ => GroupFlags::INODE_UNINIT | GroupFlags::BLOCK_UNINIT | GroupFlags::INODE_ZEROED,
    };
    // All readers ignore flags without a meaning.
    let named = GroupFlags::INODE_UNINIT | GroupFlags::BLOCK_UNINIT | GroupFlags::INODE_ZEROED;
    let is_last = group.get() + 1 == layout.group_count();
    let is_partial = is_last && descriptor.flags.contains(GroupFlags::BLOCK_UNINIT);
    if is_partial || !known.contains(descriptor.flags & named) {
        let issue = GroupIssue::Flags { flags: descriptor.flags.bits() };
        reporter.report(Issue::Group { group, issue });
    }
    let flags = descriptor.flags & known;
    let unused = descriptor.unused_inodes_count;
    if layout.checksums() == Checksums::None && unused != 0 {
        reporter.report(Issue::Group { group, issue: GroupIssue::Unused { unused } });
    }
    if let Err(corrupt) = descriptor.check_counts(group, &layout) {
        reporter.report(corrupt);
    }
    let table_blocks = u64::from(layout.inode_table_blocks());
    let mut locate = |part, block, count| {
        let is_possible = is_location(image, group, block, count);
        if !is_possible {
            reporter.report(Corrupt::GroupLocation { group, part, block });
        }
        is_possible
    };
    let has_block_bitmap = locate(GroupPart::BlockBitmap, descriptor.block_bitmap, 1);
    let has_inode_bitmap = locate(GroupPart::InodeBitmap, descriptor.inode_bitmap, 1);
    let has_inode_table = locate(GroupPart::InodeTable, descriptor.inode_table, table_blocks);
    GroupState { descriptor, flags, has_block_bitmap, has_inode_bitmap, has_inode_table }
}

/// Whether a part of a group may lie there.
pub(crate) fn is_location(
    image: &Image<'_>,
    group: GroupNumber,
    block: PhysicalBlock,
    count: u64,
) -> bool {
    let layout = &image.layout;
    let first = layout.group_first_block(group).get();
    let behind = first + u64::from(layout.group_block_count(group));
    let flexible = layout.features().incompat.contains(Incompat::FLEX_BG);
    block.get() != 0
        && layout.contains_blocks(block, count)
        && (flexible || block.get() >= first && block.get() + count <= behind)
}

/// Claims the fixed metadata and reports what overlaps.
pub(crate) fn claim(checker: &mut Checker<'_>) -> Result<(), Error> {
    let layout = checker.image.layout;
    let table_blocks = u64::from(layout.inode_table_blocks());
    for group in layout.groups() {
        let base = layout.group_base(group);
        let count = u64::from(base.blocks.min(layout.group_block_count(group)));
        if count > 0 {
            let first = layout.group_first_block(group);
            checker.found.claims.add_fixed(first, count, FixedPart::Base(group));
        }
        let state = &checker.image.groups[group.index()];
        let descriptor = &state.descriptor;
        let parts = [
            (state.has_block_bitmap, descriptor.block_bitmap, 1, FixedPart::BlockBitmap(group)),
            (state.has_inode_bitmap, descriptor.inode_bitmap, 1, FixedPart::InodeBitmap(group)),
            (
                state.has_inode_table,
                descriptor.inode_table,
                table_blocks,
                FixedPart::InodeTable(group),
            ),
        ];
        for (_, block, count, part) in parts.into_iter().filter(|(is_there, ..)| *is_there) {
            checker.found.claims.add_fixed(block, count, part);
        }
    }
    check_mmp(checker)?;
    checker.found.claims.sort_fixed();
    report_overlaps(checker);
    Ok(())
}

fn check_mmp(checker: &mut Checker<'_>) -> Result<(), Error> {
    let layout = checker.image.layout;
    if !layout.features().incompat.contains(Incompat::MMP) {
        return Ok(());
    }
    let Some(block) = checker.image.superblock.mmp_block() else { return Ok(()) };
    if !layout.contains_blocks(block, 1) || block.get() <= u64::from(layout.first_data_block()) {
        let blocks = layout.blocks_count();
        checker.reporter.report(Corrupt::BlockOutOfRange { block, blocks });
        return Ok(());
    }
    checker.found.claims.add_fixed(block, 1, FixedPart::Mmp);
    let bytes = checker.image.read_block(block)?;
    if let Err(corrupt) = Mmp::check(&bytes, layout.checksum_seed(), block) {
        checker.reporter.report(corrupt);
    }
    Ok(())
}

fn report_overlaps(checker: &mut Checker<'_>) {
    let mut widest: Option<crate::claims::FixedRange> = None;
    for range in &*checker.found.claims.fixed {
        if let Some(before) = widest
            && range.start < before.end
        {
            let issue = BlockIssue::FixedOverlap { first: before.part, second: range.part };
            let block = PhysicalBlock::new(range.start);
            let count = range.end.min(before.end) - range.start;
            checker.reporter.report(Issue::Blocks { block, count, issue });
        }
        if widest.is_none_or(|before| range.end > before.end) {
            widest = Some(*range);
        }
    }
}
