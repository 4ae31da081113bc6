//! A device whose operations wait until a test lets them go on.
//!
//! # Locking
//!
//! What waits is behind one mutex, which is released before the device below is called.

use crate::device::slices_length;
use crate::lock_classes::STEPS;
use crate::{BlockDevice, DeviceError, DeviceOperation, DeviceResult};
use drystone_sync::{Arc, Condvar, Mutex};
use std::fmt;
use std::io::IoSlice;

/// Decides whether an operation has to wait, and gives it a tag. Runs on the thread that asks for
/// the operation.
type Rule = Arc<dyn Fn(DeviceOperation, u64, u64) -> Option<u32> + Send + Sync>;

/// An operation that waits. Nothing of it has reached the device below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Tells it apart from all others.
    pub number: u64,
    /// The tag that the rule gave it.
    pub tag: u32,
    /// What was asked; a durable write is a write.
    pub operation: DeviceOperation,
    /// First byte of the range; 0 for a flush.
    pub offset: u64,
    /// Length of the range in bytes; 0 for a flush.
    pub length: u64,
}

#[derive(Default)]
struct StepState {
    rule: Option<Rule>,
    next: u64,
    waiting: Vec<Waiting>,
    /// Numbers of operations that are to fail when they go on.
    failing: Vec<u64>,
}

/// Passes everything on to the device below, in the order that a test chooses.
pub struct Stepped<D> {
    inner: D,
    state: Mutex<StepState>,
    /// An operation has begun to wait, or may go on.
    changed: Condvar,
}

impl<D: BlockDevice> Stepped<D> {
    /// A device on which nothing waits, until [`hold`](Self::hold).
    pub fn new(inner: D) -> Self {
        Self { inner, state: Mutex::new(&STEPS, StepState::default()), changed: Condvar::new() }
    }

    /// From now on, operations to which `rule` gives a tag wait. The rule gets kind, offset and
    /// length.
    pub fn hold(
        &self,
        rule: impl Fn(DeviceOperation, u64, u64) -> Option<u32> + Send + Sync + 'static,
    ) {
        self.state.lock().rule = Some(Arc::new(rule));
    }

    /// The operations that wait, oldest first.
    #[must_use]
    pub fn waiting(&self) -> Vec<Waiting> {
        self.state.lock().waiting.clone()
    }

    /// Returns when an operation waits: the oldest.
    #[must_use]
    pub fn wait(&self) -> Waiting {
        let mut state = self.state.lock();
        loop {
            if let Some(first) = state.waiting.first() {
                return *first;
            }
            self.changed.wait(&mut state);
        }
    }

    /// Lets an operation go on.
    pub fn release(&self, number: u64) {
        self.state.lock().waiting.retain(|waiting| waiting.number != number);
        self.changed.notify_all();
    }

    /// Makes an operation fail without reaching the device below: EIO.
    pub fn fail(&self, number: u64) {
        self.state.lock().failing.push(number);
        self.release(number);
    }

    /// Lets everything go on, from now on.
    pub fn release_all(&self) {
        let mut state = self.state.lock();
        state.rule = None;
        state.waiting.clear();
        self.changed.notify_all();
    }

    /// The device below.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    fn step(
        &self,
        operation: DeviceOperation,
        offset: u64,
        length: u64,
        go_on: impl FnOnce(&D) -> DeviceResult,
    ) -> DeviceResult {
        let rule = self.state.lock().rule.clone();
        if let Some(tag) = rule.and_then(|rule| rule(operation, offset, length)) {
            self.wait_for_release(tag, operation, offset, length)?;
        }
        go_on(&self.inner)
    }

    fn wait_for_release(
        &self,
        tag: u32,
        operation: DeviceOperation,
        offset: u64,
        length: u64,
    ) -> DeviceResult {
        let mut state = self.state.lock();
        if state.rule.is_none() {
            // Everything has been released.
            return Ok(());
        }
        let number = state.next;
        state.next += 1;
        state.waiting.push(Waiting { number, tag, operation, offset, length });
        self.changed.notify_all();
        while state.waiting.iter().any(|waiting| waiting.number == number) {
            self.changed.wait(&mut state);
        }
        if !state.failing.contains(&number) {
            return Ok(());
        }
        let error = std::io::Error::from_raw_os_error(rustix::io::Errno::IO.raw_os_error());
        Err(DeviceError::Io { operation, offset, length, source: Arc::new(error) })
    }
}

impl<D: BlockDevice> BlockDevice for Stepped<D> {
    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> DeviceResult {
        let length = buffer.len() as u64;
        self.step(DeviceOperation::Read, offset, length, |inner| inner.read_at(offset, buffer))
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> DeviceResult {
        let length = data.len() as u64;
        self.step(DeviceOperation::Write, offset, length, |inner| inner.write_at(offset, data))
    }

    fn write_vectored_at(&self, offset: u64, slices: &[IoSlice<'_>]) -> DeviceResult {
        self.step(DeviceOperation::Write, offset, slices_length(slices), |inner| {
            inner.write_vectored_at(offset, slices)
        })
    }

    fn flush(&self) -> DeviceResult {
        self.step(DeviceOperation::Flush, 0, 0, |inner| inner.flush())
    }

    fn write_durable_at(&self, offset: u64, data: &[u8]) -> DeviceResult {
        let length = data.len() as u64;
        self.step(DeviceOperation::Write, offset, length, |inner| {
            inner.write_durable_at(offset, data)
        })
    }

    fn discard(&self, offset: u64, length: u64) -> DeviceResult {
        self.step(DeviceOperation::Discard, offset, length, |inner| inner.discard(offset, length))
    }

    fn zero_range(&self, offset: u64, length: u64) -> DeviceResult {
        self.step(DeviceOperation::Zero, offset, length, |inner| inner.zero_range(offset, length))
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

impl<D: fmt::Debug> fmt::Debug for Stepped<D> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Stepped").field("inner", &self.inner).finish_non_exhaustive()
    }
}
