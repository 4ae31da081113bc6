//! A device on which callers that wait for a flush at the same time share one.
//!
//! # State
//!
//! Flushes are numbered in the order in which they begin; one runs at a time. A write is durable
//! once a flush that began after it has returned. When the write returns, its [`WriteMark`] is the
//! number of the next flush to begin; that flush or any later one makes it durable.
//!
//! A failed flush isn't passed on to the other callers: each asks the device again, which then always
//! refuses (see [`BlockDevice::flush`]).
//!
//! # Locking
//!
//! One mutex says whether a flush runs. It is not held while the device works.

use crate::lock_classes::GROUP_FLUSH;
use crate::{BlockDevice, DeviceResult};
use drystone_sync::atomic::{AtomicU64, Ordering, fence};
use drystone_sync::{Condvar, Mutex};
use std::io::IoSlice;

/// The first flush that makes a write durable. Zero: the write is durable, or there was none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct WriteMark(pub u64);

/// A device whose callers share flushes: see the module.
#[derive(Debug)]
pub struct GroupFlush<D> {
    inner: D,
    /// Changed under the mutex, read without it.
    begun: AtomicU64,
    /// The newest flush that has returned without an error. Changed under the mutex, read without it.
    finished: AtomicU64,
    is_running: Mutex<bool>,
    changed: Condvar,
}

impl<D: BlockDevice> GroupFlush<D> {
    /// Shares the flushes of `inner`.
    pub fn new(inner: D) -> Self {
        Self {
            inner,
            begun: AtomicU64::new(0),
            finished: AtomicU64::new(0),
            is_running: Mutex::new(&GROUP_FLUSH, false),
            changed: Condvar::new(),
        }
    }

    /// The mark of every write that has returned.
    #[must_use]
    pub fn mark(&self) -> WriteMark {
        // Either the next flush sees the write, or this sees that the flush has begun.
        fence(Ordering::SeqCst);
        WriteMark(self.begun.load(Ordering::Relaxed) + 1)
    }

    /// Whether the writes of a mark are durable.
    #[must_use]
    pub fn is_durable(&self, mark: WriteMark) -> bool {
        self.finished.load(Ordering::Acquire) >= mark.0
    }

    /// Makes the writes of a mark durable, unless they are: by a flush that others wait for too.
    ///
    /// # Errors
    ///
    /// Those of the device.
    pub fn flush_writes(&self, mark: WriteMark) -> DeviceResult {
        let mut is_running = self.is_running.lock();
        loop {
            if self.is_durable(mark) {
                return Ok(());
            }
            if !*is_running {
                break;
            }
            self.changed.wait(&mut is_running);
        }
        *is_running = true;
        // Only the thread that set the flag gets here.
        let number = self.begun.load(Ordering::Relaxed) + 1;
        self.begun.store(number, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        drop(is_running);
        let running = Running(self);
        self.inner.flush()?;
        self.finished.store(number, Ordering::Release);
        drop(running);
        Ok(())
    }

    /// How many flushes have begun.
    #[must_use]
    pub fn flushes(&self) -> u64 {
        self.begun.load(Ordering::Relaxed)
    }

    /// The device below.
    pub fn inner(&self) -> &D {
        &self.inner
    }
}

/// Marks a flush as running until dropped, also if the device fails or panics.
struct Running<'a, D>(&'a GroupFlush<D>);

impl<D> Drop for Running<'_, D> {
    fn drop(&mut self) {
        *self.0.is_running.lock() = false;
        self.0.changed.notify_all();
    }
}

impl<D: BlockDevice> BlockDevice for GroupFlush<D> {
    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> DeviceResult {
        self.inner.read_at(offset, buffer)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> DeviceResult {
        self.inner.write_at(offset, data)
    }

    fn write_vectored_at(&self, offset: u64, slices: &[IoSlice<'_>]) -> DeviceResult {
        self.inner.write_vectored_at(offset, slices)
    }

    fn flush(&self) -> DeviceResult {
        self.flush_writes(self.mark())
    }

    fn write_durable_at(&self, offset: u64, data: &[u8]) -> DeviceResult {
        self.inner.write_durable_at(offset, data)
    }

    fn discard(&self, offset: u64, length: u64) -> DeviceResult {
        self.inner.discard(offset, length)
    }

    fn zero_range(&self, offset: u64, length: u64) -> DeviceResult {
        self.inner.zero_range(offset, length)
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
