//! A device that takes virtual time.

use drystone_blockdev::{BlockDevice, DeviceResult};
use drystone_sync::Arc;
use drystone_sync::sim::{DeviceModel, DeviceRequest, DeviceTime};
use std::io::IoSlice;

/// Another device, with the times of a model.
#[derive(Debug)]
pub struct SimulatedDevice {
    below: Arc<dyn BlockDevice>,
    time: DeviceTime,
}

impl SimulatedDevice {
    /// A device with what is on another.
    pub fn new(below: Arc<dyn BlockDevice>, model: DeviceModel) -> SimulatedDevice {
        SimulatedDevice { below, time: DeviceTime::new(model) }
    }
}

impl BlockDevice for SimulatedDevice {
    fn size_bytes(&self) -> u64 {
        self.below.size_bytes()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> DeviceResult {
        let operation = DeviceRequest::Read(buffer.len() as u64);
        self.time.pass(operation, || self.below.read_at(offset, buffer))
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> DeviceResult {
        let operation = DeviceRequest::Write(data.len() as u64);
        self.time.pass(operation, || self.below.write_at(offset, data))
    }

    fn write_vectored_at(&self, offset: u64, slices: &[IoSlice<'_>]) -> DeviceResult {
        let length: usize = slices.iter().map(|slice| slice.len()).sum();
        let operation = DeviceRequest::Write(length as u64);
        self.time.pass(operation, || self.below.write_vectored_at(offset, slices))
    }

    fn flush(&self) -> DeviceResult {
        self.time.pass(DeviceRequest::Flush, || self.below.flush())
    }

    fn discard(&self, offset: u64, length: u64) -> DeviceResult {
        // A command without data.
        self.time.pass(DeviceRequest::Write(0), || self.below.discard(offset, length))
    }

    fn zero_range(&self, offset: u64, length: u64) -> DeviceResult {
        let operation = DeviceRequest::Write(length);
        self.time.pass(operation, || self.below.zero_range(offset, length))
    }

    fn next_data(&self, offset: u64) -> DeviceResult<Option<u64>> {
        self.below.next_data(offset)
    }

    fn is_read_only(&self) -> bool {
        self.below.is_read_only()
    }

    fn is_private(&self) -> bool {
        self.below.is_private()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drystone_blockdev::MemoryDevice;
    use drystone_sync::clock;
    use drystone_sync::sim::{self, MachineModel, SimulationSettings, Work};

    #[test]
    fn reads_writes_and_flushes_take_time() {
        let model = DeviceModel {
            read_ps: 100_000_000,
            write_ps: 50_000_000,
            flush_ps: 1_000_000_000,
            bytes_per_second: 1_000_000_000,
            depth: 4,
        };
        let settings = SimulationSettings::new(MachineModel::even(), 1, Work::Constant(1_000_000));
        let ((), _) = sim::run(&settings, || {
            let device = SimulatedDevice::new(Arc::new(MemoryDevice::new(1 << 20)), model);
            let took = |body: &dyn Fn() -> DeviceResult| {
                let start = clock::now();
                body().unwrap();
                start.elapsed_ns() / 1000
            };
            // With a microsecond for each event.
            let write = took(&|| device.write_at(0, &[7; 100_000]));
            assert!((150..200).contains(&write), "{write} µs");
            let flush = took(&|| device.flush());
            assert!((1000..1050).contains(&flush), "{flush} µs");
            let read = took(&|| device.read_at(0, &mut [0; 10]));
            assert!((100..150).contains(&read), "{read} µs");
        });
    }
}
