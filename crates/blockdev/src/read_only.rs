//! A device that refuses changes.

use crate::{BlockDevice, DeviceError, DeviceResult, check_range};

/// Passes reads on and refuses everything else, without trying.
#[derive(Clone, Debug)]
pub struct ReadOnly<D> {
    inner: D,
}

impl<D: BlockDevice> ReadOnly<D> {
    /// A device that reads from `inner`.
    pub fn new(inner: D) -> Self {
        Self { inner }
    }

    /// Gives the device back.
    pub fn into_inner(self) -> D {
        self.inner
    }

    fn refuse(&self, offset: u64, length: u64) -> DeviceResult {
        check_range(self.inner.size_bytes(), offset, length)?;
        Err(DeviceError::ReadOnly)
    }
}

impl<D: BlockDevice> BlockDevice for ReadOnly<D> {
    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> DeviceResult {
        self.inner.read_at(offset, buffer)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> DeviceResult {
        self.refuse(offset, data.len() as u64)
    }

    /// Nothing was written, so there is nothing to make durable.
    fn flush(&self) -> DeviceResult {
        Ok(())
    }

    fn discard(&self, offset: u64, length: u64) -> DeviceResult {
        self.refuse(offset, length)
    }

    fn zero_range(&self, offset: u64, length: u64) -> DeviceResult {
        self.refuse(offset, length)
    }

    fn next_data(&self, offset: u64) -> DeviceResult<Option<u64>> {
        self.inner.next_data(offset)
    }

    fn sector_bytes(&self) -> u64 {
        self.inner.sector_bytes()
    }

    fn is_read_only(&self) -> bool {
        true
    }
}
