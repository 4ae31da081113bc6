//! Why a source can't be read.

#[cfg(feature = "oci")]
mod oci;

use crate::directory::DirectoryError;
use crate::list::LineError;
use crate::tar::TarError;
use drystone_mkfs::tree::TreeError;
#[cfg(feature = "oci")]
pub use oci::{OciError, OciProblem};
use std::io;

/// The result of reading a source.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a source can't be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file can't be opened or read.
    #[error("{name}: {problem}")]
    Io {
        /// What the user called the file.
        name: String,
        /// What happened.
        problem: io::Error,
    },
    /// A directory can't be read.
    #[error(transparent)]
    Directory(DirectoryError),
    /// An archive is compressed in an unsupported format.
    #[error(
        "{name}: compressed with {program}, which is not read: try {program} -dc {name} | drystone \
         build IMAGE --from -"
    )]
    Compression {
        /// What the user called the archive.
        name: String,
        /// The program that makes the format.
        program: &'static str,
    },
    /// The compressed data are damaged or end early.
    #[error("{name}: the {format} data can't be read after {read_bytes} bytes of them: {problem}")]
    Decompression {
        /// What the user called the archive.
        name: String,
        /// How it is compressed.
        format: &'static str,
        /// Compressed bytes that were read.
        read_bytes: u64,
        /// What happened.
        problem: io::Error,
    },
    /// There is no space for an archive's uncompressed bytes.
    #[error("{directory}: can't keep the uncompressed archive here: {problem}")]
    Spool {
        /// Where they were to be.
        directory: String,
        /// What happened.
        problem: io::Error,
    },
    /// The user cancelled.
    #[error("interrupted")]
    Cancelled,
    /// An archive is damaged, or can't be in an image.
    #[error(transparent)]
    Tar(#[from] Box<TarError>),
    /// An OCI layout is damaged, or doesn't have what the user asks for.
    #[cfg(feature = "oci")]
    #[error(transparent)]
    Oci(#[from] OciError),
    /// A line of a manifest or list is invalid.
    #[error(transparent)]
    Line(#[from] LineError),
    /// The tree refuses something.
    #[error(transparent)]
    Tree(#[from] TreeError),
}

impl From<DirectoryError> for Error {
    fn from(error: DirectoryError) -> Error {
        match error {
            DirectoryError::Cancelled => Error::Cancelled,
            other => Error::Directory(other),
        }
    }
}

impl Error {
    /// What the system said, if that is why.
    #[must_use]
    pub fn io_error(&self) -> Option<&io::Error> {
        match self {
            Error::Io { problem, .. } | Error::Spool { problem, .. } => Some(problem),
            _ => None,
        }
    }

    /// Names the file that could not be read.
    pub(crate) fn io(name: &str) -> impl FnOnce(io::Error) -> Error {
        let name = name.to_owned();
        move |problem| Error::Io { name, problem }
    }
}
