//! A device that fails where a test says. Unlike other devices it flushes again after a failed
//! flush, so that tests see what the engine does by itself.
//!
//! # Locking
//!
//! The faults are behind one mutex, which is released before the device below is called, and not
//! taken at all without faults.

use crate::device::slices_length;
use crate::lock_classes::FAULTS;
use crate::{BlockDevice, DeviceError, DeviceOperation, DeviceResult};
use drystone_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use drystone_sync::{Arc, Mutex};
use std::fmt;
use std::io::IoSlice;
use std::ops::Range;

/// Which operations fail, and how.
#[derive(Clone, Debug)]
pub struct Fault {
    operation: Option<DeviceOperation>,
    range: Option<Range<u64>>,
    trigger: Trigger,
    effect: Effect,
}

/// Which of the matching operations of a [`Fault`] fail. Matching operations are numbered from 0,
/// starting when the fault is injected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// Every one.
    Always,
    /// This one.
    Nth(u64),
    /// This one and all that follow.
    From(u64),
    /// About one in `one_in`, chosen by `seed`.
    Random {
        /// 1 is every operation.
        one_in: u32,
        /// Same seed, same choice.
        seed: u64,
    },
}

/// What a failing operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing reaches the device; the error is EIO.
    InputOutputError,
    /// Nothing reaches the device; the error says that the medium is full.
    NoSpace,
    /// The first `bytes` are read, written, zeroed or discarded, then the error is EIO. If the
    /// operation has fewer bytes, it is done in full and fails nevertheless.
    Short {
        /// Bytes that get through.
        bytes: u64,
    },
}

impl Fault {
    /// A fault that hits every operation of a kind.
    #[must_use]
    pub fn of(operation: DeviceOperation, effect: Effect) -> Self {
        Self { operation: Some(operation), range: None, trigger: Trigger::Always, effect }
    }

    /// A fault that hits every operation.
    #[must_use]
    pub fn of_any(effect: Effect) -> Self {
        Self { operation: None, range: None, trigger: Trigger::Always, effect }
    }

    /// Only operations that touch these bytes. A flush touches none.
    #[must_use]
    pub fn in_range(mut self, range: Range<u64>) -> Self {
        self.range = Some(range);
        self
    }

    /// Only those of them that `trigger` picks.
    #[must_use]
    pub fn when(mut self, trigger: Trigger) -> Self {
        self.trigger = trigger;
        self
    }

    fn concerns(&self, operation: DeviceOperation, offset: u64, length: u64) -> bool {
        let same_kind = self.operation.is_none_or(|kind| kind == operation);
        let touches = self
            .range
            .as_ref()
            .is_none_or(|range| offset < range.end && range.start < offset.saturating_add(length));
        same_kind && touches
    }
}

/// Random numbers for faults: the generator of Steele, Lea and Flood, "Fast splittable pseudorandom number
/// generators".
struct SplitMix64(u64);

impl SplitMix64 {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }
}

struct Injected {
    fault: Fault,
    /// Matching operations so far.
    seen: u64,
    random: SplitMix64,
}

impl Injected {
    fn picks(&mut self) -> bool {
        let number = self.seen;
        self.seen += 1;
        match self.fault.trigger {
            Trigger::Always => true,
            Trigger::Nth(nth) => number == nth,
            Trigger::From(first) => number >= first,
            Trigger::Random { one_in, .. } => {
                self.random.next().is_multiple_of(u64::from(one_in.max(1)))
            }
        }
    }
}

/// Passes everything on to the device below, except what the injected faults stop.
pub struct Faulty<D> {
    inner: D,
    is_armed: AtomicBool,
    faults: Mutex<Vec<Injected>>,
    /// By number of the kind.
    operations: [AtomicU64; DeviceOperation::ALL.len()],
    failures: AtomicU64,
}

impl<D: BlockDevice> Faulty<D> {
    /// A device that works, until [`inject`](Self::inject).
    pub fn new(inner: D) -> Self {
        Self {
            inner,
            is_armed: AtomicBool::new(false),
            faults: Mutex::new(&FAULTS, Vec::new()),
            operations: std::array::from_fn(|_| AtomicU64::new(0)),
            failures: AtomicU64::new(0),
        }
    }

    /// Adds a fault. If several match an operation, the one injected first decides.
    pub fn inject(&self, fault: Fault) {
        let seed = match fault.trigger {
            Trigger::Random { seed, .. } => seed,
            Trigger::Always | Trigger::Nth(_) | Trigger::From(_) => 0,
        };
        let random = SplitMix64(seed);
        let mut faults = self.faults.lock();
        faults.push(Injected { fault, seen: 0, random });
        self.is_armed.store(true, Ordering::Release);
    }

    /// Removes all faults: the device works again.
    pub fn repair(&self) {
        let mut faults = self.faults.lock();
        faults.clear();
        self.is_armed.store(false, Ordering::Release);
    }

    /// Operations of a kind so far, including those that failed. A vectored write is one.
    #[must_use]
    pub fn operations(&self, operation: DeviceOperation) -> u64 {
        self.operations[operation as usize].load(Ordering::Relaxed)
    }

    /// Operations of all kinds that were made to fail.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// The device below.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// Gives the device below back.
    pub fn into_inner(self) -> D {
        self.inner
    }

    /// Does an operation; `step` is told how many of its bytes to let through.
    fn perform(
        &self,
        operation: DeviceOperation,
        offset: u64,
        length: u64,
        step: impl FnOnce(&D, u64) -> DeviceResult,
    ) -> DeviceResult {
        self.operations[operation as usize].fetch_add(1, Ordering::Relaxed);
        let Some(effect) = self.effect(operation, offset, length) else {
            return step(&self.inner, length);
        };
        self.failures.fetch_add(1, Ordering::Relaxed);
        match effect {
            Effect::NoSpace => return Err(DeviceError::NoSpace { offset, length }),
            Effect::Short { bytes } => step(&self.inner, bytes.min(length))?,
            Effect::InputOutputError => {}
        }
        let error = std::io::Error::from_raw_os_error(rustix::io::Errno::IO.raw_os_error());
        Err(DeviceError::Io { operation, offset, length, source: Arc::new(error) })
    }

    fn effect(&self, operation: DeviceOperation, offset: u64, length: u64) -> Option<Effect> {
        if !self.is_armed.load(Ordering::Acquire) {
            return None;
        }
        let mut effect = None;
        for injected in self.faults.lock().iter_mut() {
            // Every fault counts the operation, whichever decides.
            if injected.fault.concerns(operation, offset, length) && injected.picks() {
                effect = effect.or(Some(injected.fault.effect));
            }
        }
        effect
    }
}

impl<D: BlockDevice> BlockDevice for Faulty<D> {
    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> DeviceResult {
        let length = buffer.len() as u64;
        self.perform(DeviceOperation::Read, offset, length, |inner, bytes| {
            inner.read_at(offset, &mut buffer[..bytes as usize])
        })
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> DeviceResult {
        self.perform(DeviceOperation::Write, offset, data.len() as u64, |inner, bytes| {
            inner.write_at(offset, &data[..bytes as usize])
        })
    }

    fn write_vectored_at(&self, offset: u64, slices: &[IoSlice<'_>]) -> DeviceResult {
        let length = slices_length(slices);
        self.perform(DeviceOperation::Write, offset, length, |inner, bytes| {
            if bytes == length {
                return inner.write_vectored_at(offset, slices);
            }
            inner.write_vectored_at(offset, &first_bytes(slices, bytes))
        })
    }

    fn flush(&self) -> DeviceResult {
        self.perform(DeviceOperation::Flush, 0, 0, |inner, _| inner.flush())
    }

    fn write_durable_at(&self, offset: u64, data: &[u8]) -> DeviceResult {
        self.perform(DeviceOperation::Write, offset, data.len() as u64, |inner, bytes| {
            inner.write_durable_at(offset, &data[..bytes as usize])
        })
    }

    fn discard(&self, offset: u64, length: u64) -> DeviceResult {
        self.perform(DeviceOperation::Discard, offset, length, |inner, bytes| {
            inner.discard(offset, bytes)
        })
    }

    fn zero_range(&self, offset: u64, length: u64) -> DeviceResult {
        self.perform(DeviceOperation::Zero, offset, length, |inner, bytes| {
            inner.zero_range(offset, bytes)
        })
    }

    fn is_read_only(&self) -> bool {
        self.inner.is_read_only()
    }

    fn is_private(&self) -> bool {
        self.inner.is_private()
    }
}

/// The slices up to `bytes` bytes.
fn first_bytes<'a>(slices: &'a [IoSlice<'_>], bytes: u64) -> Vec<IoSlice<'a>> {
    let mut left = bytes as usize;
    let mut first = Vec::new();
    for slice in slices {
        let count = slice.len().min(left);
        first.push(IoSlice::new(&slice[..count]));
        left -= count;
    }
    first
}

impl<D: fmt::Debug> fmt::Debug for Faulty<D> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Faulty").field("inner", &self.inner).finish_non_exhaustive()
    }
}
