//! A part of a device, such as a partition.

use crate::device::slices_length;
use crate::{BlockDevice, DeviceResult, check_range};
use std::io::IoSlice;

/// A part of a device that is a device of its own: byte 0 of it is byte [`offset`](Self::offset) of the
/// device below. Nothing outside of it can be read or written.
///
/// A flush is one of the whole device below. Offsets in an error of that device are its own.
#[derive(Clone, Debug)]
pub struct Region<D> {
    inner: D,
    offset: u64,
    length: u64,
}

impl<D: BlockDevice> Region<D> {
    /// The `length` bytes of `inner` from `offset` on.
    ///
    /// # Errors
    ///
    /// [`DeviceError::OutOfRange`](crate::DeviceError::OutOfRange) if `inner` doesn't have them all.
    pub fn new(inner: D, offset: u64, length: u64) -> DeviceResult<Self> {
        check_range(inner.size_bytes(), offset, length)?;
        Ok(Self { inner, offset, length })
    }

    /// Where it begins in the device below, in bytes.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The device below.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// Where a range is in the device below.
    fn below(&self, offset: u64, length: u64) -> DeviceResult<u64> {
        check_range(self.length, offset, length)?;
        // It can't overflow: the end of the region is inside the device.
        Ok(self.offset + offset)
    }
}

impl<D: BlockDevice> BlockDevice for Region<D> {
    fn size_bytes(&self) -> u64 {
        self.length
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> DeviceResult {
        self.inner.read_at(self.below(offset, buffer.len() as u64)?, buffer)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> DeviceResult {
        self.inner.write_at(self.below(offset, data.len() as u64)?, data)
    }

    fn write_vectored_at(&self, offset: u64, slices: &[IoSlice<'_>]) -> DeviceResult {
        self.inner.write_vectored_at(self.below(offset, slices_length(slices))?, slices)
    }

    fn flush(&self) -> DeviceResult {
        self.inner.flush()
    }

    fn write_durable_at(&self, offset: u64, data: &[u8]) -> DeviceResult {
        self.inner.write_durable_at(self.below(offset, data.len() as u64)?, data)
    }

    fn discard(&self, offset: u64, length: u64) -> DeviceResult {
        self.inner.discard(self.below(offset, length)?, length)
    }

    fn zero_range(&self, offset: u64, length: u64) -> DeviceResult {
        self.inner.zero_range(self.below(offset, length)?, length)
    }

    fn refresh(&self, offset: u64, length: u64) {
        if let Ok(below) = self.below(offset, length) {
            self.inner.refresh(below, length);
        }
    }

    fn next_data(&self, offset: u64) -> DeviceResult<Option<u64>> {
        if offset >= self.length {
            return Ok(None);
        }
        let next = self.inner.next_data(self.offset + offset)?;
        Ok(next.map(|next| next - self.offset).filter(|&next| next < self.length))
    }

    fn sector_bytes(&self) -> u64 {
        self.inner.sector_bytes()
    }

    fn is_read_only(&self) -> bool {
        self.inner.is_read_only()
    }

    fn is_private(&self) -> bool {
        self.inner.is_private()
    }
}
