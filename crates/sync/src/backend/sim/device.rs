//! The time that a block device takes.
//!
//! # State
//! Each request occupies one of as many slots as the device takes requests at once, for its latency and for
//! the transfer of its bytes; transfers share the device's bandwidth, one after the other. A flush begins when all
//! requests before it have ended, and flushes come one after the other.

use super::places::SourceLine;
use super::world;
use std::sync::{Mutex, PoisonError};

/// A request that is over sooner is waited for on the processor: such a device copies memory.
const SLEEPS_FROM_PS: u64 = 2_000_000;

/// A device's costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceModel {
    /// The latency of a read, in picoseconds.
    pub read_ps: u64,
    /// The latency of a write.
    pub write_ps: u64,
    /// The time of a flush.
    pub flush_ps: u64,
    /// Bytes that are transferred in a second.
    pub bytes_per_second: u64,
    /// Requests at once.
    pub depth: usize,
}

/// What a device is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceRequest {
    /// So many bytes are read.
    Read(u64),
    /// So many bytes are written.
    Write(u64),
    /// All that was written becomes durable.
    Flush,
}

struct Slots {
    /// When each is free.
    free_ps: Vec<u64>,
    transfers_end_ps: u64,
    flushes_end_ps: u64,
}

/// The time that one device takes.
pub struct DeviceTime {
    model: DeviceModel,
    slots: Mutex<Slots>,
}

impl std::fmt::Debug for DeviceTime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeviceTime").field("model", &self.model).finish_non_exhaustive()
    }
}

impl DeviceTime {
    /// An idle device.
    #[must_use]
    pub fn new(model: DeviceModel) -> DeviceTime {
        let slots =
            Slots { free_ps: vec![0; model.depth.max(1)], transfers_end_ps: 0, flushes_end_ps: 0 };
        DeviceTime { model, slots: Mutex::new(slots) }
    }

    /// Does an operation, whose time passes for the current thread. What `body` really takes doesn't count.
    #[track_caller]
    pub fn pass<T>(&self, operation: DeviceRequest, body: impl FnOnce() -> T) -> T {
        if !world::is_inside() {
            return body();
        }
        let place = SourceLine::of("device");
        world::turn(place);
        let now = world::clock_ps();
        let end = self.end_ps(operation, now);
        let result = world::aside(body);
        if end - now < SLEEPS_FROM_PS {
            world::with(|world| world.spend(end - now));
        } else {
            world::wait_until(place, end);
        }
        result
    }

    /// When an operation ends that is asked for at `now_ps`.
    fn end_ps(&self, operation: DeviceRequest, now_ps: u64) -> u64 {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let (latency, bytes) = match operation {
            DeviceRequest::Read(bytes) => (self.model.read_ps, bytes),
            DeviceRequest::Write(bytes) => (self.model.write_ps, bytes),
            DeviceRequest::Flush => {
                let all = slots.free_ps.iter().copied().max().unwrap_or(0);
                let start = now_ps.max(all).max(slots.flushes_end_ps);
                slots.flushes_end_ps = start + self.model.flush_ps;
                return slots.flushes_end_ps;
            }
        };
        let transfer =
            u128::from(bytes) * 1_000_000_000_000 / u128::from(self.model.bytes_per_second.max(1));
        // A transfer of 200 days doesn't end.
        let transfer = u64::try_from(transfer).unwrap_or(u64::MAX / 2);
        let transfers_end = slots.transfers_end_ps;
        let Some(slot) = slots.free_ps.iter_mut().min() else { return now_ps };
        let start = now_ps.max(*slot).max(transfers_end);
        let end = start + transfer + latency;
        *slot = end;
        slots.transfers_end_ps = start + transfer;
        end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODEL: DeviceModel = DeviceModel {
        read_ps: 50,
        write_ps: 100,
        flush_ps: 1000,
        bytes_per_second: 1_000_000_000_000,
        depth: 2,
    };

    #[test]
    fn requests_share_slots_and_bandwidth() {
        let device = DeviceTime::new(MODEL);
        assert_eq!(device.end_ps(DeviceRequest::Write(10), 0), 110);
        assert_eq!(device.end_ps(DeviceRequest::Write(10), 0), 120, "its transfer comes second");
        assert_eq!(device.end_ps(DeviceRequest::Read(0), 0), 160, "it waits for the first slot");
        assert_eq!(device.end_ps(DeviceRequest::Read(30), 500), 580, "an idle device");
    }

    #[test]
    fn a_flush_follows_what_was_asked_before() {
        let device = DeviceTime::new(MODEL);
        device.end_ps(DeviceRequest::Write(0), 0);
        assert_eq!(device.end_ps(DeviceRequest::Flush, 20), 1100);
        assert_eq!(device.end_ps(DeviceRequest::Flush, 30), 2100);
        assert_eq!(device.end_ps(DeviceRequest::Write(0), 200), 300, "writes go on");
    }
}
