//! The interface between the engine and the storage.

use crate::{DeviceError, DeviceResult};
use drystone_sync::Arc;
use std::fmt::Debug;
use std::io::IoSlice;

/// Zeros are written in pieces of this many bytes.
const ZERO_PIECE_BYTES: usize = 64 * 1024;

/// Bytes of a sector of most disks.
pub(crate) const SECTOR_BYTES: u64 = 512;

static ZEROS: [u8; ZERO_PIECE_BYTES] = [0; ZERO_PIECE_BYTES];

/// A number of bytes that outlive the process, read and written by position. The number changes only by
/// [`set_size`](Self::set_size).
///
/// All methods take `&self` and may run at once. Where writes that run at once overlap, each byte
/// is one of theirs. Offsets need no alignment.
///
/// A write is visible to reads as soon as it returns, and durable (it survives a power cut)
/// only after a later [`flush`](Self::flush) has returned; until then a crash may lose it or
/// keep it, whatever happens to writes before and after it.
pub trait BlockDevice: Send + Sync + Debug {
    /// Size of the device in bytes.
    fn size_bytes(&self) -> u64;

    /// Fills `buffer` with the bytes at `offset`.
    ///
    /// # Errors
    ///
    /// `buffer` may have been filled in part.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> DeviceResult;

    /// Writes all of `data` at `offset`.
    ///
    /// # Errors
    ///
    /// Part of `data` may have been written.
    fn write_at(&self, offset: u64, data: &[u8]) -> DeviceResult;

    /// Writes the slices one after the other from `offset` on.
    ///
    /// # Errors
    ///
    /// Part of the data may have been written.
    fn write_vectored_at(&self, offset: u64, slices: &[IoSlice<'_>]) -> DeviceResult {
        check_range(self.size_bytes(), offset, slices_length(slices))?;
        let mut position = offset;
        for slice in slices {
            self.write_at(position, slice)?;
            position += slice.len() as u64;
        }
        Ok(())
    }

    /// Makes every write that returned before this call durable.
    ///
    /// # Errors
    ///
    /// Writes since the last successful flush may be lost for good, and a later flush could not
    /// bring them back. So every later or concurrent flush fails too, and nothing more is written.
    fn flush(&self) -> DeviceResult;

    /// Writes `data` so that it is durable on return. Says nothing about other writes.
    ///
    /// # Errors
    ///
    /// Part of `data` may have been written, and may be durable.
    fn write_durable_at(&self, offset: u64, data: &[u8]) -> DeviceResult {
        self.write_at(offset, data)?;
        self.flush()
    }

    /// Says that the range's bytes are no longer needed. Reading them gives old bytes or
    /// zeros, until they are written again. May do nothing.
    ///
    /// # Errors
    ///
    /// A range outside the device, or a read-only device; the medium's own failures to
    /// discard are not errors.
    fn discard(&self, offset: u64, length: u64) -> DeviceResult {
        if self.is_read_only() {
            return Err(DeviceError::ReadOnly);
        }
        check_range(self.size_bytes(), offset, length)
    }

    /// Makes the range read as zeros.
    ///
    /// # Errors
    ///
    /// Part of the range may have been zeroed.
    fn zero_range(&self, offset: u64, length: u64) -> DeviceResult {
        check_range(self.size_bytes(), offset, length)?;
        write_zeros(self, offset, length)
    }

    /// Says that another machine may have changed the range, whose bytes are durable here: the next read of it
    /// has to ask the medium, not a cache.
    fn refresh(&self, _offset: u64, _length: u64) {}

    /// The first place at or after `offset` that may hold something else than zeros; none if there are only
    /// zeros up to the end. What was never written need not be read.
    ///
    /// # Errors
    ///
    /// The medium fails.
    fn next_data(&self, offset: u64) -> DeviceResult<Option<u64>> {
        Ok((offset < self.size_bytes()).then_some(offset))
    }

    /// Gives the device this size. A regular file becomes longer, by a hole, or is cut to where it ended before; what
    /// others have put past its end stays. A block device is measured again, and must have at least this size.
    ///
    /// # Errors
    ///
    /// [`DeviceError::FixedSize`]; a read-only device; what the system says. The size is as before.
    fn set_size(&self, _size_bytes: u64) -> DeviceResult {
        Err(DeviceError::FixedSize { size: self.size_bytes() })
    }

    /// Bytes of a logical sector: the unit in which partition tables count. Only block devices of the system have
    /// others than 512.
    fn sector_bytes(&self) -> u64 {
        SECTOR_BYTES
    }

    /// Whether every change is refused with [`DeviceError::ReadOnly`].
    fn is_read_only(&self) -> bool {
        false
    }

    /// Whether only this process can reach the device.
    fn is_private(&self) -> bool {
        false
    }
}

/// The one bounds check: whether `length` bytes at `offset` are inside `size` bytes.
///
/// # Errors
///
/// [`DeviceError::OutOfRange`].
#[inline]
pub fn check_range(size: u64, offset: u64, length: u64) -> DeviceResult {
    match offset.checked_add(length) {
        Some(end) if end <= size => Ok(()),
        _ => Err(DeviceError::OutOfRange { offset, length, size }),
    }
}

/// Zeros a range by writing to it, for devices that sometimes have nothing better.
///
/// # Errors
///
/// Those of the writes; the range may then be zeroed in part.
pub fn write_zeros<D: BlockDevice + ?Sized>(device: &D, offset: u64, length: u64) -> DeviceResult {
    let mut done = 0;
    while done < length {
        let piece = (length - done).min(ZERO_PIECE_BYTES as u64);
        device.write_at(offset + done, &ZEROS[..piece as usize])?;
        done += piece;
    }
    Ok(())
}

/// Bytes in all slices together.
pub(crate) fn slices_length(slices: &[IoSlice<'_>]) -> u64 {
    slices.iter().map(|slice| slice.len() as u64).sum()
}

/// Passes every operation on to the device behind a pointer.
macro_rules! forward {
    ($pointer:ty) => {
        impl<D: BlockDevice + ?Sized> BlockDevice for $pointer {
            fn size_bytes(&self) -> u64 {
                (**self).size_bytes()
            }

            fn read_at(&self, offset: u64, buffer: &mut [u8]) -> DeviceResult {
                (**self).read_at(offset, buffer)
            }

            fn write_at(&self, offset: u64, data: &[u8]) -> DeviceResult {
                (**self).write_at(offset, data)
            }

            fn write_vectored_at(&self, offset: u64, slices: &[IoSlice<'_>]) -> DeviceResult {
                (**self).write_vectored_at(offset, slices)
            }

            fn flush(&self) -> DeviceResult {
                (**self).flush()
            }

            fn write_durable_at(&self, offset: u64, data: &[u8]) -> DeviceResult {
                (**self).write_durable_at(offset, data)
            }

            fn discard(&self, offset: u64, length: u64) -> DeviceResult {
                (**self).discard(offset, length)
            }

            fn zero_range(&self, offset: u64, length: u64) -> DeviceResult {
                (**self).zero_range(offset, length)
            }

            fn refresh(&self, offset: u64, length: u64) {
                (**self).refresh(offset, length);
            }

            fn next_data(&self, offset: u64) -> DeviceResult<Option<u64>> {
                (**self).next_data(offset)
            }

            fn set_size(&self, size_bytes: u64) -> DeviceResult {
                (**self).set_size(size_bytes)
            }

            fn sector_bytes(&self) -> u64 {
                (**self).sector_bytes()
            }

            fn is_read_only(&self) -> bool {
                (**self).is_read_only()
            }

            fn is_private(&self) -> bool {
                (**self).is_private()
            }
        }
    };
}

forward!(Arc<D>);
forward!(&D);
