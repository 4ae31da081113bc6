//! A concurrent jbd2 journal: handles, transactions, commit, checkpoint, revoke, recovery.
//!
//! The journal knows buffers, not inodes. A [`Handle`] changes buffers as part of the running
//! transaction; a commit makes that transaction durable in the log; a checkpoint writes the
//! committed blocks home and frees the log. [`recover`] replays a log after a crash.
//!
//! # State
//!
//! Two transactions exist at most: one running, one committing. A buffer that both change is frozen
//! for the older one before the newer one may write it. The frozen copies of committed blocks are
//! kept until a checkpoint has written them home; their buffers stay in the cache.
//!
//! # Locking
//!
//! Starting and stopping a handle, and write access to a buffer that is part of the running
//! transaction already, take no shared lock: handles are counted per core, room in the transaction
//! is reserved per core, and a buffer knows its transaction. The only subtle protocol is in
//! `gate.rs`. All classes and ranks are in [`lock_classes`].
//!
//! # Crash
//!
//! A transaction counts when its commit block is in the log. Data that must be durable with it
//! (file data in ordered mode) is written before its handle stops, and flushed by the commit. Freed
//! blocks that were metadata are revoked, and must not be reused before the transaction that freed
//! them is durable ([`CommitListener::committed`] tells). Any failure to write or flush the log or
//! a checkpoint aborts the journal. The error stays, and nothing is made durable after it. Only a
//! full medium is waited for ([`JournalOptions::full_medium_wait`]), since a write that found it
//! full can be repeated.
//!
//! # Reference
//! "Journal (jbd2)" in the kernel's ext4 data structure pages.
#![forbid(unsafe_code)]

mod area;
mod checkpoint;
mod commit;
mod core;
mod credits;
mod error;
mod fast_commit;
mod gate;
mod journal;
pub mod lock_classes;
mod log;
mod log_read;
mod log_scan;
mod log_write;
mod options;
#[cfg(all(feature = "planted-panics", debug_assertions, not(loom)))]
pub mod planted;
mod recovery;
mod statistics;
mod transaction;

pub use crate::core::{BEFORE_COMMIT_CREDITS, CommitListener, Handle};
pub use area::{JournalArea, JournalExtent};
pub use drystone_jbd2_format::{FastCommit, FastCommitRecord, encode_fast_commits};
pub use error::{JournalError, JournalResult};
pub use fast_commit::{PendingFastCommits, replace_fast_commits};
pub use journal::Journal;
pub use options::JournalOptions;
pub use recovery::{
    Recovery, RecoveryReport, discard, forget_error_number, needs_recovery,
    read_journal_superblock, recover,
};
pub use statistics::JournalStatistics;
