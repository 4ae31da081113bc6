//! Fast commits on their way through a recovery.
//!
//! Their records are about files, so only the file system can replay them. That takes place in
//! memory, and what it changes becomes one full transaction in the log, which the next
//! [`recover`](crate::recover) replays.
//!
//! # Crash
//!
//! [`recover`](crate::recover) leaves all full transactions at home and a log that begins, and
//! ends, where the transaction of the fast commits would stand. Until the commit block of the new
//! transaction is there, every recovery finds the fast commits again, and the same blocks at home.
//! From then on it finds a full transaction of that number, and fast commits that are older than
//! the end of the log and no longer count. So they are replayed whole or not at all, once.
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
    /// Their transaction, which has no full commit.
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

/// Puts what fast commits lead to in their place: the new content of blocks of `main`, as one
/// transaction. [`recover`](crate::recover) has found them, and is to be called again afterwards.
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
