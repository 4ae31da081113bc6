//! Why an image can't be changed.

use drystone_blockdev::DeviceError;
use drystone_ext4_format::{Corrupt, FormatError};

/// Why an image can't be changed. After an error of any other kind than [`Refusal`] the device has
/// to be rolled back.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReshapeError {
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The image is damaged, or has something that isn't supported.
    #[error("{0}; 'drystone check' finds out more")]
    Format(#[from] FormatError),
    /// The image can't be changed so, and this is why.
    #[error(transparent)]
    Refused(#[from] Refusal),
}

/// The result of a change.
pub type Result<T, E = ReshapeError> = std::result::Result<T, E>;

impl From<Corrupt> for ReshapeError {
    fn from(corrupt: Corrupt) -> Self {
        Self::Format(corrupt.into())
    }
}

/// What can't be done to an image.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The journal has to be replayed, or deleted files have to be removed.
    #[error("it wasn't unmounted cleanly, and its journal has to be replayed first")]
    NeedsRecovery,
    /// It is marked as damaged.
    #[error("it has errors, which have to be repaired first: see 'drystone check'")]
    HasErrors,
    /// It wasn't unmounted and has no journal.
    #[error("it wasn't unmounted cleanly: see 'drystone check'")]
    NotClean,
    /// The multi-mount block says that somebody uses it.
    #[error("another machine uses it, says its multi-mount protection")]
    MultiMount,
    /// The device is smaller than the image.
    #[error("it has {blocks} blocks, and the device is too small for them")]
    Truncated {
        /// The blocks.
        blocks: u64,
    },
    /// There is too little free space, or too few free inodes.
    #[error("there is too little free space in it for {what}")]
    NoSpace {
        /// What finds no place.
        what: &'static str,
    },
    /// It was to be smaller than its files allow.
    #[error("its files need {smallest_bytes} bytes, the smallest size that it can have")]
    BelowMinimum {
        /// The smallest size.
        smallest_bytes: u64,
    },
    /// A value is out of its range, or contradicts another or the image.
    #[error("{0}")]
    Value(String),
}
