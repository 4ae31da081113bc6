//! Limits the clean blocks in memory.
//!
//! # State
//! Blocks that were read or logged stay in memory until there are too many. Metadata is looked at after each log,
//! content after a log if much of it has come into memory since the last time: a look takes a visit of every inode.
//! Both are looked at whenever as much content has come as may be in memory: logs may be rare, and a mount for reading
//! writes none.
//!
//! # Locking
//! The lock of each file and inode, one after the other.

use crate::engine::Engine;
use crate::log::LogState;
use drystone_sync::atomic::Ordering;

/// Blocks of each metadata file above which clean ones are dropped.
const METADATA_BLOCKS_MAX: usize = 1 << 16;
/// Content in memory above which clean blocks are dropped, in bytes.
pub(crate) const CONTENT_BYTES_MAX: usize = 256 << 20;

/// Content that comes into memory between two looks after logs, in bytes.
const CONTENT_BYTES_STEP: usize = CONTENT_BYTES_MAX / 4;

/// Drops clean blocks of metadata and content that are beyond the limits, after a log.
pub(crate) fn trim(engine: &Engine, log: &mut LogState) {
    log.cpfile.trim(METADATA_BLOCKS_MAX);
    log.segments.file.trim(METADATA_BLOCKS_MAX);
    trim_translations(engine);
    trim_added_content(engine, CONTENT_BYTES_STEP);
}

/// Drops clean blocks of the metadata that is read without the log.
fn trim_translations(engine: &Engine) {
    engine.ifile.trim(METADATA_BLOCKS_MAX);
    engine.dat.write().file.trim(METADATA_BLOCKS_MAX);
}

/// Drops clean blocks of content if so many bytes have come since this was last done. Says whether they have.
fn trim_added_content(engine: &Engine, bytes: usize) -> bool {
    let added = &engine.volume.content_added_bytes;
    let is_due = added.load(Ordering::Relaxed) >= bytes;
    if is_due {
        added.store(0, Ordering::Relaxed);
        trim_content(engine, CONTENT_BYTES_MAX / engine.volume.block_bytes());
    }
    is_due
}

/// Drops clean blocks of content if more than so many are in memory.
pub(crate) fn trim_content(engine: &Engine, blocks_max: usize) {
    let mut blocks = 0;
    engine.inodes.for_each(|inode| {
        let mut pages = inode.pages.lock();
        blocks += pages.blocks.len();
        if blocks > blocks_max {
            blocks -= pages.trim();
        }
    });
}

/// Drops clean blocks when as much content has come into memory as may be there. The caller holds no locks.
pub(crate) fn trim_after_read(engine: &Engine) {
    if trim_added_content(engine, CONTENT_BYTES_MAX) {
        trim_translations(engine);
    }
}
