//! The journal's two threads: one closes and commits transactions, one writes committed blocks
//! home.
//!
//! # State
//!
//! A commit goes: close the gate and wait for the handles in flight; let the listeners add to
//! the transaction; take its lists out and open the gate on the next one; then freeze its
//! buffers and write them. Handles are kept out for the first half only, which does no I/O of
//! the journal's own.
//!
//! All commits wanted while one is being written are done by the next: that is the group
//! commit.
//!
//! # Crash
//!
//! A transaction is durable when its commit block is, which is written after a flush of all
//! the log blocks before it and of the file data written meanwhile. Only then are listeners,
//! waiters told, in this order, so that a freed block is reusable when a waiter
//! looks for it.

use crate::core::{JournalCore, ThreadStop};
use crate::log::{FreeTarget, JournalLog};
use crate::options::BEFORE_COMMIT_CREDITS;
use crate::transaction::ClosedTransaction;
use crate::{Handle, JournalError, JournalResult};
use drystone_cache::{BlockBytes, Buffer};
use drystone_sync::{Arc, clock, thread};
use std::io::IoSlice;

/// A closed transaction's block as it is to be written.
pub(crate) struct Frozen {
    pub(crate) buffer: Arc<Buffer>,
    pub(crate) bytes: BlockBytes,
}

/// Most slices in one device write.
const SLICES_MAX: usize = 512;

/// A closed transaction on its way to the log. Unless it gets there its buffers stay pinned, also if
/// the thread panics.
struct CommittingTransaction<'a> {
    core: &'a JournalCore,
    closed: ClosedTransaction,
    is_committed: bool,
}

impl Drop for CommittingTransaction<'_> {
    fn drop(&mut self) {
        if !self.is_committed {
            self.core.progress.lock().wreck.push(std::mem::take(&mut self.closed));
        }
    }
}

/// Stops the journal if the thread that holds it panics, lest others wait forever.
pub(crate) struct AbortOnPanic<'a>(pub(crate) &'a JournalCore);

impl Drop for AbortOnPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.abort(JournalError::Stopped("a thread panicked in the journal"));
        }
    }
}

/// The commit thread.
pub(crate) fn run_commits(core: &JournalCore) {
    let _guard = AbortOnPanic(core);
    loop {
        let stop = wait_for_work(core);
        if stop == Some(ThreadStop::Abandon) {
            return;
        }
        if let Err(error) = commit(core) {
            core.abort(error);
        }
        if stop.is_some() {
            return;
        }
    }
}

/// Returns when the running transaction is to be committed.
fn wait_for_work(core: &JournalCore) -> Option<ThreadStop> {
    let mut progress = core.progress.lock();
    loop {
        if progress.stop.is_some() {
            return progress.stop;
        }
        if progress.error.is_some() {
            // Nothing will be committed any more: there is only the end to wait for.
            core.commit_work.wait(&mut progress);
            continue;
        }
        if progress.requested >= progress.running {
            return None;
        }
        let is_timeout = core.commit_work.wait_timeout(&mut progress, core.options.commit_interval);
        if is_timeout && progress.stop.is_none() && progress.requested < progress.running {
            drop(progress);
            if !core.running.is_empty() {
                return None;
            }
            progress = core.progress.lock();
        }
    }
}

/// Closes the running transaction and makes it durable.
fn commit(core: &JournalCore) -> JournalResult {
    let start = clock::now();
    let gate = core.gate.close();
    let is_stopped = core.check().is_err();
    if !is_stopped && !core.running.is_empty() {
        let tid = core.running.tid();
        let mut handle = Handle::in_commit(core, BEFORE_COMMIT_CREDITS);
        for listener in core.listeners() {
            listener.before_commit(tid, &mut handle);
        }
        drop(handle);
    }
    let closed = core.running.close();
    let tid = closed.tid;
    let mut committing = CommittingTransaction { core, closed, is_committed: false };
    core.set_running(tid + 1);
    drop(gate);
    let close_us = start.elapsed_ns() / 1000;
    core.check()?;
    write(core, &committing.closed)?;
    committing.is_committed = true;
    let commit_us = start.elapsed_ns() / 1000;
    core.count(|counts| {
        counts.longest_close_us = counts.longest_close_us.max(close_us);
        let closed = &committing.closed;
        if !closed.is_empty() {
            counts.commits += 1;
            counts.revokes += closed.revokes.len() as u64;
            counts.longest_commit_us = counts.longest_commit_us.max(commit_us);
            counts.total_commit_us += commit_us;
        }
    });
    // The buffers may be dropped from the cache from here on, where the log doesn't pin them.
    drop(committing);
    for listener in core.listeners() {
        listener.committed(tid);
    }
    core.set_committed(tid);
    Ok(())
}

/// Freezes a closed transaction and writes it where it belongs.
fn write(core: &JournalCore, closed: &ClosedTransaction) -> JournalResult {
    if closed.is_empty() {
        // Whoever asked wants what was written so far to be durable.
        core.cache.device().flush()?;
        return Ok(());
    }
    let frozen = freeze(closed);
    core.count(|counts| {
        let blocks = frozen.len() as u64;
        counts.committed_blocks += blocks;
        counts.largest_commit_blocks = counts.largest_commit_blocks.max(blocks);
    });
    match &core.log {
        Some(log) => {
            log.commit(core, closed, frozen)?;
            let budget_bytes = core.cache.budget_bytes();
            let pinned_bytes = log.unwritten_blocks() * core.cache.block_size_bytes();
            if log.is_half_full() || pinned_bytes > budget_bytes / 4 {
                core.want_checkpoint();
            }
        }
        None => {
            let blocks = frozen.iter().map(|block| (block.buffer.number(), &**block.bytes));
            write_home(core, blocks)?;
        }
    }
    Ok(())
}

/// The blocks of a closed transaction, by block number. Those that the next transaction has
/// changed already were frozen then; those that were freed have left.
fn freeze(closed: &ClosedTransaction) -> Vec<Frozen> {
    let freeze = |buffer: &Arc<Buffer>| {
        let bytes = buffer.journal().freeze(closed.tid)?;
        Some(Frozen { buffer: buffer.clone(), bytes })
    };
    let mut frozen: Vec<Frozen> = closed.buffers.iter().filter_map(freeze).collect();
    frozen.sort_unstable_by_key(|block| block.buffer.number());
    debug_assert!(
        frozen.is_sorted_by(|a, b| a.buffer.number() < b.buffer.number()),
        "a transaction holds two buffers of one block"
    );
    frozen
}

/// Writes blocks, sorted by number, to where they belong, runs of them at once, and flushes.
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
    device.flush()?;
    Ok(())
}

/// The checkpoint thread.
pub(crate) fn run_checkpoints(core: &JournalCore) {
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
            && let Err(error) = log.checkpoint(core, FreeTarget::Everything)
        {
            core.abort(error);
        }
    }
}

/// Writes every committed block home.
pub(crate) fn checkpoint_all(core: &JournalCore) -> JournalResult {
    abort_on_error(core, |log| log.checkpoint(core, FreeTarget::Everything))
}

/// Writes every committed block home and marks the log empty.
pub(crate) fn mark_empty(core: &JournalCore) -> JournalResult {
    abort_on_error(core, |log| log.mark_empty(core))
}

fn abort_on_error(
    core: &JournalCore,
    work: impl FnOnce(&JournalLog) -> JournalResult,
) -> JournalResult {
    let Some(log) = &core.log else { return Ok(()) };
    work(log).inspect_err(|error| core.abort(error.clone()))
}
