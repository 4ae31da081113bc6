//! How a recovery hands fast commits to the file system.
//!
//! Their records are about files, so only the file system can replay them. That takes place in
//! memory, and what it changes becomes one full transaction in the log, which the next
//! [`recover`](crate::recover) replays.
//!
//! # Crash
//!
//! [`recover`](crate::recover) leaves all full transactions at home and an empty log that starts
//! where the transaction of the fast commits would be. Until the new transaction's commit block is
//! durable, every recovery finds the fast commits again and the same blocks at home. From then on
//! it finds a full transaction with that number, and ignores the fast commits because they are
//! older than the end of the log. So the fast commits are replayed once, whole or not at all.
//!
//! # Reference
//! "Journal (jbd2)" in the kernel's ext4 data structure pages.

use crate::log::read_superblock;
use crate::log_read::LogReader;
use crate::log_write::{copy_pieces, write_commit, write_pieces};
use crate::{JournalArea, JournalError, JournalResult};
use drystone_blockdev::BlockDevice;
use drystone_cache::BlockBytes;
use drystone_jbd2_format::{
    ChecksumKind, FastCommit, FastCommitScan, Superblock, TransactionChecksum,
};
use drystone_sync::Arc;

/// Fast commits that the file system has to replay.
#[derive(Debug)]
pub struct PendingFastCommits {
    /// The transaction that they belong to, which has no full commit.
    pub(crate) sequence: u32,
    /// Oldest first.
    pub commits: Vec<FastCommit>,
}

/// The fast commits of transaction `sequence`, if there are any.
pub(crate) fn find(
    superblock: &Superblock,
    device: &dyn BlockDevice,
    area: &JournalArea,
    sequence: u32,
) -> JournalResult<Option<PendingFastCommits>> {
    let blocks = superblock.fast_commit_area();
    let block_size = superblock.block_size_bytes() as usize;
    let mut reader = LogReader::new(device, area, blocks.clone(), block_size, 1);
    let mut scan = FastCommitScan::new(sequence);
    for block in blocks {
        if !scan.block(reader.read(block)?) {
            break;
        }
    }
    let commits = scan.finish()?;
    Ok((!commits.is_empty()).then_some(PendingFastCommits { sequence, commits }))
}

/// Replaces fast commits by one transaction that holds what they lead to: the new content of blocks
/// of `main`. To be called after [`recover`](crate::recover) has found fast commits; `recover` must
/// be called again afterwards.
///
/// # Errors
/// The device's; [`JournalError::TransactionTooLarge`] if the log is too small.
pub fn replace_fast_commits(
    main: &Arc<dyn BlockDevice>,
    area: &JournalArea,
    block_size_bytes: u32,
    pending: &PendingFastCommits,
    blocks: &[(u64, BlockBytes)],
) -> JournalResult {
    let superblock = read_superblock(main, area, block_size_bytes)?;
    let (log, format) = (superblock.log(), superblock.format());
    if superblock.start() != Some(log.start) || superblock.sequence() != pending.sequence {
        return Err(JournalError::NeedsRecovery);
    }
    let device = area.device(main);
    let mut pieces = Vec::new();
    let copies = blocks.iter().map(|(number, bytes)| (*number, bytes));
    copy_pieces(&format, pending.sequence, copies, &mut pieces);
    let max = u64::from(log.end - log.start);
    if pieces.len() as u64 >= max {
        return Err(JournalError::TransactionTooLarge { credits: pieces.len() as u64 + 1, max });
    }
    let mut checksum = TransactionChecksum::new();
    if format.checksums() == ChecksumKind::V1 {
        pieces.iter().for_each(|piece| checksum.update(piece.bytes()));
    }
    // Both lie in the log.
    let place = |skip: u32, count: u32| log.start + skip..log.start + skip + count;
    write_pieces(&**device, area, &format, &pieces, place)?;
    device.flush()?;
    let last = place(pieces.len() as u32, 1);
    write_commit(&**device, area, &format, pending.sequence, last, &checksum)
}
