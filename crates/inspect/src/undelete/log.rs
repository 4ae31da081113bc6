//! Reads all copies of blocks that are left in the journal's log, also those of transactions that were checkpointed
//! long ago.
//!
//! The log is circular: the start of an old transaction may be overwritten. So the newest transactions are placed first,
//! and a block that belongs to one of them isn't taken for a part of an older one.

use crate::block_ranges::BlockRanges;
use crate::error::{InspectError, Result};
use crate::image::InspectedImage;
use crate::map::runs_of;
use drystone_blockdev::BlockDevice;
use drystone_ext4_format::extent::Extent;
use drystone_ext4_format::features::{Compat, Incompat};
use drystone_ext4_format::{LogicalBlock, PhysicalBlock};
use drystone_jbd2_format::{
    BlockKind, Format, MAGIC, Superblock, Tag, TagFlags, TransactionChecksum, check_commit,
    check_descriptor, check_revoke, kind_and_sequence,
};
use std::collections::{BTreeMap, HashMap, HashSet};

/// A copy of a block in the log.
#[derive(Clone, Copy, Debug)]
pub(super) struct LogCopy {
    /// How many transactions after the first one that a replay would start with; negative before it.
    pub age: i64,
    /// The transaction.
    pub sequence: u32,
    /// Where it is on the device.
    place: PhysicalBlock,
    /// Where it is in the journal.
    position: u32,
    tag: Tag,
}

/// All copies in the log of an image's journal.
#[derive(Debug, Default)]
pub struct JournalLog {
    format: Option<Format>,
    /// The copies of each block, the newest first.
    copies: BTreeMap<u64, Vec<LogCopy>>,
    /// When transactions were committed, in seconds since 1970.
    commits: HashMap<u32, u64>,
    /// How many transactions have to be replayed.
    due: i64,
    /// Revoked blocks: copies up to this transaction aren't replayed.
    revoked: HashMap<u64, i64>,
}

/// A descriptor block and its transaction.
struct DescriptorAt {
    age: i64,
    sequence: u32,
    position: u32,
}

impl JournalLog {
    /// Reads the log of the journal in an image. It is empty if there is none, if it is on another device, or if
    /// its superblock is unusable.
    ///
    /// # Errors
    /// The device fails.
    pub fn read(image: &InspectedImage<'_>) -> Result<Self> {
        let mut log = Self::default();
        if !image.layout.features().compat.contains(Compat::HAS_JOURNAL) {
            return Ok(log);
        }
        let Some(number) = image.superblock.journal_inode() else { return Ok(log) };
        let stored = match image.inode(number) {
            Ok(stored) => stored,
            Err(InspectError::Device(error)) => return Err(error.into()),
            Err(_) => return Ok(log),
        };
        let mut runs = runs_of(image, &stored.inode)?;
        runs.sort_by_key(|run| run.logical.get());
        let Some(first) = place_of(&runs, 0) else { return Ok(log) };
        let Ok(bytes) = image.read_block(first) else { return Ok(log) };
        let Ok(superblock) = Superblock::check(&bytes) else { return Ok(log) };
        if superblock.block_size_bytes() as usize != image.layout.block_size() {
            return Ok(log);
        }
        log.format = Some(superblock.format());
        let needs_replay = image.layout.features().incompat.contains(Incompat::RECOVER);
        log.scan(image, &superblock, &runs, needs_replay && superblock.start().is_some());
        Ok(log)
    }

    /// Whether there is a journal whose log can be read.
    pub(crate) const fn is_usable(&self) -> bool {
        self.format.is_some()
    }

    fn scan(
        &mut self,
        image: &InspectedImage<'_>,
        superblock: &Superblock,
        runs: &[Extent],
        needs_replay: bool,
    ) {
        let format = superblock.format();
        let (mut descriptors, mut own, mut revokes) = (Vec::new(), HashSet::new(), Vec::new());
        let (start, end) = (superblock.log().start.into(), superblock.log().end.into());
        let in_log = BlockRanges::default().insert_runs(runs);
        let in_log = in_log.iter().filter_map(|run| run.overlap(start, end));
        image.each_block(in_log, &mut |position, _, bytes| {
            let Some((kind, sequence)) = kind_and_sequence(bytes) else { return };
            own.insert(position);
            let age = i64::from(sequence.wrapping_sub(superblock.sequence()) as i32);
            match kind {
                BlockKind::Descriptor => descriptors.push(DescriptorAt { age, sequence, position }),
                BlockKind::Commit => {
                    let checksum = TransactionChecksum::new();
                    if let Ok(commit) = check_commit(&format, bytes, sequence, position, &checksum)
                    {
                        self.commits.insert(sequence, commit.seconds);
                    }
                }
                BlockKind::Revoke if needs_replay && age >= 0 => {
                    if let Ok(blocks) = check_revoke(&format, bytes, sequence, position) {
                        revokes.extend(blocks.map(|block| (block, age)));
                    }
                }
                _ => {}
            }
        });
        while needs_replay
            && self.commits.contains_key(&superblock.sequence().wrapping_add(self.due as u32))
        {
            self.due += 1;
        }
        for (block, age) in revokes.into_iter().filter(|(_, age)| *age < self.due) {
            let newest = self.revoked.entry(block).or_insert(age);
            *newest = age.max(*newest);
        }
        descriptors.sort_by_key(|descriptor| (-descriptor.age, descriptor.position));
        for descriptor in descriptors {
            let Some(place) = place_of(runs, descriptor.position) else { continue };
            let Ok(bytes) = image.read_block(place) else { continue };
            self.place(&format, superblock, runs, &descriptor, &bytes, &mut own);
        }
    }

    /// Notes the copies that follow a descriptor, except those that newer transactions have overwritten. `taken` has the
    /// blocks of newer transactions, and all descriptor, commit and revoke blocks.
    fn place(
        &mut self,
        format: &Format,
        superblock: &Superblock,
        runs: &[Extent],
        descriptor: &DescriptorAt,
        bytes: &[u8],
        taken: &mut HashSet<u32>,
    ) {
        let &DescriptorAt { age, sequence, mut position } = descriptor;
        let Ok(tags) = check_descriptor(format, bytes, sequence, position) else { return };
        for tag in tags {
            position += 1;
            if position >= superblock.log().end {
                position = superblock.log().start;
            }
            if !taken.insert(position) {
                return;
            }
            let Some(place) = place_of(runs, position) else { return };
            let copy = LogCopy { age, sequence, place, position, tag };
            self.copies.entry(tag.block).or_default().push(copy);
        }
    }

    /// Replays the log into a view of the image, except fast commits.
    ///
    /// # Errors
    /// One of the devices fails.
    pub fn replay(&self, image: &InspectedImage<'_>, view: &dyn BlockDevice) -> Result<()> {
        for (&block, copies) in &self.copies {
            let newest = copies.iter().find(|copy| (0..self.due).contains(&copy.age));
            let Some(copy) = newest else { continue };
            let is_revoked = self.revoked.get(&block).is_some_and(|age| *age >= copy.age);
            let is_inside = block < image.device.size_bytes() >> image.layout.log_block_size();
            if is_revoked || !is_inside {
                continue;
            }
            if let Some(bytes) = self.read_copy(image, copy) {
                view.write_at(image.offset_of(PhysicalBlock::new(block)), &bytes)?;
            }
        }
        Ok(())
    }

    /// The copies of a block, the newest first.
    pub(super) fn copies_of(&self, block: PhysicalBlock) -> &[LogCopy] {
        self.copies.get(&block.get()).map_or(&[], Vec::as_slice)
    }

    /// The blocks in a range that there are copies of.
    pub(super) fn blocks_in(
        &self,
        range: std::ops::Range<u64>,
    ) -> impl Iterator<Item = (PhysicalBlock, &[LogCopy])> {
        let found = self.copies.range(range);
        found.map(|(&block, copies)| (PhysicalBlock::new(block), copies.as_slice()))
    }

    /// When a transaction was committed, if its commit block is still there.
    pub(super) fn committed(&self, sequence: u32) -> Option<u64> {
        self.commits.get(&sequence).copied()
    }

    /// The bytes of a copy, unless its checksum is wrong.
    pub(super) fn read_copy(&self, image: &InspectedImage<'_>, copy: &LogCopy) -> Option<Vec<u8>> {
        let mut bytes = image.read_block(copy.place).ok()?;
        let format = self.format.as_ref()?;
        copy.tag.check_copy(format, copy.sequence, &bytes, copy.position).ok()?;
        if copy.tag.flags.contains(TagFlags::ESCAPE) {
            bytes.first_chunk_mut::<4>()?.copy_from_slice(&MAGIC.to_be_bytes());
        }
        Some(bytes)
    }
}

/// Where a block of the journal lies; its runs are in order.
fn place_of(runs: &[Extent], position: u32) -> Option<PhysicalBlock> {
    let logical = LogicalBlock::new(position);
    let behind = runs.partition_point(|run| run.logical <= logical);
    runs[..behind].last()?.physical_of(logical)
}
