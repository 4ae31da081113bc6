//! What the wrappers add: logs, failures, delays.
#![allow(clippy::unwrap_used, reason = "clippy does not see that helpers here are tests too")]

use drystone_blockdev::{
    BlockDevice, Delays, DeviceError, DeviceOperation, Effect, EventKind, Fault, Faulty,
    MemoryDevice, Recording, Timed, Trigger,
};
use drystone_sync::{Arc, clock, thread};
use std::io::IoSlice;
use std::time::Duration;

const SIZE: u64 = 1 << 20;

fn memory() -> MemoryDevice {
    MemoryDevice::new(SIZE)
}

#[test]
fn a_recording_has_every_change_in_order() {
    let device = Recording::new(memory());
    device.write_at(10, b"one").unwrap();
    assert_eq!(device.mark(42), 1);
    device.write_vectored_at(20, &[IoSlice::new(b"tw"), IoSlice::new(b"o")]).unwrap();
    device.flush().unwrap();
    device.write_durable_at(30, b"three").unwrap();
    device.zero_range(10, 2).unwrap();
    device.discard(4096, 4096).unwrap();
    assert!(device.write_at(SIZE, b"outside").is_err());
    device.read_at(0, &mut [0; 10]).unwrap();

    let events = device.events();
    let kinds: Vec<_> = events.iter().map(|event| event.kind.clone()).collect();
    assert_eq!(
        kinds,
        [
            EventKind::Write { offset: 10, data: Arc::from(*b"one") },
            EventKind::Mark(42),
            EventKind::Write { offset: 20, data: Arc::from(*b"two") },
            EventKind::Flush,
            EventKind::WriteDurable { offset: 30, data: Arc::from(*b"three") },
            EventKind::Zero { offset: 10, length: 2 },
            EventKind::Discard { offset: 4096, length: 4096 },
        ]
    );
    assert!(events.iter().map(|event| event.sequence).eq(0..7));
    assert_eq!(kinds[2].range(), Some((20, 3)));
    assert_eq!(kinds[3].range(), None);

    let replayed = memory();
    events.iter().for_each(|event| event.kind.apply(&replayed).unwrap());
    assert!(replayed.to_vec() == device.inner().to_vec());

    assert_eq!(device.take_events(), events);
    assert_eq!(device.mark(43), 7);
    assert_eq!(device.events().len(), 1);
}

#[test]
fn a_recording_replays_to_what_concurrent_writers_left() {
    let device = Recording::new(memory());
    thread::scope(|scope| {
        for writer in 1..=4_u8 {
            let device = &device;
            scope.spawn(move || {
                for write in 0..200_u64 {
                    // All writes overlap, so only the true order gives the same bytes.
                    device.write_at(write % 7 * 100, &[writer; 150]).unwrap();
                }
            });
        }
    });
    let replayed = memory();
    device.events().iter().for_each(|event| event.kind.apply(&replayed).unwrap());
    assert!(replayed.to_vec() == device.into_inner().to_vec());
}

/// Which of ten writes fail.
fn failing_writes(fault: Fault) -> Vec<u64> {
    let device = Faulty::new(memory());
    device.inject(fault);
    let failing = (0..10).filter(|write| device.write_at(write * 512, &[1; 512]).is_err());
    failing.collect()
}

#[test]
fn faults_hit_what_they_are_told_to() {
    let fault = || Fault::of(DeviceOperation::Write, Effect::InputOutputError);
    assert_eq!(failing_writes(fault()).len(), 10);
    assert_eq!(failing_writes(fault().when(Trigger::Nth(3))), [3]);
    assert_eq!(failing_writes(fault().when(Trigger::From(7))), [7, 8, 9]);
    assert_eq!(failing_writes(fault().in_range(1000..1100)), [1, 2]);
    assert_eq!(failing_writes(fault().in_range(1024..9999).when(Trigger::Nth(1))), [3]);
    let random = || fault().when(Trigger::Random { one_in: 3, seed: 5 });
    let failing = failing_writes(random());
    assert!(!failing.is_empty() && failing.len() < 10);
    assert_eq!(failing_writes(random()), failing);
    let read = Fault::of(DeviceOperation::Read, Effect::InputOutputError);
    assert!(failing_writes(read).is_empty());
}

#[test]
fn a_fault_says_what_failed_until_it_is_repaired() {
    let device = Faulty::new(memory());
    device.inject(Fault::of_any(Effect::InputOutputError).when(Trigger::From(1)));
    device.write_at(0, &[1; 4]).unwrap();
    let error = device.flush().unwrap_err();
    assert!(
        matches!(&error, DeviceError::Io { operation: DeviceOperation::Flush, source, .. }
            if source.raw_os_error() == Some(5)),
        "{error:?}"
    );
    let error = error.clone().to_string();
    assert!(error.starts_with("flush of 0 bytes at byte 0 failed"), "{error}");
    assert!(device.read_at(0, &mut [0; 4]).is_err());
    assert!(device.zero_range(0, 4).is_err());
    assert!(device.discard(0, 4).is_err());
    assert_eq!(device.failures(), 4);
    device.repair();
    let mut bytes = [0; 4];
    device.read_at(0, &mut bytes).unwrap();
    assert_eq!(bytes, [1; 4]);
    assert_eq!(DeviceOperation::ALL.map(|kind| device.operations(kind)), [2, 1, 1, 1, 1]);
}

#[test]
fn a_short_write_leaves_its_first_bytes() {
    let device = Faulty::new(memory());
    device.inject(
        Fault::of(DeviceOperation::Write, Effect::Short { bytes: 5 }).when(Trigger::From(0)),
    );
    assert!(device.write_at(0, b"abcdefgh").is_err());
    let slices = [IoSlice::new(b"ABC"), IoSlice::new(b"DEF")];
    assert!(device.write_vectored_at(100, &slices).is_err());
    assert!(device.write_durable_at(200, b"xyz").is_err());
    let bytes = device.inner().to_vec();
    assert_eq!(&bytes[..8], b"abcde\0\0\0");
    assert_eq!(&bytes[100..106], b"ABCDE\0");
    assert_eq!(&bytes[200..203], b"xyz");
}

#[test]
fn a_full_medium_is_told_apart() {
    let device = Faulty::new(memory());
    device.inject(Fault::of(DeviceOperation::Write, Effect::NoSpace).when(Trigger::Nth(0)));
    let error = device.write_at(512, &[0; 8]).unwrap_err();
    assert!(matches!(error, DeviceError::NoSpace { offset: 512, length: 8 }), "{error:?}");
    device.write_at(512, &[0; 8]).unwrap();
    let error = std::io::Error::from_raw_os_error(28);
    let error = DeviceError::io(DeviceOperation::Write, 1, 2, error);
    assert!(matches!(error, DeviceError::NoSpace { offset: 1, length: 2 }), "{error:?}");
}

#[test]
fn a_timed_device_delays_and_counts() {
    const DELAY: Duration = Duration::from_millis(3);
    let device = Timed::new(memory(), Delays::none().with(DeviceOperation::Flush, DELAY));
    let start = clock::now();
    device.write_at(0, &[1; 100]).unwrap();
    device.write_vectored_at(100, &[IoSlice::new(&[1; 20]), IoSlice::new(&[1; 3])]).unwrap();
    device.read_at(0, &mut [0; 7]).unwrap();
    assert!(device.read_at(SIZE, &mut [0; 1]).is_err());
    device.flush().unwrap();
    device.write_durable_at(0, &[1; 1]).unwrap();
    device.zero_range(0, 50).unwrap();
    device.discard(0, 60).unwrap();
    assert!(start.elapsed() >= 2 * DELAY);
    let statistics = device.statistics();
    let counts = statistics.map(|kind| (kind.operation, kind.count, kind.bytes));
    assert_eq!(
        counts,
        [
            (DeviceOperation::Read, 2, 8),
            (DeviceOperation::Write, 3, 124),
            (DeviceOperation::Flush, 1, 0),
            (DeviceOperation::Discard, 1, 60),
            (DeviceOperation::Zero, 1, 50),
        ]
    );
    let flush = statistics[DeviceOperation::Flush as usize];
    assert!(u128::from(flush.total_ns) >= DELAY.as_nanos());
}
