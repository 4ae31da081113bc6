//! A regular file or a block device of the system.
//!
//! # Locking
//!
//! An open device holds an advisory lock on the file (`flock`): exclusive for writing,
//! shared for reading. So one process writes an image at a time and none reads it
//! meanwhile. A block device opened for writing is also claimed from the kernel, which
//! refuses while it is mounted. The kernel locks no file that it uses as a disk: those are
//! looked for in the mount table and behind the loop devices when a file is opened to write.
//!
//! One flush runs at a time: the system tells a failed write-back to one of those that run at once.
//!
//! # Crash
//!
//! A flush is `fdatasync`. The system tells a failed write-back once, and takes the lost pages for
//! written. So the first flush that fails is the last: the device refuses all that would change it.
//! Creating a file also syncs its directory, so that an image whose
//! first flush succeeded has a name after a crash.

use crate::device::slices_length;
use crate::kernel_use::kernel_use;
use crate::lock_classes::FILE_FLUSH;
use crate::{BlockDevice, DeviceError, DeviceOperation, DeviceResult, check_range};
use drystone_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use drystone_sync::{Arc, Mutex, thread};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use std::fs::{File, Metadata, OpenOptions, TryLockError};
use std::io::{ErrorKind, IoSlice, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Slices handed to the system in one call; Linux refuses more than 1024.
const SLICES_MAX: usize = 1024;

/// How often, and after what time, a block device that is claimed is tried again: a child that another
/// thread starts keeps the claim of a device that was just closed, until it runs its program.
const CLAIM_TRIES: u32 = 20;
const CLAIM_INTERVAL: Duration = Duration::from_millis(10);

/// What an open [`FileDevice`] may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// Read, beside other readers.
    ReadOnly,
    /// Read and write, alone.
    ReadWrite,
}

/// What [`FileDevice::create`] does with a file that exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// Fails.
    Refuse,
    /// Takes it over; its content is gone.
    Overwrite,
}

/// A regular file or a block device of the system.
#[derive(Debug)]
pub struct FileDevice {
    file: File,
    path: PathBuf,
    mode: OpenMode,
    size_bytes: AtomicU64,
    is_block_device: bool,
    /// Cleared when the system says that it can't zero ranges in this file.
    zeroes_ranges: AtomicBool,
    /// Set with the failure below, and read by every write.
    has_failed: AtomicBool,
    /// What the system said of the flush that failed. Locked while a flush runs.
    flush_failure: Mutex<Option<Arc<std::io::Error>>>,
}

impl FileDevice {
    /// Opens a file or block device that exists.
    ///
    /// # Errors
    ///
    /// [`DeviceError::InUse`] if another process writes it, or reads it and `mode` is to
    /// write; [`DeviceError::InUseByKernel`] if `mode` is to write and the kernel has it mounted;
    /// [`DeviceError::Open`] with what the system said otherwise.
    pub fn open(path: impl AsRef<Path>, mode: OpenMode) -> DeviceResult<Self> {
        let path = path.as_ref();
        let mut options = OpenOptions::new();
        options.read(true).write(mode == OpenMode::ReadWrite);
        // Opening a pipe would wait for somebody to open its other end.
        let found = path.metadata().map_err(|error| open_error(path, error))?;
        check_type(path, &found)?;
        let file = if found.file_type().is_block_device() && mode == OpenMode::ReadWrite {
            open_claimed(path)
        } else {
            options.open(path)
        };
        Self::locked(file.map_err(|error| open_error(path, error))?, path, mode)
    }

    /// Makes a file of `size_bytes` that takes no space until written, open for writing.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Open`] if the file exists and `existing` refuses, or with what the
    /// system said; [`DeviceError::InUse`] if another process has the existing file open,
    /// [`DeviceError::InUseByKernel`] if the kernel has it mounted.
    pub fn create(
        path: impl AsRef<Path>,
        size_bytes: u64,
        existing: Existing,
    ) -> DeviceResult<Self> {
        let path = path.as_ref();
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        match existing {
            Existing::Refuse => options.create_new(true),
            // Not truncated here: it may turn out to be in use.
            Existing::Overwrite => options.create(true).truncate(false),
        };
        let file = options.open(path).map_err(|error| open_error(path, error))?;
        let file = claimed(file, path, OpenMode::ReadWrite)?;
        let device = Self::locked(file, path, OpenMode::ReadWrite)?;
        device.clear(size_bytes)?;
        sync_directory_of(path)?;
        Ok(device)
    }

    /// Takes over a file that is already open; `path` is for messages. A block device must not have been
    /// claimed (opened exclusively): that is done here.
    ///
    /// # Errors
    ///
    /// As for [`open`](Self::open).
    pub fn from_file(file: File, path: impl AsRef<Path>, mode: OpenMode) -> DeviceResult<Self> {
        let path = path.as_ref();
        Self::locked(claimed(file, path, mode)?, path, mode)
    }

    fn locked(file: File, path: &Path, mode: OpenMode) -> DeviceResult<Self> {
        let found = file.metadata().map_err(|error| open_error(path, error))?;
        check_type(path, &found)?;
        let lock = match mode {
            OpenMode::ReadOnly => file.try_lock_shared(),
            OpenMode::ReadWrite => file.try_lock(),
        };
        lock.map_err(|error| match error {
            TryLockError::WouldBlock => DeviceError::InUse { path: path.to_owned() },
            TryLockError::Error(error) => open_error(path, error),
        })?;
        // From here on, an error drops the device, which gives the lock up.
        let mut device = Self {
            file,
            path: path.to_owned(),
            mode,
            size_bytes: AtomicU64::new(0),
            is_block_device: !found.is_file(),
            zeroes_ranges: AtomicBool::new(true),
            has_failed: AtomicBool::new(false),
            flush_failure: Mutex::new(&FILE_FLUSH, None),
        };
        if mode == OpenMode::ReadWrite
            && found.is_file()
            && let Some(usage) = kernel_use(&found)
        {
            return Err(DeviceError::InUseByKernel { path: path.to_owned(), usage });
        }
        // The end of a block device is its size, which its metadata doesn't tell.
        let end = device.file.seek(SeekFrom::End(0)).map_err(|error| open_error(path, error))?;
        device.size_bytes = AtomicU64::new(end);
        Ok(device)
    }

    /// The path it was opened by.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// True for a block device, false for a regular file.
    #[must_use]
    pub fn is_block_device(&self) -> bool {
        self.is_block_device
    }

    /// The first place at or after `offset` that may not be a hole; none if all is one up to the end.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Io`] with what the system said.
    pub fn next_data(&self, offset: u64) -> DeviceResult<Option<u64>> {
        if offset >= self.size_bytes() {
            return Ok(None);
        }
        match rustix::fs::seek(&self.file, rustix::fs::SeekFrom::Data(offset)) {
            Ok(data) => Ok(Some(data)),
            Err(Errno::NXIO) => Ok(None),
            // A device, or a file system that doesn't know of holes.
            Err(Errno::INVAL) => Ok(Some(offset)),
            Err(error) => Err(DeviceError::io(DeviceOperation::Read, offset, 0, error.into())),
        }
    }

    /// Changes the size of a regular file. New bytes are zeros and take no space.
    ///
    /// # Errors
    ///
    /// [`DeviceError::ReadOnly`], or [`DeviceError::Open`] with what the system said.
    pub fn resize(&self, size_bytes: u64) -> DeviceResult {
        self.check_writable()?;
        self.file.set_len(size_bytes).map_err(|error| open_error(&self.path, error))?;
        self.size_bytes.store(size_bytes, Ordering::Release);
        Ok(())
    }

    /// Drops all of a regular file, which then is one hole of this size. A size that the system
    /// refuses leaves it as it was.
    ///
    /// # Errors
    ///
    /// As for [`resize`](Self::resize).
    pub fn clear(&self, size_bytes: u64) -> DeviceResult {
        self.resize(size_bytes)?;
        self.resize(0)?;
        self.resize(size_bytes)
    }

    fn check_writable(&self) -> DeviceResult {
        match self.mode {
            OpenMode::ReadOnly => Err(DeviceError::ReadOnly),
            OpenMode::ReadWrite if self.has_failed.load(Ordering::Relaxed) => {
                check_flushed(&self.flush_failure.lock())
            }
            OpenMode::ReadWrite => Ok(()),
        }
    }

    /// Has `sync` make everything durable, unless it has failed before.
    fn flush_by(&self, sync: impl FnOnce(&File) -> std::io::Result<()>) -> DeviceResult {
        let mut failure = self.flush_failure.lock();
        check_flushed(&failure)?;
        sync(&self.file).map_err(|error| {
            let source = Arc::new(error);
            *failure = Some(Arc::clone(&source));
            self.has_failed.store(true, Ordering::Relaxed);
            DeviceError::Io { operation: DeviceOperation::Flush, offset: 0, length: 0, source }
        })
    }

    fn check_write(&self, offset: u64, length: u64) -> DeviceResult {
        self.check_writable()?;
        check_range(self.size_bytes(), offset, length)
    }

    /// Asks the system to change how a range is stored. False if it can't.
    fn fallocate(&self, flags: FallocateFlags, offset: u64, length: u64) -> Result<bool, Errno> {
        loop {
            return match rustix::fs::fallocate(&self.file, flags, offset, length) {
                Ok(()) => Ok(true),
                Err(Errno::INTR) => continue,
                Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::NODEV | Errno::INVAL) => Ok(false),
                Err(error) => Err(error),
            };
        }
    }
}

impl Drop for FileDevice {
    /// Gives the lock up at once. Closing the file alone would leave it with a child process that
    /// another thread is starting, until that child runs its program.
    fn drop(&mut self) {
        // Closing comes next, and releases the lock in all other cases.
        let _ = self.file.unlock();
    }
}

impl BlockDevice for FileDevice {
    fn size_bytes(&self) -> u64 {
        self.size_bytes.load(Ordering::Acquire)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> DeviceResult {
        check_range(self.size_bytes(), offset, buffer.len() as u64)?;
        // Retries short reads and interruptions; an early end means that the file shrank.
        self.file.read_exact_at(buffer, offset).map_err(|error| {
            DeviceError::io(DeviceOperation::Read, offset, buffer.len() as u64, error)
        })
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> DeviceResult {
        self.check_write(offset, data.len() as u64)?;
        self.file.write_all_at(data, offset).map_err(|error| {
            DeviceError::io(DeviceOperation::Write, offset, data.len() as u64, error)
        })
    }

    fn write_vectored_at(&self, offset: u64, slices: &[IoSlice<'_>]) -> DeviceResult {
        self.check_write(offset, slices_length(slices))?;
        let mut slices = slices.to_vec();
        let mut remaining = slices.as_mut_slice();
        // Empty slices at the front would make a complete write look like none.
        IoSlice::advance_slices(&mut remaining, 0);
        let mut position = offset;
        while !remaining.is_empty() {
            let batch = &remaining[..remaining.len().min(SLICES_MAX)];
            let written = match rustix::io::pwritev(&self.file, batch, position) {
                Ok(0) => Err(ErrorKind::WriteZero.into()),
                Ok(written) => Ok(written),
                Err(Errno::INTR) => continue,
                Err(error) => Err(error.into()),
            }
            .map_err(|error| {
                let length = slices_length(remaining);
                DeviceError::io(DeviceOperation::Write, position, length, error)
            })?;
            position += written as u64;
            IoSlice::advance_slices(&mut remaining, written);
        }
        Ok(())
    }

    fn flush(&self) -> DeviceResult {
        if self.mode == OpenMode::ReadOnly {
            return Ok(());
        }
        self.flush_by(File::sync_data)
    }

    fn discard(&self, offset: u64, length: u64) -> DeviceResult {
        self.check_write(offset, length)?;
        if length > 0 {
            // A hint: whatever the system answers, the range may keep its old bytes.
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            let _ = self.fallocate(flags, offset, length);
        }
        Ok(())
    }

    fn zero_range(&self, offset: u64, length: u64) -> DeviceResult {
        self.check_write(offset, length)?;
        if length == 0 {
            return Ok(());
        }
        if self.zeroes_ranges.load(Ordering::Relaxed) {
            // A hole before zeroed extents: it reads the same and takes no space.
            for flags in [FallocateFlags::PUNCH_HOLE, FallocateFlags::ZERO_RANGE] {
                let flags = flags | FallocateFlags::KEEP_SIZE;
                match self.fallocate(flags, offset, length) {
                    Ok(true) => return Ok(()),
                    Ok(false) => {}
                    Err(error) => {
                        let operation = DeviceOperation::Zero;
                        return Err(DeviceError::io(operation, offset, length, error.into()));
                    }
                }
            }
            self.zeroes_ranges.store(false, Ordering::Relaxed);
        }
        crate::device::write_zeros(self, offset, length)
    }

    fn is_read_only(&self) -> bool {
        self.mode == OpenMode::ReadOnly
    }
}

fn check_flushed(failure: &Option<Arc<std::io::Error>>) -> DeviceResult {
    match failure {
        Some(source) => Err(DeviceError::FlushFailed { source: Arc::clone(source) }),
        None => Ok(()),
    }
}

/// Opens a block device for writing and claims it from the kernel.
fn open_claimed(path: &Path) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    // Without O_CREAT this flag claims the device, and nothing else.
    options.read(true).write(true).custom_flags(rustix::fs::OFlags::EXCL.bits() as i32);
    let mut tries = 1;
    loop {
        match options.open(path) {
            Err(error) if error.kind() == ErrorKind::ResourceBusy && tries < CLAIM_TRIES => {
                tries += 1;
                thread::sleep(CLAIM_INTERVAL);
            }
            opened => return opened,
        }
    }
}

/// Claims a block device that is open already, by opening it anew, if it is to be written.
fn claimed(file: File, path: &Path, mode: OpenMode) -> DeviceResult<File> {
    let found = file.metadata().map_err(|error| open_error(path, error))?;
    if mode == OpenMode::ReadOnly || !found.file_type().is_block_device() {
        return Ok(file);
    }
    let same = format!("/proc/self/fd/{}", file.as_raw_fd());
    open_claimed(Path::new(&same)).map_err(|error| open_error(path, error))
}

/// What is neither a file nor a block device can't hold an image.
fn check_type(path: &Path, found: &Metadata) -> DeviceResult {
    if found.is_file() || found.file_type().is_block_device() {
        return Ok(());
    }
    let problem = "neither a regular file nor a block device";
    Err(open_error(path, std::io::Error::new(ErrorKind::InvalidInput, problem)))
}

fn open_error(path: &Path, error: std::io::Error) -> DeviceError {
    if error.kind() == ErrorKind::ResourceBusy {
        return DeviceError::InUse { path: path.to_owned() };
    }
    DeviceError::Open { path: path.to_owned(), source: Arc::new(error) }
}

/// Makes the name of a new file durable where that is possible.
fn sync_directory_of(path: &Path) -> DeviceResult {
    let directory = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    match File::open(directory).and_then(|directory| directory.sync_all()) {
        // A directory that may be written but not read, or a file system that syncs files only.
        Err(error)
            if matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::InvalidInput) =>
        {
            Ok(())
        }
        result => result.map_err(|error| open_error(directory, error)),
    }
}

#[cfg(all(test, not(loom)))]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use drystone_sync::Barrier;
    use std::io::Error;

    fn device(folder: &tempfile::TempDir) -> FileDevice {
        FileDevice::create(folder.path().join("image"), 4096, Existing::Refuse).unwrap()
    }

    fn lost() -> std::io::Result<()> {
        Err(Error::from_raw_os_error(Errno::IO.raw_os_error()))
    }

    #[test]
    fn a_flush_that_failed_is_the_last() {
        let folder = tempfile::tempdir().unwrap();
        let device = device(&folder);
        device.write_at(0, &[1; 512]).unwrap();
        device.flush().unwrap();
        // As on Linux: a sync that comes next would succeed, with the data lost.
        let failed = device.flush_by(|_| lost());
        assert!(matches!(failed, Err(DeviceError::Io { operation: DeviceOperation::Flush, .. })));
        let refused = |result| assert!(matches!(result, Err(DeviceError::FlushFailed { .. })));
        refused(device.flush());
        refused(device.write_at(0, &[2; 512]));
        refused(device.write_vectored_at(0, &[IoSlice::new(&[2; 512])]));
        refused(device.write_durable_at(0, &[2; 512]));
        refused(device.zero_range(0, 512));
        refused(device.discard(0, 512));
        refused(device.resize(8192));
        let mut bytes = [0; 512];
        device.read_at(0, &mut bytes).unwrap();
        assert_eq!(bytes, [1; 512]);
    }

    /// A host that is full loses what was written, like any other.
    #[test]
    fn a_flush_without_space_is_no_failure_to_write() {
        let folder = tempfile::tempdir().unwrap();
        let device = device(&folder);
        let full = || Err(Error::from_raw_os_error(Errno::NOSPC.raw_os_error()));
        let failed = device.flush_by(|_| full());
        assert!(matches!(failed, Err(DeviceError::Io { operation: DeviceOperation::Flush, .. })));
    }

    /// The system tells only one of two flushes that run at once.
    #[test]
    fn a_flush_beside_one_that_fails_does_not_succeed() {
        let folder = tempfile::tempdir().unwrap();
        let device = device(&folder);
        let (begun, is_to_fail) = (Barrier::new(2), Barrier::new(2));
        thread::scope(|scope| {
            let first = scope.spawn(|| {
                device.flush_by(|_| {
                    begun.wait();
                    is_to_fail.wait();
                    lost()
                })
            });
            begun.wait();
            let second = scope.spawn(|| device.flush());
            // Whether it waits already or comes later, it must not get past the first.
            is_to_fail.wait();
            assert!(first.join().unwrap().is_err());
            assert!(second.join().unwrap().is_err());
        });
    }
}
