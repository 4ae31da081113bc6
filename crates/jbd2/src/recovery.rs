//! Replaying a log after a crash.
//!
//! # State
//!
//! Three passes, as jbd2 defines them. *Scan* walks the transactions from the start of the log and
//! ends before the first that is not complete. *Revoke* notes for each revoked block the last
//! transaction that revoked it. *Replay* writes the newest copy of every block home, unless a
//! revoke covers it. The first two share one reading of the log: what a transaction says counts
//! once its commit block is found.
//!
//! Nothing is written before the whole log has been read and every target checked.
//!
//! The log ends where a crash has cut it off. If it was complete once and is damaged, that is an
//! error and nothing is replayed: see [`log_scan`](crate::log_scan).
//!
//! Fast commits that follow the last transaction are only found and handed on, after all
//! transactions have been written home: see [`fast_commit`](crate::fast_commit).
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
use crate::log_scan::{LogContents, LogScan};
use crate::{JournalArea, JournalError, JournalResult};
use drystone_blockdev::BlockDevice;
use drystone_jbd2_format::{Format, MAGIC, Superblock, TagFlags};
use drystone_sync::Arc;

/// Blocks read at once while the log is scanned.
const SCAN_WINDOW_BLOCKS: u32 = 128;

/// What a recovery found and did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
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

/// The result of a recovery.
#[derive(Debug, Default)]
pub struct Recovery {
    /// What it found and did.
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

/// Marks the log at `area` empty without replaying it, because the file system says that it is
/// complete without the log; it may have changed since.
///
/// # Errors
/// As [`read_journal_superblock`]; [`JournalError::Unsupported`] for a journal that can't be written.
pub fn discard(
    main: &Arc<dyn BlockDevice>,
    area: &JournalArea,
    block_size_bytes: u32,
) -> JournalResult {
    let mut superblock = read_superblock(main, area, block_size_bytes)?;
    if superblock.is_version_1() {
        return Err(JournalError::Unsupported("a superblock of version 1"));
    }
    // The numbers skip every transaction that may be in the log, so that none is taken for a new
    // one.
    let log = superblock.log();
    superblock.set_log(None, superblock.sequence().wrapping_add(log.end - log.start));
    write_superblock(area.device(main), area, &superblock)
}

/// Durably clears the error number that a stopped journal has left in its superblock.
///
/// # Errors
/// As [`read_journal_superblock`].
pub fn forget_error_number(
    main: &Arc<dyn BlockDevice>,
    area: &JournalArea,
    block_size_bytes: u32,
) -> JournalResult {
    let mut superblock = read_superblock(main, area, block_size_bytes)?;
    superblock.set_error_number(0);
    write_superblock(area.device(main), area, &superblock)
}

/// Replays the log at `area` onto `main` and marks it empty. If fast commits are left to be
/// replayed, the log still needs recovery. Does nothing if the log is empty.
///
/// The file system was made at `made_seconds` (since 1970). A commit with an earlier time may be
/// left over from a previous file system.
///
/// To read a file system without changing it, let `main` be an overlay that keeps writes in
/// memory (and an external journal's device another).
///
/// # Errors
/// The device's; or the journal's, and then nothing was written.
pub fn recover(
    main: &Arc<dyn BlockDevice>,
    area: &JournalArea,
    block_size_bytes: u32,
    made_seconds: u64,
) -> JournalResult<Recovery> {
    let mut superblock = read_superblock(main, area, block_size_bytes)?;
    let Some(start) = superblock.start() else { return Ok(Recovery::default()) };
    let format = superblock.format();
    let device = area.device(main).clone();
    let block_size = format.block_size_bytes();
    let reader = LogReader::new(&*device, area, superblock.log(), block_size, SCAN_WINDOW_BLOCKS);
    let scan = LogScan::new(&format, reader, start, superblock.sequence(), made_seconds);
    let (contents, sequence) = scan.run()?;
    contents.check()?;
    let fast_commits = fast_commit::find(&superblock, &*device, area, sequence)?;
    // Copies are visited in the order of their places on the device, not of the log.
    let mut reader = LogReader::new(&*device, area, superblock.log(), block_size, 1);
    let report = replay(main, area, &format, &mut reader, &contents)?;
    match &fast_commits {
        // The log's first block isn't of this transaction, or has no commit block.
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

/// Writes the newest copies home and flushes.
fn replay(
    main: &Arc<dyn BlockDevice>,
    area: &JournalArea,
    format: &Format,
    reader: &mut LogReader<'_>,
    contents: &LogContents,
) -> JournalResult<RecoveryReport> {
    let block_size = format.block_size_bytes();
    // The device's end counts, not the file system's: the log of a file system that was growing has
    // copies of blocks beyond its old end.
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

/// Consecutive blocks that are written home at once.
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
