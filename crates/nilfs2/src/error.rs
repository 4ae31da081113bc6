//! The engine's one error type.

use drystone_blockdev::DeviceError;
use drystone_nilfs2_format::{Corrupt, FormatError, Unsupported};
use drystone_vfs::Errno;

/// The result of anything in the engine.
pub type Result<T> = std::result::Result<T, Error>;

/// Why the engine could not do what was asked.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The request is against the rules of a file system; the number says which.
    #[error("{}", .0.text())]
    Errno(Errno),
    /// The image contradicts its format.
    #[error("the image is damaged: {0}")]
    Corrupt(Corrupt),
    /// The image needs something that the engine does not do.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A log couldn't be written; nothing is written any more.
    #[error("the log has stopped: {0}")]
    LogStopped(String),
    /// The image can't be made or mounted as asked; the text says why.
    #[error("{0}")]
    Mount(String),
}

impl Error {
    /// The number that a system call would return.
    #[must_use]
    pub fn errno(&self) -> Errno {
        match self {
            Self::Errno(errno) => *errno,
            Self::Corrupt(_) => Errno::EUCLEAN,
            Self::Unsupported(_) => Errno::EOPNOTSUPP,
            Self::Device(DeviceError::ReadOnly) => Errno::EROFS,
            Self::Device(_) | Self::LogStopped(_) => Errno::EIO,
            Self::Mount(_) => Errno::EINVAL,
        }
    }
}

// Without `#[from]`, since the text contains the cause already and a chain of errors would repeat it.
impl From<Corrupt> for Error {
    fn from(corrupt: Corrupt) -> Self {
        Self::Corrupt(corrupt)
    }
}

impl From<Errno> for Error {
    fn from(errno: Errno) -> Self {
        Self::Errno(errno)
    }
}

impl From<FormatError> for Error {
    fn from(error: FormatError) -> Self {
        match error {
            FormatError::Corrupt(corrupt) => Self::Corrupt(corrupt),
            FormatError::Unsupported(unsupported) => Self::Unsupported(unsupported),
        }
    }
}

impl From<drystone_vfs::Error> for Error {
    fn from(error: drystone_vfs::Error) -> Self {
        Self::Errno(error.errno)
    }
}

impl From<Error> for drystone_vfs::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Errno(errno) => Self::new(errno),
            other => Self::with_detail(other.errno(), other.to_string()),
        }
    }
}
