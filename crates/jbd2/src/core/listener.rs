//! How the file system adds to a commit and is told of it.

use super::Handle;
use crate::JournalError;

/// The most blocks that all listeners together may change in one `before_commit`.
pub const BEFORE_COMMIT_CREDITS: u32 = 16;

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

    /// Transaction `tid` is durable. Called before the threads that wait for it wake up, also for a
    /// transaction without changes.
    fn committed(&self, tid: u64) {
        let _ = tid;
    }

    /// The threads that waited for transaction `tid` may go on. Called after [`committed`](Self::committed).
    fn settled(&self, tid: u64) {
        let _ = tid;
    }

    /// The journal has stopped for good: what isn't durable now never will be. Called once, on the
    /// thread that met the error, which may hold any lock.
    fn aborted(&self, error: &JournalError) {
        let _ = error;
    }
}
