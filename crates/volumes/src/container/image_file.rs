//! The file of a disk image, as the crate is to see it.
//!
//! A qcow2 that is only read may say that it wasn't closed. Its reference counts are wrong then, but reading
//! needs none of them. The crate refuses such an image, so the header that it sees doesn't say it.
//!
//! The crate reads zeros after the end of a file. A file that ends before what is said to be in it is cut off, so
//! reading that fails here.

#![allow(unsafe_code, reason = "the crate's trait has unsafe methods")]

use super::header::{DIRTY, INCOMPATIBLE_OFFSET};
use drystone_sync::Arc;
use drystone_sync::atomic::{AtomicBool, Ordering};
use imago::Storage;
use imago::file::File;
use imago::io_buffers::{IoVector, IoVectorMut};
use imago::storage::PreallocateMode;
use imago::storage::drivers::CommonStorageHelper;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// The byte of the features with the bit, which is the lowest of all.
const DIRTY_BYTE: u64 = INCOMPATIBLE_OFFSET + 7;

/// The file of a disk image.
#[derive(Debug)]
pub(super) struct ImageFile {
    file: File,
    /// Whether it is a qcow2 that wasn't closed, and isn't said to be.
    is_shown_closed: Arc<AtomicBool>,
    /// Bytes in a unit of a file of which no unit is missing; the last one may be there in part.
    unit_bytes: Option<u64>,
}

impl ImageFile {
    pub fn new(file: File) -> ImageFile {
        ImageFile { file, is_shown_closed: Arc::new(AtomicBool::new(false)), unit_bytes: None }
    }

    /// A file that is only read. With `unit_bytes`, all that is read is in it; only the last unit of so many
    /// bytes may be there in part.
    pub fn to_read(file: File, unit_bytes: Option<u64>) -> ImageFile {
        ImageFile { unit_bytes, ..ImageFile::new(file) }
    }

    fn check_end(&self, offset: u64, length: u64) -> io::Result<()> {
        let Some(unit_bytes) = self.unit_bytes.filter(|_| length > 0) else { return Ok(()) };
        let last = offset.saturating_add(length - 1) / unit_bytes * unit_bytes;
        let size = self.file.size()?;
        if last < size {
            return Ok(());
        }
        Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            format!(
                "the file is cut off: it has {size} bytes, and what begins at byte {last} is missing"
            ),
        ))
    }

    /// Set while it is opened, if it is to be a qcow2 that was closed.
    pub fn is_shown_closed(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_shown_closed)
    }
}

impl fmt::Display for ImageFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.file.fmt(f)
    }
}

/// Whatever the caller promises for this file holds for the one behind it, too.
impl Storage for ImageFile {
    fn mem_align(&self) -> usize {
        self.file.mem_align()
    }

    fn req_align(&self) -> usize {
        self.file.req_align()
    }

    fn zero_align(&self) -> usize {
        self.file.zero_align()
    }

    fn discard_align(&self) -> usize {
        self.file.discard_align()
    }

    fn size(&self) -> io::Result<u64> {
        self.file.size()
    }

    fn resolve_relative_path<P: AsRef<Path>>(&self, relative: P) -> io::Result<PathBuf> {
        self.file.resolve_relative_path(relative)
    }

    fn get_filename(&self) -> Option<PathBuf> {
        self.file.get_filename()
    }

    unsafe fn pure_readv(&self, mut buffers: IoVectorMut<'_>, offset: u64) -> io::Result<()> {
        self.check_end(offset, buffers.len())?;
        let place = DIRTY_BYTE.checked_sub(offset).filter(|at| *at < buffers.len());
        let Some(place) = place.filter(|_| self.is_shown_closed.load(Ordering::Relaxed)) else {
            // SAFETY: as the caller promises.
            return unsafe { self.file.pure_readv(buffers, offset) };
        };
        // Once, for the header.
        let mut bytes = vec![0; buffers.len() as usize];
        // SAFETY: as the caller promises.
        unsafe { self.file.pure_readv(IoVectorMut::from(&mut bytes), offset) }?;
        bytes[place as usize] &= !(DIRTY as u8);
        buffers.copy_from_slice(&bytes);
        Ok(())
    }

    unsafe fn pure_writev(&self, buffers: IoVector<'_>, offset: u64) -> io::Result<()> {
        // SAFETY: as the caller promises.
        unsafe { self.file.pure_writev(buffers, offset) }
    }

    unsafe fn pure_write_zeroes(&self, offset: u64, length: u64) -> io::Result<()> {
        // SAFETY: as the caller promises.
        unsafe { self.file.pure_write_zeroes(offset, length) }
    }

    unsafe fn pure_write_allocated_zeroes(&self, offset: u64, length: u64) -> io::Result<()> {
        // SAFETY: as the caller promises.
        unsafe { self.file.pure_write_allocated_zeroes(offset, length) }
    }

    unsafe fn pure_discard(&self, offset: u64, length: u64) -> io::Result<()> {
        // SAFETY: as the caller promises.
        unsafe { self.file.pure_discard(offset, length) }
    }

    fn flush(&self) -> io::Result<()> {
        self.file.flush()
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }

    fn settle_writes(&self) -> io::Result<()> {
        self.file.settle_writes()
    }

    unsafe fn invalidate_cache(&self) -> io::Result<()> {
        // SAFETY: as the caller promises.
        unsafe { self.file.invalidate_cache() }
    }

    fn get_storage_helper(&self) -> &CommonStorageHelper {
        self.file.get_storage_helper()
    }

    fn resize(&self, size: u64, preallocation: PreallocateMode) -> io::Result<()> {
        self.file.resize(size, preallocation)
    }
}
