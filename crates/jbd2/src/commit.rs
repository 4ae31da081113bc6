//! The commit thread: it closes transactions and makes them durable.
//!
//! # State
//!
//! A commit closes the gate and waits for open handles; lets the listeners add to the transaction;
//! takes its lists and opens the gate for the next transaction; then freezes the buffers and writes
//! them. Handles wait only for the first half, in which the journal does no I/O.
//!
//! All commits that are requested while one is being written are done by the next (group commit).
//!
//! # Crash
//!
//! A transaction is durable when its commit block is, which is written after a flush of all the log
//! blocks before it and of the file data written meanwhile. Then the listeners are told, and after
//! them the waiters, so that a freed block is reusable when a waiter looks for it.

use crate::checkpoint::write_home;
use crate::core::{AbortOnPanic, BEFORE_COMMIT_CREDITS, JournalCore, ThreadStop};
use crate::log_write;
use crate::transaction::ClosedTransaction;
use crate::{Handle, JournalResult};
use drystone_sync::clock;

/// A closed transaction that is being written to the log. If that fails, by a panic too, its buffers
/// stay pinned.
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

/// The commit thread.
pub(crate) fn run(core: &JournalCore) {
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

/// Returns when the running transaction is to be committed. Only this thread replaces that.
fn wait_for_work(core: &JournalCore) -> Option<ThreadStop> {
    let running = core.running.tid();
    let mut progress = core.progress.lock();
    loop {
        if progress.stop.is_some() {
            return progress.stop;
        }
        if progress.error.is_some() {
            // Nothing will be committed any more; only the request to end is still to come.
            core.commit_work.wait(&mut progress);
            continue;
        }
        if progress.requested >= running {
            return None;
        }
        let is_timeout = core.commit_work.wait_timeout(&mut progress, core.options.commit_interval);
        if is_timeout && progress.stop.is_none() && progress.requested < running {
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
    // From here on the cache may drop the buffers that the log doesn't pin.
    drop(committing);
    let listeners = core.listeners();
    for listener in &listeners {
        listener.committed(tid);
    }
    core.set_committed(tid);
    for listener in &listeners {
        listener.settled(tid);
    }
    Ok(())
}

/// Freezes a closed transaction and writes it where it belongs.
fn write(core: &JournalCore, closed: &ClosedTransaction) -> JournalResult {
    if closed.is_empty() {
        // The caller wants everything written so far to be durable.
        core.cache.device().flush()?;
        return Ok(());
    }
    let frozen = closed.freeze();
    core.count(|counts| {
        let blocks = frozen.len() as u64;
        counts.committed_blocks += blocks;
        counts.largest_commit_blocks = counts.largest_commit_blocks.max(blocks);
    });
    match &core.log {
        Some(log) => {
            log_write::commit(core, log, closed, frozen)?;
            let budget_bytes = core.cache.budget_bytes();
            let pinned_bytes = log.unwritten_blocks() * core.cache.block_size_bytes();
            if log.is_half_full() || pinned_bytes > budget_bytes / 4 {
                core.want_checkpoint();
            }
        }
        None => core.when_there_is_room(|| {
            write_home(core, frozen.iter().map(|block| (block.buffer.number(), &**block.bytes)))
        })?,
    }
    Ok(())
}
