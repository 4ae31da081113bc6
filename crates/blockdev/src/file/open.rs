//! How a file or block device is opened, claimed and created.
//!
//! # Locking
//!
//! An open device holds an advisory lock on the file (`flock`): exclusive for writing, shared for
//! reading. So one process writes an image at a time and none reads it meanwhile. A block device opened
//! for writing is also claimed from the kernel, which refuses while it is mounted. The kernel doesn't
//! lock files that it uses as disks, so opening a file for writing looks for it in the mount table and
//! behind the loop devices.
//!
//! # Crash
//!
//! Creating a file also syncs its directory, so that an image whose first flush succeeded has a name
//! after a crash.

use super::FileDevice;
use crate::kernel_use::kernel_use;
use crate::lock_classes::FILE_FLUSH;
use crate::{DeviceError, DeviceResult};
use drystone_sync::atomic::{AtomicBool, AtomicU64};
use drystone_sync::{Arc, Mutex, thread};
use std::fs::{File, Metadata, OpenOptions, TryLockError};
use std::io::{ErrorKind, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

/// How often, and at what interval, opening a claimed block device is tried again. A child process that
/// another thread has forked keeps the claim of a device that was just closed, until it runs its program.
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
    /// Takes it over and drops its content.
    Overwrite,
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
        // Opening a pipe would wait for another process to open its other end.
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
        // From here on, an error drops the device, which releases the lock.
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

/// Only a file or a block device can hold an image.
fn check_type(path: &Path, found: &Metadata) -> DeviceResult {
    if found.is_file() || found.file_type().is_block_device() {
        return Ok(());
    }
    let problem = "neither a regular file nor a block device";
    Err(open_error(path, std::io::Error::new(ErrorKind::InvalidInput, problem)))
}

pub(super) fn open_error(path: &Path, error: std::io::Error) -> DeviceError {
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
