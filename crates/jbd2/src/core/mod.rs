//! The state that handles, the journal's threads and its user share.
//!
//! # State
//!
//! `JournalProgress` says up to which transaction commits are requested and done. An abort sets one
//! sticky error and wakes every waiter, which returns the error.
//!
//! # Locking
//!
//! The progress mutex is a leaf held for a few instructions. Starting and stopping a handle takes
//! no lock; if the transaction has no room, the thread waits at the gate.

mod handle;
mod listener;

pub use handle::Handle;
pub use listener::{BEFORE_COMMIT_CREDITS, CommitListener};

use crate::gate::Gate;
use crate::lock_classes::{COUNTS, LISTENERS, STATE};
use crate::log::JournalLog;
use crate::transaction::{ClosedTransaction, RunningTransaction};
use crate::{JournalError, JournalOptions, JournalResult, JournalStatistics};
use crossbeam_utils::CachePadded;
use drystone_blockdev::DeviceError;
use drystone_cache::{Cache, JournalDoor};
use drystone_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use drystone_sync::{Arc, Condvar, Mutex, PerCore, clock, thread};
use std::time::Duration;
#[cfg(debug_assertions)]
use {crate::lock_classes::HANDLE, drystone_sync::RwLock};

/// Between two tries to write to a full medium.
const FULL_MEDIUM_RETRY: Duration = Duration::from_millis(250);

pub(crate) struct JournalCore {
    pub(crate) cache: Arc<Cache>,
    pub(crate) options: JournalOptions,
    pub(crate) gate: Gate,
    pub(crate) running: RunningTransaction,
    /// `None`: no journal, changes go straight home.
    pub(crate) log: Option<JournalLog>,
    pub(crate) progress: Mutex<JournalProgress>,
    /// There is something to do for the commit thread.
    pub(crate) commit_work: Condvar,
    /// There is something to do for the checkpoint thread.
    pub(crate) checkpoint_work: Condvar,
    /// A transaction has become durable, or the journal has stopped.
    pub(crate) changed: Condvar,
    /// Read by every handle, so alone on its cache lines.
    is_stopped: CachePadded<AtomicBool>,
    committed: AtomicU64,
    listeners: Mutex<Vec<Arc<dyn CommitListener>>>,
    counts: Mutex<JournalStatistics>,
    accesses: PerCore<AtomicU64>,
    /// See [`HANDLE`].
    #[cfg(debug_assertions)]
    pub(crate) handle_order: RwLock<()>,
}

/// How far the journal has come and is asked to go.
pub(crate) struct JournalProgress {
    /// Transactions up to here are to be committed.
    pub(crate) requested: u64,
    /// Transactions up to here are durable.
    pub(crate) committed: u64,
    pub(crate) is_checkpoint_wanted: bool,
    /// The threads are to end, with or without a last commit.
    pub(crate) stop: Option<ThreadStop>,
    pub(crate) error: Option<JournalError>,
    /// Buffers that an aborted journal never wrote home. They stay pinned, so that their changes
    /// stay readable.
    pub(crate) wreck: Vec<ClosedTransaction>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ThreadStop {
    /// Commit first.
    Close,
    /// As a crash would.
    Abandon,
}

impl JournalCore {
    pub(crate) fn new(
        cache: Arc<Cache>,
        options: JournalOptions,
        log: Option<JournalLog>,
        tid: u64,
        max_blocks: u32,
    ) -> Self {
        let progress = JournalProgress {
            requested: tid - 1,
            committed: tid - 1,
            is_checkpoint_wanted: false,
            stop: None,
            error: None,
            wreck: Vec::new(),
        };
        Self {
            cache,
            options,
            gate: Gate::new(),
            running: RunningTransaction::new(tid, max_blocks),
            log,
            progress: Mutex::new(&STATE, progress),
            commit_work: Condvar::new(),
            checkpoint_work: Condvar::new(),
            changed: Condvar::new(),
            is_stopped: CachePadded::new(AtomicBool::new(false)),
            committed: AtomicU64::new(tid - 1),
            listeners: Mutex::new(&LISTENERS, Vec::new()),
            counts: Mutex::new(&COUNTS, JournalStatistics::default()),
            accesses: PerCore::new(|_| AtomicU64::new(0)),
            #[cfg(debug_assertions)]
            handle_order: RwLock::new(&HANDLE, ()),
        }
    }

    /// The error that stopped the journal, if one has.
    #[inline]
    pub(crate) fn check(&self) -> JournalResult {
        if self.is_stopped.load(Ordering::Relaxed) { self.stopped() } else { Ok(()) }
    }

    #[cold]
    fn stopped(&self) -> JournalResult {
        let progress = self.progress.lock();
        Err(match &progress.error {
            Some(JournalError::Closed) | None => JournalError::Closed,
            Some(error) => JournalError::Aborted(Arc::new(error.clone())),
        })
    }

    /// Enters the running transaction with room for `credits`; returns its number.
    #[inline]
    pub(crate) fn enter(&self, slot: usize, credits: u32) -> JournalResult<u64> {
        loop {
            self.gate.enter(slot);
            let tid = self.running.tid();
            if !self.is_stopped.load(Ordering::Relaxed) && self.running.credits.take(slot, credits)
            {
                return Ok(tid);
            }
            self.gate.leave(slot);
            self.wait_for_room(tid, credits)?;
        }
    }

    /// Waits until transaction `tid` may have room for `credits`, because other handles have given
    /// back theirs, or another transaction is running.
    #[cold]
    fn wait_for_room(&self, tid: u64, credits: u32) -> JournalResult {
        self.check()?;
        let max = self.running.max_blocks();
        if credits > max {
            let (credits, max) = (credits.into(), max.into());
            return Err(JournalError::TransactionTooLarge { credits, max });
        }
        let mut is_requested = false;
        self.gate.wait_for_room(|| {
            if self.running.tid() != tid
                || self.is_stopped.load(Ordering::Relaxed)
                || self.running.credits.available() >= i64::from(credits)
            {
                return true;
            }
            if !is_requested && !self.running.could_hold(credits) {
                is_requested = true;
                self.request(tid);
            }
            false
        });
        self.count(|counts| {
            counts.full_waits += u64::from(is_requested);
            counts.credit_waits += u64::from(!is_requested);
        });
        self.check()
    }

    /// Asks for transaction `tid` to be committed, without waiting.
    pub(crate) fn request(&self, tid: u64) {
        if !self.is_committed(tid) {
            let mut progress = self.progress.lock();
            // Never beyond the running transaction: a later one would be closed as soon as it
            // starts.
            let tid = tid.min(self.running.tid());
            if progress.requested < tid {
                progress.requested = tid;
                self.commit_work.notify_one();
            }
        }
    }

    pub(crate) fn is_committed(&self, tid: u64) -> bool {
        // Acquire pairs with the release in `set_committed`.
        self.committed.load(Ordering::Acquire) >= tid
    }

    /// Waits until transaction `tid` is durable.
    pub(crate) fn wait(&self, tid: u64) -> JournalResult {
        if self.is_committed(tid) {
            return Ok(());
        }
        #[cfg(debug_assertions)]
        drop(self.handle_order.read());
        self.count(|counts| counts.commit_waits += 1);
        let mut progress = self.progress.lock();
        if drystone_sync::planted!("lost-wakeup") {
            self.changed.wait(&mut progress);
        }
        while progress.committed < tid && progress.error.is_none() {
            self.changed.wait(&mut progress);
        }
        let is_durable = progress.committed >= tid;
        drop(progress);
        if is_durable { Ok(()) } else { self.stopped() }
    }

    pub(crate) fn set_committed(&self, tid: u64) {
        let mut progress = self.progress.lock();
        progress.committed = tid;
        self.committed.store(tid, Ordering::Release);
        self.changed.notify_all();
    }

    pub(crate) fn want_checkpoint(&self) {
        self.progress.lock().is_checkpoint_wanted = true;
        self.checkpoint_work.notify_one();
    }

    /// Writes, and tries again while the medium is full, for as long as the options say.
    pub(crate) fn when_there_is_room(
        &self,
        mut write: impl FnMut() -> JournalResult,
    ) -> JournalResult {
        let mut full_since = None;
        loop {
            let outcome = write();
            let Err(JournalError::Device(error @ DeviceError::NoSpace { .. })) = &outcome else {
                return outcome;
            };
            let full_since = *full_since.get_or_insert_with(clock::now);
            let progress = self.progress.lock();
            let is_over = progress.error.is_some() || progress.stop == Some(ThreadStop::Abandon);
            drop(progress);
            if is_over || full_since.elapsed() >= self.options.full_medium_wait {
                return outcome;
            }
            tracing::warn!(%error, "the journal waits for room");
            thread::sleep(FULL_MEDIUM_RETRY);
        }
    }

    /// Stops the journal for good. The first error stays.
    pub(crate) fn abort(&self, error: JournalError) {
        {
            let mut progress = self.progress.lock();
            if progress.error.is_some() {
                return;
            }
            progress.error = Some(error.clone());
            self.is_stopped.store(true, Ordering::SeqCst);
            self.changed.notify_all();
            self.commit_work.notify_all();
            self.checkpoint_work.notify_all();
        }
        self.gate.wake_all();
        if let Some(log) = &self.log {
            log.wake();
        }
        if !matches!(error, JournalError::Closed) {
            tracing::error!(%error, "the journal is aborted");
            for listener in self.listeners() {
                listener.aborted(&error);
            }
        }
    }

    /// Tells the threads to end.
    pub(crate) fn stop_threads(&self, stop: ThreadStop) {
        self.progress.lock().stop = Some(stop);
        self.commit_work.notify_all();
        self.checkpoint_work.notify_all();
    }

    pub(crate) fn forget(&self, tid: u64, block: u64) {
        if let Some(buffer) = self.cache.peek(block) {
            JournalDoor::to(&buffer).leave(tid);
        }
        self.cache.invalidate(block);
        if let Some(log) = &self.log {
            self.running.revoke(block, log.revokes_per_block());
        }
    }

    pub(crate) fn listeners(&self) -> Vec<Arc<dyn CommitListener>> {
        self.listeners.lock().clone()
    }

    pub(crate) fn add_listener(&self, listener: Arc<dyn CommitListener>) {
        self.listeners.lock().push(listener);
    }

    /// Drops the listeners, which may refer to the journal.
    pub(crate) fn drop_listeners(&self) {
        let listeners = std::mem::take(&mut *self.listeners.lock());
        drop(listeners);
    }

    pub(crate) fn count(&self, change: impl FnOnce(&mut JournalStatistics)) {
        change(&mut self.counts.lock());
    }

    #[inline]
    pub(crate) fn count_accesses(&self, slot: usize, count: u32) {
        if count > 0 {
            self.accesses.slot(slot).fetch_add(u64::from(count), Ordering::Relaxed);
        }
    }

    pub(crate) fn count_overrun(&self) {
        self.running.credits.charge();
        self.count(|counts| counts.credit_overruns += 1);
    }

    pub(crate) fn statistics(&self) -> JournalStatistics {
        let mut total = *self.counts.lock();
        total.handles_started = self.gate.started().map(u64::from).sum();
        total.write_accesses = self.accesses.iter().map(|slot| slot.load(Ordering::Relaxed)).sum();
        total
    }
}

/// Stops the journal if the thread that holds this panics, so that no other thread waits forever.
pub(crate) struct AbortOnPanic<'a>(pub(crate) &'a JournalCore);

impl Drop for AbortOnPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.abort(JournalError::Stopped("a thread panicked in the journal"));
        }
    }
}
