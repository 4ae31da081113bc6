//! An open image.

use drystone_sync::Arc;
use drystone_vfs::{Errno, Error, FileSystem, Result};
use std::path::Path;

/// How to open an image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenOptions {
    /// Change nothing, not even to replay the journal, which is replayed into memory instead.
    pub read_only: bool,
}

/// An open image, which nobody else may open meanwhile unless all only read.
pub struct Image {
    file_system: Arc<dyn FileSystem>,
}

impl Image {
    /// Opens the image at `path`.
    ///
    /// # Errors
    ///
    /// `EBUSY` if somebody else has it open; what the host says of the file; `EUCLEAN`, `EROFS`
    /// or `EOPNOTSUPP` with the reason if the image can't be used so.
    pub fn open(path: &Path, _options: &OpenOptions) -> Result<Image> {
        let detail = format!("this build has no engine to open {} with", path.display());
        Err(Error::with_detail(Errno::EOPNOTSUPP, detail))
    }

    /// Its files.
    pub fn file_system(&self) -> &Arc<dyn FileSystem> {
        &self.file_system
    }

    /// Makes everything durable and marks the image clean.
    ///
    /// # Errors
    ///
    /// If something could not be written; the image must then be opened again to recover.
    pub fn close(self) -> Result<()> {
        self.file_system.sync()
    }
}
