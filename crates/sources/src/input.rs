//! Archives as bytes that can be read from any place.

use crate::version::FileVersion;
use drystone_sync::Arc;
use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// An archive's bytes, uncompressed, to be read by many threads from any place.
pub trait Input: Send + Sync + Debug {
    /// How many bytes there are.
    fn length(&self) -> u64;

    /// Fills the buffer from `offset` on.
    ///
    /// # Errors
    /// There aren't that many bytes, or they can't be read.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;
}

impl Input for Vec<u8> {
    fn length(&self) -> u64 {
        self.len() as u64
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let bytes = self.get(start..).and_then(|rest| rest.get(..buffer.len()));
        buffer.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

/// A part of a file, which must not change: its headers say where its data is.
#[derive(Clone, Debug)]
pub struct FileRange {
    file: Arc<File>,
    version: FileVersion,
    start: u64,
    length: u64,
}

impl FileRange {
    /// All of a file from `start` on, as long as it is now.
    ///
    /// # Errors
    /// Its length can't be found out.
    pub fn new(file: File, start: u64) -> io::Result<FileRange> {
        let metadata = file.metadata()?;
        let length = metadata.len().saturating_sub(start);
        let version = FileVersion::from(&metadata);
        Ok(FileRange { file: Arc::new(file), version, start, length })
    }

    /// A part of this part; none if it isn't all in there.
    #[must_use]
    pub fn part(&self, offset: u64, length: u64) -> Option<FileRange> {
        let end = offset.checked_add(length)?;
        let start = self.start.checked_add(offset)?;
        (end <= self.length).then(|| FileRange { start, length, ..self.clone() })
    }
}

impl Input for FileRange {
    fn length(&self) -> u64 {
        self.length
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let end = offset.checked_add(buffer.len() as u64);
        if end.is_none_or(|end| end > self.length) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let read = self.file.read_exact_at(buffer, self.start + offset);
        // Checked after reading, so that what was read belongs to the file that was opened.
        if FileVersion::from(&self.file.metadata()?) != self.version {
            return Err(io::Error::other("changed while it was read"));
        }
        read
    }
}

/// Reads ahead of small reads that follow each other.
#[derive(Debug)]
pub(crate) struct Window<'a> {
    input: &'a dyn Input,
    bytes: Vec<u8>,
    start: u64,
}

impl<'a> Window<'a> {
    /// Enough for a few headers and small files: copying more costs more than another call.
    const BYTES: u64 = 8 * 1024;

    /// Nothing is read yet.
    pub fn new(input: &'a dyn Input) -> Window<'a> {
        Window { input, bytes: Vec::new(), start: 0 }
    }

    /// How many bytes the input has.
    pub fn length(&self) -> u64 {
        self.input.length()
    }

    /// Fills the buffer from `offset` on.
    pub fn read(&mut self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        if buffer.len() as u64 > Window::BYTES {
            return self.input.read_at(offset, buffer);
        }
        let held = offset.checked_sub(self.start).and_then(|skipped| {
            self.bytes.get(usize::try_from(skipped).ok()?..)?.get(..buffer.len())
        });
        if let Some(held) = held {
            buffer.copy_from_slice(held);
            return Ok(());
        }
        let length = self.length().saturating_sub(offset).min(Window::BYTES);
        // If the read fails, the buffer is no longer valid.
        self.bytes.clear();
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.resize(length as usize, 0);
        self.input.read_at(offset, &mut bytes)?;
        (self.bytes, self.start) = (bytes, offset);
        let held = self.bytes.get(..buffer.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        buffer.copy_from_slice(held);
        Ok(())
    }
}

/// Reads a part of a file from its start.
#[derive(Debug)]
pub(crate) struct RangeReader {
    range: FileRange,
    position: u64,
}

impl FileRange {
    /// Reads it from its start.
    pub(crate) fn reader(self) -> RangeReader {
        RangeReader { range: self, position: 0 }
    }
}

impl io::Read for RangeReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.range.length - self.position;
        let length = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        self.range.read_at(self.position, &mut buffer[..length])?;
        self.position += length as u64;
        Ok(length)
    }
}
