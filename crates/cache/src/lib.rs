//! Metadata buffers by block number, with copy-on-write for a journal.
//!
//! The cache reads blocks and keeps them; it writes none. Only a journal changes a [`Buffer`]
//! (through [`JournalDoor`]), and only the journal's commit and checkpoint write changes to the
//! device. So no change reaches its block before the journal allows it.
//!
//! # State
//!
//! A block number has at most one entry, which is loading or ready. A ready buffer may be dropped
//! to stay within the budget while only the cache refers to it. The journal keeps a reference to
//! every buffer whose newest content isn't checkpointed, which pins it.
//!
//! # Locking
//!
//! Entries are spread over shards, each behind a mutex that ranks above buffers and is held for a
//! lookup, never over I/O. While a block is read, a placeholder stands for it. Other threads that
//! miss the block wait on the placeholder, so it is read once.
#![forbid(unsafe_code)]

mod buffer;
mod cache;
mod journal;
pub mod lock_classes;
mod shard;
mod statistics;

pub use buffer::{
    BlockBytes, BlockInOtherUse, BlockUse, Buffer, BufferReader, BufferWriter, PARTS, Seal,
};
pub use cache::Cache;
pub use journal::JournalDoor;
pub use statistics::CacheStatistics;
