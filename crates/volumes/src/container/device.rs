//! A disk image of a virtual machine as a block device.
//!
//! # Locking
//!
//! The image file is open twice: as a [`FileDevice`], which holds the locks, and by the crate. Backing files
//! are locked against writers the same way.

use super::header::Qcow2Header;
use super::refcounts::restore_counts;
use super::{ContainerError, ContainerFormat};
use drystone_blockdev::{
    BlockDevice, DeviceError, DeviceOperation, DeviceResult, FileDevice, OpenMode, check_range,
    write_zeros,
};
use drystone_sync::Arc;
use drystone_sync::atomic::{AtomicBool, Ordering};
use imago::file::File;
use imago::format::gate::ImplicitOpenGate;
use imago::qcow2::Qcow2;
use imago::vmdk::Vmdk;
use imago::{
    DenyImplicitOpenGate, FormatAccess, FormatCreateBuilder, FormatDriverBuilder, Storage,
    StorageOpenOptions,
};
use std::io;
use std::path::Path;

/// How many files may be behind a disk image: its backing file, the backing file of that, and so on.
const BACKING_FILES_MAX: usize = 64;

/// A disk image of a virtual machine.
#[derive(Debug)]
pub struct ContainerDevice {
    image: FormatAccess<File>,
    size_bytes: u64,
    mode: OpenMode,
    has_backing: bool,
    /// Set when the tables could not be written: what was written before may be lost.
    has_failed: AtomicBool,
    file: FileDevice,
    /// Held for their locks.
    _backing: Vec<FileDevice>,
}

impl ContainerDevice {
    /// Opens a disk image that is in a file.
    ///
    /// # Errors
    ///
    /// [`ContainerError::Unsupported`] for a format that isn't supported so; otherwise as
    /// [`FileDevice::open`].
    pub(crate) fn open(
        path: &Path,
        format: ContainerFormat,
        mode: OpenMode,
    ) -> Result<ContainerDevice, ContainerError> {
        match (format, mode) {
            (ContainerFormat::Qcow2, _) | (ContainerFormat::Vmdk, OpenMode::ReadOnly) => {}
            (ContainerFormat::Vmdk, _) => return Err(ContainerError::OnlyRead(format)),
            _ => return Err(ContainerError::Unsupported(format)),
        }
        let file = FileDevice::open(path, mode)?;
        let host = |source| ContainerError::Host { format, source: Arc::new(source) };
        let mut backing = Vec::new();
        let (image, has_backing) = match format {
            ContainerFormat::Vmdk => {
                let storage = File::open(storage_options(path, false)).map_err(host)?;
                let builder = Vmdk::<File>::builder(storage);
                (FormatAccess::new(builder.open(HostFiles(&mut backing)).map_err(host)?), false)
            }
            _ => {
                let has_backing = prepare_qcow2(&file, mode)?;
                let is_written = mode == OpenMode::ReadWrite;
                let storage = File::open(storage_options(path, is_written)).map_err(host)?;
                let builder = Qcow2::<File>::builder(storage).write(is_written);
                (
                    FormatAccess::new(builder.open(HostFiles(&mut backing)).map_err(host)?),
                    has_backing,
                )
            }
        };
        Ok(ContainerDevice {
            size_bytes: image.size(),
            image,
            mode,
            has_backing,
            has_failed: AtomicBool::new(false),
            file,
            _backing: backing,
        })
    }

    /// Makes a qcow2 of `size_bytes` in a file, whose content is dropped.
    ///
    /// # Errors
    ///
    /// What the host says.
    pub fn create_qcow2(
        file: FileDevice,
        size_bytes: u64,
    ) -> Result<ContainerDevice, ContainerError> {
        let format = ContainerFormat::Qcow2;
        let host = |source| ContainerError::Host { format, source: Arc::new(source) };
        file.clear(0)?;
        let storage = File::try_from(file.duplicate()?).map_err(host)?;
        let builder = Qcow2::<File>::create_builder(storage).size(size_bytes);
        let image = builder
            .create_open(DenyImplicitOpenGate::default(), |storage| {
                Ok(Qcow2::builder(storage).backing(None).write(true))
            })
            .map_err(host)?;
        Ok(ContainerDevice {
            image: FormatAccess::new(image),
            size_bytes,
            mode: OpenMode::ReadWrite,
            has_backing: false,
            has_failed: AtomicBool::new(false),
            file,
            _backing: Vec::new(),
        })
    }

    fn check_write(&self, offset: u64, length: u64) -> DeviceResult {
        if self.mode == OpenMode::ReadOnly {
            return Err(DeviceError::ReadOnly);
        }
        self.check_failure()?;
        check_range(self.size_bytes, offset, length)
    }

    fn check_failure(&self) -> DeviceResult {
        if self.has_failed.load(Ordering::Relaxed) {
            let source = Arc::new(io::Error::other("the tables of the qcow2 can't be written"));
            return Err(DeviceError::FlushFailed { source });
        }
        Ok(())
    }
}

/// Checks a qcow2 before the crate opens it, and mends what a power cut left. True if it has a backing file.
fn prepare_qcow2(file: &FileDevice, mode: OpenMode) -> Result<bool, ContainerError> {
    let header = Qcow2Header::check(file)?;
    match mode {
        OpenMode::ReadOnly if header.is_dirty() => return Err(ContainerError::Dirty),
        OpenMode::ReadOnly => {}
        OpenMode::ReadWrite => restore_counts(file, &header)?,
    }
    Ok(header.has_backing)
}

fn storage_options(path: &Path, is_written: bool) -> StorageOpenOptions {
    StorageOpenOptions::new().filename(path).write(is_written)
}

/// Opens the files that a disk image names, and locks them against writers.
struct HostFiles<'a>(&'a mut Vec<FileDevice>);

impl ImplicitOpenGate<File> for HostFiles<'_> {
    fn open_format<F: FormatDriverBuilder<File>>(
        &mut self,
        builder: F,
    ) -> io::Result<FormatAccess<File>> {
        Ok(FormatAccess::new(builder.open(HostFiles(self.0))?))
    }

    fn open_storage(&mut self, options: StorageOpenOptions) -> io::Result<File> {
        // A file may name itself.
        if self.0.len() >= BACKING_FILES_MAX {
            return Err(io::Error::other("too many backing files, one behind the other"));
        }
        let path = options.get_filename().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
        // Nothing but files and block devices: opening a pipe would wait.
        let file = FileDevice::open(&path, OpenMode::ReadOnly).map_err(io::Error::other)?;
        if ContainerFormat::of(&file).map_err(io::Error::other)? == Some(ContainerFormat::Qcow2) {
            Qcow2Header::check(&file).map_err(io::Error::other)?;
        }
        self.0.push(file);
        File::open(options.write(false))
    }
}

impl BlockDevice for ContainerDevice {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> DeviceResult {
        let length = buffer.len() as u64;
        check_range(self.size_bytes, offset, length)?;
        self.image
            .read(buffer, offset)
            .map_err(|error| DeviceError::io(DeviceOperation::Read, offset, length, error))
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> DeviceResult {
        let length = data.len() as u64;
        self.check_write(offset, length)?;
        self.image
            .write(data, offset)
            .map_err(|error| DeviceError::io(DeviceOperation::Write, offset, length, error))
    }

    fn flush(&self) -> DeviceResult {
        if self.mode == OpenMode::ReadOnly {
            return Ok(());
        }
        self.check_failure()?;
        // A cluster that is copied from the backing file must be on the disk before the table says so: it
        // also holds bytes that were durable before.
        if self.has_backing {
            self.file.flush()?;
        }
        self.image.flush().map_err(|error| {
            self.has_failed.store(true, Ordering::Relaxed);
            DeviceError::io(DeviceOperation::Flush, 0, 0, error)
        })?;
        self.file.flush()
    }

    fn zero_range(&self, offset: u64, length: u64) -> DeviceResult {
        self.check_write(offset, length)?;
        match self.image.write_zeroes(offset, length) {
            Ok(()) => Ok(()),
            // Version 2 has no clusters of zeros.
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                write_zeros(self, offset, length)
            }
            Err(error) => Err(DeviceError::io(DeviceOperation::Zero, offset, length, error)),
        }
    }

    fn is_read_only(&self) -> bool {
        self.mode == OpenMode::ReadOnly
    }
}
