//! The errors of a journal.

use drystone_blockdev::DeviceError;
use drystone_jbd2_format::Corrupt;
use drystone_sync::Arc;
use thiserror::Error;

/// Result of a journal operation.
pub type JournalResult<T = ()> = Result<T, JournalError>;

/// A failed journal operation. Clones are cheap: one failure is told to many waiters.
#[derive(Clone, Debug, Error)]
pub enum JournalError {
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The journal is damaged.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
    /// A log names a block that belongs to the journal, or is beyond the end of the device.
    #[error("the copy at journal block {block} is of block {target}, which it can't replace")]
    ReplayTarget {
        /// Journal block of the copy.
        block: u32,
        /// The block number in its tag.
        target: u64,
    },
    /// The superblock and the journal's location disagree.
    #[error("journal superblock: {field} is {stored}, expected {expected}")]
    Mismatch {
        /// The field.
        field: &'static str,
        /// Its value.
        stored: u64,
        /// What the file system or the journal's extents say.
        expected: u64,
    },
    /// The log holds transactions: it must be recovered before it is used.
    #[error("the journal needs recovery")]
    NeedsRecovery,
    /// The journal is too old or of a kind that can be read, not written.
    #[error("a journal with {0} can't be written")]
    Unsupported(&'static str),
    /// More blocks than any transaction can hold.
    #[error("{credits} blocks do not fit into a transaction of {max}")]
    TransactionTooLarge {
        /// Blocks asked for, or to be written.
        credits: u64,
        /// Blocks possible.
        max: u64,
    },
    /// Changes are not allowed.
    #[error("the journal is read-only")]
    ReadOnly,
    /// The journal has been closed.
    #[error("the journal is closed")]
    Closed,
    /// The system could not start a thread.
    #[error("a journal thread could not be started: {0}")]
    Thread(Arc<std::io::Error>),
    /// A thread of the journal has panicked, or its user asked to stop.
    #[error("stopped: {0}")]
    Stopped(&'static str),
    /// An earlier failure stopped the journal; nothing is accepted or made durable since.
    #[error("the journal was aborted: {0}")]
    Aborted(Arc<JournalError>),
}
