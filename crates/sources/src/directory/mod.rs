//! A directory of the host as a source.
//!
//! [`read_directory`] walks it with several threads and fills a tree: types, modes, owners, times,
//! hard links, extended attributes with ACLs and capabilities, targets, device numbers, and where
//! files have holes. The data stay where they are and are read while the image is written; a file
//! that is no longer what it was when it was listed is an error then.
//!
//! Names may be any bytes, and paths of any length: long ones are opened step by step.

mod entry;
mod files;
#[cfg(test)]
mod tests;
mod walk;

use drystone_mkfs::tree::{SourceError, TreeError};
#[cfg(feature = "oci")]
pub(crate) use files::open_within;
pub use walk::{read_directory, read_directory_at};

/// How a directory is read.
#[derive(Clone, Copy)]
pub struct DirectoryOptions<'a> {
    /// Threads that list and look at files.
    pub threads: usize,
    /// Whether directories of other file systems are taken as empty.
    pub one_file_system: bool,
    /// Whether what has this path, from the source's root and without a slash in front, is left out,
    /// with all that lies in it.
    pub exclude: &'a (dyn Fn(&[u8]) -> bool + Sync),
    /// Whether the user cancelled; then the error is [`DirectoryError::Cancelled`].
    pub is_cancelled: &'a (dyn Fn() -> bool + Sync),
}

impl std::fmt::Debug for DirectoryOptions<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DirectoryOptions")
            .field("threads", &self.threads)
            .field("one_file_system", &self.one_file_system)
            .finish_non_exhaustive()
    }
}

/// Why a directory can't be read.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DirectoryError {
    /// The host refuses something.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The tree can't hold something.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// The user cancelled.
    #[error("interrupted")]
    Cancelled,
}
