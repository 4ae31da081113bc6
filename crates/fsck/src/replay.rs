//! Replays the journal: into memory, so that what is checked is what a mount would see, or onto the image.
//!
//! Four walks over the log: where it ends, what was revoked, whether the copies are sound, and the copies again to
//! write them. Only transactions with a commit block count.
//!
//! # Damage
//! All damage is known before anything is written. Only a repair that may drop what is damaged replays such a log:
//! - A copy that is damaged is left out. All others are written.
//! - A commit block that is damaged ends the replay: its transaction and later ones are dropped. What these have revoked
//!   isn't written either, because it may be a file's content by now.
//! - Behind a damaged descriptor or revoke block nobody knows what was revoked: nothing is written.
//!
//! # Reference
//! "Journal (jbd2)" in the kernel's ext4 data structure pages.

use crate::image::{Error, Image};
use crate::issue::JournalIssue;
use crate::mapping;
use crate::report::Reporter;
use drystone_blockdev::BlockDevice;
use drystone_ext4_format::extent::Extent;
use drystone_ext4_format::features::{Compat, Incompat};
use drystone_ext4_format::group::GroupDescriptor;
use drystone_ext4_format::inode::Inode;
use drystone_ext4_format::{InodeNumber, LogicalBlock, PhysicalBlock};
use drystone_jbd2_format::{
    BlockKind, Corrupt, FastCommitScan, Format, IncompatFeatures, MAGIC, Superblock, Tag, TagFlags,
    TransactionChecksum, check_commit, check_descriptor, check_revoke, is_proof_of_commit, kind_at,
    may_be_left_over,
};
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use uuid::Uuid;

/// Fast commit blocks that are looked at.
const FAST_COMMIT_BLOCKS_MAX: u32 = 1024;

/// Blocks that fast commits leave to the log; with fewer Linux refuses the journal.
const LOG_BLOCKS_MIN: u32 = 1024;

/// More than a log can hold, so that none of what was dropped is ever taken for new.
const SKIPPED_TRANSACTIONS: u32 = 1 << 20;

/// Where an emptied log goes on: its superblock's place, and the next transaction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Replayed {
    pub superblock: PhysicalBlock,
    pub next_sequence: u32,
    /// How many transactions were replayed.
    pub transactions: u32,
}

/// Finds the log that is to be replayed, if there is one and it `is_wanted`. What else is wrong with the journal is
/// reported.
pub(crate) fn pending<'a>(
    image: &'a Image<'a>,
    is_wanted: bool,
    reporter: &mut Reporter<'_>,
) -> Result<Option<PendingLog<'a>>, Error> {
    let features = image.superblock.features();
    if !features.compat.contains(Compat::HAS_JOURNAL) {
        return Ok(None);
    }
    let is_needed = features.incompat.contains(Incompat::RECOVER);
    let Some(number) = image.superblock.journal_inode() else {
        if is_needed && is_wanted {
            let uuid = Uuid::from_bytes(image.superblock.journal_uuid());
            return Err(Error::ExternalJournal { uuid });
        }
        if is_needed {
            reporter.report(JournalIssue::NeedsReplay);
        }
        return Ok(None);
    };
    let Some(inode) = read_inode(image, number)? else {
        reporter.report(JournalIssue::Inode { inode: number });
        return Ok(None);
    };
    let journal = match Journal::open(image, number, &inode, reporter)? {
        Ok(journal) => journal,
        Err(issue) => {
            reporter.report(issue);
            return Ok(None);
        }
    };
    let Some(start) = journal.superblock.start() else { return Ok(None) };
    if !is_needed {
        reporter.report(JournalIssue::NotEmpty);
        return Ok(None);
    }
    if !is_wanted {
        reporter.report(JournalIssue::NeedsReplay);
        return Ok(None);
    }
    journal.plan(start).map(Some)
}

/// Reads the journal's inode, before the groups were looked at.
fn read_inode(image: &Image<'_>, number: InodeNumber) -> Result<Option<Inode>, Error> {
    let layout = image.layout;
    let Ok(group) = layout.group_of_inode(number) else { return Ok(None) };
    let Some((block, offset)) = layout.descriptor_location(group) else { return Ok(None) };
    let bytes = image.read_block(block)?;
    let descriptor = bytes.get(offset..).map(|bytes| GroupDescriptor::read(bytes, &layout));
    let Some(Ok(descriptor)) = descriptor else { return Ok(None) };
    let table_blocks = u64::from(layout.inode_table_blocks());
    if !layout.contains_blocks(descriptor.inode_table, table_blocks) {
        return Ok(None);
    }
    let Some(bytes) = image.read_inode_bytes(number, descriptor.inode_table)? else {
        return Ok(None);
    };
    let inode = image.parse_inode(&bytes, number).ok();
    Ok(inode
        .filter(|inode| inode.is_regular() && inode.has_block_mapping() && inode.links_count > 0))
}

/// A journal with a sound superblock.
struct Journal<'a> {
    image: &'a Image<'a>,
    /// Where its superblock is.
    place: PhysicalBlock,
    extents: Vec<Extent>,
    /// The blocks of the device that it has, sorted.
    own: Vec<Range<u64>>,
    superblock: Superblock,
    format: Format,
    log: Range<u32>,
}

/// Where a walk over the log has ended.
struct LogEnd {
    /// The transaction that would come next.
    sequence: u32,
    /// What cuts off a log that goes on.
    damage: Option<Corrupt>,
}

/// What a walk over the log meets.
enum Step<'a> {
    /// A copy, where it is, and its tag.
    Copy { block: u32, tag: Tag },
    /// A revoke block.
    Revoke { block: u32, bytes: &'a [u8] },
}

impl<'a> Journal<'a> {
    fn open(
        image: &'a Image<'a>,
        number: InodeNumber,
        inode: &Inode,
        reporter: &mut Reporter<'_>,
    ) -> Result<Result<Self, JournalIssue>, Error> {
        let extents = mapping::extents_of(image, inode)?;
        let own = |extent: &Extent| extent.physical.get()..extent.physical_end().get();
        let mut own: Vec<Range<u64>> = extents.iter().map(own).collect();
        own.sort_unstable_by_key(|run| run.start);
        if own.windows(2).any(|pair| pair[0].end > pair[1].start) {
            // The log would be longer than what it is written on.
            return Ok(Err(JournalIssue::Inode { inode: number }));
        }
        let first = LogicalBlock::FIRST;
        let Some(place) = mapping::find(&extents, first) else {
            return Ok(Err(JournalIssue::Hole { logical: first }));
        };
        let superblock = match Superblock::check(&image.read_block(place)?) {
            Ok(superblock) => superblock,
            Err(corrupt) => return Ok(Err(corrupt.into())),
        };
        let found = superblock.block_size_bytes();
        if found as usize != image.layout.block_size() {
            return Ok(Err(JournalIssue::BlockSize { found }));
        }
        let blocks = superblock.length_blocks();
        let mapped = extents.last().map_or(0, Extent::logical_end);
        let size = inode.size_bytes.div_ceil(image.layout.block_size() as u64);
        if size > mapped {
            return Ok(Err(JournalIssue::Size { blocks: size, found: mapped }));
        }
        let mut end = 0;
        for extent in &extents {
            if extent.logical.as_u64() != end {
                // Below the start of an extent, which fits.
                return Ok(Err(JournalIssue::Hole { logical: LogicalBlock::new(end as u32) }));
            }
            end = extent.logical_end();
        }
        let has_fast_commits = superblock.incompat().contains(IncompatFeatures::FAST_COMMIT);
        if has_fast_commits && superblock.log().end < LOG_BLOCKS_MIN {
            let blocks = superblock.log().end;
            reporter.report(JournalIssue::Room { blocks });
        }
        let users = superblock.raw().s_nr_users.get();
        if !superblock.is_version_1() && users > 1 {
            reporter.report(JournalIssue::Users { users });
        }
        // A block that the inode's size has only a part of isn't a block of the log.
        let found = mapped.min(inode.size_bytes / image.layout.block_size() as u64);
        if u64::from(blocks) > found {
            return Ok(Err(JournalIssue::Length { blocks, found }));
        }
        if superblock.error_number() != 0 {
            reporter.report(JournalIssue::Stopped { number: superblock.error_number() });
        }
        let (format, log) = (superblock.format(), superblock.log());
        Ok(Ok(Self { image, place, extents, own, superblock, format, log }))
    }

    fn next(&self, block: u32, by: u32) -> u32 {
        let length = u64::from(self.log.end - self.log.start);
        let offset = u64::from(block - self.log.start) + u64::from(by);
        // Below the length of the log.
        self.log.start + (offset % length) as u32
    }

    /// Reads a block of the journal; nothing where there is none.
    fn read(&self, block: u32) -> Result<Option<Vec<u8>>, Error> {
        let Some(place) = mapping::find(&self.extents, LogicalBlock::new(block)) else {
            return Ok(None);
        };
        Ok(Some(self.image.read_block(place)?))
    }

    /// Goes through the log up to the transaction `end`, or as far as transactions are complete.
    fn walk(
        &self,
        start: u32,
        end: Option<u32>,
        visit: &mut dyn FnMut(u32, Step<'_>) -> Result<(), Error>,
    ) -> Result<LogEnd, Error> {
        let format = &self.format;
        let mut sequence = self.superblock.sequence();
        let mut block = start;
        // A log that fills its room meets its own start.
        let mut left = self.log.end - self.log.start;
        let mut checksum = TransactionChecksum::new();
        let mut since_seconds = self.image.superblock.creation_time_seconds();
        // Asynchronous commits: a commit block may be there without what it stands for.
        let mut is_whole = true;
        // What is wrong with a revoke block counts once its transaction is known to be complete.
        let mut revoke_damage = None;
        let ends = |sequence, damage| Ok(LogEnd { sequence, damage });
        while end != Some(sequence) {
            let Some(bytes) = self.read(block)? else { break };
            let mut length = 1;
            match kind_at(&bytes, sequence) {
                Some(BlockKind::Descriptor) => {
                    let tags = match check_descriptor(format, &bytes, sequence, block) {
                        Ok(tags) => tags,
                        Err(damage) => {
                            let is_damage = self.is_committed_behind(block, left, sequence)?;
                            return ends(sequence, is_damage.then_some(damage));
                        }
                    };
                    checksum.update(&bytes);
                    for tag in tags {
                        if length >= left {
                            return ends(sequence, None);
                        }
                        let copy = self.next(block, length);
                        if end.is_none() {
                            let Some(bytes) = self.read(copy)? else { return ends(sequence, None) };
                            checksum.update(&bytes);
                            is_whole &= tag.check_copy(format, sequence, &bytes, copy).is_ok();
                        }
                        visit(sequence, Step::Copy { block: copy, tag })?;
                        length += 1;
                    }
                }
                Some(BlockKind::Revoke) => {
                    let damage = check_revoke(format, &bytes, sequence, block).err();
                    is_whole &= damage.is_none();
                    revoke_damage = revoke_damage.or(damage);
                    visit(sequence, Step::Revoke { block, bytes: &bytes })?;
                }
                Some(BlockKind::Commit) => {
                    let next = sequence.wrapping_add(1);
                    match check_commit(format, &bytes, sequence, block, &checksum) {
                        _ if end.is_some() => {}
                        Ok(_) if format.is_async_commit() && !is_whole => break,
                        Ok(_) if revoke_damage.is_some() => return ends(sequence, revoke_damage),
                        Ok(commit) => since_seconds = commit.seconds,
                        Err(_) if format.is_async_commit() => break,
                        Err(damage) => {
                            let is_damage = !may_be_left_over(&bytes, since_seconds)
                                || self.is_committed_behind(block, left, next)?;
                            return ends(sequence, is_damage.then_some(damage));
                        }
                    }
                    sequence = next;
                    checksum = TransactionChecksum::new();
                }
                _ => break,
            }
            if length >= left {
                break;
            }
            left -= length;
            block = self.next(block, length);
        }
        ends(sequence, None)
    }

    /// Whether the commit block of a transaction is in the `left` blocks of the log from `block` on.
    fn is_committed_behind(&self, block: u32, left: u32, sequence: u32) -> Result<bool, Error> {
        for by in 1..left {
            let Some(bytes) = self.read(self.next(block, by))? else { break };
            if is_proof_of_commit(&self.format, &bytes, sequence) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Reads the whole log, to know what of it can be replayed.
    fn plan(self, start: u32) -> Result<PendingLog<'a>, Error> {
        let LogEnd { sequence: mut end, damage: cut } =
            self.walk(start, None, &mut |_, _| Ok(()))?;
        let first = self.superblock.sequence();
        // Past the damage as far as it can be read: no log has so many transactions.
        let revoked_until = if cut.is_some() { first.wrapping_sub(1) } else { end };
        let (mut revoked, mut are_known) = (HashMap::new(), true);
        // What one transaction has revoked.
        let (mut latest, mut latest_sequence) = (HashSet::new(), first);
        let walked = self.walk(start, Some(revoked_until), &mut |sequence, step| {
            let Step::Revoke { block, bytes } = step else { return Ok(()) };
            if sequence != latest_sequence {
                revoked.extend(latest.drain().map(|block| (block, latest_sequence)));
                latest_sequence = sequence;
            }
            match check_revoke(&self.format, bytes, sequence, block) {
                Ok(blocks) => latest.extend(blocks),
                Err(_) => are_known = false,
            }
            Ok(())
        })?;
        // The last transaction at the end may have no commit block.
        if is_before(latest_sequence, walked.sequence) {
            revoked.extend(latest.into_iter().map(|block| (block, latest_sequence)));
        }
        let mut damage = Vec::new();
        if let Some(corrupt) = cut {
            let done = if are_known && walked.damage.is_none() {
                "its transaction and later ones were dropped"
            } else {
                end = first;
                "what the journal holds was dropped"
            };
            damage.push((JournalIssue::Corrupt(corrupt), done));
        } else if self.is_fast_commit_pending(end)? {
            damage.push((JournalIssue::FastCommit, "it was dropped"));
        }
        let mut log = PendingLog { journal: self, start, end, revoked, damage };
        let mut damaged_copies = Vec::new();
        log.for_each_copy(|_, copy| {
            let left_out = |issue| (issue, "the rest of the journal was replayed");
            damaged_copies.extend(copy.err().map(left_out));
            Ok(())
        })?;
        log.damage.append(&mut damaged_copies);
        Ok(log)
    }

    fn is_fast_commit_pending(&self, sequence: u32) -> Result<bool, Error> {
        let mut scan = FastCommitScan::new(sequence);
        for block in self.superblock.fast_commit_area().take(FAST_COMMIT_BLOCKS_MAX as usize) {
            let Some(bytes) = self.read(block)? else { break };
            if !scan.block(&bytes) {
                break;
            }
        }
        // Those that can't be replayed are pending as well.
        Ok(scan.finish().map_or(true, |commits| !commits.is_empty()))
    }
}

/// Whether a transaction comes before another one.
const fn is_before(sequence: u32, other: u32) -> bool {
    sequence.wrapping_sub(other).cast_signed() < 0
}

/// A log that is to be replayed.
pub(crate) struct PendingLog<'a> {
    journal: Journal<'a>,
    start: u32,
    /// The first transaction that isn't replayed.
    end: u32,
    /// The last transaction that revoked each block.
    revoked: HashMap<u64, u32>,
    /// What a replay leaves out, and what is done about it. A fast commit alone is sound: only the engine replays it.
    damage: Vec<(JournalIssue, &'static str)>,
}

impl PendingLog<'_> {
    /// What a replay leaves out, and what is done about it.
    pub fn damage(&self) -> &[(JournalIssue, &'static str)] {
        &self.damage
    }

    /// Whether the log is sound, and a fast commit follows it.
    pub fn has_only_fast_commit(&self) -> bool {
        matches!(self.damage[..], [(JournalIssue::FastCommit, _)])
    }

    /// Writes what is sound onto `target`, a view of the image's device.
    pub fn replay(&self, target: &dyn BlockDevice) -> Result<Replayed, Error> {
        let log_block_size = self.journal.image.layout.log_block_size();
        self.for_each_copy(|block, copy| {
            let Ok(bytes) = copy else { return Ok(()) };
            Ok(target.write_at(block << log_block_size, &bytes)?)
        })?;
        // A transaction that wasn't complete may have used the next number.
        let skipped = if self.damage.is_empty() { 1 } else { SKIPPED_TRANSACTIONS };
        Ok(Replayed {
            superblock: self.journal.place,
            next_sequence: self.end.wrapping_add(skipped),
            transactions: self.end.wrapping_sub(self.journal.superblock.sequence()),
        })
    }

    /// Calls `visit` for each copy that wasn't revoked: with its block, and its content or what is wrong with it.
    fn for_each_copy(
        &self,
        mut visit: impl FnMut(u64, Result<Vec<u8>, JournalIssue>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let journal = &self.journal;
        // A file system that was growing has copies of blocks that it doesn't have yet.
        let blocks = journal.image.device.size_bytes() >> journal.image.layout.log_block_size();
        let is_own = |block: u64| {
            let after = journal.own.partition_point(|run| run.start <= block);
            after > 0 && journal.own[after - 1].contains(&block)
        };
        journal.walk(self.start, Some(self.end), &mut |sequence, step| {
            let Step::Copy { block, tag } = step else { return Ok(()) };
            let target = tag.block;
            if self.revoked.get(&target).is_some_and(|last| !is_before(*last, sequence)) {
                return Ok(());
            }
            if target >= blocks || is_own(target) {
                return visit(target, Err(JournalIssue::Target { target }));
            }
            let Some(mut copy) = journal.read(block)? else { return Ok(()) };
            if let Err(corrupt) = tag.check_copy(&journal.format, sequence, &copy, block) {
                return visit(target, Err(corrupt.into()));
            }
            if tag.flags.contains(TagFlags::ESCAPE) {
                copy[..4].copy_from_slice(&MAGIC.to_be_bytes());
            }
            visit(target, Ok(copy))
        })?;
        Ok(())
    }
}
