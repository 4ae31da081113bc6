//! An open file.

use super::held::Held;
use super::metadata::{FileTimes, Metadata};
use super::options::OpenOptions;
use super::stored_path::StoredPath;
use crate::{Error, Result};
use drystone_sync::{Arc, LockClass, Mutex, MutexGuard, OnceLock};
use drystone_vfs::{
    Capabilities, Errno, FallocateMode, FileSystem, FileType, InodeGuard, InodeNumber, OpenFlags,
    RequestContext, SetAttributes,
};
use std::fs::Permissions;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;

/// The offset of an open file. Held while a read or a write runs, so that threads that share a file read
/// and write one after the other.
static POSITION: LockClass = LockClass::new("file position", 10);

/// An open file, or a directory opened for [`sync_all`](File::sync_all) and the like. Made by
/// [`Fs::open`](super::Fs::open) and its relatives.
///
/// Dropping it closes it. Small writes may wait in memory for the image's commit interval;
/// [`sync_all`](File::sync_all) reports their errors.
pub struct File<'i> {
    held: Held<'i>,
    path: StoredPath,
    file_type: FileType,
    options: OpenOptions,
    /// Where the next read or write starts, until the file is cloned.
    position: Mutex<u64>,
    /// Takes the place of `position` once the file is cloned: most files never are, and need no allocation.
    shared_position: OnceLock<Arc<Mutex<u64>>>,
}

impl<'i> File<'i> {
    #[inline(always)]
    pub(super) fn new(
        held: Held<'i>,
        path: &Path,
        file_type: FileType,
        options: OpenOptions,
    ) -> File<'i> {
        let (path, position) = (StoredPath::new(path), Mutex::new(&POSITION, 0));
        let shared_position = OnceLock::new();
        File { held, path, file_type, options, position, shared_position }
    }

    /// One more handle to the same open file, as that of [`std::fs::File::try_clone`]: both read and write at
    /// one position, and either keeps the file open. It needs no path: the file may have been removed.
    ///
    /// ```
    /// # use drystone::{CreateOptions, Image};
    /// use std::io::{Seek, Write};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let image = Image::in_memory(&CreateOptions::new(8 << 20))?;
    /// let fs = image.fs();
    /// let mut file = fs.create("/log")?;
    /// let mut clone = file.try_clone()?;
    /// file.write_all(b"first, ")?;
    /// clone.write_all(b"second")?;
    /// assert_eq!(file.stream_position()?, 13);
    /// assert_eq!(fs.read_to_string("/log")?, "first, second");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// The image can't be read.
    pub fn try_clone(&self) -> Result<File<'i>> {
        let entry = self.run("clone", |file_system, inode| {
            // What it may be used for was checked when it was opened.
            file_system.open(&RequestContext::superuser(), inode, OpenFlags::empty())
        })?;
        let fs = self.held.fs();
        let held = Held::new(fs, InodeGuard::new(fs.file_system(), entry));
        let position = {
            let own = self.position.lock();
            let shared = || Arc::new(Mutex::new(&POSITION, *own));
            Arc::clone(self.shared_position.get_or_init(shared))
        };
        let clone = File::new(held, self.path(), self.file_type, self.options);
        // It is new, so there is none yet.
        clone.shared_position.get_or_init(|| position);
        Ok(clone)
    }

    /// The path that it was opened by.
    pub fn path(&self) -> &Path {
        self.path.get()
    }

    /// The number of its inode, for the inode level.
    pub fn inode(&self) -> InodeNumber {
        self.held.inode()
    }

    /// What it is.
    ///
    /// # Errors
    ///
    /// The image can't be read.
    pub fn metadata(&self) -> Result<Metadata> {
        self.run("examine", |file_system, inode| file_system.attributes(inode)).map(Metadata::new)
    }

    /// Cuts it off, or extends it by a hole.
    ///
    /// # Errors
    ///
    /// It isn't open for writing, or `size` is more than a file can have.
    pub fn set_len(&self, size: u64) -> Result<()> {
        if !self.options.writes() {
            return Err(self.error("truncate", Errno::EINVAL));
        }
        // That it may be written was checked when it was opened.
        let mut context = self.held.fs().context().clone();
        context.capabilities |= Capabilities::OVERRIDE;
        let changes = SetAttributes { size: Some(size), ..SetAttributes::default() };
        self.change("truncate", &context, &changes)
    }

    /// Sets permissions.
    ///
    /// # Errors
    ///
    /// Only the owner and the superuser may.
    pub fn set_permissions(&self, permissions: Permissions) -> Result<()> {
        let permissions = Some((permissions.mode() & 0o7777) as u16);
        let changes = SetAttributes { permissions, ..SetAttributes::default() };
        self.change("change permissions of", self.held.fs().context(), &changes)
    }

    /// Sets times.
    ///
    /// # Errors
    ///
    /// Only the owner and the superuser may.
    pub fn set_times(&self, times: FileTimes) -> Result<()> {
        self.change("change times of", self.held.fs().context(), &times.changes())
    }

    /// Sets the time of the last change of content.
    ///
    /// # Errors
    ///
    /// Only the owner and the superuser may.
    pub fn set_modified(&self, time: std::time::SystemTime) -> Result<()> {
        self.set_times(FileTimes::new().set_modified(time))
    }

    /// Changes the space behind a range.
    ///
    /// # Errors
    ///
    /// It isn't open for writing; there is no space; the file system or the kind of file can't do it.
    pub fn fallocate(&self, mode: FallocateMode, offset: u64, length: u64) -> Result<()> {
        self.run("allocate space for", |file_system, inode| {
            self.check_writes()?;
            file_system.fallocate(self.held.fs().context(), inode, mode, offset, length)
        })
    }

    /// Where the next stored content, or the next hole, begins, at or after an offset. Holes read as
    /// zeros; one follows the end of each file.
    ///
    /// ```
    /// # use drystone::{CreateOptions, Image};
    /// use drystone::vfs::SeekFrom;
    /// use std::os::unix::fs::FileExt;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let image = Image::in_memory(&CreateOptions::new(8 << 20))?;
    /// let file = image.fs().create("/sparse")?;
    /// file.write_at(b"far away", 1 << 20)?;
    /// assert_eq!(file.find(SeekFrom::Hole(0))?, 0);
    /// assert_eq!(file.find(SeekFrom::Data(0))?, 1 << 20);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// `ENXIO` if the offset is at or past the end, or no content follows; what is stored where can't be
    /// read.
    pub fn find(&self, from: drystone_vfs::SeekFrom) -> Result<u64> {
        self.run("seek in", |file_system, inode| file_system.seek(inode, from))
    }

    /// Returns when content and attributes are durable.
    ///
    /// # Errors
    ///
    /// Something could not be written.
    pub fn sync_all(&self) -> Result<()> {
        self.run("sync", |file_system, inode| file_system.sync_inode(inode, false))
    }

    /// Returns when the content is durable.
    ///
    /// # Errors
    ///
    /// Something could not be written.
    pub fn sync_data(&self) -> Result<()> {
        self.run("sync", |file_system, inode| file_system.sync_inode(inode, true))
    }

    fn change(
        &self,
        operation: &'static str,
        context: &RequestContext,
        changes: &SetAttributes,
    ) -> Result<()> {
        self.run(operation, |file_system, inode| {
            file_system.set_attributes(context, inode, changes).map(|_| ())
        })
    }

    fn run<T>(
        &self,
        operation: &'static str,
        body: impl FnOnce(&dyn FileSystem, InodeNumber) -> drystone_vfs::Result<T>,
    ) -> Result<T> {
        body(self.held.fs().file_system(), self.held.inode())
            .map_err(|error| self.error(operation, error))
    }

    fn error(&self, operation: &'static str, cause: impl Into<drystone_vfs::Error>) -> Error {
        Error::from(cause.into()).during(operation).at(self.path())
    }

    /// The position, locked.
    fn position(&self) -> MutexGuard<'_, u64> {
        if let Some(shared) = self.shared_position.get() {
            return shared.lock();
        }
        let own = self.position.lock();
        // It may have been cloned meanwhile.
        match self.shared_position.get() {
            None => own,
            Some(shared) => {
                drop(own);
                shared.lock()
            }
        }
    }

    fn check_reads(&self) -> drystone_vfs::Result<()> {
        match self.file_type {
            _ if !self.options.reads() => Err(Errno::EBADF.into()),
            FileType::Directory => Err(Errno::EISDIR.into()),
            _ => Ok(()),
        }
    }

    fn check_writes(&self) -> drystone_vfs::Result<()> {
        if self.options.writes() { Ok(()) } else { Err(Errno::EBADF.into()) }
    }

    fn read_from(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(self.run("read", |file_system, inode| {
            self.check_reads()?;
            file_system.read(inode, offset, buffer)
        })?)
    }

    /// Writes at `offset`, or at the end where everything is appended; returns where the write ended, too.
    fn write_to(&self, offset: u64, data: &[u8]) -> io::Result<(usize, u64)> {
        Ok(self.run("write", |file_system, inode| {
            self.check_writes()?;
            if data.is_empty() {
                return Ok((0, offset));
            }
            let (start, written) = match self.options.appends() {
                true => file_system.append(self.held.fs().context(), inode, data)?,
                false => {
                    (offset, file_system.write(self.held.fs().context(), inode, offset, data)?)
                }
            };
            Ok((written, start + written as u64))
        })?)
    }
}

impl Drop for File<'_> {
    fn drop(&mut self) {
        if self.options.writes() {
            self.held.fs().file_system().closed(self.held.inode());
        }
    }
}

impl std::fmt::Debug for File<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut debug = f.debug_struct("File");
        debug.field("path", &self.path()).field("options", &self.options).finish_non_exhaustive()
    }
}

impl Read for &File<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut position = self.position();
        let read = self.read_from(*position, buffer)?;
        *position += read as u64;
        Ok(read)
    }
}

impl Write for &File<'_> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let mut position = self.position();
        let (written, end) = self.write_to(*position, data)?;
        *position = end;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for &File<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let mut position = self.position();
        let (base, step) = match to {
            SeekFrom::Start(offset) => (offset, 0),
            SeekFrom::Current(step) => (*position, step),
            SeekFrom::End(step) => (self.metadata()?.len(), step),
        };
        let sought = base.checked_add_signed(step).filter(|offset| i64::try_from(*offset).is_ok());
        *position = sought.ok_or_else(|| self.error("seek in", Errno::EINVAL))?;
        Ok(*position)
    }
}

impl Read for File<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buffer)
    }
}

impl Write for File<'_> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        (&*self).write(data)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for File<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        (&*self).seek(to)
    }
}

impl FileExt for File<'_> {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.read_from(offset, buffer)
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        // Nothing interrupts a read, and a short one is at the end of the file.
        match self.read_from(offset, buffer)? == buffer.len() {
            true => Ok(()),
            false => Err(ErrorKind::UnexpectedEof.into()),
        }
    }

    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<usize> {
        Ok(self.write_to(offset, data)?.0)
    }
}
