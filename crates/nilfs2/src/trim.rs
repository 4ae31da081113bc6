//! Limits the clean blocks in memory.
//!
//! # State
//! Blocks that were read stay in memory until there are too many. They are looked at after each log, and whenever
//! as much content was read as may be in memory: logs may be rare, and a mount for reading writes none.
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

/// Drops clean blocks of metadata and content that are beyond the limits.
pub(crate) fn trim(engine: &Engine, log: &mut LogState) {
    log.cpfile.trim(METADATA_BLOCKS_MAX);
    log.segments.file.trim(METADATA_BLOCKS_MAX);
    trim_read(engine);
}

/// The same of what is read without the log.
fn trim_read(engine: &Engine) {
    engine.ifile.file.write().trim(METADATA_BLOCKS_MAX);
    engine.dat.write().file.trim(METADATA_BLOCKS_MAX);
    trim_content(engine, CONTENT_BYTES_MAX / engine.volume.block_bytes());
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

/// Drops clean blocks when as much content was read from the device as may be in memory. The caller holds no locks.
pub(crate) fn trim_after_read(engine: &Engine) {
    let read = &engine.volume.content_read_bytes;
    if read.load(Ordering::Relaxed) >= CONTENT_BYTES_MAX {
        read.store(0, Ordering::Relaxed);
        trim_read(engine);
    }
}
