//! The device of a repair, which notes what is written.

use drystone_blockdev::{BlockDevice, DeviceResult};
use drystone_sync::{LockClass, Mutex};
use std::ops::Range;

static WRITTEN: LockClass = LockClass::new("what a repair has written", 20);

/// A device, and the ranges of bytes that were written.
#[derive(Debug)]
pub(crate) struct WatchedDevice<'a> {
    below: &'a dyn BlockDevice,
    written: Mutex<Vec<Range<u64>>>,
}

impl<'a> WatchedDevice<'a> {
    pub fn new(below: &'a dyn BlockDevice) -> Self {
        Self { below, written: Mutex::new(&WRITTEN, Vec::new()) }
    }

    /// What was written since the last call, in order and apart from each other.
    pub fn take_written(&self) -> Vec<Range<u64>> {
        let mut written = std::mem::take(&mut *self.written.lock());
        written.sort_unstable_by_key(|range| range.start);
        written.dedup_by(|next, range| {
            let meets = next.start <= range.end;
            if meets {
                range.end = range.end.max(next.end);
            }
            meets
        });
        written
    }

    fn note(&self, offset: u64, length: u64) {
        if length > 0 {
            self.written.lock().push(offset..offset.saturating_add(length));
        }
    }
}

impl BlockDevice for WatchedDevice<'_> {
    fn size_bytes(&self) -> u64 {
        self.below.size_bytes()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> DeviceResult {
        self.below.read_at(offset, buffer)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> DeviceResult {
        self.note(offset, data.len() as u64);
        self.below.write_at(offset, data)
    }

    fn flush(&self) -> DeviceResult {
        self.below.flush()
    }

    fn zero_range(&self, offset: u64, length: u64) -> DeviceResult {
        self.note(offset, length);
        self.below.zero_range(offset, length)
    }

    fn next_data(&self, offset: u64) -> DeviceResult<Option<u64>> {
        self.below.next_data(offset)
    }

    fn is_read_only(&self) -> bool {
        self.below.is_read_only()
    }
}
