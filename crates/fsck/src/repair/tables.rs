//! Inode tables that are looked for in the whole image: their groups' descriptors are wrong or lost. What a table holds
//! says whether it is one, and whose.

use super::repairer::Repairer;
use crate::groups::is_location;
use crate::image::{Error, TABLE_READ_BYTES};
use crate::issue::FixedPart;
use crate::mapping;
use crate::report::Pass;
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

/// How much is read of the image at once.
const SEARCH_READ_BYTES: usize = 1 << 20;

/// Looks for the inode table of a group in the whole image: inodes' checksums hold their numbers. Without
/// checksums the first table is known by the root. Nothing if no place holds more inodes than the stored one.
/// The journal may hold old copies: they come last. A search ends early once the searches of a round have read as much as
/// they may.
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
    let mut search = TableSearch::new(repairer, group)?;
    let log_block_size = layout.log_block_size();
    let mut bytes = vec![0; SEARCH_READ_BYTES];
    let end = layout.blocks_count() << log_block_size;
    let mut from = (u64::from(layout.first_data_block()) + 1) << log_block_size;
    while from < end && repairer.search_bytes_left > 0 {
        let data = repairer.checker.image.device.next_data(from)?;
        let Some(data) = data.filter(|data| *data < end) else { break };
        from = data >> log_block_size << log_block_size;
        let length = (end - from).min(SEARCH_READ_BYTES as u64);
        let piece = &mut bytes[..length as usize];
        repairer.checker.image.device.read_at(from, piece)?;
        repairer.search_bytes_left = repairer.search_bytes_left.saturating_sub(length);
        for (block, bytes) in (from >> log_block_size..).zip(piece.chunks(layout.block_size())) {
            if bytes.iter().any(|&byte| byte != 0) && search.look_at(repairer, block, bytes)? {
                return Ok(search.elsewhere.best);
            }
        }
        from += length;
        repairer.checker.reporter.step(Pass::Groups, from, end);
    }
    Ok(search.elsewhere.best.or(search.in_journal.best))
}

/// The places of a table that were found.
#[derive(Default)]
struct FoundTables {
    /// How many inodes the best one holds.
    most: usize,
    best: Option<PhysicalBlock>,
    counted: BTreeSet<PhysicalBlock>,
}

/// A search for a group's table.
struct TableSearch {
    group: GroupNumber,
    /// Where the journal lies.
    journal: Vec<Range<u64>>,
    in_journal: FoundTables,
    elsewhere: FoundTables,
}

impl TableSearch {
    fn new(repairer: &Repairer<'_, '_>, group: GroupNumber) -> Result<Self, Error> {
        let most = sound_inodes(repairer, group)?;
        let found = || FoundTables { most, ..FoundTables::default() };
        let (in_journal, elsewhere) = (found(), found());
        Ok(Self { group, journal: journal_runs(repairer)?, in_journal, elsewhere })
    }

    /// Looks at a block as one of the first of a table. Whether the search is over.
    fn look_at(
        &mut self,
        repairer: &Repairer<'_, '_>,
        block: u64,
        bytes: &[u8],
    ) -> Result<bool, Error> {
        let layout = repairer.checker.image.layout;
        let has_checksums = layout.checksum_seed().is_some();
        let table_blocks = u64::from(layout.inode_table_blocks());
        let per_block = layout.block_size() / layout.inode_size();
        for index in 0..LEADING_BLOCKS_MAX.min(table_blocks) {
            let bits = index as usize * per_block..;
            let mut inodes = bits.zip(bytes.chunks_exact(layout.inode_size()));
            let is_part = match has_checksums {
                true => inodes.any(|(bit, bytes)| is_sound(repairer, self.group, bit, bytes)),
                false => index == 0 && holds_root(repairer, bytes),
            };
            let Some(start) = block.checked_sub(index).map(PhysicalBlock::new) else { continue };
            if !is_part {
                continue;
            }
            let end = start.get().saturating_add(table_blocks);
            let at = self.journal.partition_point(|run| run.end <= start.get());
            let touches_journal = self.journal.get(at).is_some_and(|run| run.start < end);
            let found = if touches_journal { &mut self.in_journal } else { &mut self.elsewhere };
            let is_new = found.counted.len() < TABLES_MAX && found.counted.insert(start);
            if !is_new || !is_free_for_table(repairer, self.group, start)? {
                continue;
            }
            let sound = SoundInodes::of(repairer, self.group, start)?;
            if sound.count <= found.most {
                continue;
            }
            (found.most, found.best) = (sound.count, Some(start));
            // One block may have got elsewhere, but hardly several that belong together.
            let is_certain = sound.first / per_block != sound.last / per_block;
            if is_certain && !touches_journal {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// How many inodes of a group its table holds where it is said to be.
pub(super) fn sound_inodes(
    repairer: &Repairer<'_, '_>,
    group: GroupNumber,
) -> Result<usize, Error> {
    let state = &repairer.checker.image.groups[group.index()];
    match state.has_inode_table {
        true => Ok(SoundInodes::of(repairer, group, state.descriptor.inode_table)?.count),
        false => Ok(0),
    }
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
pub(super) fn for_each_record(
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
pub(super) struct SoundInodes {
    pub count: usize,
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

    pub fn add(
        &mut self,
        repairer: &Repairer<'_, '_>,
        group: GroupNumber,
        bit: usize,
        record: &[u8],
    ) {
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
pub(super) fn holds_any(
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
pub(super) fn worth(
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
pub(super) enum Resemblance {
    InodeInUse,
    /// Never used, or deleted.
    Unknown,
    SomethingElse,
}

impl Resemblance {
    /// What it adds to how much more looks like an inode than like something else.
    pub const fn balance(&self) -> i64 {
        match self {
            Self::InodeInUse => 1,
            Self::Unknown => 0,
            Self::SomethingElse => -1,
        }
    }
}

pub(super) fn resemblance(repairer: &Repairer<'_, '_>, record: &[u8]) -> Resemblance {
    if record.iter().all(|&byte| byte == 0) {
        return Resemblance::Unknown;
    }
    match Inode::read(record, InodeNumber::new(1), &repairer.checker.image.layout) {
        Ok(inode) if inode.links_count > 0 && inode.deletion_time == 0 => Resemblance::InodeInUse,
        Ok(inode) if inode.links_count == 0 => Resemblance::Unknown,
        _ => Resemblance::SomethingElse,
    }
}

/// Whether bytes are the inode with the number of a bit: by its checksum, or without checksums, if it is a
/// directory, by its first entry. Other inodes look the same wherever they lie.
pub(super) fn is_sound(
    repairer: &Repairer<'_, '_>,
    group: GroupNumber,
    bit: usize,
    bytes: &[u8],
) -> bool {
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
