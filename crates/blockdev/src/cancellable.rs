//! A device whose user can be stopped.

use crate::{BlockDevice, DeviceError, DeviceResult};
use drystone_sync::Arc;
use drystone_sync::atomic::{AtomicBool, Ordering};
use std::io::IoSlice;

/// Passes operations on until a flag is set, and then fails all of them. What works on it ends soon after, at whatever
/// operation it has come to.
#[derive(Debug)]
pub struct Cancellable<D> {
    inner: D,
    is_cancelled: Arc<AtomicBool>,
}

impl<D: BlockDevice> Cancellable<D> {
    /// A device that passes operations on to `inner` until `is_cancelled` is set.
    pub fn new(inner: D, is_cancelled: Arc<AtomicBool>) -> Self {
        Self { inner, is_cancelled }
    }

    /// The device below, until the flag is set.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Cancelled`] from then on.
    pub fn get(&self) -> DeviceResult<&D> {
        match self.is_cancelled.load(Ordering::Relaxed) {
            true => Err(DeviceError::Cancelled),
            false => Ok(&self.inner),
        }
    }
}

impl<D: BlockDevice> BlockDevice for Cancellable<D> {
    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> DeviceResult {
        self.get()?.read_at(offset, buffer)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> DeviceResult {
        self.get()?.write_at(offset, data)
    }

    fn write_vectored_at(&self, offset: u64, slices: &[IoSlice<'_>]) -> DeviceResult {
        self.get()?.write_vectored_at(offset, slices)
    }

    fn flush(&self) -> DeviceResult {
        self.get()?.flush()
    }

    fn write_durable_at(&self, offset: u64, data: &[u8]) -> DeviceResult {
        self.get()?.write_durable_at(offset, data)
    }

    fn discard(&self, offset: u64, length: u64) -> DeviceResult {
        self.get()?.discard(offset, length)
    }

    fn zero_range(&self, offset: u64, length: u64) -> DeviceResult {
        self.get()?.zero_range(offset, length)
    }

    fn refresh(&self, offset: u64, length: u64) {
        self.inner.refresh(offset, length);
    }

    fn next_data(&self, offset: u64) -> DeviceResult<Option<u64>> {
        self.get()?.next_data(offset)
    }

    fn set_size(&self, size_bytes: u64) -> DeviceResult {
        self.get()?.set_size(size_bytes)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryDevice;

    #[test]
    fn nothing_is_done_after_the_flag_is_set() {
        let cancelled = Arc::new(AtomicBool::new(false));
        let device = Cancellable::new(MemoryDevice::new(8192), Arc::clone(&cancelled));
        device.write_at(0, &[1; 512]).unwrap();
        device.flush().unwrap();
        cancelled.store(true, Ordering::Relaxed);
        let mut bytes = [0; 512];
        for refused in [
            device.read_at(0, &mut bytes),
            device.write_at(0, &[2; 512]),
            device.write_durable_at(0, &[2; 512]),
            device.zero_range(0, 512),
            device.discard(0, 512),
            device.flush(),
        ] {
            assert!(matches!(refused, Err(DeviceError::Cancelled)), "{refused:?}");
        }
        device.inner.read_at(0, &mut bytes).unwrap();
        assert_eq!((bytes, device.size_bytes()), ([1; 512], 8192));
    }
}
