//! stub
use crate::log::read_superblock;
use crate::{JournalArea, JournalResult};
use drystone_blockdev::BlockDevice;
use drystone_jbd2_format::Superblock;
use drystone_sync::Arc;
use serde::Serialize;

/// What a recovery has found and done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RecoveryReport {
    /// Complete transactions in the log.
    pub transactions: u64,
    /// Blocks written home.
    pub replayed_blocks: u64,
    /// Copies not replayed because a later transaction revoked them.
    pub revoked_blocks: u64,
    /// Revoke records found.
    pub revoke_records: u64,
}

/// Reads and checks the superblock of the journal at `area`; `main` is the file system's
/// device.
///
/// # Errors
/// The device's, or what is wrong with the superblock.
pub fn read_journal_superblock(
    main: &Arc<dyn BlockDevice>,
    area: &JournalArea,
    block_size_bytes: u32,
) -> JournalResult<Superblock> {
    read_superblock(main, area, block_size_bytes)
}

/// Whether the log at `area` is in use, so that it has to be recovered.
///
/// # Errors
/// As [`read_journal_superblock`].
pub fn needs_recovery(
    main: &Arc<dyn BlockDevice>,
    area: &JournalArea,
    block_size_bytes: u32,
) -> JournalResult<bool> {
    Ok(read_superblock(main, area, block_size_bytes)?.start().is_some())
}

/// Replays the log at `area` onto `main`.
///
/// # Errors
/// TODO
pub fn recover(
    _main: &Arc<dyn BlockDevice>,
    _area: &JournalArea,
    _block_size_bytes: u32,
) -> JournalResult<RecoveryReport> {
    Ok(RecoveryReport::default())
}
