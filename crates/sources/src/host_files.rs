//! Files of this machine that go into an image one by one.
//!
//! They are opened only while they are read: a list may name more files than may be open at once.

use crate::bytes::shown;
use crate::error::{Error, Result};
use crate::version::FileVersion;
use drystone_mkfs::tree::{ContentSource, FileTree, NodeContent, SourceError, SourceId};
use drystone_sync::{Arc, LockClass, Mutex};
use rustix::fs::OFlags;
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The files of a source. Files are added while others may be read already.
static LISTED: LockClass = LockClass::new("listed files", 111);

/// Files of this machine, as one source of one tree.
#[derive(Debug, Default)]
pub struct HostFiles {
    added: Option<(SourceId, Arc<ListedFiles>)>,
}

impl HostFiles {
    /// Adds a regular file to a tree, which must be the same tree each time. The file is given back
    /// open, for its metadata.
    pub(crate) fn add(
        &mut self,
        tree: &mut FileTree,
        path: &Path,
    ) -> Result<(NodeContent, Metadata, File)> {
        let failed = |error| Error::io(&shown(path))(error);
        let file = open_regular(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        let (source, listed) = match &self.added {
            Some(added) => added,
            None => {
                let listed = Arc::new(ListedFiles(Mutex::new(&LISTED, Vec::new())));
                self.added.insert((tree.add_source(Box::new(Arc::clone(&listed)))?, listed))
            }
        };
        let listed_file =
            ListedFile { path: path.to_path_buf(), version: FileVersion::from(&metadata) };
        let mut files = listed.0.lock();
        let object = u32::try_from(files.len())
            .map_err(|_| failed(io::Error::other("more files than 2^32")))?;
        files.push(listed_file);
        let content =
            NodeContent::Whole { size: metadata.len(), source: *source, object, offset: 0 };
        Ok((content, metadata, file))
    }
}

#[derive(Debug)]
struct ListedFiles(Mutex<Vec<ListedFile>>);

#[derive(Clone, Debug)]
struct ListedFile {
    path: PathBuf,
    version: FileVersion,
}

impl ContentSource for ListedFiles {
    fn read_at(
        &self,
        object: u32,
        offset: u64,
        buffer: &mut [u8],
    ) -> std::result::Result<(), SourceError> {
        // Objects are what `add` gave out.
        let ListedFile { path, version: expected } = self.0.lock()[object as usize].clone();
        let failed = |problem: &dyn std::fmt::Display| SourceError {
            path: shown(&path).into_bytes(),
            problem: problem.to_string(),
        };
        let file = open_regular(&path).map_err(|error| failed(&error))?;
        let read = file.read_exact_at(buffer, offset);
        // Checked after reading, so that what was read is what was listed.
        let metadata = file.metadata().map_err(|error| failed(&error))?;
        if FileVersion::from(&metadata) != expected {
            return Err(failed(&"changed while the image was built"));
        }
        read.map_err(|error| failed(&error))
    }
}

/// Opens a regular file; any other is refused at once, also a pipe without a writer.
pub(crate) fn open_regular(path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK.bits() as i32;
    regular(OpenOptions::new().read(true).custom_flags(flags).open(path)?)
}

/// An open file if it is a regular one.
pub(crate) fn regular(file: File) -> io::Result<File> {
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("not a regular file")),
    }
}
