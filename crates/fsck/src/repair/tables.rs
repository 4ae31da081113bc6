//! Inode tables that are looked for in the whole image: their groups' descriptors are wrong or lost.

use super::repairer::Repairer;
use crate::groups::is_location;
use crate::image::{Error, TABLE_READ_BYTES};
use crate::issue::FixedPart;
use crate::mapping;
use drystone_ext4_format::extent::{ExtentNode, NodePlace};
use drystone_ext4_format::features::Incompat;
use drystone_ext4_format::inode::{Inode, InodeFlags, InodeTimestamp, ModeFileType};
use drystone_ext4_format::{GroupNumber, InodeNumber, LogicalBlock, PhysicalBlock};
use std::collections::BTreeSet;
use std::ops::{ControlFlow, Range};

/// Blocks at the start of a table by each of which it is found: the first may be lost.
const LEADING_BLOCKS_MAX: u64 = 16;

/// Places of a table that are compared at most.
const TABLES_MAX: usize = 64;

/// Looks for the inode table of a group in the whole image: inodes' checksums hold their numbers. Without
/// checksums the first table is known by the root. Nothing if no place holds more inodes than the stored one.
/// The journal may hold old copies: they come last.
pub(super) fn find_table(
    repairer: &mut Repairer<'_, '_>,
    group: GroupNumber,
) -> Result<Option<PhysicalBlock>, Error> {
    let layout = repairer.checker.image.layout;
    let is_possible = layout.checksum_seed().is_some() || group == GroupNumber::FIRST;
    if !is_possible || repairer.searches_left == 0 {
        return Ok(None);
    }
    repairer.searches_left -= 1;
    let journal = journal_runs(repairer)?;
    match search_table(repairer, group, &journal, false)? {
        None if !journal.is_empty() => search_table(repairer, group, &journal, true),
        found => Ok(found),
    }
}

/// Looks for a table in the journal, or everywhere else.
fn search_table(
    repairer: &Repairer<'_, '_>,
    group: GroupNumber,
    journal: &[Range<u64>],
    in_journal: bool,
) -> Result<Option<PhysicalBlock>, Error> {
    let layout = repairer.checker.image.layout;
    let has_checksums = layout.checksum_seed().is_some();
    let state = &repairer.checker.image.groups[group.index()];
    let mut most = match state.has_inode_table {
        true => SoundInodes::of(repairer, group, state.descriptor.inode_table)?.count,
        false => 0,
    };
    let table_blocks = u64::from(layout.inode_table_blocks());
    let per_block = layout.block_size() / layout.inode_size();
    let mut best = None;
    let mut counted: BTreeSet<PhysicalBlock> = BTreeSet::new();
    let mut bytes = repairer.checker.image.block_buffer();
    for block in u64::from(layout.first_data_block()) + 1..layout.blocks_count() {
        repairer.checker.image.read_blocks(PhysicalBlock::new(block), &mut bytes)?;
        for index in 0..LEADING_BLOCKS_MAX.min(table_blocks) {
            let bits = index as usize * per_block..;
            let mut inodes = bits.zip(bytes.chunks_exact(layout.inode_size()));
            let is_part = match has_checksums {
                true => inodes.any(|(bit, bytes)| is_sound(repairer, group, bit, bytes)),
                false => index == 0 && holds_root(repairer, &bytes),
            };
            let Some(start) = block.checked_sub(index).map(PhysicalBlock::new) else { continue };
            let end = start.get().saturating_add(table_blocks);
            let touches_journal = || {
                let at = journal.partition_point(|run| run.end <= start.get());
                journal.get(at).is_some_and(|run| run.start < end)
            };
            let is_new = is_part
                && touches_journal() == in_journal
                && counted.len() < TABLES_MAX
                && counted.insert(start);
            if !is_new || !is_free_for_table(repairer, group, start)? {
                continue;
            }
            let sound = SoundInodes::of(repairer, group, start)?;
            if sound.count <= most {
                continue;
            }
            (most, best) = (sound.count, Some(start));
            // One block may have got elsewhere, but hardly several that belong together.
            if sound.first / per_block != sound.last / per_block {
                return Ok(best);
            }
        }
    }
    Ok(best)
}

/// Where the journal lies, which holds copies of tables: by the superblock's copy of its map, or its inode.
fn journal_runs(repairer: &Repairer<'_, '_>) -> Result<Vec<Range<u64>>, Error> {
    let image = &repairer.checker.image;
    let number = InodeNumber::JOURNAL;
    let inode = match image.superblock.journal_backup() {
        Some(backup) => {
            let (mode, time) = (ModeFileType::Regular.mode_bits(), InodeTimestamp::from_seconds(0));
            let mut inode = Inode::new(number, mode, time, &image.layout);
            let place = NodePlace::root(number);
            let is_tree = ExtentNode::reopen(&backup.block_area, place).is_ok();
            inode.flags.set(InodeFlags::EXTENTS, is_tree);
            inode.block_area = backup.block_area;
            inode
        }
        None => match repairer.checker.image.inode(number)? {
            Some((inode, _)) if inode.is_regular() && inode.has_block_mapping() => inode,
            _ => return Ok(Vec::new()),
        },
    };
    let extents = mapping::extents_of(image, &inode)?;
    let mut runs: Vec<Range<u64>> =
        extents.iter().map(|run| run.physical.get()..run.physical_end().get()).collect();
    // In order and apart, to be searched: a damaged map has any number of them.
    runs.sort_by_key(|run| run.start);
    runs.dedup_by(|next, run| {
        let meets = next.start <= run.end;
        if meets {
            run.end = run.end.max(next.end);
        }
        meets
    });
    Ok(runs)
}

/// Calls `visit` for the records of a table in a place that aren't in a hole of the device, with their bits, until it
/// breaks. Tables are read in pieces: those of a crafted image can be larger than all memory.
fn for_each_record(
    repairer: &Repairer<'_, '_>,
    place: PhysicalBlock,
    mut visit: impl FnMut(usize, &[u8]) -> Result<ControlFlow<()>, Error>,
) -> Result<(), Error> {
    let image = &repairer.checker.image;
    let layout = &image.layout;
    let inode_size = layout.inode_size();
    let start = place.get() << layout.log_block_size();
    let length = u64::from(layout.inode_table_blocks()) << layout.log_block_size();
    let mut buffer = vec![0; TABLE_READ_BYTES.next_multiple_of(inode_size)];
    let piece = buffer.len() as u64;
    let mut from = 0;
    while from < length {
        let data = image.device.next_data(start + from)?.map(|next| next - start);
        let Some(data) = data.filter(|data| *data < length) else { break };
        from = data / piece * piece;
        let bytes = &mut buffer[..piece.min(length - from) as usize];
        image.device.read_at(start + from, bytes)?;
        let first = (from / inode_size as u64) as usize;
        for (bit, record) in (first..).zip(bytes.chunks_exact(inode_size)) {
            if visit(bit, record)?.is_break() {
                return Ok(());
            }
        }
        from += piece;
    }
    Ok(())
}

/// The inodes of a group that a table in a place holds.
#[derive(Default)]
struct SoundInodes {
    count: usize,
    /// The bits of the first and the last.
    first: usize,
    last: usize,
}

impl SoundInodes {
    fn of(
        repairer: &Repairer<'_, '_>,
        group: GroupNumber,
        place: PhysicalBlock,
    ) -> Result<Self, Error> {
        let mut sound = Self::default();
        for_each_record(repairer, place, |bit, record| {
            sound.add(repairer, group, bit, record);
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(sound)
    }

    fn add(&mut self, repairer: &Repairer<'_, '_>, group: GroupNumber, bit: usize, record: &[u8]) {
        if is_sound(repairer, group, bit, record) {
            if self.count == 0 {
                self.first = bit;
            }
            self.count += 1;
            self.last = bit;
        }
    }
}

/// Whether a table in a place holds an inode of a group.
fn holds_any(
    repairer: &Repairer<'_, '_>,
    group: GroupNumber,
    place: PhysicalBlock,
) -> Result<bool, Error> {
    let mut is_found = false;
    for_each_record(repairer, place, |bit, record| {
        is_found = is_sound(repairer, group, bit, record);
        Ok(if is_found { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    Ok(is_found)
}

/// Whether a group's inodes rather lie in a place than in another one.
pub(super) fn is_better_table(
    repairer: &Repairer<'_, '_>,
    group: GroupNumber,
    place: PhysicalBlock,
    other: PhysicalBlock,
) -> Result<bool, Error> {
    if !is_free_for_table(repairer, group, place)? {
        return Ok(false);
    }
    Ok(worth(repairer, group, place)? > worth(repairer, group, other)?)
}

/// How much speaks for a group's table lying in a place: inodes that are the group's, and how many more records look
/// like inodes in use than like something else.
fn worth(
    repairer: &Repairer<'_, '_>,
    group: GroupNumber,
    place: PhysicalBlock,
) -> Result<(usize, i64), Error> {
    let (mut sound, mut balance) = (SoundInodes::default(), 0);
    for_each_record(repairer, place, |bit, record| {
        sound.add(repairer, group, bit, record);
        balance += resemblance(repairer, record).balance();
        Ok(ControlFlow::Continue(()))
    })?;
    Ok((sound.count, balance))
}

/// What a record of a table looks like.
#[derive(PartialEq, Eq)]
enum Resemblance {
    InodeInUse,
    /// Never used, or deleted.
    Unknown,
    SomethingElse,
}

impl Resemblance {
    /// What it adds to how much more looks like an inode than like something else.
    const fn balance(&self) -> i64 {
        match self {
            Self::InodeInUse => 1,
            Self::Unknown => 0,
            Self::SomethingElse => -1,
        }
    }
}

fn resemblance(repairer: &Repairer<'_, '_>, record: &[u8]) -> Resemblance {
    if record.iter().all(|&byte| byte == 0) {
        return Resemblance::Unknown;
    }
    match Inode::read(record, InodeNumber::new(1), &repairer.checker.image.layout) {
        Ok(inode) if inode.links_count > 0 && inode.deletion_time == 0 => Resemblance::InodeInUse,
        Ok(inode) if inode.links_count == 0 => Resemblance::Unknown,
        _ => Resemblance::SomethingElse,
    }
}

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
/// something else. What isn't known by its checksum counts where nothing else lies, unless all of the table seems to
/// be another group's.
pub(super) fn carry_over(
    repairer: &Repairer<'_, '_>,
    group: GroupNumber,
    target: PhysicalBlock,
) -> Result<(), Error> {
    let layout = repairer.checker.image.layout;
    let place = repairer.checker.image.groups[group.index()].descriptor.inode_table;
    let has_checksums = layout.checksum_seed().is_some();
    if has_checksums && !holds_any(repairer, group, place)? {
        return Ok(());
    }
    let others = overlapping(repairer, group, place, |_| true);
    for_each_record(repairer, place, |bit, record| {
        let is_own = || has_checksums && is_sound(repairer, group, bit, record);
        let is_kept = !lies_in(repairer, place, bit, &others) || is_own();
        if is_kept && record.iter().any(|&byte| byte != 0) {
            let offset = (bit * layout.inode_size()) as u64;
            let target = (target.get() << layout.log_block_size()) + offset;
            repairer.device().write_at(target, record)?;
        }
        Ok(ControlFlow::Continue(()))
    })
}

/// Whether bytes are the inode with the number of a bit: by its checksum, or without checksums, if it is a
/// directory, by its first entry. Other inodes look the same wherever they lie.
fn is_sound(repairer: &Repairer<'_, '_>, group: GroupNumber, bit: usize, bytes: &[u8]) -> bool {
    let layout = repairer.checker.image.layout;
    // Below the inodes of a group.
    let Some(number) = layout.inode_of_bit(group, bit as u32) else { return false };
    if layout.checksum_seed().is_none() {
        return is_directory(repairer, number, bytes);
    }
    // Cheaper than a checksum, and hardly ever true of what is no inode.
    let has_extra_size = match bytes.get(128..130) {
        Some(size) => 128 + usize::from(u16::from_le_bytes([size[0], size[1]])) <= bytes.len(),
        None => true,
    };
    has_extra_size
        && bytes.iter().any(|&byte| byte != 0)
        && Inode::check_checksum(bytes, number, &layout).is_ok()
}

/// Whether a group's table can lie in a place: other tables, and what every image has, lie elsewhere. A table without
/// any inode of its group may be in a wrong place itself, as checksums tell.
fn is_free_for_table(
    repairer: &Repairer<'_, '_>,
    group: GroupNumber,
    place: PhysicalBlock,
) -> Result<bool, Error> {
    let layout = repairer.checker.image.layout;
    let count = u64::from(layout.inode_table_blocks());
    let (start, end) = (place.get(), place.get().saturating_add(count));
    if !is_location(&repairer.checker.image, group, place, count) {
        return Ok(false);
    }
    for range in repairer.checker.found.claims.fixed.iter() {
        if range.start >= end || range.end <= start {
            continue;
        }
        let is_certain = match range.part {
            FixedPart::Base(_) => true,
            FixedPart::InodeTable(other) if other != group => {
                layout.checksum_seed().is_none()
                    || holds_any(repairer, other, PhysicalBlock::new(range.start))?
            }
            _ => false,
        };
        if is_certain {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Where mke2fs puts the inode table of a group that holds its own parts: behind its bitmaps. Nothing if
/// something else lies there.
pub(super) fn usual_table(
    repairer: &Repairer<'_, '_>,
    group: GroupNumber,
) -> Option<PhysicalBlock> {
    let layout = repairer.checker.image.layout;
    if layout.features().incompat.contains(Incompat::FLEX_BG) {
        return None;
    }
    let before = u64::from(layout.group_base(group).blocks) + 2;
    let place = layout.group_first_block(group).checked_add(before)?;
    let count = u64::from(layout.inode_table_blocks());
    let claims = &repairer.checker.found.claims;
    let is_free = is_location(&repairer.checker.image, group, place, count)
        && !claims.used.has_any(claims.clusters(place.get(), place.get() + count));
    is_free.then_some(place)
}

/// Whether the first block of an inode table holds the root.
fn holds_root(repairer: &Repairer<'_, '_>, bytes: &[u8]) -> bool {
    let inode_size = repairer.checker.image.layout.inode_size();
    let root = bytes.chunks_exact(inode_size).nth(1);
    root.is_some_and(|bytes| is_directory(repairer, InodeNumber::ROOT, bytes))
}

/// Whether bytes are a directory whose first entry names its number.
fn is_directory(repairer: &Repairer<'_, '_>, number: InodeNumber, bytes: &[u8]) -> bool {
    let image = &repairer.checker.image;
    let Ok(inode) = Inode::read(bytes, number, &image.layout) else { return false };
    if !inode.is_directory() || inode.links_count < 2 || !inode.has_block_mapping() {
        return false;
    }
    let first = mapping::extents_of(image, &inode)
        .ok()
        .and_then(|extents| mapping::find(&extents, LogicalBlock::FIRST));
    first.and_then(|block| image.read_block(block).ok()).is_some_and(|block| {
        block.starts_with(&number.get().to_le_bytes())
            && block.get(4..7) == Some(&[12, 0, 1])
            && block.get(8) == Some(&b'.')
    })
}
