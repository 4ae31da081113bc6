//! The device of a repair, which notes what is written.
//!
//! # State
//! The ranges of bytes that were written since they were last taken. Neighbours are one range, so that a file that
//! is copied block by block takes no more memory than its extents.
//!
//! # Locking
//! One lock guards the ranges, for moments only.

use drystone_blockdev::{BlockDevice, DeviceResult};
use drystone_sync::{LockClass, Mutex};
use std::collections::BTreeMap;
use std::ops::Range;

static WRITTEN: LockClass = LockClass::new("what a repair has written", 20);

/// A device, and the ranges of bytes that were written.
#[derive(Debug)]
pub(crate) struct WatchedDevice<'a> {
    below: &'a dyn BlockDevice,
    written: Mutex<WrittenRanges>,
}

/// The end of each range by its start, apart from each other, and how many writes there were.
#[derive(Debug, Default)]
struct WrittenRanges {
    ends: BTreeMap<u64, u64>,
    writes: u64,
}

impl WrittenRanges {
    fn add(&mut self, mut start: u64, mut end: u64) {
        while let Some((&other, &other_end)) = self.ends.range(..=end).next_back()
            && other_end >= start
        {
            self.ends.remove(&other);
            (start, end) = (start.min(other), end.max(other_end));
        }
        self.ends.insert(start, end);
    }
}

impl<'a> WatchedDevice<'a> {
    pub fn new(below: &'a dyn BlockDevice) -> Self {
        Self { below, written: Mutex::new(&WRITTEN, WrittenRanges::default()) }
    }

    /// What was written since the last call, in order and apart from each other.
    pub fn take_written(&self) -> Vec<Range<u64>> {
        let ends = std::mem::take(&mut self.written.lock().ends);
        ends.into_iter().map(|(start, end)| start..end).collect()
    }

    /// How many writes there were.
    pub fn writes(&self) -> u64 {
        self.written.lock().writes
    }

    fn note(&self, offset: u64, length: u64) {
        if length > 0 {
            let mut written = self.written.lock();
            written.writes += 1;
            written.add(offset, offset.saturating_add(length));
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

#[cfg(test)]
mod tests {
    use super::*;
    use drystone_blockdev::MemoryDevice;

    #[test]
    fn neighbours_are_one_range() {
        let device = MemoryDevice::new(1 << 20);
        let watched = WatchedDevice::new(&device);
        for block in [3, 1, 2, 9, 5] {
            watched.write_at(block * 4096, &[1; 4096]).unwrap();
        }
        watched.write_at(100, &[1; 10]).unwrap();
        watched.write_at(105, &[]).unwrap();
        assert_eq!(watched.written.lock().ends.len(), 4);
        watched.zero_range(4 * 4096, 10).unwrap();
        watched.write_at(5 * 4096 + 10, &[2; 20]).unwrap();
        let ends = [100..110, 4096..4 * 4096 + 10, 5 * 4096..6 * 4096, 9 * 4096..10 * 4096];
        assert_eq!(watched.take_written(), ends);
        watched.zero_range(0, 1 << 20).unwrap();
        assert!(
            watched.take_written().iter().eq([&(0..1 << 20)]) && watched.take_written().is_empty()
        );
        assert_eq!(watched.writes(), 9);
    }

    #[test]
    fn a_range_takes_in_those_that_it_covers() {
        let mut written = WrittenRanges::default();
        for (start, end) in [(10, 12), (20, 22), (30, 32), (11, 31), (5, 10), (32, 40)] {
            written.add(start, end);
        }
        assert!(written.ends.iter().eq([(&5, &40)]));
    }
}
