//! The journal as its user sees it.

use crate::core::{AbortOnPanic, BEFORE_COMMIT_CREDITS, JournalCore, ThreadStop};
use crate::lock_classes::THREADS;
use crate::log::JournalLog;
use crate::{
    CommitListener, Handle, JournalArea, JournalError, JournalOptions, JournalResult,
    JournalStatistics, checkpoint, commit,
};
use drystone_cache::Cache;
use drystone_sync::{Arc, Mutex, thread};

/// The first transaction's number in memory; 0 means none.
const FIRST_TID: u64 = 1;

/// The least room, in blocks, that a transaction must have.
const TRANSACTION_BLOCKS_MIN: u32 = 4;

/// Transactions over the buffers of a [`Cache`], with a log or without.
///
/// Ends with [`close`](Self::close); a journal that is dropped instead leaves what a crash
/// would.
pub struct Journal {
    core: Arc<JournalCore>,
    /// Held while the journal ends: a second call that ends it waits for the first.
    end: Mutex<JournalEnd>,
}

/// The threads, and how a close has ended.
#[derive(Default)]
struct JournalEnd {
    threads: Vec<thread::JoinHandle<()>>,
    outcome: Option<JournalResult>,
}

impl Journal {
    /// Opens the journal at `area`, whose log must be empty.
    ///
    /// # Errors
    /// [`JournalError::NeedsRecovery`] if the log is not empty; other errors of the journal
    /// superblock or the device.
    pub fn open(
        cache: Arc<Cache>,
        area: JournalArea,
        options: JournalOptions,
    ) -> JournalResult<Arc<Self>> {
        let log = JournalLog::open(&cache, area, &options)?;
        let quarter = log.capacity_blocks() / 4;
        Self::start_threads(cache, options, Some(log), quarter)
    }

    /// A journal without a log: a commit writes the buffers home and flushes. Nothing is atomic;
    /// everything else is the same.
    ///
    /// # Errors
    /// A thread can't be started.
    pub fn unlogged(cache: Arc<Cache>, options: JournalOptions) -> JournalResult<Arc<Self>> {
        Self::start_threads(cache, options, None, u32::MAX)
    }

    fn start_threads(
        cache: Arc<Cache>,
        options: JournalOptions,
        log: Option<JournalLog>,
        blocks_max: u32,
    ) -> JournalResult<Arc<Self>> {
        // The cache can't drop buffers that are in a transaction.
        let cache_blocks = cache.budget_bytes() / cache.block_size_bytes() / 4;
        let cache_blocks = u32::try_from(cache_blocks).unwrap_or(u32::MAX);
        let wanted = options.max_transaction_blocks.unwrap_or(u32::MAX);
        let blocks_max = blocks_max.min(wanted).min(cache_blocks.max(1024));
        let reserved = BEFORE_COMMIT_CREDITS.min(blocks_max / 4);
        let max_blocks = (blocks_max - reserved).max(TRANSACTION_BLOCKS_MIN);
        let core = Arc::new(JournalCore::new(cache, options, log, FIRST_TID, max_blocks));
        let end = Mutex::new(&THREADS, JournalEnd::default());
        let journal = Arc::new(Self { core: core.clone(), end });
        if !core.options.read_only {
            let threads = &mut journal.end.lock().threads;
            let spawn = |name: &str, body: fn(&JournalCore)| {
                let core = core.clone();
                thread::spawn(name, move || body(&core))
                    .map_err(|error| JournalError::Thread(Arc::new(error)))
            };
            threads.push(spawn("journal-commit", commit::run)?);
            if core.log.is_some() {
                threads.push(spawn("journal-checkpoint", checkpoint::run)?);
            }
        }
        Ok(journal)
    }

    /// Starts a handle that may change `credits` buffers. Waits while the running transaction
    /// has no room for them.
    ///
    /// # Errors
    /// The journal was aborted, closed or opened read-only, or no transaction has that much
    /// room.
    #[inline]
    pub fn start(&self, credits: u32) -> JournalResult<Handle<'_>> {
        if self.core.options.read_only {
            return Err(JournalError::ReadOnly);
        }
        Handle::start(&self.core, credits)
    }

    /// Most credits that a handle can ask for.
    #[must_use]
    pub fn max_credits(&self) -> u32 {
        self.core.running.max_blocks()
    }

    /// Starts a handle that may change more than transactions have room for otherwise: up to three quarters of the
    /// log. The caller keeps other threads from starting handles until the transaction is durable.
    ///
    /// # Errors
    /// As for [`start`](Self::start).
    pub fn start_alone(&self, credits: u32) -> JournalResult<Handle<'_>> {
        let max = self.max_credits_alone();
        if credits > max {
            let (credits, max) = (credits.into(), max.into());
            return Err(JournalError::TransactionTooLarge { credits, max });
        }
        if self.core.options.read_only {
            return Err(JournalError::ReadOnly);
        }
        Handle::start_alone(&self.core, credits)
    }

    /// Most credits that such a handle can ask for.
    #[must_use]
    pub fn max_credits_alone(&self) -> u32 {
        // The rest is for the log's own blocks.
        let log = self.core.log.as_ref().map_or(0, |log| log.capacity_blocks() / 4 * 3);
        self.max_credits().max(log)
    }

    /// Tells `listener` about every commit from now on.
    pub fn add_listener(&self, listener: Arc<dyn CommitListener>) {
        self.core.add_listener(listener);
    }

    /// The running transaction.
    #[must_use]
    pub fn running_tid(&self) -> u64 {
        self.core.running.tid()
    }

    /// Whether transaction `tid` is durable.
    #[must_use]
    pub fn is_committed(&self, tid: u64) -> bool {
        self.core.is_committed(tid)
    }

    /// Asks for transaction `tid` to be committed, without waiting.
    pub fn force_commit(&self, tid: u64) {
        self.core.request(tid);
    }

    /// Waits until transaction `tid` is durable. Does not ask for it to be committed. No
    /// handle may be open on this thread.
    ///
    /// # Errors
    /// The journal was aborted before that.
    pub fn wait(&self, tid: u64) -> JournalResult {
        self.core.wait(tid)
    }

    /// Makes everything durable that stopped handles have changed or that was written to the
    /// device. No handle may be open on this thread.
    ///
    /// # Errors
    /// The journal was aborted.
    pub fn commit_and_wait(&self) -> JournalResult {
        if self.core.options.read_only {
            return Ok(());
        }
        let tid = self.running_tid();
        self.core.request(tid);
        self.core.wait(tid)
    }

    /// Writes every committed block home, so that the log holds only what is committed meanwhile.
    ///
    /// # Errors
    /// The journal was aborted.
    pub fn checkpoint_all(&self) -> JournalResult {
        self.core.check()?;
        checkpoint::write_all_home(&self.core)
    }

    /// Commits, writes everything home and marks the log empty: the image is complete without its
    /// journal. If the log is to stay empty, the caller must keep other threads from starting
    /// handles.
    ///
    /// # Errors
    /// The journal was aborted.
    pub fn flush(&self) -> JournalResult {
        self.commit_and_wait()?;
        if self.core.options.read_only {
            return Ok(());
        }
        checkpoint::mark_empty(&self.core)
    }

    /// Asks for log space and pinned memory to be freed in the background.
    pub fn relieve_pressure(&self) {
        self.core.want_checkpoint();
    }

    /// Stops the journal for good, as an I/O error would.
    pub fn abort(&self, reason: &'static str) {
        self.core.abort(JournalError::Stopped(reason));
    }

    /// Durably notes in the journal's superblock, for the next mount, that the journal has stopped on an
    /// error. Does nothing without a log.
    ///
    /// # Errors
    /// Those of the device.
    pub fn record_error_number(&self, number: i32) -> JournalResult {
        self.core.log.as_ref().map_or(Ok(()), |log| log.set_error_number(number))
    }

    /// Whether the journal was aborted.
    #[must_use]
    pub fn is_aborted(&self) -> bool {
        self.core.check().is_err() && self.error().is_some()
    }

    /// What aborted the journal.
    #[must_use]
    pub fn error(&self) -> Option<JournalError> {
        let progress = self.core.progress.lock();
        progress.error.clone().filter(|error| !matches!(error, JournalError::Closed))
    }

    /// Bytes of buffers that can't be dropped because their newest content is only in the log.
    #[must_use]
    pub fn pinned_bytes(&self) -> usize {
        let blocks = self.core.log.as_ref().map_or(0, JournalLog::unwritten_blocks);
        blocks * self.core.cache.block_size_bytes()
    }

    /// Whether there is a log; without one, transactions are only written to their places.
    #[must_use]
    pub fn is_logged(&self) -> bool {
        self.core.log.is_some()
    }

    /// What the journal has done.
    #[must_use]
    pub fn statistics(&self) -> JournalStatistics {
        self.core.statistics()
    }

    /// Commits, writes everything home, marks the log empty and ends the threads. Nothing can
    /// be started after. Closing again does nothing, and returns the same once that is known.
    ///
    /// # Errors
    /// The journal was aborted, before or by this.
    pub fn close(&self) -> JournalResult {
        let mut end = self.end.lock();
        if let Some(outcome) = &end.outcome {
            return outcome.clone();
        }
        let _guard = AbortOnPanic(&self.core);
        let was_open = self.stop(&mut end, ThreadStop::Close);
        let outcome = match self.core.check() {
            Ok(()) if was_open => checkpoint::mark_empty(&self.core),
            Err(JournalError::Closed) => Ok(()),
            outcome => outcome,
        };
        self.core.abort(JournalError::Closed);
        end.outcome = Some(outcome.clone());
        drop(end);
        self.core.drop_listeners();
        outcome
    }

    /// Ends the threads as a crash would: the running transaction is lost, and nothing can be started
    /// after. Listeners must outlive this call. Does nothing after a close.
    pub fn abandon(&self) {
        let mut end = self.end.lock();
        if end.outcome.is_none() {
            self.stop(&mut end, ThreadStop::Abandon);
            self.core.abort(JournalError::Closed);
        }
    }

    /// Ends the threads; returns whether there were any.
    fn stop(&self, end: &mut JournalEnd, stop: ThreadStop) -> bool {
        let threads = std::mem::take(&mut end.threads);
        self.core.stop_threads(stop);
        let is_any = !threads.is_empty();
        for thread in threads {
            // A panic of a thread has aborted the journal already.
            let _ = thread.join();
        }
        is_any
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        // No I/O here beyond what the threads have begun.
        self.abandon();
    }
}

impl std::fmt::Debug for Journal {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Journal")
            .field("is_logged", &self.is_logged())
            .finish_non_exhaustive()
    }
}
