//! How a file or block device is opened, claimed and created.
//!
//! # Locking
//!
//! An open device holds advisory locks on the file. So one process writes an image at a time and none
//! reads it meanwhile, while two processes may write two partitions of it:
//!
//! | opened | `flock` of the file | `F_OFD_SETLK` of bytes |
//! | --- | --- | --- |
//! | whole, to write | exclusive | none |
//! | whole, to read | shared | all of them, shared |
//! | a part, to write | shared | its own, exclusive |
//! | a part, to read | shared | its own, shared |
//! | to look what is where | shared | none |
//!
//! Where bytes can't be locked, a part that is written has the whole file. Other bytes are locked against QEMU
//! (`byte_locks`).
//!
//! A block device opened for writing is also claimed from the kernel, as a whole, which refuses while it or
//! a partition of it is mounted. The kernel doesn't lock files that it uses as disks, so opening a file for
//! writing looks for it in the mount table and behind the loop devices.
//!
//! # Crash
//!
//! Creating a file also syncs its directory, so that an image whose first flush succeeded has a name
//! after a crash.

use super::FileDevice;
use super::byte_locks::{self, Extent};
use crate::device::SECTOR_BYTES;
use crate::kernel_use::kernel_use;
use crate::lock_classes::FILE_FLUSH;
use crate::{DeviceError, DeviceResult, Region, check_range};
use drystone_sync::atomic::{AtomicBool, AtomicU64};
use drystone_sync::{Arc, Mutex, Process, thread};
use std::fs::{File, Metadata, OpenOptions, TryLockError};
use std::io::{ErrorKind, Seek, SeekFrom};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

/// How often, and at what interval, opening a claimed block device is tried again. A child process that
/// another thread has forked keeps the claim of a device that was just closed, until it runs its program, and
/// systemd-udevd(8) locks a whole disk that was just closed while it looks what is on it.
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
        Self::locked(open_file(path, mode)?, path, mode, Extent::Whole)
    }

    /// Opens a part of a file or block device that exists. Other parts may be open meanwhile; another part of
    /// a block device only if `mode` is to read.
    ///
    /// # Errors
    ///
    /// As for [`open`](Self::open), with that part in place of the file;
    /// [`DeviceError::OutOfRange`] if the file doesn't have it all.
    pub fn open_part(
        path: impl AsRef<Path>,
        mode: OpenMode,
        part: Range<u64>,
    ) -> DeviceResult<Region<Self>> {
        let path = path.as_ref();
        let length = part.end.saturating_sub(part.start);
        let device = Self::locked(open_file(path, mode)?, path, mode, Extent::Part(part.clone()))?;
        Region::new(device, part.start, length)
    }

    /// Opens a file or block device to look what is where: to read a partition table and superblocks.
    /// Other processes may write parts of it meanwhile.
    ///
    /// # Errors
    ///
    /// As for [`open`](Self::open), to read.
    pub fn open_to_look(path: impl AsRef<Path>) -> DeviceResult<Self> {
        let path = path.as_ref();
        let mode = OpenMode::ReadOnly;
        Self::locked(open_file(path, mode)?, path, mode, Extent::Nothing)
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
        let device = Self::locked(file, path, OpenMode::ReadWrite, Extent::Whole)?;
        device.clear(size_bytes).inspect_err(|_| {
            if existing == Existing::Refuse {
                // Nothing is left of a file that can't be so large. The error counts, not one of the removal.
                let _ = std::fs::remove_file(path);
            }
        })?;
        sync_directory_of(path).map_err(|error| open_error(path, error))?;
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
        Self::locked(claimed(file, path, mode)?, path, mode, Extent::Whole)
    }

    /// How large the file or block device is now.
    pub(super) fn measure(&self) -> DeviceResult<u64> {
        // The end of a block device is its size, which its metadata doesn't tell.
        (&self.file).seek(SeekFrom::End(0)).map_err(|error| open_error(&self.path, error))
    }

    fn locked(file: File, path: &Path, mode: OpenMode, extent: Extent) -> DeviceResult<Self> {
        let found = file.metadata().map_err(|error| open_error(path, error))?;
        check_type(path, &found)?;
        let try_lock = || match (mode, &extent) {
            (OpenMode::ReadWrite, Extent::Whole) => file.try_lock(),
            _ => file.try_lock_shared(),
        };
        let is_busy =
            |error: &TryLockError| !found.is_file() && matches!(error, TryLockError::WouldBlock);
        retried(try_lock, is_busy).map_err(|error| lock_error(path, error))?;
        let sector_bytes = match found.is_file() {
            true => SECTOR_BYTES,
            false => rustix::fs::ioctl_blksszget(&file)
                .map_err(|error| open_error(path, error.into()))?
                .into(),
        };
        // From here on, an error drops the device, which releases the lock.
        let mut device = Self {
            file,
            path: path.to_owned(),
            mode,
            size_bytes: AtomicU64::new(0),
            sector_bytes,
            is_block_device: !found.is_file(),
            process: Process::current(),
            zeroes_ranges: AtomicBool::new(true),
            has_failed: AtomicBool::new(false),
            flush_failure: Mutex::new(&FILE_FLUSH, None),
        };
        match byte_locks::lock(&device.file, mode == OpenMode::ReadWrite, &extent) {
            Ok(()) => {}
            Err(nix::Error::EAGAIN | nix::Error::EACCES) => {
                return Err(DeviceError::InUse { path: path.to_owned() });
            }
            // A file system, or a sandbox, that locks whole files only.
            Err(
                nix::Error::EINVAL
                | nix::Error::ENOSYS
                | nix::Error::ENOLCK
                | nix::Error::EOPNOTSUPP,
            ) => {
                if mode == OpenMode::ReadWrite {
                    device.file.try_lock().map_err(|error| lock_error(path, error))?;
                }
            }
            Err(error) => return Err(open_error(path, error.into())),
        }
        if mode == OpenMode::ReadWrite
            && found.is_file()
            && let Some(usage) = kernel_use(&device.file, &found, &extent.bytes())
        {
            return Err(DeviceError::InUseByKernel { path: path.to_owned(), usage });
        }
        let end = device.measure()?;
        device.size_bytes = AtomicU64::new(end);
        if let Extent::Part(part) = extent {
            check_range(end, part.start, part.end.saturating_sub(part.start))?;
        }
        Ok(device)
    }

    /// Releases all locks at once. Merely closing the file would leave them with a child process that
    /// another thread has forked, until the child runs its program.
    pub(super) fn unlock(&self) {
        // Closing comes next, and releases the locks in all other cases.
        let _ = byte_locks::unlock(&self.file);
        // Last, since others that wait for it look at the bytes next.
        let _ = self.file.unlock();
    }
}

fn lock_error(path: &Path, error: TryLockError) -> DeviceError {
    match error {
        TryLockError::WouldBlock => DeviceError::InUse { path: path.to_owned() },
        TryLockError::Error(error) => open_error(path, error),
    }
}

fn open_file(path: &Path, mode: OpenMode) -> DeviceResult<File> {
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
    file.map_err(|error| open_error(path, error))
}

/// Opens a block device for writing and claims it from the kernel.
fn open_claimed(path: &Path) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    // Without O_CREAT this flag claims the device, and nothing else.
    options.read(true).write(true).custom_flags(rustix::fs::OFlags::EXCL.bits() as i32);
    retried(|| options.open(path), |error| error.kind() == ErrorKind::ResourceBusy)
}

/// Tries something until the device isn't busy, for as long as that may soon end.
fn retried<T, E>(
    mut attempt: impl FnMut() -> Result<T, E>,
    is_busy: impl Fn(&E) -> bool,
) -> Result<T, E> {
    let mut tries = 1;
    loop {
        match attempt() {
            Err(error) if is_busy(&error) && tries < CLAIM_TRIES => {
                tries += 1;
                thread::sleep(CLAIM_INTERVAL);
            }
            done => return done,
        }
    }
}

/// Claims a block device that is open already, by opening it again, if it is to be written.
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
    let problem = match found.is_dir() {
        true => "a directory, not an image",
        false => "neither a regular file nor a block device",
    };
    Err(open_error(path, std::io::Error::new(ErrorKind::InvalidInput, problem)))
}

pub(super) fn open_error(path: &Path, error: std::io::Error) -> DeviceError {
    if error.kind() == ErrorKind::ResourceBusy {
        return DeviceError::InUse { path: path.to_owned() };
    }
    DeviceError::Open { path: path.to_owned(), source: Arc::new(error) }
}

/// Makes the names in the directory of a file durable.
///
/// # Errors
/// The system's, but none where directories can't be synced or read.
pub fn sync_directory_of(path: &Path) -> std::io::Result<()> {
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
        result => result,
    }
}
