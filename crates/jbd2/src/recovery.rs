//! Replaying a log after a crash.
//!
//! # State
//!
//! Three passes, as jbd2 defines them. *Scan* walks the transactions from the start of the
//! log and ends before the first that is not complete. *Revoke* notes for each revoked block
//! the last transaction that revoked it. *Replay* writes home, for every block, its newest
//! copy, unless that is of a transaction that its revoke covers. The first two share one
//! reading of the log: what a transaction says counts once its commit block is found.
//!
//! Nothing is written before the whole log has been read and every target checked.
//!
//! A log block that is not what is expected ends the log: this is what a crash in the middle
//! of a commit leaves. A copy or a revoke block that does not match its checksum although the
//! transaction's commit block is valid is different: that log was complete once and is damaged, so
//! nothing is replayed, because later transactions may be partly at home. What a copy that is
//! revoked holds doesn't matter, as to Linux. (With asynchronous commits a valid commit block proves
//! nothing, and such a transaction ends the log, too.)
//!
//! Fast commits that follow the last transaction are only found and handed on, with all
//! transactions at home: see [`fast_commit`](crate::fast_commit).
//!
//! # Crash
//!
//! Replay is idempotent. The log is marked empty only after what was replayed is flushed.
//!
//! # Reference
//! "Journal (jbd2)" in the kernel's ext4 data structure pages.

use crate::fast_commit::{self, PendingFastCommits};
use crate::log::{offset, read_superblock, write_superblock};
use crate::log_read::LogReader;
use crate::{JournalArea, JournalError, JournalResult};
use drystone_blockdev::BlockDevice;
use drystone_jbd2_format::{
    BlockKind, ChecksumKind, Corrupt, Format, MAGIC, Superblock, Tag, TagFlags,
    TransactionChecksum, check_commit, check_descriptor, check_revoke, kind_at,
};
use drystone_sync::Arc;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};

/// Blocks read at once while the log is scanned.
const SCAN_WINDOW_BLOCKS: u32 = 128;

/// What a recovery has found and done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RecoveryReport {
    /// Complete transactions in the log.
    pub transactions: u64,
    /// Blocks written home.
    pub replayed_blocks: u64,
    /// Blocks not replayed because a later transaction revoked them.
    pub revoked_blocks: u64,
    /// Revoke records found.
    pub revoke_records: u64,
}

/// Where a recovery has led.
#[derive(Debug, Default)]
pub struct Recovery {
    /// What was found and done.
    pub report: RecoveryReport,
    /// What the file system has to replay before the journal is recovered.
    pub fast_commits: Option<PendingFastCommits>,
}

/// Reads and checks the superblock of the journal at `area`; `main` is the file system's
/// device.
///
/// # Errors
/// The device's, or what is wrong with the superblock.
pub fn read_journal_superblock(
    main: &Arc<dyn BlockDevice>,
    area: &JournalArea,
    block_size_bytes: u32,
) -> JournalResult<Superblock> {
    read_superblock(main, area, block_size_bytes)
}

/// Whether the log at `area` is in use, so that it has to be recovered.
///
/// # Errors
/// As [`read_journal_superblock`].
pub fn needs_recovery(
    main: &Arc<dyn BlockDevice>,
    area: &JournalArea,
    block_size_bytes: u32,
) -> JournalResult<bool> {
    Ok(read_superblock(main, area, block_size_bytes)?.start().is_some())
}

/// Replays the log at `area` onto `main` and marks it empty, unless fast commits are left to be
/// replayed: then it goes on needing recovery. Does nothing if it is empty.
///
/// To read a file system without changing it, let `main` be an overlay that keeps writes in
/// memory (and an external journal's device another).
///
/// # Errors
/// The device's; what is wrong with the journal, in which case nothing was written.
pub fn recover(
    main: &Arc<dyn BlockDevice>,
    area: &JournalArea,
    block_size_bytes: u32,
) -> JournalResult<Recovery> {
    let mut superblock = read_superblock(main, area, block_size_bytes)?;
    let Some(start) = superblock.start() else { return Ok(Recovery::default()) };
    let format = superblock.format();
    let device = area.device(main).clone();
    let block_size = format.block_size_bytes();
    let reader = LogReader::new(&*device, area, superblock.log(), block_size, SCAN_WINDOW_BLOCKS);
    let mut scan = LogScan {
        format: &format,
        reader,
        position: start,
        sequence: superblock.sequence(),
        walked_blocks: 0,
        contents: LogContents::default(),
    };
    while let Some(transaction) = scan.transaction()? {
        scan.contents.add(transaction);
    }
    let LogScan { sequence, contents, .. } = scan;
    contents.check()?;
    let fast_commits = fast_commit::find(&superblock, &*device, area, sequence)?;
    // Copies are visited in the order of their homes, not of the log.
    let mut reader = LogReader::new(&*device, area, superblock.log(), block_size, 1);
    let report = replay(main, area, &format, &mut reader, &contents)?;
    match &fast_commits {
        // Nothing at the start of the log is of this transaction, or at least no commit block.
        Some(_) => superblock.set_log(Some(superblock.log().start), sequence),
        // The incomplete transaction at the end may have left blocks of its sequence number
        // behind: skip it.
        None => superblock.set_log(None, sequence.wrapping_add(1)),
    }
    write_superblock(&*device, area, &superblock)?;
    tracing::info!(
        transactions = report.transactions,
        replayed_blocks = report.replayed_blocks,
        revoked_blocks = report.revoked_blocks,
        fast_commits = fast_commits.as_ref().map_or(0, |pending| pending.commits.len()),
        "journal recovered"
    );
    Ok(Recovery { report, fast_commits })
}

/// A copy in the log.
#[derive(Clone, Copy)]
struct LoggedCopy {
    tag: Tag,
    /// Journal block.
    place: u32,
}

/// What one complete transaction holds.
#[derive(Default)]
struct Transaction {
    copies: Vec<LoggedCopy>,
    revokes: Vec<u64>,
    /// Copies that don't match their tags, by block.
    damages: Vec<(u64, Corrupt)>,
}

/// What the whole log says, transactions counted from 1.
#[derive(Default)]
struct LogContents {
    transactions: u64,
    revoke_records: u64,
    /// Block → transaction of the newest copy, and the copy.
    newest: BTreeMap<u64, (u64, LoggedCopy)>,
    /// Block → last transaction that revoked it.
    revoked: HashMap<u64, u64>,
    /// Block and transaction of each copy that doesn't match its tag.
    damages: Vec<(u64, u64, Corrupt)>,
}

impl LogContents {
    fn add(&mut self, transaction: Transaction) {
        self.transactions += 1;
        self.revoke_records += transaction.revokes.len() as u64;
        for copy in transaction.copies {
            self.newest.insert(copy.tag.block, (self.transactions, copy));
        }
        for block in transaction.revokes {
            self.revoked.insert(block, self.transactions);
        }
        let damages = transaction.damages.into_iter();
        self.damages.extend(damages.map(|(block, damage)| (block, self.transactions, damage)));
    }

    /// Fails if a copy that counts is damaged.
    fn check(&self) -> JournalResult {
        let counts =
            |(block, transaction, _): &&(u64, u64, Corrupt)| !self.is_revoked(*block, *transaction);
        match self.damages.iter().find(counts) {
            Some((_, _, damage)) => Err(damage.clone().into()),
            None => Ok(()),
        }
    }

    /// Whether a revoke covers the copy of `block` in transaction `transaction`.
    fn is_revoked(&self, block: u64, transaction: u64) -> bool {
        self.revoked.get(&block).is_some_and(|&revoking| revoking >= transaction)
    }
}

/// The walk along the log.
struct LogScan<'a> {
    format: &'a Format,
    reader: LogReader<'a>,
    position: u32,
    /// The transaction expected here.
    sequence: u32,
    /// Bounds the walk to once round the log.
    walked_blocks: u32,
    contents: LogContents,
}

/// What a transaction has turned out to be so far.
struct ScannedTransaction {
    transaction: Transaction,
    checksum: TransactionChecksum,
    /// The first revoke block that doesn't match its checksum.
    damage: Option<Corrupt>,
}

impl LogScan<'_> {
    /// The transaction at the current position; `None` at the end of the log.
    fn transaction(&mut self) -> JournalResult<Option<Transaction>> {
        let mut draft = ScannedTransaction {
            transaction: Transaction::default(),
            checksum: TransactionChecksum::new(),
            damage: None,
        };
        loop {
            let place = self.position;
            if !self.step() {
                return Ok(None);
            }
            let bytes = self.reader.read(place)?;
            match kind_at(bytes, self.sequence) {
                Some(BlockKind::Descriptor) => {
                    // The bytes are needed while copies are read through the same window.
                    let bytes = bytes.to_vec();
                    if !self.descriptor(&bytes, place, &mut draft)? {
                        return Ok(None);
                    }
                }
                Some(BlockKind::Revoke) => {
                    match check_revoke(self.format, bytes, self.sequence, place) {
                        Ok(blocks) => draft.transaction.revokes.extend(blocks),
                        Err(damage @ Corrupt::BlockChecksum { .. }) => {
                            draft.damage.get_or_insert(damage);
                        }
                        Err(other) => return Err(other.into()),
                    }
                }
                Some(BlockKind::Commit) => {
                    let checked =
                        check_commit(self.format, bytes, self.sequence, place, &draft.checksum);
                    if checked.is_err() {
                        return Ok(None);
                    }
                    let is_damaged =
                        draft.damage.is_some() || !draft.transaction.damages.is_empty();
                    if self.format.is_async_commit() && is_damaged {
                        return Ok(None);
                    }
                    if let Some(damage) = draft.damage {
                        return Err(damage.into());
                    }
                    self.sequence = self.sequence.wrapping_add(1);
                    return Ok(Some(draft.transaction));
                }
                Some(BlockKind::SuperblockV1 | BlockKind::SuperblockV2) | None => return Ok(None),
            }
        }
    }

    /// Notes the copies that a descriptor names. `false` if the log ends here.
    fn descriptor(
        &mut self,
        bytes: &[u8],
        place: u32,
        draft: &mut ScannedTransaction,
    ) -> JournalResult<bool> {
        let format = self.format;
        let Ok(tags) = check_descriptor(format, bytes, self.sequence, place) else {
            return Ok(false);
        };
        let is_v1 = format.checksums() == ChecksumKind::V1;
        if is_v1 {
            draft.checksum.update(bytes);
        }
        for tag in tags {
            let place = self.position;
            if !self.step() {
                return Ok(false);
            }
            if format.checksums() != ChecksumKind::None {
                let copy = self.reader.read(place)?;
                if is_v1 {
                    draft.checksum.update(copy);
                } else if let Err(damage) = format.check_copy(&tag, self.sequence, copy, place) {
                    draft.transaction.damages.push((tag.block, damage));
                }
            }
            draft.transaction.copies.push(LoggedCopy { tag, place });
        }
        Ok(true)
    }

    /// Moves on by a block. `false` if that has led once round the log.
    fn step(&mut self) -> bool {
        if self.walked_blocks >= self.reader.capacity_blocks() {
            return false;
        }
        self.walked_blocks += 1;
        self.position = self.reader.next(self.position);
        true
    }
}

/// Writes the newest copies home and flushes.
fn replay(
    main: &Arc<dyn BlockDevice>,
    area: &JournalArea,
    format: &Format,
    reader: &mut LogReader<'_>,
    contents: &LogContents,
) -> JournalResult<RecoveryReport> {
    let block_size = format.block_size_bytes();
    let main_blocks = main.size_bytes() / block_size as u64;
    let mut report = RecoveryReport {
        transactions: contents.transactions,
        revoke_records: contents.revoke_records,
        ..RecoveryReport::default()
    };
    let mut copies = Vec::new();
    for (&block, &(transaction, copy)) in &contents.newest {
        if contents.is_revoked(block, transaction) {
            report.revoked_blocks += 1;
        } else if block >= main_blocks || area.contains(block) {
            return Err(JournalError::ReplayTarget { block: copy.place, target: block });
        } else {
            copies.push(copy);
        }
    }
    let mut run = HomeRun::default();
    for copy in copies {
        let bytes = reader.read(copy.place)?;
        if run.end() != copy.tag.block || run.bytes.len() >= RUN_BYTES_MAX {
            run.write(&**main, block_size)?;
            run.start = copy.tag.block;
        }
        run.push(bytes, copy.tag.flags.contains(TagFlags::ESCAPE));
        report.replayed_blocks += 1;
    }
    run.write(&**main, block_size)?;
    main.flush()?;
    Ok(report)
}

/// Largest write home.
const RUN_BYTES_MAX: usize = 1 << 20;

/// Consecutive blocks to be written home at once.
#[derive(Default)]
struct HomeRun {
    start: u64,
    count: u64,
    bytes: Vec<u8>,
}

impl HomeRun {
    fn end(&self) -> u64 {
        self.start + self.count
    }

    fn push(&mut self, bytes: &[u8], is_escaped: bool) {
        let place = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        self.count += 1;
        if is_escaped {
            self.bytes[place..place + 4].copy_from_slice(&MAGIC.to_be_bytes());
        }
    }

    fn write(&mut self, device: &dyn BlockDevice, block_size_bytes: usize) -> JournalResult {
        if self.count > 0 {
            device.write_at(offset(self.start, block_size_bytes), &self.bytes)?;
            self.bytes.clear();
            self.count = 0;
        }
        Ok(())
    }
}
