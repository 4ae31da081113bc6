//! A device that measures, and may be slower than the one below.

use crate::device::slices_length;
use crate::{BlockDevice, DeviceOperation, DeviceResult};
use drystone_sync::atomic::{AtomicU64, Ordering};
use drystone_sync::{PerCore, clock, thread};
use std::io::IoSlice;
use std::time::Duration;

const KINDS: usize = DeviceOperation::ALL.len();

/// How long each kind of operation takes at least.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delays {
    /// By number of the kind.
    delays: [Duration; KINDS],
}

impl Delays {
    /// No delays: measure only.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// Makes operations of a kind last `delay` longer. Sleeping is no more exact than the
    /// system's timers: about 60 µs on Linux.
    #[must_use]
    pub fn with(mut self, operation: DeviceOperation, delay: Duration) -> Self {
        self.delays[operation as usize] = delay;
        self
    }
}

/// The sums for operations of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperationStatistics {
    /// The kind.
    pub operation: DeviceOperation,
    /// How many, including those that failed.
    pub count: u64,
    /// Their bytes, together.
    pub bytes: u64,
    /// Nanoseconds they took, delay included, together.
    pub total_ns: u64,
}

#[derive(Debug, Default)]
struct Counters {
    count: AtomicU64,
    bytes: AtomicU64,
    total_ns: AtomicU64,
}

/// Passes everything on to the device below after a delay, and measures how long it took.
#[derive(Debug)]
pub struct Timed<D> {
    inner: D,
    delays: Delays,
    counters: PerCore<[Counters; KINDS]>,
}

impl<D: BlockDevice> Timed<D> {
    /// Measures and delays operations of `inner`.
    pub fn new(inner: D, delays: Delays) -> Self {
        let counters = PerCore::new(|_| std::array::from_fn(|_| Counters::default()));
        Self { inner, delays, counters }
    }

    /// The sums so far, one per kind in the order of [`DeviceOperation::ALL`].
    #[must_use]
    pub fn statistics(&self) -> [OperationStatistics; KINDS] {
        DeviceOperation::ALL.map(|operation| {
            let sum = |field: fn(&Counters) -> &AtomicU64| {
                let slots = self.counters.iter();
                slots.map(|slot| field(&slot[operation as usize]).load(Ordering::Relaxed)).sum()
            };
            OperationStatistics {
                operation,
                count: sum(|counters| &counters.count),
                bytes: sum(|counters| &counters.bytes),
                total_ns: sum(|counters| &counters.total_ns),
            }
        })
    }

    /// The device below.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// Gives the device below back.
    pub fn into_inner(self) -> D {
        self.inner
    }

    fn perform(
        &self,
        operation: DeviceOperation,
        bytes: u64,
        step: impl FnOnce(&D) -> DeviceResult,
    ) -> DeviceResult {
        let start = clock::now();
        let delay = self.delays.delays[operation as usize];
        if !delay.is_zero() {
            thread::sleep(delay);
        }
        let result = step(&self.inner);
        let counters = &self.counters.current()[operation as usize];
        counters.count.fetch_add(1, Ordering::Relaxed);
        counters.bytes.fetch_add(bytes, Ordering::Relaxed);
        counters.total_ns.fetch_add(start.elapsed_ns(), Ordering::Relaxed);
        result
    }
}

impl<D: BlockDevice> BlockDevice for Timed<D> {
    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> DeviceResult {
        self.perform(DeviceOperation::Read, buffer.len() as u64, |inner| {
            inner.read_at(offset, buffer)
        })
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> DeviceResult {
        self.perform(DeviceOperation::Write, data.len() as u64, |inner| {
            inner.write_at(offset, data)
        })
    }

    fn write_vectored_at(&self, offset: u64, slices: &[IoSlice<'_>]) -> DeviceResult {
        self.perform(DeviceOperation::Write, slices_length(slices), |inner| {
            inner.write_vectored_at(offset, slices)
        })
    }

    fn flush(&self) -> DeviceResult {
        self.perform(DeviceOperation::Flush, 0, |inner| inner.flush())
    }

    /// Counts as a write and is delayed as a flush too.
    fn write_durable_at(&self, offset: u64, data: &[u8]) -> DeviceResult {
        self.perform(DeviceOperation::Write, data.len() as u64, |inner| {
            let delay = self.delays.delays[DeviceOperation::Flush as usize];
            if !delay.is_zero() {
                thread::sleep(delay);
            }
            inner.write_durable_at(offset, data)
        })
    }

    fn discard(&self, offset: u64, length: u64) -> DeviceResult {
        self.perform(DeviceOperation::Discard, length, |inner| inner.discard(offset, length))
    }

    fn zero_range(&self, offset: u64, length: u64) -> DeviceResult {
        self.perform(DeviceOperation::Zero, length, |inner| inner.zero_range(offset, length))
    }

    fn refresh(&self, offset: u64, length: u64) {
        self.inner.refresh(offset, length);
    }

    fn set_size(&self, size_bytes: u64) -> DeviceResult {
        self.inner.set_size(size_bytes)
    }

    fn is_read_only(&self) -> bool {
        self.inner.is_read_only()
    }

    fn is_private(&self) -> bool {
        self.inner.is_private()
    }
}
