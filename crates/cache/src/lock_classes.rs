//! The lock classes of the cache.

use drystone_sync::LockClass;

/// A buffer's bytes. A thread may hold several: when it changes two related blocks, it holds the lock of
/// the structure that they belong to (the directory, the group), which orders them.
pub static BUFFER: LockClass = LockClass::new("buffer", 700).nestable();

/// The outcome of a block's load.
pub static LOADING: LockClass = LockClass::new("cache loading", 790);

/// One part of the table of buffers.
pub static SHARD: LockClass = LockClass::new("cache shard", 800);
