//! A regular file or a block device of the system.
//!
//! # Locking
//!
//! One flush runs at a time, because the system reports a failed write-back to only one of those that run
//! at once.
//!
//! A device that a forked child has a copy of is still the parent's: dropping the copy releases no lock.
//!
//! # Crash
//!
//! A flush is `fdatasync`. The system reports a failed write-back once and then takes the lost pages for
//! written. So the first flush that fails is the last: the device refuses every later change.

mod byte_locks;
mod early_write_back;
mod open;

use crate::device::slices_length;
use crate::{BlockDevice, DeviceError, DeviceOperation, DeviceResult, check_range};
use drystone_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use drystone_sync::{Arc, Mutex, Process};
use open::open_error;
pub use open::{Existing, OpenMode, sync_directory_of};
use rustix::fs::{Advice, FallocateFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io::{ErrorKind, IoSlice};
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Slices handed to the system in one call; Linux refuses more than 1024.
const SLICES_MAX: usize = 1024;

/// Bytes in a page of any system.
const CACHE_BYTES_MAX: u64 = 64 << 10;

/// A regular file or a block device of the system.
#[derive(Debug)]
pub struct FileDevice {
    file: File,
    path: PathBuf,
    mode: OpenMode,
    size_bytes: AtomicU64,
    sector_bytes: u64,
    is_block_device: bool,
    /// The process that has opened it.
    process: Process,
    /// Cleared when the system says that it can't zero ranges in this file.
    zeroes_ranges: AtomicBool,
    /// Set with the failure below, and read by every write.
    has_failed: AtomicBool,
    /// What the system said of the flush that failed. Locked while a flush runs.
    flush_failure: Mutex<Option<Arc<std::io::Error>>>,
}

impl FileDevice {
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

    /// The same open file once more, for a library that reads and writes it by its own means. This device
    /// must live as long: it holds the locks.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Open`] with what the system said.
    pub fn duplicate(&self) -> DeviceResult<File> {
        self.file.try_clone().map_err(|error| open_error(&self.path, error))
    }

    /// Changes the size of a regular file. New bytes are zeros and take no space.
    ///
    /// # Errors
    ///
    /// [`DeviceError::ReadOnly`], or [`DeviceError::Open`] with what the system said.
    pub fn resize(&self, size_bytes: u64) -> DeviceResult {
        self.check_writable()?;
        let set = match i64::try_from(size_bytes) {
            Ok(_) => self.file.set_len(size_bytes),
            // What the system says of sizes that it can express.
            Err(_) => Err(Errno::FBIG.into()),
        };
        set.map_err(|error| open_error(&self.path, error))?;
        self.size_bytes.store(size_bytes, Ordering::Release);
        Ok(())
    }

    /// Drops the content of a regular file, which becomes one hole of this size. If the system
    /// refuses the size, the file stays as it was.
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

    /// Makes everything durable by `sync`, unless it has failed before.
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
    fn drop(&mut self) {
        // The locks belong to the open file, which a forked child shares with its parent.
        if self.process.is_current() {
            self.unlock();
        }
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
        let length = data.len() as u64;
        self.file
            .write_all_at(data, offset)
            .map_err(|error| DeviceError::io(DeviceOperation::Write, offset, length, error))?;
        early_write_back::begin(&self.file, offset, length);
        Ok(())
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
        early_write_back::begin(&self.file, offset, position - offset);
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
        crate::write_zeros(self, offset, length)
    }

    /// The page cache of a block device keeps what was read or written here for as long as it is open.
    fn refresh(&self, offset: u64, length: u64) {
        // Only whole pages are dropped; none is larger.
        let start = offset & !(CACHE_BYTES_MAX - 1);
        let end = (offset + length).next_multiple_of(CACHE_BYTES_MAX);
        // A hint: without it, the same bytes are read again.
        let length = NonZeroU64::new(end - start);
        let _ = rustix::fs::fadvise(&self.file, start, length, Advice::DontNeed);
    }

    fn next_data(&self, offset: u64) -> DeviceResult<Option<u64>> {
        if offset >= self.size_bytes() {
            return Ok(None);
        }
        match rustix::fs::seek(&self.file, rustix::fs::SeekFrom::Data(offset)) {
            Ok(data) => Ok(Some(data)),
            Err(Errno::NXIO) => Ok(None),
            // A block device, or a file system without holes.
            Err(Errno::INVAL) => Ok(Some(offset)),
            Err(error) => Err(DeviceError::io(DeviceOperation::Read, offset, 0, error.into())),
        }
    }

    fn set_size(&self, size_bytes: u64) -> DeviceResult {
        self.check_writable()?;
        let size = self.measure()?;
        if self.is_block_device {
            if size < size_bytes {
                return Err(DeviceError::FixedSize { size });
            }
            self.size_bytes.store(size, Ordering::Release);
            return Ok(());
        }
        // A file that somebody else has made longer holds more than is known here: nothing of that is cut.
        if size < size_bytes || size == self.size_bytes() {
            return self.resize(size_bytes);
        }
        self.size_bytes.store(size_bytes, Ordering::Release);
        Ok(())
    }

    fn sector_bytes(&self) -> u64 {
        self.sector_bytes
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

#[cfg(all(test, not(loom)))]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use drystone_sync::{Barrier, thread};
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
        // As on Linux, the next sync would succeed although the data is lost.
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

    /// An image that grows takes only what is there, or what was made for it.
    #[test]
    fn a_file_that_others_made_longer_is_not_cut() {
        let folder = tempfile::tempdir().unwrap();
        let device = device(&folder);
        let length = || folder.path().join("image").metadata().unwrap().len();
        device.set_size(8192).unwrap();
        assert_eq!((device.size_bytes(), length()), (8192, 8192));
        device.set_size(4096).unwrap();
        assert_eq!((device.size_bytes(), length()), (4096, 4096));
        device.file.set_len(100_000).unwrap();
        device.set_size(8192).unwrap();
        device.set_size(4096).unwrap();
        assert_eq!((device.size_bytes(), length()), (4096, 100_000));
    }

    #[test]
    fn a_file_that_is_too_large_is_not_made() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("large");
        for size in [1 << 63, u64::MAX] {
            let error = FileDevice::create(&path, size, Existing::Refuse).unwrap_err();
            assert!(error.to_string().contains("too large"), "{error}");
            assert!(!path.exists());
        }
    }

    /// A flush on a full host loses what was written, like any failed flush.
    #[test]
    fn a_flush_without_space_is_no_failure_to_write() {
        let folder = tempfile::tempdir().unwrap();
        let device = device(&folder);
        let full = || Err(Error::from_raw_os_error(Errno::NOSPC.raw_os_error()));
        let failed = device.flush_by(|_| full());
        assert!(matches!(failed, Err(DeviceError::Io { operation: DeviceOperation::Flush, .. })));
    }

    /// The system reports the failure to only one of two concurrent flushes.
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
            // Whether the second flush already waits or comes later, it must fail too.
            is_to_fail.wait();
            assert!(first.join().unwrap().is_err());
            assert!(second.join().unwrap().is_err());
        });
    }
}
