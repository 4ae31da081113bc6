//! Whole trees, depth first.
//!
//! # State
//!
//! A frame for each directory on the way down, with a reference to it and the names that are still to
//! come: paths may be longer than a path may be, and directories may be renamed meanwhile.

use super::Fs;
use super::held::Held;
use super::metadata::Metadata;
use crate::{Error, Result};
use drystone_vfs::{
    Dots, Errno, FileSystem, FileType, InodeGuard, InodeNumber, RequestContext, check_listed,
};
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

impl<'i> Fs<'i> {
    /// Everything from `path` down, beginning with what is at `path` itself: depth first, a directory before
    /// what is in it, names in the order of their bytes. Symbolic links aren't followed.
    ///
    /// What can't be read is an error among the entries; the walk goes on after it. So is a directory that comes a
    /// second time, because the image is damaged or another thread moved the directory meanwhile.
    pub fn walk(&self, path: impl AsRef<Path>) -> Walk<'i> {
        Walk {
            fs: self.clone(),
            start: Some(path.as_ref().to_path_buf()),
            frames: Vec::new(),
            path: PathBuf::new(),
            entered: HashSet::new(),
            failure: None,
        }
    }
}

/// A directory that is being walked.
struct Frame<'i> {
    directory: Held<'i>,
    names: std::vec::IntoIter<OsString>,
}

/// A walk through a tree, made by [`Fs::walk`].
pub struct Walk<'i> {
    fs: Fs<'i>,
    start: Option<PathBuf>,
    frames: Vec<Frame<'i>>,
    /// That of the last frame.
    path: PathBuf,
    /// The directories that were walked: in a damaged image one may lie in itself.
    entered: HashSet<InodeNumber>,
    /// Why the last directory could not be listed, to be told next.
    failure: Option<Error>,
}

impl Walk<'_> {
    /// Leaves out what is still to come in the directory that the walk is in. After an entry that is a directory,
    /// that is the directory itself; after any other entry, the directory that holds it.
    pub fn skip_current_dir(&mut self) {
        self.failure = None;
        self.leave();
    }

    fn leave(&mut self) {
        if self.frames.pop().is_some() {
            self.path.pop();
        }
    }

    /// Looks at the entry at `path`, which has the last name of the path in the directory of the last frame.
    fn visit(&mut self, path: PathBuf) -> Result<WalkEntry> {
        let depth = self.frames.len();
        let fs = &self.fs;
        let error = |error: drystone_vfs::Error| Error::from(error).during("examine").at(&path);
        let found = match self.frames.last() {
            None => fs.run("examine", &path, |path| fs.find(path, false))?,
            Some(frame) => {
                let name = path.file_name().unwrap_or_default().as_bytes();
                let directory = frame.directory.inode();
                let found = InodeGuard::lookup(fs.file_system(), fs.context(), directory, name);
                found.map_err(error)?
            }
        };
        let metadata = Metadata::new(*found.attributes());
        if metadata.is_dir() {
            if !self.entered.insert(found.inode()) {
                let detail =
                    "the directory has another place in the tree, unless it was moved meanwhile";
                return Err(error(drystone_vfs::Error::with_detail(Errno::EUCLEAN, detail)));
            }
            let (names, failure) = list(fs.file_system(), fs.context(), found.inode());
            self.failure = failure.map(|error| Error::from(error).during("list").at(&path));
            let directory = Held::new(fs, found);
            self.frames.push(Frame { directory, names: names.into_iter() });
            self.path.clone_from(&path);
        }
        Ok(WalkEntry { path, depth, metadata })
    }
}

impl Iterator for Walk<'_> {
    type Item = Result<WalkEntry>;

    fn next(&mut self) -> Option<Result<WalkEntry>> {
        if let Some(failure) = self.failure.take() {
            return Some(Err(failure));
        }
        if let Some(start) = self.start.take() {
            return Some(self.visit(start));
        }
        loop {
            if let Some(name) = self.frames.last_mut()?.names.next() {
                return Some(self.visit(self.path.join(name)));
            }
            self.leave();
        }
    }
}

impl std::iter::FusedIterator for Walk<'_> {}

impl std::fmt::Debug for Walk<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Walk").field("path", &self.path).finish_non_exhaustive()
    }
}

/// What a walk came to.
#[derive(Clone, Debug)]
pub struct WalkEntry {
    path: PathBuf,
    depth: usize,
    metadata: Metadata,
}

impl WalkEntry {
    /// The path: that of the start, with the names below it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path, to keep.
    pub fn into_path(self) -> PathBuf {
        self.path
    }

    /// The name; the whole path of the start if that ends in none.
    pub fn file_name(&self) -> &OsStr {
        self.path.file_name().unwrap_or(self.path.as_os_str())
    }

    /// How many directories below the start it is.
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// The type. A symbolic link isn't followed.
    pub fn file_type(&self) -> FileType {
        self.metadata.file_type()
    }

    /// What it is. A symbolic link isn't followed.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }
}

/// The names in a directory, sorted, and why there are no more.
fn list(
    file_system: &dyn FileSystem,
    context: &RequestContext,
    directory: InodeNumber,
) -> (Vec<OsString>, Option<drystone_vfs::Error>) {
    let (mut names, mut dots, mut failure) = (Vec::new(), Dots::default(), None);
    let read = file_system.read_directory(context, directory, 0, &mut |entry| {
        match check_listed(entry.name, &mut dots) {
            Ok(true) => names.push(OsString::from_vec(entry.name.to_vec())),
            Ok(false) => {}
            Err(error) => failure = Some(error),
        }
        true
    });
    names.sort_unstable();
    (names, read.err().or(failure))
}

/// Removes everything in the directory `top`, which is at `path`. Stops at the first error.
pub(super) fn remove_below(fs: &Fs<'_>, top: InodeGuard<'_>, path: &Path) -> Result<()> {
    let (file_system, context) = (fs.file_system(), fs.context());
    let error_at = |error, path: &Path| Error::from(error).during("remove").at(path);
    let mut path = path.to_path_buf();
    let mut frames: Vec<(InodeGuard<'_>, std::vec::IntoIter<OsString>)> = Vec::new();
    let mut next = Some(top);
    loop {
        if let Some(directory) = next.take() {
            if frames.iter().any(|(above, _)| above.inode() == directory.inode()) {
                let detail = "the directory lies in itself";
                let error = drystone_vfs::Error::with_detail(Errno::EUCLEAN, detail);
                return Err(error_at(error, &path));
            }
            let (names, failure) = list(file_system, context, directory.inode());
            if let Some(failure) = failure {
                return Err(error_at(failure, &path));
            }
            frames.push((directory, names.into_iter()));
        }
        let Some((directory, names)) = frames.last_mut() else { return Ok(()) };
        let parent = directory.inode();
        let removed = match names.next() {
            Some(name) => {
                path.push(&name);
                match InodeGuard::lookup(file_system, context, parent, name.as_bytes()) {
                    Ok(found) if found.is_directory() => {
                        next = Some(found);
                        continue;
                    }
                    Ok(_) => file_system.unlink(context, parent, name.as_bytes()),
                    Err(error) => Err(error),
                }
            }
            None => {
                frames.pop();
                let Some((above, _)) = frames.last() else { return Ok(()) };
                let name = path.file_name().unwrap_or_default().as_bytes();
                file_system.remove_directory(context, above.inode(), name)
            }
        };
        match removed {
            Err(error) if error.errno != Errno::ENOENT => return Err(error_at(error, &path)),
            // Another thread was faster.
            _ => path.pop(),
        };
    }
}
