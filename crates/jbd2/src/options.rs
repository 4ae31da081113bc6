//! How a journal is to work, and who is told about it.

use crate::{Handle, JournalError};
use std::time::Duration;

/// How a journal is to work.
#[derive(Clone, Debug)]
pub struct JournalOptions {
    /// A transaction with changes is committed after this time, asked for or not.
    pub commit_interval: Duration,
    /// Most blocks in a transaction; `None`: a quarter of the log, as Linux has it, or less
    /// if the cache's budget is small.
    pub max_transaction_blocks: Option<u32>,
    /// Handles can't be started.
    pub read_only: bool,
    /// The file system has metadata checksums: the journal gets checksums of version 3.
    pub checksums: bool,
    /// The file system has 64-bit block numbers: the journal gets them too.
    pub wide_block_numbers: bool,
    /// How long a commit or a checkpoint that finds the medium of the device full waits for room,
    /// before that stops the journal.
    pub full_medium_wait: Duration,
}

impl Default for JournalOptions {
    fn default() -> Self {
        Self {
            commit_interval: Duration::from_secs(5),
            max_transaction_blocks: None,
            read_only: false,
            checksums: true,
            wide_block_numbers: true,
            full_medium_wait: Duration::ZERO,
        }
    }
}

/// Told about every commit, on the commit thread, in order. Must not start a handle or wait for
/// a commit.
pub trait CommitListener: Send + Sync {
    /// Transaction `tid` is about to close: no other handle is open, none can start until
    /// this returns. Changes made through `handle` are part of it; they must not exceed
    /// [`BEFORE_COMMIT_CREDITS`]. Only locks that rank above a handle may be taken. Not called
    /// for a transaction without changes.
    fn before_commit(&self, tid: u64, handle: &mut Handle<'_>) {
        let _ = (tid, handle);
    }

    /// Transaction `tid` is durable. Called before those who wait for it wake up, also for a
    /// transaction without changes.
    fn committed(&self, tid: u64) {
        let _ = tid;
    }

    /// The journal has stopped for good: nothing is durable any more that isn't yet. Called
    /// once, on the thread that met the error, which may hold any lock.
    fn aborted(&self, error: &JournalError) {
        let _ = error;
    }
}

/// Blocks that all listeners together may change in one `before_commit`.
pub const BEFORE_COMMIT_CREDITS: u32 = 16;
