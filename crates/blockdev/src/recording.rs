//! A device that logs every change in order, to make crash images from.
//!
//! # State
//!
//! A list of [`Event`]s. An operation that fails is not in it: put [`Faulty`](crate::Faulty)
//! above a recording, so that the part of a failed write that does reach the device is
//! logged as the write it is.
//!
//! # Locking
//!
//! The log's mutex is held while the change reaches the device below. So the log's order is
//! the device's, and a write that is logged before a flush had returned before the flush
//! began. Reads take no lock.

use crate::device::slices_length;
use crate::lock_classes::RECORDING;
use crate::{BlockDevice, DeviceResult};
use drystone_sync::{Arc, Mutex};
use std::fmt;
use std::io::IoSlice;

/// One change of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Place in the order of all events of this recording, from 0.
    pub sequence: u64,
    /// What happened.
    pub kind: EventKind,
}

/// What happened to a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// A write, durable after the next flush. One vectored write is one event.
    Write {
        /// First byte.
        offset: u64,
        /// What was written.
        data: Arc<[u8]>,
    },
    /// A write that was durable when it returned.
    WriteDurable {
        /// First byte.
        offset: u64,
        /// What was written.
        data: Arc<[u8]>,
    },
    /// A range that was made to read as zeros, durable after the next flush.
    Zero {
        /// First byte.
        offset: u64,
        /// Length in bytes.
        length: u64,
    },
    /// A range whose bytes are no longer needed.
    Discard {
        /// First byte.
        offset: u64,
        /// Length in bytes.
        length: u64,
    },
    /// All events before this one are durable.
    Flush,
    /// A note by the test, such as "call number n has returned".
    Mark(u64),
}

impl EventKind {
    /// First byte and length of what is changed; nothing for a flush or a mark.
    #[must_use]
    pub fn range(&self) -> Option<(u64, u64)> {
        match self {
            Self::Write { offset, data } | Self::WriteDurable { offset, data } => {
                Some((*offset, data.len() as u64))
            }
            Self::Zero { offset, length } | Self::Discard { offset, length } => {
                Some((*offset, *length))
            }
            Self::Flush | Self::Mark(_) => None,
        }
    }

    /// Repeats the event on `device`.
    ///
    /// # Errors
    ///
    /// Those of `device`.
    pub fn apply(&self, device: &(impl BlockDevice + ?Sized)) -> DeviceResult {
        match self {
            Self::Write { offset, data } => device.write_at(*offset, data),
            Self::WriteDurable { offset, data } => device.write_durable_at(*offset, data),
            Self::Zero { offset, length } => device.zero_range(*offset, *length),
            Self::Discard { offset, length } => device.discard(*offset, *length),
            Self::Flush => device.flush(),
            Self::Mark(_) => Ok(()),
        }
    }
}

#[derive(Default)]
struct Log {
    /// Sequence number of the next event; taking the events doesn't reset it.
    next: u64,
    events: Vec<Event>,
}

impl Log {
    fn push(&mut self, kind: EventKind) {
        self.events.push(Event { sequence: self.next, kind });
        self.next += 1;
    }
}

/// Passes everything on to the device below and logs each change that succeeded.
pub struct Recording<D> {
    inner: D,
    log: Mutex<Log>,
}

impl<D: BlockDevice> Recording<D> {
    /// Records changes of `inner` from now on.
    pub fn new(inner: D) -> Self {
        Self { inner, log: Mutex::new(&RECORDING, Log::default()) }
    }

    /// The device below.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// Gives the device below back.
    pub fn into_inner(self) -> D {
        self.inner
    }

    /// Puts a mark into the log and returns its sequence number.
    pub fn mark(&self, mark: u64) -> u64 {
        let mut log = self.log.lock();
        log.push(EventKind::Mark(mark));
        log.next - 1
    }

    /// The log so far. Bytes are shared, not copied.
    #[must_use]
    pub fn events(&self) -> Vec<Event> {
        self.log.lock().events.clone()
    }

    /// The log so far, which starts again empty; sequence numbers go on.
    #[must_use]
    pub fn take_events(&self) -> Vec<Event> {
        std::mem::take(&mut self.log.lock().events)
    }

    fn record(
        &self,
        operation: impl FnOnce(&D) -> DeviceResult,
        kind: impl FnOnce() -> EventKind,
    ) -> DeviceResult {
        let mut log = self.log.lock();
        operation(&self.inner)?;
        log.push(kind());
        Ok(())
    }
}

impl<D: BlockDevice> BlockDevice for Recording<D> {
    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> DeviceResult {
        self.inner.read_at(offset, buffer)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> DeviceResult {
        self.record(
            |inner| inner.write_at(offset, data),
            || EventKind::Write { offset, data: data.into() },
        )
    }

    fn write_vectored_at(&self, offset: u64, slices: &[IoSlice<'_>]) -> DeviceResult {
        self.record(
            |inner| inner.write_vectored_at(offset, slices),
            || {
                let mut data = Vec::with_capacity(slices_length(slices) as usize);
                slices.iter().for_each(|slice| data.extend_from_slice(slice));
                EventKind::Write { offset, data: data.into() }
            },
        )
    }

    fn flush(&self) -> DeviceResult {
        self.record(|inner| inner.flush(), || EventKind::Flush)
    }

    fn write_durable_at(&self, offset: u64, data: &[u8]) -> DeviceResult {
        self.record(
            |inner| inner.write_durable_at(offset, data),
            || EventKind::WriteDurable { offset, data: data.into() },
        )
    }

    fn discard(&self, offset: u64, length: u64) -> DeviceResult {
        self.record(|inner| inner.discard(offset, length), || EventKind::Discard { offset, length })
    }

    fn zero_range(&self, offset: u64, length: u64) -> DeviceResult {
        self.record(|inner| inner.zero_range(offset, length), || EventKind::Zero { offset, length })
    }

    fn is_read_only(&self) -> bool {
        self.inner.is_read_only()
    }

    fn is_private(&self) -> bool {
        self.inner.is_private()
    }
}

impl<D: fmt::Debug> fmt::Debug for Recording<D> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Recording").field("inner", &self.inner).finish_non_exhaustive()
    }
}
