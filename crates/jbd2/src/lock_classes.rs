//! The lock classes of the journal.
//!
//! Most rank above buffers: they are leaves that a handle takes while its user may hold buffers.
//! Those held over I/O rank below buffers, and no handle takes them.

use drystone_sync::LockClass;

/// An open handle. It isn't a real lock; it has a rank so that debug builds catch a thread that
/// opens a handle, or waits for a commit, while it holds something that an open handle may need.
#[cfg(debug_assertions)]
pub static HANDLE: LockClass = LockClass::new("handle", 200);

/// The end of the journal and of its own threads: held until the log is empty.
pub static THREADS: LockClass = LockClass::new("journal threads", 210);

/// Held while a transaction is written to the log.
pub static COMMIT: LockClass = LockClass::new("journal commit", 600);

/// Held while a checkpoint writes blocks home.
pub static CHECKPOINT: LockClass = LockClass::new("journal checkpoint", 610);

/// The journal superblock, held while it is written.
pub static SUPERBLOCK: LockClass = LockClass::new("journal superblock", 620);

/// Log space and the copies not yet at home.
pub static SPACE: LockClass = LockClass::new("journal space", 750);

/// Threads that wait at the gate. One that waits for room looks at how full the transaction is.
pub static GATE: LockClass = LockClass::new("journal gate", 752);

/// Revokes of the running transaction.
pub static REVOKES: LockClass = LockClass::new("journal revokes", 755);

/// One core's list of the running transaction's buffers.
pub static BUFFERS: LockClass = LockClass::new("journal buffers", 760);

/// What the journal's threads are asked to do and have done.
pub static STATE: LockClass = LockClass::new("journal state", 770);

/// Counts of commits and checkpoints.
pub static COUNTS: LockClass = LockClass::new("journal counts", 780);

/// The listeners that are told of commits.
pub static LISTENERS: LockClass = LockClass::new("journal listeners", 785);
