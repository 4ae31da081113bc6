//! A disk image of a virtual machine as a block device.
//!
//! # Locking
//!
//! The image file is open twice: as a [`FileDevice`], which holds the locks, and by the crate. Backing files
//! are locked against writers the same way.
//!
//! Writers hold [`CONTAINER_WRITES`] shared. A flush holds it exclusively while it makes the data durable and
//! then writes the tables: an entry of a writer in between would reach the file before its data is durable.
//!
//! # Crash
//!
//! The crate copies a cluster that is written in part: from the backing file, from a snapshot, from
//! compressed data, or as zeros. The copy also has bytes that were durable before, so it must be durable
//! before the table refers to it. `flush` and `drop` see to that. The crate itself orders writes and never
//! waits for the disk, so it breaks the rule where it writes tables earlier: when a table leaves its cache,
//! which has 128 of them (64 GiB of disk with clusters of 64 KiB), and when it allocates after it has dropped
//! a cluster that was compressed or shared with a snapshot. A compressed cluster that it frees may also be
//! used again before the table that dropped it is durable.
//!
//! Reference counts and tables reach the disk in any order. So an image that is written is marked as not closed,
//! and whoever opens it next to write corrects its counts first.

use super::header::Qcow2Header;
use super::image_file::ImageFile;
use super::refcounts::restore_counts;
use super::{BackingFiles, ContainerError, ContainerFormat, is_named_qcow2};
use drystone_blockdev::{
    BlockDevice, DeviceError, DeviceOperation, DeviceResult, FileDevice, OpenMode, check_range,
    write_zeros,
};
use drystone_sync::atomic::{AtomicBool, Ordering};
use drystone_sync::{Arc, LockClass, RwLock};
use imago::file::File;
use imago::format::Format;
use imago::format::gate::ImplicitOpenGate;
use imago::qcow2::Qcow2;
use imago::vmdk::Vmdk;
use imago::{
    DenyImplicitOpenGate, FormatAccess, FormatCreateBuilder, FormatDriverBuilder, Storage,
    StorageOpenOptions,
};
use std::io;
use std::path::Path;

static CONTAINER_WRITES: LockClass = LockClass::new("container writes", 935);

/// What raw files and the extents of a VMDK consist of.
const SECTOR_BYTES: u64 = 512;
/// How many files may be behind a disk image: its backing file, the backing file of that, and so on.
const BACKING_FILES_MAX: usize = 64;

/// A disk image of a virtual machine.
#[derive(Debug)]
pub struct ContainerDevice {
    image: Arc<FormatAccess<ImageFile>>,
    size_bytes: u64,
    mode: OpenMode,
    writes: RwLock<()>,
    /// Set when a flush has failed: what was written before may be lost.
    has_failed: AtomicBool,
    file: FileDevice,
    /// Of a qcow2 that is written.
    marked: Option<Qcow2Header>,
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
        allowed: BackingFiles,
    ) -> Result<ContainerDevice, ContainerError> {
        match (format, mode) {
            (ContainerFormat::Qcow2, _) | (ContainerFormat::Vmdk, OpenMode::ReadOnly) => {}
            (ContainerFormat::Vmdk, _) => return Err(ContainerError::OnlyRead(format)),
            _ => return Err(ContainerError::Unsupported(format)),
        }
        let file = FileDevice::open(path, mode)?;
        let host = |source| ContainerError::Host { format, source: Arc::new(source) };
        let mut backing = Vec::new();
        let files = HostFiles {
            files: &mut backing,
            written_image: (mode == OpenMode::ReadWrite && allowed == BackingFiles::Expected)
                .then_some(path),
            unclosed: None,
        };
        let mut marked = None;
        let image = match format {
            ContainerFormat::Vmdk => {
                let storage = File::open(storage_options(path, false)).map_err(host)?;
                let builder = Vmdk::<ImageFile>::builder(ImageFile::new(storage));
                FormatAccess::new(builder.open(files).map_err(host)?)
            }
            _ => {
                let header = Qcow2Header::check(&file)?;
                let is_written = mode == OpenMode::ReadWrite;
                if is_written {
                    restore_counts(&file, &header)?;
                }
                let storage = File::open(storage_options(path, is_written)).map_err(host)?;
                let storage = match is_written {
                    true => ImageFile::new(storage),
                    false => ImageFile::to_read(storage, header.unit_bytes()),
                };
                let is_shown_closed = !is_written && header.is_dirty();
                storage.is_shown_closed().store(is_shown_closed, Ordering::Relaxed);
                let builder = Qcow2::<ImageFile>::builder(storage).write(is_written);
                let opened = builder.open(files).map_err(host)?;
                if is_written {
                    header.mark(&file, true)?;
                    marked = Some(header);
                }
                FormatAccess::new(opened)
            }
        };
        Ok(ContainerDevice {
            size_bytes: image.size(),
            image: Arc::new(image),
            mode,
            writes: RwLock::new(&CONTAINER_WRITES, ()),
            has_failed: AtomicBool::new(false),
            file,
            marked,
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
        let handle = file.duplicate()?;
        let storage = File::try_from(file.duplicate()?).map_err(host)?;
        let builder = Qcow2::<ImageFile>::create_builder(ImageFile::new(storage)).size(size_bytes);
        let image = builder
            .create_open(DenyImplicitOpenGate::default(), |storage| {
                Ok(Qcow2::builder(storage).backing(None).write(true))
            })
            .map_err(host)?;
        file.set_size(handle.metadata().map_err(host)?.len())?;
        let header = Qcow2Header::check(&file)?;
        header.mark(&file, true)?;
        Ok(ContainerDevice {
            image: Arc::new(FormatAccess::new(image)),
            size_bytes,
            mode: OpenMode::ReadWrite,
            writes: RwLock::new(&CONTAINER_WRITES, ()),
            has_failed: AtomicBool::new(false),
            file,
            marked: Some(header),
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
            let source = Arc::new(io::Error::other("a flush of the qcow2 has failed"));
            return Err(DeviceError::FlushFailed { source });
        }
        Ok(())
    }

    /// Ends all writing. The crate writes its tables when it drops the image, so it doesn't get to drop it.
    fn fail(&self) {
        if !self.has_failed.swap(true, Ordering::Relaxed) {
            std::mem::forget(Arc::clone(&self.image));
        }
    }

    /// Makes the data durable, and then writes the tables.
    fn write_tables(&self) -> DeviceResult {
        let _alone = self.writes.write();
        self.check_failure()?;
        self.file.flush()?;
        self.image.flush().map_err(|error| DeviceError::io(DeviceOperation::Flush, 0, 0, error))
    }

    /// Makes everything durable, and has the image say that it is closed.
    fn close(&self) -> DeviceResult {
        let Some(header) = &self.marked else { return Ok(()) };
        self.write_tables()?;
        self.file.flush()?;
        header.mark(&self.file, false)
    }
}

impl Drop for ContainerDevice {
    fn drop(&mut self) {
        // What isn't durable has no caller who waits for it. The mark tells whoever opens the image next.
        if self.close().is_err() {
            self.fail();
        }
    }
}

fn storage_options(path: &Path, is_written: bool) -> StorageOpenOptions {
    StorageOpenOptions::new().filename(path).write(is_written)
}

/// Opens the files that a disk image names, and locks them against writers.
struct HostFiles<'a> {
    files: &'a mut Vec<FileDevice>,
    /// The image that is written, if not all files may be behind it.
    written_image: Option<&'a Path>,
    /// The last one, if it is a qcow2 that wasn't closed. What it is opened as comes next: it may be a raw disk.
    unclosed: Option<Arc<AtomicBool>>,
}

impl HostFiles<'_> {
    /// Refuses a file that may be behind the image by the will of a guest.
    fn expect(&self, file: &Path) -> io::Result<()> {
        let Some(image) = self.written_image else { return Ok(()) };
        let file = file.canonicalize()?;
        let image = image.canonicalize()?;
        let is_below = image.parent().is_some_and(|folder| file.starts_with(folder));
        let problem = match is_named_qcow2(&image) {
            true if is_below => return Ok(()),
            true => "it isn't in the directory of the image",
            false => {
                "the name of the image doesn't end with .qcow2, so it may be a raw disk whose guest \
                      wants to see that file"
            }
        };
        Err(io::Error::other(format!(
            "the backing file {} isn't used: {problem}; IMAGE@format=qcow2 allows it, and \
             IMAGE@format=raw takes the image as it is",
            file.display()
        )))
    }
}

impl ImplicitOpenGate<ImageFile> for HostFiles<'_> {
    fn open_format<F: FormatDriverBuilder<ImageFile>>(
        &mut self,
        builder: F,
    ) -> io::Result<FormatAccess<ImageFile>> {
        if let Some(is_shown_closed) = self.unclosed.take().filter(|_| F::FORMAT == Format::Qcow2) {
            is_shown_closed.store(true, Ordering::Relaxed);
        }
        let inner =
            HostFiles { files: self.files, written_image: self.written_image, unclosed: None };
        Ok(FormatAccess::new(builder.open(inner)?))
    }

    fn open_storage(&mut self, options: StorageOpenOptions) -> io::Result<ImageFile> {
        // A file may name itself.
        if self.files.len() >= BACKING_FILES_MAX {
            return Err(io::Error::other("the chain of backing files is too long"));
        }
        let path = options.get_filename().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
        self.expect(&path)?;
        // Nothing but files and block devices: opening a pipe would wait.
        let file = FileDevice::open(&path, OpenMode::ReadOnly).map_err(io::Error::other)?;
        let options = options.write(false);
        let header = match ContainerFormat::of(&file).map_err(io::Error::other)? {
            Some(ContainerFormat::Qcow2) => {
                Some(Qcow2Header::check(&file).map_err(io::Error::other)?)
            }
            _ => None,
        };
        let unit_bytes = header.map_or(Some(SECTOR_BYTES), |header| header.unit_bytes());
        let storage = ImageFile::to_read(File::open(options)?, unit_bytes);
        self.unclosed = header.filter(Qcow2Header::is_dirty).map(|_| storage.is_shown_closed());
        self.files.push(file);
        Ok(storage)
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
        let _shared = self.writes.read();
        self.check_write(offset, length)?;
        self.image
            .write(data, offset)
            .map_err(|error| DeviceError::io(DeviceOperation::Write, offset, length, error))
    }

    fn flush(&self) -> DeviceResult {
        if self.mode == OpenMode::ReadOnly {
            return Ok(());
        }
        self.write_tables().and_then(|()| self.file.flush()).inspect_err(|_| self.fail())
    }

    fn zero_range(&self, offset: u64, length: u64) -> DeviceResult {
        let zeroed = {
            let _shared = self.writes.read();
            self.check_write(offset, length)?;
            self.image.write_zeroes(offset, length)
        };
        match zeroed {
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
