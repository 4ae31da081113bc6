//! Flushes that several callers wait for.
#![allow(clippy::unwrap_used, reason = "clippy does not see that helpers here are tests too")]

use drystone_blockdev::{BlockDevice, DeviceOperation, GroupFlush, MemoryDevice, Stepped};
use drystone_sync::thread;

/// A device whose flushes each wait until the test lets them go on.
fn stepped() -> GroupFlush<Stepped<MemoryDevice>> {
    let device = Stepped::new(MemoryDevice::new(1 << 20));
    device.hold(|operation, _, _| (operation == DeviceOperation::Flush).then_some(0));
    GroupFlush::new(device)
}

#[test]
fn callers_that_come_while_a_flush_runs_share_the_next_one() {
    const CALLERS: u64 = 16;
    let device = stepped();
    thread::scope(|scope| {
        scope.spawn(|| device.flush().unwrap());
        let first = device.inner().wait();
        let marks: Vec<_> = (0..CALLERS).map(|_| device.mark()).collect();
        for mark in marks {
            let device = &device;
            scope.spawn(move || device.flush_writes(mark).unwrap());
        }
        device.inner().release(first.number);
        device.inner().release(device.inner().wait().number);
    });
    assert_eq!(device.flushes(), 2, "sixteen callers share one flush");
}

#[test]
fn a_flush_covers_the_writes_before_it_and_no_others() {
    let device = stepped();
    device.write_at(0, b"before").unwrap();
    let before = device.mark();
    thread::scope(|scope| {
        let flush = scope.spawn(|| device.flush().unwrap());
        let first = device.inner().wait();
        device.write_at(0, b"during").unwrap();
        let during = device.mark();
        assert!(!device.is_durable(before));
        device.inner().release(first.number);
        flush.join().unwrap();
        assert!(device.is_durable(before));
        assert!(!device.is_durable(during), "the flush had begun when this was written");
        device.flush_writes(before).unwrap();
        assert_eq!(device.flushes(), 1, "what is durable needs no flush");
        device.inner().release_all();
        device.flush_writes(during).unwrap();
        assert!(device.is_durable(during));
    });
}

#[test]
fn a_flush_that_fails_makes_nothing_durable() {
    let device = stepped();
    let mark = device.mark();
    thread::scope(|scope| {
        let first = scope.spawn(|| device.flush_writes(mark));
        device.inner().fail(device.inner().wait().number);
        assert!(first.join().unwrap().is_err());
        assert!(!device.is_durable(mark));
        device.inner().release_all();
        // Another caller asks the device, which decides whether it goes on.
        device.flush_writes(mark).unwrap();
        assert!(device.is_durable(mark));
    });
}
