//! Metadata buffers by block number, with copy-on-write for a journal.
//!
//! The cache reads blocks and keeps them; it writes none. Only a journal changes a
//! [`Buffer`] (through [`Buffer::journal`]), and only the journal's commit and checkpoint
//! write changes to the device. That is the gate between a change and its home.
//!
//! # State
//!
//! A block number has at most one entry, which is being loaded or ready. A ready buffer may
//! be dropped to stay within the budget while no one but the cache refers to it; a journal
//! keeps a reference to every buffer whose newest content is not at home yet, and thereby
//! pins it.
//!
//! # Locking
//!
//! Entries are spread over shards, each behind a mutex that ranks above buffers and is held
//! for a lookup, never over I/O. A block that is being read is represented by a placeholder
//! that others wait on, so that it is read once however many threads miss it.
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
