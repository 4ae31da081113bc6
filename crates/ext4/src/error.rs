//! The engine's one error type.

use drystone_blockdev::DeviceError;
use drystone_ext4_format::{Corrupt, FormatError, InodeNumber, Unsupported};
use drystone_jbd2::JournalError;
use drystone_vfs::Errno;

/// The result of anything in the engine.
pub type Result<T> = std::result::Result<T, Error>;

/// Why the engine could not do what was asked.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The request is not allowed or cannot be met; the number says why.
    #[error("{}", .0.text())]
    Errno(Errno),
    /// All space or all inodes are in use.
    #[error("no space left on device")]
    NoSpace,
    /// All free space waits for the commit of the transaction that freed it. Never reaches a caller
    /// of the engine: the operation is tried again after a commit.
    #[error("free space waits for a commit")]
    CommitFirst,
    /// The image contradicts its format.
    #[error("the image is damaged: {0}")]
    Corrupt(#[from] Corrupt),
    /// Too many names of a directory have one hash to be sorted in memory, as a listing does.
    #[error(
        "too many names of directory {directory} have one hash for a listing; \
         remove those that were chosen so by their names"
    )]
    SameHash {
        /// The directory.
        directory: InodeNumber,
    },
    /// The image needs something that the engine does not do.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The device did not write the data of a file. The blocks allocated for it have been freed
    /// again.
    #[error(transparent)]
    Unwritten(DeviceError),
    /// The journal failed or was aborted.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The mount is read-only, for the reason given.
    #[error("the mount is read-only: {0}")]
    ReadOnly(&'static str),
    /// The image can't grow, for the reason given.
    #[error(transparent)]
    Growth(drystone_vfs::Error),
    /// The image can't be mounted as asked; the text says why and what to do.
    #[error("{0}")]
    Mount(String),
}

impl Error {
    /// The number that a system call would return.
    pub fn errno(&self) -> Errno {
        match self {
            Error::Errno(errno) => *errno,
            Error::NoSpace | Error::CommitFirst => Errno::ENOSPC,
            Error::Corrupt(_) => Errno::EUCLEAN,
            Error::SameHash { .. } => Errno::ENOMEM,
            Error::Unsupported(_) => Errno::EOPNOTSUPP,
            Error::Device(error) | Error::Unwritten(error) => match error {
                DeviceError::NoSpace { .. } => Errno::ENOSPC,
                DeviceError::ReadOnly => Errno::EROFS,
                _ => Errno::EIO,
            },
            Error::ReadOnly(_) => Errno::EROFS,
            Error::Journal(_) => Errno::EIO,
            Error::Growth(error) => error.errno,
            Error::Mount(_) => Errno::EINVAL,
        }
    }

    /// Whether an operation that failed with this error has left everything as it was: the error
    /// was found before anything changed, or the changes were undone. Code that returns one of these after a
    /// change must have undone it: nothing checks that.
    pub(crate) fn leaves_no_trace(&self) -> bool {
        matches!(self, Error::NoSpace | Error::CommitFirst | Error::Errno(_) | Error::Unwritten(_))
    }
}

impl From<Errno> for Error {
    fn from(errno: Errno) -> Error {
        Error::Errno(errno)
    }
}

impl From<FormatError> for Error {
    fn from(error: FormatError) -> Error {
        match error {
            FormatError::Corrupt(corrupt) => Error::Corrupt(corrupt),
            FormatError::Unsupported(unsupported) => Error::Unsupported(unsupported),
        }
    }
}

impl From<drystone_vfs::Error> for Error {
    fn from(error: drystone_vfs::Error) -> Error {
        Error::Errno(error.errno)
    }
}

impl From<Error> for drystone_vfs::Error {
    fn from(error: Error) -> drystone_vfs::Error {
        match error {
            Error::Errno(errno) => drystone_vfs::Error::new(errno),
            Error::Growth(error) => error,
            Error::NoSpace => drystone_vfs::Error::new(Errno::ENOSPC),
            other => drystone_vfs::Error::with_detail(other.errno(), other.to_string()),
        }
    }
}
