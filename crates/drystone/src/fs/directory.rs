//! Listing directories.

use super::Fs;
use super::held::Held;
use super::metadata::Metadata;
use crate::{Error, Result};
use drystone_sync::Arc;
use drystone_vfs::{Access, Dots, Errno, FileType, InodeGuard, InodeNumber, check_listed};
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Entries that are read at a time.
const BATCH: usize = 256;

impl<'i> Fs<'i> {
    /// The entries of a directory, in no order and without `.` and `..`.
    ///
    /// # Errors
    ///
    /// It isn't there, isn't a directory, or may not be read. Errors that come later are among the entries.
    pub fn read_dir(&self, path: impl AsRef<Path>) -> Result<ReadDir<'i>> {
        let path = path.as_ref();
        self.run("list", path, |bytes| {
            let found = self.find(bytes, true)?;
            if found.attributes().file_type != FileType::Directory {
                return Err(Errno::ENOTDIR.into());
            }
            self.file_system().check_access(self.context(), found.inode(), Access::READ)?;
            Ok(ReadDir {
                directory: Arc::new(Directory {
                    held: Held::new(self, found),
                    path: path.to_path_buf(),
                }),
                cookie: 0,
                batch: VecDeque::new(),
                dots: Dots::default(),
                is_at_end: false,
            })
        })
    }
}

/// The directory of a listing.
struct Directory<'i> {
    held: Held<'i>,
    path: PathBuf,
}

impl Directory<'_> {
    fn error(&self, operation: &'static str, error: drystone_vfs::Error) -> Error {
        Error::from(error).during(operation).at(&self.path)
    }
}

/// An entry as it was read.
struct Listed {
    name: OsString,
    inode: InodeNumber,
    file_type: Option<FileType>,
}

/// The entries of a directory: [`std::fs::ReadDir`]. Entries that are there during the whole listing come
/// exactly once, whatever else changes.
pub struct ReadDir<'i> {
    directory: Arc<Directory<'i>>,
    cookie: u64,
    batch: VecDeque<Result<Listed>>,
    dots: Dots,
    is_at_end: bool,
}

impl ReadDir<'_> {
    fn fill(&mut self) {
        let ReadDir { directory, cookie, batch, dots, is_at_end } = self;
        let (fs, inode) = (directory.held.fs(), directory.held.inode());
        *is_at_end = true;
        let read = fs.file_system().read_directory(fs.context(), inode, *cookie, &mut |entry| {
            if batch.len() == BATCH {
                *is_at_end = false;
                return false;
            }
            *cookie = entry.cookie;
            match check_listed(entry.name, dots) {
                Ok(true) => batch.push_back(Ok(Listed {
                    name: OsString::from_vec(entry.name.to_vec()),
                    inode: entry.inode,
                    file_type: entry.file_type,
                })),
                Ok(false) => {}
                Err(error) => batch.push_back(Err(directory.error("list", error))),
            }
            true
        });
        if let Err(error) = read {
            *is_at_end = true;
            batch.push_back(Err(directory.error("list", error)));
        }
    }
}

impl<'i> Iterator for ReadDir<'i> {
    type Item = Result<DirEntry<'i>>;

    fn next(&mut self) -> Option<Result<DirEntry<'i>>> {
        while self.batch.is_empty() && !self.is_at_end {
            self.fill();
        }
        let listed = self.batch.pop_front()?;
        Some(listed.map(|listed| DirEntry { directory: Arc::clone(&self.directory), listed }))
    }
}

impl std::fmt::Debug for ReadDir<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ReadDir").field(&self.directory.path).finish()
    }
}

/// An entry of a directory: [`std::fs::DirEntry`].
pub struct DirEntry<'i> {
    directory: Arc<Directory<'i>>,
    listed: Listed,
}

impl DirEntry<'_> {
    /// The path: that of the listing with the name.
    pub fn path(&self) -> PathBuf {
        self.directory.path.join(&self.listed.name)
    }

    /// The name.
    pub fn file_name(&self) -> &OsStr {
        &self.listed.name
    }

    /// The number of the inode.
    pub fn ino(&self) -> u64 {
        self.listed.inode.0
    }

    /// The type. A symbolic link isn't followed.
    ///
    /// # Errors
    ///
    /// The directory doesn't record it, and the inode can't be read.
    pub fn file_type(&self) -> Result<FileType> {
        match self.listed.file_type {
            Some(file_type) => Ok(file_type),
            None => self.metadata().map(|metadata| metadata.file_type()),
        }
    }

    /// What the entry is. A symbolic link isn't followed.
    ///
    /// # Errors
    ///
    /// It is gone, or can't be read.
    pub fn metadata(&self) -> Result<Metadata> {
        let (held, name) = (&self.directory.held, self.listed.name.as_bytes());
        let (file_system, context) = (held.fs().file_system(), held.fs().context());
        let found = InodeGuard::lookup(file_system, context, held.inode(), name)
            .map_err(|error| Error::from(error).during("examine").at(&self.path()))?;
        Ok(Metadata::new(*found.attributes()))
    }
}

impl std::fmt::Debug for DirEntry<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("DirEntry").field(&self.path()).finish()
    }
}
