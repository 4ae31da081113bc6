//! Inode tables that overlap other parts of the fixed metadata: which part gives way, and what a table takes along.

use super::repairer::Repairer;
use super::tables::{
    Resemblance, SoundInodes, for_each_record, holds_any, is_sound, resemblance, worth,
};
use crate::image::Error;
use crate::issue::FixedPart;
use drystone_ext4_format::{GroupNumber, PhysicalBlock};
use std::ops::{ControlFlow, Range};

/// Whether nothing looks like an inode in those blocks of a group's table where another part lies: by their checksums,
/// or if fewer records look like inodes in use than like something else.
pub(super) fn is_empty_under(
    repairer: &Repairer<'_, '_>,
    group: GroupNumber,
    other: FixedPart,
) -> Result<bool, Error> {
    let place = repairer.checker.image.groups[group.index()].descriptor.inode_table;
    let has_checksums = repairer.checker.image.layout.checksum_seed().is_some();
    let others = overlapping(repairer, group, place, |part| part == other);
    let (mut sound, mut balance, mut is_used) = (SoundInodes::default(), 0, false);
    for_each_record(repairer, place, |bit, record| {
        if lies_in(repairer, place, bit, &others) {
            sound.add(repairer, group, bit, record);
            let resemblance = resemblance(repairer, record);
            is_used |= resemblance == Resemblance::InodeInUse;
            balance += resemblance.balance();
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(sound.count == 0 && (has_checksums || !is_used || balance < 0))
}

/// The ranges of other fixed metadata, of those that are wanted, in a group's table in a place.
fn overlapping(
    repairer: &Repairer<'_, '_>,
    group: GroupNumber,
    place: PhysicalBlock,
    is_wanted: impl Fn(FixedPart) -> bool,
) -> Vec<Range<u64>> {
    let count = u64::from(repairer.checker.image.layout.inode_table_blocks());
    let (start, end) = (place.get(), place.get().saturating_add(count));
    let others = repairer.checker.found.claims.fixed.iter().filter(|range| {
        range.part != FixedPart::InodeTable(group)
            && range.start < end
            && range.end > start
            && is_wanted(range.part)
    });
    others.map(|range| range.start..range.end).collect()
}

/// Whether a record of a table in a place lies in one of these ranges.
fn lies_in(
    repairer: &Repairer<'_, '_>,
    place: PhysicalBlock,
    bit: usize,
    ranges: &[Range<u64>],
) -> bool {
    let layout = &repairer.checker.image.layout;
    let block = place.get() + ((bit * layout.inode_size()) as u64 >> layout.log_block_size());
    ranges.iter().any(|range| range.contains(&block))
}

/// Of two groups whose tables overlap, the one whose table holds less of its group. If they hold as much, it is the one
/// whose table stands less in a row with those of its neighbours, and then the one behind.
pub(super) fn weaker_table(
    repairer: &Repairer<'_, '_>,
    first: GroupNumber,
    second: GroupNumber,
) -> Result<GroupNumber, Error> {
    let worth_of = |group: GroupNumber| -> Result<_, Error> {
        let place = repairer.checker.image.groups[group.index()].descriptor.inode_table;
        Ok((worth(repairer, group, place)?, neighbours(repairer, group)))
    };
    let [first, second] = [first.min(second), first.max(second)];
    Ok(if worth_of(first)? < worth_of(second)? { first } else { second })
}

/// With how many of the groups beside it a group's table stands in a row, as mke2fs puts them.
fn neighbours(repairer: &Repairer<'_, '_>, group: GroupNumber) -> usize {
    let image = &repairer.checker.image;
    let count = u64::from(image.layout.inode_table_blocks());
    let table_of = |group: Option<u32>| {
        let state = group.and_then(|group| image.groups.get(group as usize));
        state.filter(|state| state.has_inode_table).map(|state| state.descriptor.inode_table.get())
    };
    let Some(own) = table_of(Some(group.get())) else { return 0 };
    let before = table_of(group.get().checked_sub(1)).map(|table| table + count);
    let behind = table_of(group.get().checked_add(1));
    usize::from(before == Some(own)) + usize::from(behind == Some(own + count))
}

/// Whether a group's table holds inodes, by their checksums, but none of the group's.
pub(super) fn is_foreign_table(
    repairer: &Repairer<'_, '_>,
    group: GroupNumber,
) -> Result<bool, Error> {
    let place = repairer.checker.image.groups[group.index()].descriptor.inode_table;
    let has_checksums = repairer.checker.image.layout.checksum_seed().is_some();
    let (sound, balance) = worth(repairer, group, place)?;
    Ok(has_checksums && balance > 0 && sound == 0)
}

/// Copies what a group's table holds of the group to another place, which has zeros elsewhere: the table overlaps
/// something else. What isn't known by its checksum counts where nothing else lies, unless all of that seems to be
/// something else or another group's. Whether there was anything.
pub(super) fn carry_over(
    repairer: &Repairer<'_, '_>,
    group: GroupNumber,
    target: PhysicalBlock,
) -> Result<bool, Error> {
    let layout = repairer.checker.image.layout;
    let place = repairer.checker.image.groups[group.index()].descriptor.inode_table;
    let has_checksums = layout.checksum_seed().is_some();
    let others = overlapping(repairer, group, place, |_| true);
    let is_table = match has_checksums {
        true => holds_any(repairer, group, place)?,
        false => {
            let mut balance = 0;
            for_each_record(repairer, place, |bit, record| {
                if !lies_in(repairer, place, bit, &others) {
                    balance += resemblance(repairer, record).balance();
                }
                Ok(ControlFlow::Continue(()))
            })?;
            balance > 0
        }
    };
    if !is_table {
        return Ok(false);
    }
    let mut is_any = false;
    for_each_record(repairer, place, |bit, record| {
        let is_own = || has_checksums && is_sound(repairer, group, bit, record);
        let is_kept = !lies_in(repairer, place, bit, &others) || is_own();
        if is_kept && record.iter().any(|&byte| byte != 0) {
            let offset = (bit * layout.inode_size()) as u64;
            let target = (target.get() << layout.log_block_size()) + offset;
            repairer.device().write_at(target, record)?;
            is_any = true;
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(is_any)
}
