//! The checkpoint thread: it writes committed blocks home, so that the log can be used again.
//!
//! # State
//!
//! A checkpoint takes the oldest transactions, as many as its target needs. It writes those of
//! their blocks that no newer transaction in the log has a copy of; the others are safe in the log
//! with that transaction. It writes the frozen, committed copy, so it doesn't wait for uncommitted
//! changes.
//!
//! While a block is being written home, nothing else may be written there: a commit that revokes it
//! waits until the write is over before it reports the block as free.
//!
//! # Crash
//!
//! A checkpoint writes blocks home, flushes, makes the superblock durable, and only then frees the
//! log space. After a crash before the superblock is durable, recovery replays copies that are at
//! home already, or older copies that a newer one in the log follows.

use crate::JournalResult;
use crate::core::{AbortOnPanic, JournalCore};
use crate::log::{FreeTarget, JournalLog, LogSpace};
use drystone_cache::BlockBytes;
use std::io::IoSlice;

/// Most slices in one device write.
const SLICES_MAX: usize = 512;

/// A committed copy to be written home.
struct HomeWrite {
    block: u64,
    tid: u64,
    bytes: BlockBytes,
}

/// The checkpoint thread.
pub(crate) fn run(core: &JournalCore) {
    let _guard = AbortOnPanic(core);
    let Some(log) = &core.log else { return };
    loop {
        {
            let mut progress = core.progress.lock();
            while !progress.is_checkpoint_wanted && progress.stop.is_none() {
                core.checkpoint_work.wait(&mut progress);
            }
            if progress.stop.is_some() {
                return;
            }
            progress.is_checkpoint_wanted = false;
        }
        if core.check().is_ok()
            && let Err(error) = free_space(core, log, FreeTarget::Everything)
        {
            core.abort(error);
        }
    }
}

/// Writes every committed block home.
pub(crate) fn write_all_home(core: &JournalCore) -> JournalResult {
    abort_on_error(core, |log| free_space(core, log, FreeTarget::Everything))
}

/// Writes every committed block home and marks the log empty.
pub(crate) fn mark_empty(core: &JournalCore) -> JournalResult {
    abort_on_error(core, |log| empty_log(core, log))
}

fn abort_on_error(
    core: &JournalCore,
    work: impl FnOnce(&JournalLog) -> JournalResult,
) -> JournalResult {
    let Some(log) = &core.log else { return Ok(()) };
    work(log).inspect_err(|error| core.abort(error.clone()))
}

/// Writes everything home and marks the log empty.
fn empty_log(core: &JournalCore, log: &JournalLog) -> JournalResult {
    let _turn = log.commit_turn.lock();
    free_space(core, log, FreeTarget::Everything)?;
    let sequence = {
        let mut space = log.space.lock();
        assert!(space.transactions.is_empty(), "a log in use is marked empty");
        space.used_blocks = 0;
        space.is_started = false;
        space.sequence
    };
    core.when_there_is_room(|| log.set_start(None, sequence))
}

/// Frees log space up to `target`. A failure aborts the journal.
pub(crate) fn free_space(
    core: &JournalCore,
    log: &JournalLog,
    target: FreeTarget,
) -> JournalResult {
    let _turn = log.checkpoint_turn.lock();
    let _guard = AbortOnPanic(core);
    // After a failed checkpoint the superblock no longer describes the log's space.
    core.check()?;
    // No other checkpoint may begin before the journal has stopped.
    write_and_free(core, log, target).inspect_err(|error| core.abort(error.clone()))
}

fn write_and_free(core: &JournalCore, log: &JournalLog, target: FreeTarget) -> JournalResult {
    let (through, homing) = {
        let mut space = log.space.lock();
        let Some(through) = choose(log, &space, target) else { return Ok(()) };
        let mut homing = collect(&space, through);
        homing.sort_unstable_by_key(|copy| copy.block);
        space.in_flight = homing.iter().map(|copy| copy.block).collect();
        (through, homing)
    };
    let written = if homing.is_empty() {
        Ok(())
    } else {
        core.when_there_is_room(|| {
            write_home(core, homing.iter().map(|copy| (copy.block, &**copy.bytes)))
        })
    };
    let mut space = log.space.lock();
    space.in_flight.clear();
    log.checkpointed.notify_all();
    written?;
    for HomeWrite { block, tid, .. } in &homing {
        // A newer copy, or a revoke, may have come meanwhile.
        if space.copies.get(block).is_some_and(|copy| copy.tid == *tid) {
            space.copies.remove(block);
        }
    }
    let mut freed_blocks = 0;
    while let Some(oldest) = space.transactions.front()
        && oldest.tid <= through
    {
        freed_blocks += oldest.length_blocks;
        space.transactions.pop_front();
    }
    let (start, sequence) = match space.transactions.front() {
        Some(oldest) => (oldest.start, oldest.sequence),
        None => (space.head, space.sequence),
    };
    drop(space);
    core.when_there_is_room(|| log.set_start(Some(start), sequence))?;
    log.space.lock().used_blocks -= freed_blocks;
    core.count(|counts| {
        counts.checkpoints += 1;
        counts.checkpointed_blocks += homing.len() as u64;
    });
    Ok(())
}

/// The last transaction that has to leave the log, if any.
fn choose(log: &JournalLog, space: &LogSpace, target: FreeTarget) -> Option<u64> {
    let wanted = match target {
        FreeTarget::Everything => return space.transactions.back().map(|newest| newest.tid),
        FreeTarget::FreeBlocks(wanted) => wanted,
    };
    let mut free = log.capacity_blocks() - space.used_blocks;
    let mut through = None;
    for transaction in &space.transactions {
        if free >= wanted {
            break;
        }
        free += transaction.length_blocks;
        through = Some(transaction.tid);
    }
    through
}

/// The newest copies that belong to transactions up to `through`.
fn collect(space: &LogSpace, through: u64) -> Vec<HomeWrite> {
    let transactions = space.transactions.iter().take_while(|logged| logged.tid <= through);
    let newest_of = |tid, block: &u64| {
        let copy = space.copies.get(block).filter(|copy| copy.tid == tid)?;
        Some(HomeWrite { block: *block, tid, bytes: copy.bytes.clone() })
    };
    transactions
        .flat_map(|logged| {
            logged.blocks.iter().filter_map(move |block| newest_of(logged.tid, block))
        })
        .collect()
}

/// Writes blocks, sorted by number, to their places, a run at a time, and flushes.
pub(crate) fn write_home<'a>(
    core: &JournalCore,
    blocks: impl Iterator<Item = (u64, &'a [u8])>,
) -> JournalResult {
    let device = core.cache.device();
    let block_size = core.cache.block_size_bytes() as u64;
    let mut start = 0;
    let mut run: Vec<IoSlice<'_>> = Vec::new();
    for (block, bytes) in blocks {
        if run.len() == SLICES_MAX || start + run.len() as u64 != block {
            if !run.is_empty() {
                device.write_vectored_at(start * block_size, &run)?;
                run.clear();
            }
            start = block;
        }
        run.push(IoSlice::new(bytes));
    }
    if !run.is_empty() {
        device.write_vectored_at(start * block_size, &run)?;
    }
    if !drystone_sync::planted!("checkpoint-without-flush") {
        device.flush()?;
    }
    Ok(())
}
