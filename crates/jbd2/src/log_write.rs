//! Writing one transaction to the log.
//!
//! # Crash
//!
//! The order on the device: revoke blocks, descriptors and copies in any order; a flush (of
//! the file system's device too, if the journal has its own); the commit block, durably. The
//! flush also covers the file data that was written before the transaction closed, so a
//! committed mapping never points at blocks that are not written.
//!
//! # Reference
//! "Journal (jbd2)" in the kernel's ext4 data structure pages.

use crate::checkpoint;
use crate::core::JournalCore;
use crate::log::{CommittedCopy, FreeTarget, JournalLog, LoggedTransaction, offset};
use crate::transaction::{ClosedTransaction, Frozen};
use crate::{JournalArea, JournalError, JournalResult};
use drystone_blockdev::BlockDevice;
use drystone_cache::BlockBytes;
use drystone_jbd2_format::{
    Commit, DescriptorBuilder, Format, RevokeBuilder, TransactionChecksum, encode_commit,
    is_escape_needed,
};
use drystone_sync::clock;
use std::io::IoSlice;
use std::ops::Range;

/// Most slices in one device write.
const SLICES_MAX: usize = 512;

/// A block of the log as it is to be written.
pub(crate) enum LogPiece {
    /// The journal's own, or an escaped copy.
    Owned(Box<[u8]>),
    /// As it was frozen.
    Shared(BlockBytes),
}

impl LogPiece {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Owned(bytes) => bytes,
            Self::Shared(bytes) => bytes,
        }
    }
}

/// The revoke blocks of a transaction.
fn revoke_pieces(format: &Format, sequence: u32, revokes: &[u64]) -> Vec<LogPiece> {
    let blocks = revokes.chunks(format.revokes_per_block()).map(|records| {
        let mut builder = RevokeBuilder::new(format, sequence);
        records.iter().for_each(|&block| builder.push(block));
        LogPiece::Owned(builder.finish())
    });
    blocks.collect()
}

/// Adds the copies of a transaction, with descriptors in front of them.
pub(crate) fn copy_pieces<'a>(
    format: &Format,
    sequence: u32,
    copies: impl ExactSizeIterator<Item = (u64, &'a BlockBytes)>,
    pieces: &mut Vec<LogPiece>,
) {
    pieces.reserve(copies.len() + copies.len() / 64 + 4);
    let mut copies = copies.peekable();
    while copies.peek().is_some() {
        let mut builder = DescriptorBuilder::new(format, sequence);
        let place = pieces.len();
        // Replaced below, when the tags are known.
        pieces.push(LogPiece::Owned(Box::default()));
        for (number, bytes) in copies.by_ref().take(format.tags_per_descriptor()) {
            let is_escaped = is_escape_needed(bytes);
            let piece = if is_escaped {
                let mut escaped = Box::clone(bytes);
                escaped[..4].fill(0);
                LogPiece::Owned(escaped)
            } else {
                LogPiece::Shared(bytes.clone())
            };
            let checksum = format.copy_checksum(sequence, piece.bytes());
            builder.push(number, is_escaped, checksum);
            pieces.push(piece);
        }
        pieces[place] = LogPiece::Owned(builder.finish());
    }
}

/// Writes blocks of the log. `place` says where `count` of them go after the first `skip`: all, or
/// as many as lie before the log's end.
pub(crate) fn write_pieces(
    device: &dyn BlockDevice,
    area: &JournalArea,
    format: &Format,
    pieces: &[LogPiece],
    place: impl Fn(u32, u32) -> Range<u32>,
) -> JournalResult {
    let mut done = 0;
    while done < pieces.len() {
        let left = (pieces.len() - done).min(SLICES_MAX);
        // Both fit: a transaction has fewer blocks than the log.
        let (physical, count) = area.run(place(done as u32, left as u32))?;
        let run = &pieces[done..done + count as usize];
        let slices: Vec<_> = run.iter().map(|piece| IoSlice::new(piece.bytes())).collect();
        device.write_vectored_at(offset(physical, format.block_size_bytes()), &slices)?;
        done += count as usize;
    }
    Ok(())
}

/// Writes a commit block durably.
pub(crate) fn write_commit(
    device: &dyn BlockDevice,
    area: &JournalArea,
    format: &Format,
    sequence: u32,
    place: Range<u32>,
    checksum: &TransactionChecksum,
) -> JournalResult {
    let (seconds, nanoseconds) = clock::wall();
    let commit = Commit { seconds: seconds.max(0).cast_unsigned(), nanoseconds };
    let bytes = encode_commit(format, sequence, commit, checksum);
    let (physical, _) = area.run(place)?;
    device.write_durable_at(offset(physical, bytes.len()), &bytes)?;
    Ok(())
}

/// Makes a transaction durable. Its blocks are then the newest committed copies.
pub(crate) fn commit(
    core: &JournalCore,
    log: &JournalLog,
    closed: &ClosedTransaction,
    frozen: Vec<Frozen>,
) -> JournalResult {
    let _turn = log.commit_turn.lock();
    let mut revokes = closed.revokes.clone();
    revokes.sort_unstable();
    if frozen.is_empty() && revokes.is_empty() {
        // All its buffers were freed again.
        core.cache.device().flush()?;
        return Ok(());
    }
    let sequence = log.space.lock().sequence;
    let mut pieces = revoke_pieces(&log.format, sequence, &revokes);
    let copies = frozen.iter().map(|block| (block.buffer.number(), &block.bytes));
    copy_pieces(&log.format, sequence, copies, &mut pieces);
    // All of them, and the commit block.
    let length = u32::try_from(pieces.len() + 1).unwrap_or(u32::MAX);
    let start = reserve(core, log, length)?;
    let place = |skip, count| log.blocks_after(start, skip, count);
    core.when_there_is_room(|| write_pieces(&*log.device, &log.area, &log.format, &pieces, place))?;
    // Not asked of the superblock, which a checkpoint may be writing.
    let is_started = log.space.lock().is_started;
    if !is_started {
        core.when_there_is_room(|| log.set_start(Some(start), sequence))?;
        log.space.lock().is_started = true;
    }
    if log.area.is_external() {
        core.cache.device().flush()?;
    }
    if !drystone_sync::planted!("commit-without-flush") {
        log.device.flush()?;
    }
    let place = log.blocks_after(start, length - 1, 1);
    let checksum = TransactionChecksum::new();
    core.when_there_is_room(|| {
        let place = place.clone();
        write_commit(&*log.device, &log.area, &log.format, sequence, place, &checksum)
    })?;
    core.count(|counts| counts.log_blocks += u64::from(length));
    committed(core, log, closed.tid, start, length, frozen, &revokes)
}

/// Waits for `length` free blocks; returns the first. There is one commit at a time, so
/// they stay free.
fn reserve(core: &JournalCore, log: &JournalLog, length: u32) -> JournalResult<u32> {
    let capacity = log.capacity_blocks();
    if length > capacity {
        let (credits, max) = (length.into(), capacity.into());
        return Err(JournalError::TransactionTooLarge { credits, max });
    }
    {
        let space = log.space.lock();
        if capacity - space.used_blocks >= length {
            return Ok(space.head);
        }
    }
    core.count(|counts| counts.log_full_waits += 1);
    // Half of the log, so that the next commits find room.
    checkpoint::free_space(core, log, FreeTarget::FreeBlocks(length.max(capacity / 2)))?;
    let space = log.space.lock();
    assert!(capacity - space.used_blocks >= length, "a checkpoint has freed too little");
    Ok(space.head)
}

/// Notes that a transaction is durable: its copies replace older ones, its revokes drop them.
fn committed(
    core: &JournalCore,
    log: &JournalLog,
    tid: u64,
    start: u32,
    length_blocks: u32,
    frozen: Vec<Frozen>,
    revokes: &[u64],
) -> JournalResult {
    let mut space = log.space.lock();
    let sequence = space.sequence;
    space.sequence = sequence.wrapping_add(1);
    space.head = log.after(start, length_blocks);
    space.used_blocks += length_blocks;
    let blocks = frozen.iter().map(|block| block.buffer.number()).collect();
    space.transactions.push_back(LoggedTransaction { tid, sequence, start, length_blocks, blocks });
    for Frozen { buffer, bytes } in frozen {
        space.copies.insert(buffer.number(), CommittedCopy { tid, bytes, _buffer: buffer });
    }
    for block in revokes {
        // Once this transaction is reported durable the block may be reused. A copy of it that is
        // still being written home would land on the new content.
        if space.in_flight.binary_search(block).is_ok() {
            core.count(|counts| counts.revoke_waits += 1);
        }
        while space.in_flight.binary_search(block).is_ok() {
            core.check()?;
            log.checkpointed.wait(&mut space);
        }
        space.copies.remove(block);
    }
    Ok(())
}
