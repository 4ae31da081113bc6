//! Group descriptors.

use super::overlaps::{carry_over, is_empty_under, is_foreign_table, weaker_table};
use super::repairer::{Done, Repairer};
use super::tables::{find_table, is_better_table, sound_inodes, usual_table};
use super::{superblock, totals};
use crate::groups::is_location;
use crate::image::Error;
use crate::issue::{BackupIssue, FixedPart, GroupIssue};
use drystone_ext4_format::checksum::Checksums;
use drystone_ext4_format::error::GroupPart;
use drystone_ext4_format::group::{GroupDescriptor, GroupFlags};
use drystone_ext4_format::inode::{Inode, ModeFileType};
use drystone_ext4_format::{GroupNumber, InodeNumber, PhysicalBlock};

pub(super) fn repair(
    repairer: &mut Repairer<'_, '_>,
    group: GroupNumber,
    issue: &GroupIssue,
) -> Result<Done, Error> {
    match issue {
        GroupIssue::Flags { .. } => {
            let layout = repairer.checker.image.layout;
            let is_last = group == layout.last_group();
            let has_checksums = layout.checksums() != Checksums::None;
            repairer.edit_descriptor(group, |descriptor| {
                let uninitialised = GroupFlags::INODE_UNINIT | GroupFlags::BLOCK_UNINIT;
                if !has_checksums {
                    descriptor.flags.remove(uninitialised);
                } else if is_last {
                    descriptor.flags.remove(GroupFlags::BLOCK_UNINIT);
                }
            })
        }
        GroupIssue::Unused { .. } => {
            repairer.edit_descriptor(group, |descriptor| descriptor.unused_inodes_count = 0)
        }
        GroupIssue::InodeInUninitialised { .. } | GroupIssue::InodeAmongUnused { .. } => {
            distrust(repairer, group)
        }
        _ => totals::rebuild(repairer, group),
    }
}

/// Believes nothing that a descriptor says of what was never used: all of its inodes are looked at.
pub(super) fn distrust(repairer: &mut Repairer<'_, '_>, group: GroupNumber) -> Result<Done, Error> {
    repairer.edit_descriptor(group, |descriptor| {
        descriptor.flags.remove(GroupFlags::INODE_UNINIT | GroupFlags::BLOCK_UNINIT);
        descriptor.unused_inodes_count = 0;
    })
}

/// Gives a group the places of its parts that a copy of its descriptor holds; nothing if no copy says
/// something else that is possible.
pub(super) fn restore(repairer: &mut Repairer<'_, '_>, group: GroupNumber) -> Result<Done, Error> {
    let places = |descriptor: &GroupDescriptor| PARTS.map(|part| place_of(descriptor, part));
    let own = places(&repairer.checker.image.groups[group.index()].descriptor);
    for copy in copies(repairer, group)? {
        let found = places(&copy);
        let is_possible = found.into_iter().zip(PARTS).all(|(place, part)| {
            is_location(&repairer.checker.image, group, place, length_of(repairer, part))
        });
        if is_possible && found != own {
            repairer.edit_descriptor(group, |descriptor| {
                let [block_bitmap, inode_bitmap, inode_table] = found;
                *descriptor = GroupDescriptor {
                    block_bitmap,
                    inode_bitmap,
                    inode_table,
                    flags: GroupFlags::INODE_ZEROED,
                    ..GroupDescriptor::default()
                };
            })?;
            return Ok(Some("the group descriptor was restored from a copy"));
        }
    }
    Ok(None)
}

/// The copies of a group's descriptor that hold.
fn copies(repairer: &Repairer<'_, '_>, group: GroupNumber) -> Result<Vec<GroupDescriptor>, Error> {
    let layout = repairer.checker.image.layout;
    let index = group.get() / layout.descriptors_per_block();
    let offset = (group.get() % layout.descriptors_per_block()) as usize * layout.descriptor_size();
    let mut copies = Vec::new();
    for block in layout.descriptor_backups(index) {
        if !layout.contains_blocks(block, 1) {
            continue;
        }
        let bytes = repairer.checker.image.read_block(block)?;
        let bytes = bytes.get(offset..).unwrap_or(&[]);
        if GroupDescriptor::check_checksum(bytes, group, &layout).is_ok() {
            copies.extend(GroupDescriptor::read(bytes, &layout));
        }
    }
    Ok(copies)
}

/// The groups whose inode tables lie where a copy of their descriptors has them, and not where they are said
/// to be: more of their inodes are there.
pub(super) fn misplaced_tables(
    repairer: &Repairer<'_, '_>,
    issue: &BackupIssue,
) -> Result<Vec<(GroupNumber, PhysicalBlock)>, Error> {
    let BackupIssue::Descriptor { descriptor } = *issue else { return Ok(Vec::new()) };
    let layout = repairer.checker.image.layout;
    // Of a block of copies only the first one that differs is reported.
    let count = layout.descriptors_per_block();
    let end = (descriptor / count + 1).saturating_mul(count).min(layout.group_count());
    let mut misplaced = Vec::new();
    for group in (descriptor..end).map(GroupNumber::new) {
        let state = &repairer.checker.image.groups[group.index()];
        let stored = state.descriptor.inode_table;
        if !state.has_inode_table {
            continue;
        }
        for place in copies(repairer, group)?.into_iter().map(|copy| copy.inode_table) {
            if place != stored && is_better_table(repairer, group, place, stored)? {
                misplaced.push((group, place));
                break;
            }
        }
    }
    Ok(misplaced)
}

/// Gives such groups their tables back.
pub(super) fn restore_tables(
    repairer: &mut Repairer<'_, '_>,
    issue: &BackupIssue,
) -> Result<Done, Error> {
    let mut done = None;
    for (group, place) in misplaced_tables(repairer, issue)? {
        done = move_part(repairer, group, GroupPart::InodeTable, place)?;
    }
    Ok(done)
}

/// Whether an inode lies where a group says that none was ever used, and looks used all the same.
pub(super) fn hides(repairer: &Repairer<'_, '_>, number: InodeNumber) -> Result<bool, Error> {
    let layout = repairer.checker.image.layout;
    if repairer.can_use(number) {
        return Ok(false);
    }
    let Some((inode, bytes)) = repairer.checker.image.inode(number)? else { return Ok(false) };
    let is_sealed = Inode::check_checksum(&bytes, number, &layout).is_ok();
    Ok(is_sealed && inode.links_count > 0 && ModeFileType::from_mode(inode.mode).is_some())
}

/// Gives a part of a group another place: where a copy of the descriptor has it, where the table is
/// found by what it holds, or free blocks.
pub(super) fn relocate(
    repairer: &mut Repairer<'_, '_>,
    group: GroupNumber,
    part: GroupPart,
) -> Result<Done, Error> {
    let stored = place_of(&repairer.checker.image.groups[group.index()].descriptor, part);
    let count = length_of(repairer, part);
    let state = &repairer.checker.image.groups[group.index()];
    let was_possible = match part {
        GroupPart::BlockBitmap => state.has_block_bitmap,
        GroupPart::InodeBitmap => state.has_inode_bitmap,
        GroupPart::InodeTable => state.has_inode_table,
    };
    if !was_possible && is_location(&repairer.checker.image, group, stored, count) {
        return Ok(Some("the group's part has its place again"));
    }
    let mut best = None;
    for place in copies(repairer, group)?.iter().map(|copy| place_of(copy, part)) {
        if place == stored || !is_location(&repairer.checker.image, group, place, count) {
            continue;
        }
        // One copy may be damaged as well.
        best = match best {
            Some(other) if part != GroupPart::InodeTable => Some(other),
            // Copies often agree, and a look at a table reads it whole.
            Some(other) if place == other || !is_better_table(repairer, group, place, other)? => {
                Some(other)
            }
            _ => Some(place),
        };
    }
    if let Some(place) = best {
        let usual = usual_table(repairer, group).filter(|_| part == GroupPart::InodeTable);
        let place = match usual {
            Some(usual) if is_better_table(repairer, group, usual, place)? => usual,
            _ => place,
        };
        return move_part(repairer, group, part, place);
    }
    let found = match part {
        GroupPart::InodeTable => {
            match find_table(repairer, group)?.filter(|place| *place != stored) {
                None if !was_possible => return replace_table(repairer, group),
                found => found,
            }
        }
        // Where tables are isn't known yet: a free block could be one of theirs.
        _ if repairer.checker.image.groups.iter().any(|state| !state.has_inode_table) => {
            return Ok(Some("the group's part waits for the inode tables"));
        }
        _ => repairer.allocate_part(group, count)?,
    };
    match found {
        Some(place) => move_part(repairer, group, part, place),
        None => Ok(None),
    }
}

const PARTS: [GroupPart; 3] =
    [GroupPart::BlockBitmap, GroupPart::InodeBitmap, GroupPart::InodeTable];

/// Blocks of a part.
fn length_of(repairer: &Repairer<'_, '_>, part: GroupPart) -> u64 {
    match part {
        GroupPart::InodeTable => u64::from(repairer.checker.image.layout.inode_table_blocks()),
        GroupPart::BlockBitmap | GroupPart::InodeBitmap => 1,
    }
}

const fn place_of(descriptor: &GroupDescriptor, part: GroupPart) -> PhysicalBlock {
    match part {
        GroupPart::BlockBitmap => descriptor.block_bitmap,
        GroupPart::InodeBitmap => descriptor.inode_bitmap,
        GroupPart::InodeTable => descriptor.inode_table,
    }
}

fn move_part(
    repairer: &mut Repairer<'_, '_>,
    group: GroupNumber,
    part: GroupPart,
    place: PhysicalBlock,
) -> Result<Done, Error> {
    repairer.edit_descriptor(group, |descriptor| match part {
        GroupPart::BlockBitmap => descriptor.block_bitmap = place,
        GroupPart::InodeBitmap => descriptor.inode_bitmap = place,
        GroupPart::InodeTable => descriptor.inode_table = place,
    })?;
    Ok(Some("the group's part was given its place again, or another one"))
}

/// Gives a group whose table isn't found one where mke2fs puts it, or else one that holds what of its table can be told
/// from what overlaps it.
fn replace_table(repairer: &mut Repairer<'_, '_>, group: GroupNumber) -> Result<Done, Error> {
    let layout = repairer.checker.image.layout;
    let count = u64::from(layout.inode_table_blocks());
    if let Some(place) = usual_table(repairer, group) {
        return move_part(repairer, group, GroupPart::InodeTable, place);
    }
    // What looks free now may be a table that is found in this round.
    let was_looked_for = repairer.lost_tables.contains(&group.get());
    if repairer.searches_left > 0 {
        repairer.lost_tables.insert(group.get());
    }
    if !was_looked_for {
        return Ok(Some("the group's inode table waits for the others"));
    }
    let Some(place) = repairer.allocate_part(group, count)? else { return Ok(None) };
    let log_block_size = layout.log_block_size();
    repairer.device().zero_range(place.get() << log_block_size, count << log_block_size)?;
    let has_table = repairer.checker.image.groups[group.index()].has_inode_table;
    let holds_any = has_table && carry_over(repairer, group, place)?;
    move_part(repairer, group, GroupPart::InodeTable, place)?;
    Ok(Some(match holds_any {
        true => "the group got an inode table with what was left of the other one",
        false => "the group got an empty inode table",
    }))
}

/// Finds the root again in another place of its group's table. A table that holds other inodes of the group is in its
/// place: the root alone is lost.
pub(super) fn repair_root(repairer: &mut Repairer<'_, '_>) -> Result<Done, Error> {
    if sound_inodes(repairer, GroupNumber::FIRST)? > 0 {
        return Ok(None);
    }
    let stored = repairer.checker.image.groups[0].descriptor.inode_table;
    let found = find_table(repairer, GroupNumber::FIRST)?.filter(|place| *place != stored);
    match found {
        Some(place) => move_part(repairer, GroupNumber::FIRST, GroupPart::InodeTable, place),
        None => Ok(None),
    }
}

/// Separates two parts that overlap: the one that can be anywhere gives way.
pub(super) fn separate(
    repairer: &mut Repairer<'_, '_>,
    first: FixedPart,
    second: FixedPart,
) -> Result<Done, Error> {
    let mut parts = [first, second];
    if parts.iter().any(|part| matches!(part, FixedPart::Base(_)))
        && let Some(done) = superblock::reserve_fewer(repairer)?
    {
        return Ok(Some(done));
    }
    parts.sort_by_key(|part| matches!(part, FixedPart::InodeTable(_)));
    for part in parts {
        let repaired = match part {
            FixedPart::BlockBitmap(group) => relocate(repairer, group, GroupPart::BlockBitmap)?,
            FixedPart::InodeBitmap(group) => relocate(repairer, group, GroupPart::InodeBitmap)?,
            FixedPart::InodeTable(group) => relocate(repairer, group, GroupPart::InodeTable)?,
            FixedPart::Base(_) | FixedPart::Mmp => None,
        };
        if repaired.is_some() {
            return Ok(repaired);
        }
    }
    // Nothing is lost with a table that holds none of its group's inodes.
    for part in parts {
        if let FixedPart::InodeTable(group) = part
            && is_foreign_table(repairer, group)?
        {
            return replace_table(repairer, group);
        }
    }
    // Both can't be right.
    match parts {
        [FixedPart::InodeTable(first), FixedPart::InodeTable(second)] => {
            let weaker = weaker_table(repairer, first, second)?;
            replace_table(repairer, weaker)
        }
        // What every image has lies where it is; inodes there would show that it doesn't.
        [base @ FixedPart::Base(_), FixedPart::InodeTable(group)]
            if is_empty_under(repairer, group, base)? =>
        {
            replace_table(repairer, group)
        }
        _ => Ok(None),
    }
}

/// Sets impossible counts to what is possible; they are counted later.
pub(super) fn clamp_counts(
    repairer: &mut Repairer<'_, '_>,
    group: GroupNumber,
) -> Result<Done, Error> {
    let inodes = repairer.checker.image.layout.inodes_per_group();
    repairer.edit_descriptor(group, |descriptor| {
        descriptor.free_clusters_count = 0;
        descriptor.free_inodes_count = descriptor.free_inodes_count.min(inodes);
        descriptor.used_directories_count = descriptor.used_directories_count.min(inodes);
        if descriptor.unused_inodes_count > inodes {
            descriptor.unused_inodes_count = 0;
        }
    })
}
