//! Where the data of files come from.

use super::error::{TreeError, TreeResult};
use std::fmt::Debug;

/// Names a source of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SourceId(u16);

impl SourceId {
    pub(super) fn new(index: usize) -> TreeResult<SourceId> {
        let id = u16::try_from(index).map_err(|_| TreeError::TooMuch { what: "sources" })?;
        Ok(SourceId(id))
    }

    pub(super) fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// Something that holds the data of files and can be read by many threads at once, in any order: the
/// files of a directory, a tar, a spool file.
pub trait ContentSource: Send + Sync + Debug {
    /// Fills `buffer` from `offset` in `object` on. The source defines its objects and gave out
    /// their numbers in a [`Segment`](super::Segment) (a file of a directory; always 0 in a tar).
    ///
    /// # Errors
    /// The object can't be read, has become shorter, or was changed since it was listed, so it would
    /// not match what was read before.
    fn read_at(&self, object: u32, offset: u64, buffer: &mut [u8]) -> Result<(), SourceError>;
}

impl<S: ContentSource + ?Sized> ContentSource for drystone_sync::Arc<S> {
    fn read_at(&self, object: u32, offset: u64, buffer: &mut [u8]) -> Result<(), SourceError> {
        (**self).read_at(object, offset, buffer)
    }
}

/// Why data could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {problem}", path.escape_ascii())]
pub struct SourceError {
    /// Path of the file in its source.
    pub path: Vec<u8>,
    /// What happened.
    pub problem: String,
}
