//! A device that takes its time: what callers give it is there when they go on, not before, and a flush
//! covers only what was there when it began.

use drystone_blockdev::{BlockDevice, DeviceResult};
use drystone_sync::{atomic, thread};
use std::io::IoSlice;
use std::time::Duration;

/// Passes everything on to the device below, after or before a delay.
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
        SlowDisk { inner, delay_max_us, random: atomic::AtomicU64::new(seed) }
    }

    /// The device below.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    fn wait(&self) {
        if self.delay_max_us == 0 {
            return;
        }
        let number = self.random.fetch_add(1, atomic::Ordering::Relaxed);
        let delay = fastrand::Rng::with_seed(number).u64(..=self.delay_max_us);
        thread::sleep(Duration::from_micros(delay));
    }
}

impl<D: BlockDevice> BlockDevice for SlowDisk<D> {
    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> DeviceResult {
        self.wait();
        self.inner.read_at(offset, buffer)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> DeviceResult {
        self.wait();
        self.inner.write_at(offset, data)
    }

    fn write_vectored_at(&self, offset: u64, slices: &[IoSlice<'_>]) -> DeviceResult {
        self.wait();
        self.inner.write_vectored_at(offset, slices)
    }

    fn write_durable_at(&self, offset: u64, data: &[u8]) -> DeviceResult {
        self.wait();
        self.inner.write_durable_at(offset, data)
    }

    fn flush(&self) -> DeviceResult {
        let flushed = self.inner.flush();
        self.wait();
        flushed
    }

    fn discard(&self, offset: u64, length: u64) -> DeviceResult {
        self.wait();
        self.inner.discard(offset, length)
    }

    fn zero_range(&self, offset: u64, length: u64) -> DeviceResult {
        self.wait();
        self.inner.zero_range(offset, length)
    }

    fn is_private(&self) -> bool {
        self.inner.is_private()
    }
}
