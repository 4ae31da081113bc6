//! The one error type: what was tried, where, and why it failed.

mod cause;

pub use cause::ErrorCause;

use drystone_blockdev::DeviceError;
use drystone_vfs::Errno;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// The result of a call.
pub type Result<T> = std::result::Result<T, Error>;

/// Does something to the image that `name` stands for; an error says what, and to which.
pub(crate) fn on_image<T>(
    operation: &'static str,
    name: &Path,
    body: impl FnOnce() -> Result<T>,
) -> Result<T> {
    body().map_err(|error| error.during(operation).at(name))
}

/// Why something failed, with what was tried and the path that it was tried on.
///
/// It becomes an [`io::Error`] of the same [`kind`](Error::kind), and that becomes the same error again.
#[derive(Clone, Debug)]
pub struct Error(Box<ErrorParts>);

#[derive(Clone, Debug)]
struct ErrorParts {
    operation: Option<&'static str>,
    path: Option<PathBuf>,
    second_path: Option<PathBuf>,
    cause: ErrorCause,
}

impl Error {
    /// The error with what was tried, unless it says so already.
    #[must_use]
    pub(crate) fn during(mut self, operation: &'static str) -> Error {
        self.0.operation.get_or_insert(operation);
        self
    }

    /// The error with the path that something was tried on, unless it has one already.
    #[must_use]
    pub(crate) fn at(mut self, path: &Path) -> Error {
        self.0.path.get_or_insert_with(|| path.to_path_buf());
        self
    }

    /// The error with the second path of an operation on two.
    #[must_use]
    pub(crate) fn and_at(mut self, path: &Path) -> Error {
        self.0.second_path.get_or_insert_with(|| path.to_path_buf());
        self
    }

    /// What was tried: a verb, such as `rename`.
    pub fn operation(&self) -> Option<&'static str> {
        self.0.operation
    }

    /// The path that it was tried on: one in the image, or the name of the image.
    pub fn path(&self) -> Option<&Path> {
        self.0.path.as_deref()
    }

    /// The second path, where the operation has one: the new name of a rename.
    pub fn second_path(&self) -> Option<&Path> {
        self.0.second_path.as_deref()
    }

    /// Why it failed.
    pub fn cause(&self) -> &ErrorCause {
        &self.0.cause
    }

    /// Why it failed.
    pub fn into_cause(self) -> ErrorCause {
        self.0.cause
    }

    /// The kind that the standard library has for it.
    pub fn kind(&self) -> io::ErrorKind {
        match &self.0.cause {
            ErrorCause::Host(error) => error.kind(),
            #[cfg(feature = "tar")]
            ErrorCause::Source(error) => {
                let otherwise = match &**error {
                    drystone_sources::Error::Cancelled => io::ErrorKind::Interrupted,
                    _ => io::ErrorKind::InvalidData,
                };
                error.io_error().map_or(otherwise, io::Error::kind)
            }
            ErrorCause::Device(DeviceError::Io { source, .. }) => source.kind(),
            ErrorCause::Volume(_) | ErrorCause::Superblock(_) | ErrorCause::Unrecognized => {
                io::ErrorKind::InvalidData
            }
            cause => io::Error::from_raw_os_error(cause.errno().code()).kind(),
        }
    }

    /// The number that a system call would give.
    pub fn errno(&self) -> Errno {
        self.0.cause.errno()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ErrorParts { operation, path, second_path, cause } = &*self.0;
        match (operation, path) {
            (None, None) => {}
            (None, Some(path)) => write!(f, "{}: ", path.display())?,
            (Some(operation), None) => write!(f, "cannot {operation}: ")?,
            (Some(operation), Some(path)) => {
                write!(f, "cannot {operation} '{}'", path.display())?;
                if let Some(second) = second_path {
                    write!(f, " to '{}'", second.display())?;
                }
                f.write_str(": ")?;
            }
        }
        cause.fmt(f)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        // The cause itself is in the text already.
        std::error::Error::source(&self.0.cause)
    }
}

impl<C: Into<ErrorCause>> From<C> for Error {
    fn from(cause: C) -> Error {
        let cause = cause.into();
        Error(Box::new(ErrorParts { operation: None, path: None, second_path: None, cause }))
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Error {
        match error.downcast::<Error>() {
            Ok(error) => error,
            Err(error) => ErrorCause::Host(drystone_sync::Arc::new(error)).into(),
        }
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        io::Error::new(error.kind(), error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_what_where_and_why() {
        let error = Error::from(Errno::EXDEV).during("rename").at("/a".as_ref());
        assert_eq!(error.to_string(), "cannot rename '/a': invalid cross-device link");
        let error = error.and_at("/b".as_ref()).during("open").at("/c".as_ref());
        assert_eq!(error.to_string(), "cannot rename '/a' to '/b': invalid cross-device link");
        assert_eq!(error.kind(), io::ErrorKind::CrossesDevices);
        assert_eq!(Error::from(ErrorCause::InUse).to_string(), "in use by another process");
    }

    #[test]
    fn an_error_survives_the_way_through_the_standard_library() {
        let error = Error::from(Errno::ENOTEMPTY).during("remove").at("/a".as_ref());
        let there = io::Error::from(error.clone());
        assert_eq!(there.kind(), io::ErrorKind::DirectoryNotEmpty);
        let back = Error::from(there);
        assert_eq!(back.to_string(), error.to_string());
        assert_eq!((back.path(), back.errno()), (Some("/a".as_ref()), Errno::ENOTEMPTY));
        let of_host = Error::from(io::Error::from_raw_os_error(2));
        assert_eq!((of_host.kind(), of_host.errno()), (io::ErrorKind::NotFound, Errno::ENOENT));
    }

    #[test]
    fn an_error_of_the_host_keeps_its_number() {
        for errno in [Errno::EMFILE, Errno::ELOOP, Errno::EPERM, Errno::EFBIG, Errno::ETXTBSY] {
            let of_host = || io::Error::from_raw_os_error(errno.code());
            assert_eq!(Error::from(of_host()).errno(), errno);
            let source = drystone_sync::Arc::new(of_host());
            let operation = drystone_blockdev::DeviceOperation::Write;
            let error = DeviceError::Io { operation, offset: 0, length: 1, source };
            assert_eq!(Error::from(error).errno(), errno);
        }
    }
}
