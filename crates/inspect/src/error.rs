//! Why something can't be shown.

use drystone_blockdev::DeviceError;
use drystone_ext4_format::{Corrupt, FormatError};

/// Why something can't be shown.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InspectError {
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// No superblock is usable, not even a copy.
    #[error("it has no usable superblock, and no copy of one was found: {0}")]
    NoSuperblock(FormatError),
    /// What has to be followed to get there is damaged.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
    /// There is no such thing in the image.
    #[error("{0}")]
    Missing(String),
}

impl InspectError {
    pub(crate) fn missing(what: impl Into<String>) -> Self {
        Self::Missing(what.into())
    }
}

/// A result of looking.
pub type Result<T, E = InspectError> = std::result::Result<T, E>;
