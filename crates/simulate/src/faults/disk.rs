//! A device that takes its time: each operation takes effect at any moment between its begin and its end.

use drystone_blockdev::{BlockDevice, DeviceResult};
use drystone_sync::{atomic, thread};
use std::io::IoSlice;
use std::time::Duration;

/// Between the delays of two seeds: more than a run has.
const DELAYS_APART: u64 = 1 << 20;

/// Passes everything on to the device below, with delays.
#[derive(Debug)]
pub struct SlowDisk<D> {
    inner: D,
    delay_max_us: u64,
    /// Chooses delays.
    random: atomic::AtomicU64,
}

impl<D: BlockDevice> SlowDisk<D> {
    /// Each operation takes up to so many microseconds.
    pub fn new(inner: D, delay_max_us: u64, seed: u64) -> SlowDisk<D> {
        let random = atomic::AtomicU64::new(seed.wrapping_mul(DELAYS_APART));
        SlowDisk { inner, delay_max_us, random }
    }

    /// The device below.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// Does an operation, with delays before and after.
    fn slowly<T>(&self, operation: impl FnOnce(&D) -> T) -> T {
        self.wait();
        let done = operation(&self.inner);
        self.wait();
        done
    }

    fn wait(&self) {
        if self.delay_max_us == 0 {
            return;
        }
        let number = self.random.fetch_add(1, atomic::Ordering::Relaxed);
        let delay = fastrand::Rng::with_seed(number).u64(..=self.delay_max_us / 2);
        thread::sleep(Duration::from_micros(delay));
    }
}

impl<D: BlockDevice> BlockDevice for SlowDisk<D> {
    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> DeviceResult {
        self.slowly(|inner| inner.read_at(offset, buffer))
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> DeviceResult {
        self.slowly(|inner| inner.write_at(offset, data))
    }

    fn write_vectored_at(&self, offset: u64, slices: &[IoSlice<'_>]) -> DeviceResult {
        self.slowly(|inner| inner.write_vectored_at(offset, slices))
    }

    fn write_durable_at(&self, offset: u64, data: &[u8]) -> DeviceResult {
        self.slowly(|inner| inner.write_durable_at(offset, data))
    }

    fn flush(&self) -> DeviceResult {
        self.slowly(BlockDevice::flush)
    }

    fn discard(&self, offset: u64, length: u64) -> DeviceResult {
        self.slowly(|inner| inner.discard(offset, length))
    }

    fn zero_range(&self, offset: u64, length: u64) -> DeviceResult {
        self.slowly(|inner| inner.zero_range(offset, length))
    }

    fn is_private(&self) -> bool {
        self.inner.is_private()
    }
}
