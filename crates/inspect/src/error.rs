//! The error type: why something can't be shown, or a field can't be set.

use drystone_blockdev::DeviceError;
use drystone_ext4_format::{Corrupt, FormatError};

/// Why something can't be shown, or a field can't be set.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InspectError {
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// No superblock is usable, not even a copy.
    #[error("neither its superblock nor a copy of it is usable: {0}")]
    NoSuperblock(FormatError),
    /// A structure on the way there is damaged.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
    /// There is no such thing in the image.
    #[error("{0}")]
    Missing(String),
    /// A field can't be set to the value: which one, and why.
    #[error("{field}: {problem}")]
    Unsettable {
        /// What was to be set.
        field: String,
        /// Why it can't be, and what can be done.
        problem: String,
    },
}

impl InspectError {
    pub(crate) fn missing(what: impl Into<String>) -> Self {
        Self::Missing(what.into())
    }

    pub(crate) fn unsettable(field: &str, problem: impl Into<String>) -> Self {
        Self::Unsettable { field: field.to_owned(), problem: problem.into() }
    }
}

/// The result of anything in this crate.
pub type Result<T, E = InspectError> = std::result::Result<T, E>;
