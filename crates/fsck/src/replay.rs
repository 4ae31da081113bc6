//! Replays the journal into memory, so that what is checked is what a mount would see.
//!
//! Three walks over the log: where it ends, what was revoked, and the copies. Only transactions
//! with a commit block count. A log that was complete once and is damaged is reported, and nothing
//! of it is replayed: what is at home may be newer. The image itself is not changed.
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
use std::collections::HashMap;
use std::ops::Range;
use uuid::Uuid;

/// Fast commit blocks that are looked at.
const FAST_COMMIT_BLOCKS_MAX: u32 = 1024;

/// Blocks that fast commits leave to the log; with fewer Linux refuses the journal.
const LOG_BLOCKS_MIN: u32 = 1024;

/// Where an emptied log goes on: its superblock's place, and the next transaction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Replayed {
    pub superblock: PhysicalBlock,
    pub next_sequence: u32,
}

/// Whether a log is to be replayed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    No,
    /// For a look at what a mount would find.
    InMemory,
    /// Onto the image. With a fast commit it isn't: only the engine replays those.
    OnDisk,
}

/// Replays the journal of `image` onto `target`, a view of the same device, if that is needed and
/// wanted. Nothing if it wasn't replayed.
pub(crate) fn run(
    image: &Image<'_>,
    target: &dyn BlockDevice,
    wanted: Wanted,
    reporter: &mut Reporter<'_>,
) -> Result<Option<Replayed>, Error> {
    let is_wanted = wanted != Wanted::No;
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
    let journal = match Journal::open(image, &inode, reporter)? {
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
    let Some(replayed) = journal.replay(start, target, wanted, reporter)? else { return Ok(None) };
    reporter.summarize(|summary| summary.transactions_replayed = u64::from(replayed));
    let Some(superblock) = mapping::find(&journal.extents, LogicalBlock::FIRST) else {
        return Ok(None);
    };
    // A transaction that wasn't complete may have used the next number.
    let next_sequence = journal.superblock.sequence().wrapping_add(replayed).wrapping_add(1);
    Ok(Some(Replayed { superblock, next_sequence }))
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
    extents: Vec<Extent>,
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
        inode: &Inode,
        reporter: &mut Reporter<'_>,
    ) -> Result<Result<Self, JournalIssue>, Error> {
        let extents = mapping::extents_of(image, inode)?;
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
        Ok(Ok(Self { image, extents, superblock, format, log }))
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
                    is_whole &= check_revoke(format, &bytes, sequence, block).is_ok();
                    visit(sequence, Step::Revoke { block, bytes: &bytes })?;
                }
                Some(BlockKind::Commit) => {
                    let next = sequence.wrapping_add(1);
                    match check_commit(format, &bytes, sequence, block, &checksum) {
                        _ if end.is_some() => {}
                        Ok(_) if format.is_async_commit() && !is_whole => break,
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

    /// Replays the log; returns how many transactions it held, or nothing if that isn't known.
    fn replay(
        &self,
        start: u32,
        target: &dyn BlockDevice,
        wanted: Wanted,
        reporter: &mut Reporter<'_>,
    ) -> Result<Option<u32>, Error> {
        let LogEnd { sequence: end, damage } = self.walk(start, None, &mut |_, _| Ok(()))?;
        if let Some(damage) = damage {
            reporter.report(JournalIssue::Corrupt(damage));
            return Ok(None);
        }
        if self.is_fast_commit_pending(end)? {
            reporter.report(JournalIssue::FastCommit);
            if wanted == Wanted::OnDisk {
                return Ok(None);
            }
        }
        // The last transaction that revoked each block.
        let mut revoked: HashMap<u64, u32> = HashMap::new();
        self.walk(start, Some(end), &mut |sequence, step| {
            if let Step::Revoke { block, bytes } = step {
                match check_revoke(&self.format, bytes, sequence, block) {
                    Ok(blocks) => revoked.extend(blocks.map(|block| (block, sequence))),
                    Err(corrupt) => reporter.report(JournalIssue::Corrupt(corrupt)),
                }
            }
            Ok(())
        })?;
        self.walk(start, Some(end), &mut |sequence, step| {
            let Step::Copy { block, tag } = step else { return Ok(()) };
            let is_revoked = revoked
                .get(&tag.block)
                .is_some_and(|last| last.wrapping_sub(sequence).cast_signed() >= 0);
            if is_revoked {
                return Ok(());
            }
            // A file system that was growing has copies of blocks that it doesn't have yet.
            if tag.block >= target.size_bytes() >> self.image.layout.log_block_size() {
                reporter.report(JournalIssue::Target { target: tag.block });
                return Ok(());
            }
            let Some(mut copy) = self.read(block)? else { return Ok(()) };
            if let Err(corrupt) = tag.check_copy(&self.format, sequence, &copy, block) {
                reporter.report(JournalIssue::Corrupt(corrupt));
                return Ok(());
            }
            if tag.flags.contains(TagFlags::ESCAPE) {
                copy[..4].copy_from_slice(&MAGIC.to_be_bytes());
            }
            target.write_at(tag.block << self.image.layout.log_block_size(), &copy)?;
            Ok(())
        })?;
        Ok(Some(end.wrapping_sub(self.superblock.sequence())))
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
