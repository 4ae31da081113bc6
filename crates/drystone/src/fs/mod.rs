//! Files by path, with the names and the behaviour of [`std::fs`].
//!
//! [`Fs`] has a method for each function of [`std::fs`], and takes the same paths: relative ones start at
//! the root of the image. Errors have the [`kind`](Error::kind) that [`std::fs`] would report on Linux, also
//! for empty paths, slashes at the end, `..`, and symbolic links that lead nowhere or in circles.
//!
//! `names` makes, moves and removes entries, `attributes` and `xattrs` change their metadata,
//! `file` is an open file, `directory` a listing, `walk` a tree, `transfer` copies from and to this
//! machine, and archives.
//!
//! # State
//!
//! A handle holds one reference to its inode and gives it back when it is dropped.

mod attributes;
mod diff;
mod directory;
mod file;
mod held;
mod metadata;
mod names;
mod options;
mod stored_path;
mod transfer;
mod walk;
mod xattrs;

pub use directory::{DirEntry, ReadDir};
pub use file::File;
pub use metadata::{FileTimes, Metadata};
pub use options::OpenOptions;
pub use walk::{Walk, WalkEntry};

use crate::engine::ImageReference;
use crate::{Error, Result};
use drystone_sync::Arc;
use drystone_vfs::{
    Errno, FileSystem, FileType, InodeAttributes, InodeGuard, InodeNumber, LastName, NewNode,
    OpenFlags, PATH_LENGTH_MAX, PathWalk, RequestContext, at_path, find_path, position_of,
};
use held::Held;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Permission bits that new entries don't get, as most systems have it.
const DEFAULT_UMASK: u16 = 0o022;
/// Read at a time: a damaged image may say that a file has any size.
const READ_BYTES_MAX: u64 = 64 << 20;

/// The files of an image, used by somebody.
///
/// It is cheap to clone, and may be used by many threads at once.
#[derive(Clone)]
pub struct Fs<'i>(Arc<Session<'i>>);

/// What handles share: one reference to it is all that opening a file takes.
struct Session<'i> {
    image: ImageReference<'i>,
    context: RequestContext,
}

impl<'i> Fs<'i> {
    /// The files of any file system, used as the superuser.
    pub fn over(file_system: &'i dyn FileSystem) -> Fs<'i> {
        Fs::new(ImageReference::Borrowed(file_system))
    }

    pub(crate) fn new(image: ImageReference<'i>) -> Fs<'i> {
        let context = RequestContext { umask: DEFAULT_UMASK, ..RequestContext::superuser() };
        Fs(Arc::new(Session { image, context }))
    }

    /// The same files, used by an ordinary user: permissions are checked, and what is made belongs to the
    /// user. `groups` are the supplementary groups.
    #[must_use]
    pub fn as_user(&self, user: u32, group: u32, groups: &[u32]) -> Fs<'i> {
        let umask = self.context().umask;
        self.with_context(RequestContext {
            umask,
            ..RequestContext::user(user, group, groups.to_vec())
        })
    }

    /// The same files, where new entries don't get these permission bits. 0o022 by default.
    #[must_use]
    pub fn with_umask(&self, umask: u32) -> Fs<'i> {
        let umask = (umask & 0o777) as u16;
        self.with_context(RequestContext { umask, ..self.context().clone() })
    }

    /// The same files, used with any identity.
    #[must_use]
    pub fn with_context(&self, context: RequestContext) -> Fs<'i> {
        Fs(Arc::new(Session { image: self.0.image.clone(), context }))
    }

    /// The inode level below.
    pub fn file_system(&self) -> &dyn FileSystem {
        self.0.image.file_system()
    }

    /// The identity that permissions are checked against.
    pub fn context(&self) -> &RequestContext {
        &self.0.context
    }

    /// The whole content of a file.
    ///
    /// # Errors
    ///
    /// There is no file, it can't be read, or it is a directory.
    pub fn read(&self, path: impl AsRef<Path>) -> Result<Vec<u8>> {
        self.run("read", path.as_ref(), |path| {
            self.open_existing(path, OpenFlags::READ, |found| {
                let InodeAttributes { inode, file_type, size, .. } = *found.attributes();
                self.read_all(inode, file_type, size)
            })
        })
    }

    /// The whole content of a file, which must be UTF-8.
    ///
    /// # Errors
    ///
    /// As [`read`](Fs::read); [`InvalidData`](std::io::ErrorKind::InvalidData) if it isn't UTF-8.
    pub fn read_to_string(&self, path: impl AsRef<Path>) -> Result<String> {
        let path = path.as_ref();
        String::from_utf8(self.read(path)?).map_err(|error| {
            let error = std::io::Error::new(std::io::ErrorKind::InvalidData, error.utf8_error());
            Error::from(error).during("read").at(path)
        })
    }

    /// Makes a file with this content, or replaces the content of one that is there.
    ///
    /// # Errors
    ///
    /// It can't be made or written, or is a directory.
    pub fn write(&self, path: impl AsRef<Path>, contents: impl AsRef<[u8]>) -> Result<()> {
        self.run("write", path.as_ref(), |path| {
            let file = self.open_or_create(path, OPEN_TO_REPLACE)?;
            let file_system = self.file_system();
            file_system.write_all(self.context(), file.inode(), 0, contents.as_ref())?;
            file_system.closed(file.inode());
            Ok(())
        })
    }

    /// Opens a file for reading.
    ///
    /// # Errors
    ///
    /// There is none, or it can't be read.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<File<'i>> {
        self.open_as(path.as_ref(), OPEN_TO_READ)
    }

    /// Opens a file for writing, makes it if it isn't there and cuts it off if it is: [`File::create`]
    /// of the standard library.
    ///
    /// [`File::create`]: std::fs::File::create
    ///
    /// # Errors
    ///
    /// It can't be made or written.
    pub fn create(&self, path: impl AsRef<Path>) -> Result<File<'i>> {
        self.open_with(path, OpenOptions::new().write(true).create(true).truncate(true))
    }

    /// Makes a file that must not be there yet, and opens it for reading and writing.
    ///
    /// # Errors
    ///
    /// There is an entry of this name, or it can't be made.
    pub fn create_new(&self, path: impl AsRef<Path>) -> Result<File<'i>> {
        self.open_with(path, OpenOptions::new().read(true).write(true).create_new(true))
    }

    /// Opens a file as the options say.
    ///
    /// # Errors
    ///
    /// The options contradict each other ([`InvalidInput`](std::io::ErrorKind::InvalidInput)), or the file
    /// can't be opened so.
    pub fn open_with(&self, path: impl AsRef<Path>, options: OpenOptions) -> Result<File<'i>> {
        self.open_as(path.as_ref(), options)
    }

    /// Inlined, so that little is left of options that the caller knows.
    #[inline(always)]
    fn open_as(&self, path: &Path, options: OpenOptions) -> Result<File<'i>> {
        let hold = |found: InodeGuard<'_>| {
            let file_type = found.attributes().file_type;
            Ok((Held::new(self, found), file_type))
        };
        let opened = options.check().and_then(|()| checked_bytes(path)).and_then(|bytes| {
            match options.may_create() {
                true => self.open_or_create(bytes, options).and_then(hold),
                false => self.open_existing(bytes, options.flags(), hold),
            }
        });
        match opened {
            Ok((held, file_type)) => Ok(File::new(held, path, file_type, options)),
            Err(error) => Err(failed("open", path, error)),
        }
    }

    /// Returns when everything is durable.
    ///
    /// # Errors
    ///
    /// Something could not be written.
    pub fn sync(&self) -> Result<()> {
        self.file_system().sync().map_err(|error| Error::from(error).during("write to the device"))
    }

    /// Does something with the bytes of a path; an error gets the path.
    #[inline]
    fn run<T>(
        &self,
        operation: &'static str,
        path: &Path,
        body: impl FnOnce(&[u8]) -> drystone_vfs::Result<T>,
    ) -> Result<T> {
        checked_bytes(path).and_then(body).map_err(|error| failed(operation, path, error))
    }

    /// The way to the last name of a path.
    fn walk_to<'f: 'p, 'p>(&'f self, path: &'p [u8]) -> drystone_vfs::Result<PathWalk<'f, 'p>> {
        PathWalk::new(self.file_system(), self.context(), path)
    }

    /// What is at a path.
    #[inline]
    fn find(&self, path: &[u8], follow_last: bool) -> drystone_vfs::Result<InodeGuard<'_>> {
        find_path(self.file_system(), self.context(), path, follow_last)
    }

    /// Opens what is at a path and hands it to `take`.
    #[inline(always)]
    fn open_existing<'f, T>(
        &'f self,
        path: &[u8],
        flags: OpenFlags,
        take: impl FnOnce(InodeGuard<'f>) -> drystone_vfs::Result<T>,
    ) -> drystone_vfs::Result<T> {
        at_path(self.file_system(), self.context(), path, true, |found| {
            self.check_open(found.inode(), found.attributes().file_type, flags)?;
            take(found)
        })
    }

    /// Opens an inode that was found. Devices, pipes and sockets are for a kernel to open.
    #[inline(always)]
    fn check_open(
        &self,
        inode: InodeNumber,
        file_type: FileType,
        flags: OpenFlags,
    ) -> drystone_vfs::Result<()> {
        self.file_system().open_held(self.context(), inode, flags)?;
        match file_type {
            FileType::Regular | FileType::Directory => Ok(()),
            _ => Err(Errno::ENXIO.into()),
        }
    }

    /// Opens a file, or makes it where the last symbolic link leads.
    fn open_or_create(
        &self,
        path: &[u8],
        options: OpenOptions,
    ) -> drystone_vfs::Result<InodeGuard<'_>> {
        let file_system = self.file_system();
        let mut walk = self.walk_to(path)?;
        loop {
            if walk.last() != LastName::Name {
                let is_new = options.must_create();
                return Err(walk.refusal(if is_new { Errno::EEXIST } else { Errno::EISDIR }));
            }
            if walk.has_slash() {
                return Err(walk.refusal(Errno::EISDIR));
            }
            let found = match options.must_create() {
                true => Err(Errno::ENOENT.into()),
                false => walk.look_up(),
            };
            match found {
                Ok(found) if found.attributes().file_type == FileType::Symlink => {
                    walk.follow(found)?;
                    continue;
                }
                Ok(found) if found.attributes().file_type == FileType::Directory => {
                    return Err(Errno::EISDIR.into());
                }
                Ok(found) => {
                    let file_type = found.attributes().file_type;
                    self.check_open(found.inode(), file_type, options.flags())?;
                    return Ok(found);
                }
                Err(error) if error.errno == Errno::ENOENT => {}
                Err(error) => return Err(error),
            }
            let (directory, name) = (walk.directory(), walk.name());
            let mode = options.permissions();
            let node = NewNode::Regular;
            match InodeGuard::create(file_system, self.context(), directory, name, node, mode) {
                // Another thread was faster.
                Err(error) if error.errno == Errno::EEXIST && !options.must_create() => {}
                made => return made,
            }
        }
    }

    /// Reads a file of `size` bytes.
    fn read_all(
        &self,
        file: InodeNumber,
        file_type: FileType,
        size: u64,
    ) -> drystone_vfs::Result<Vec<u8>> {
        if file_type == FileType::Directory {
            return Err(Errno::EISDIR.into());
        }
        let mut content = Vec::new();
        loop {
            let start = content.len();
            let more = (size - start as u64).min(READ_BYTES_MAX) as usize;
            content.try_reserve_exact(more).map_err(|_| Errno::ENOMEM)?;
            content.resize(start + more, 0);
            let read = self.file_system().read(file, start as u64, &mut content[start..])?;
            content.truncate(start + read);
            if read < more || content.len() as u64 == size {
                return Ok(content);
            }
        }
    }
}

impl std::fmt::Debug for Fs<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fs").field("context", self.context()).finish_non_exhaustive()
    }
}

/// How [`Fs::open`] opens a file.
const OPEN_TO_READ: OpenOptions = OpenOptions::new().read(true);

/// How [`Fs::write`] opens a file.
const OPEN_TO_REPLACE: OpenOptions = OpenOptions::new().write(true).create(true).truncate(true);

/// The error of an operation on a path.
#[cold]
fn failed(operation: &'static str, path: &Path, error: drystone_vfs::Error) -> Error {
    Error::from(error).during(operation).at(path)
}

/// The bytes of a path that a system call would take.
#[inline]
fn checked_bytes(path: &Path) -> drystone_vfs::Result<&[u8]> {
    let bytes = path.as_os_str().as_bytes();
    if position_of(bytes, 0).is_some() {
        return Err(Errno::EINVAL.into());
    }
    match bytes.len() {
        0 => Err(Errno::ENOENT.into()),
        length if length > PATH_LENGTH_MAX => Err(Errno::ENAMETOOLONG.into()),
        _ => Ok(bytes),
    }
}
