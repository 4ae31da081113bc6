//! Flushes that many wait for, and flushes that fail.
#![allow(clippy::unwrap_used, reason = "clippy does not see that helpers here are tests too")]

use drystone_blockdev::{
    BlockDevice, DeviceError, DeviceOperation, DeviceResult, Effect, Fault, Faulty, GroupFlush,
    MemoryDevice, Stepped, Trigger,
};
use drystone_sync::thread;

/// A device whose flushes wait until a test lets each of them go on.
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
fn after_a_failed_flush_nothing_is_durable_or_changed_any_more() {
    let fault = Fault::of(DeviceOperation::Flush, Effect::InputOutputError).when(Trigger::Nth(1));
    let device = GroupFlush::new(Faulty::new(MemoryDevice::new(1 << 20)));
    device.inner().inject(fault);
    device.flush().unwrap();
    let durable = device.mark();
    device.write_at(0, b"lost").unwrap();
    let is_flush_error = |result: DeviceResult| {
        let operation = DeviceOperation::Flush;
        matches!(result, Err(DeviceError::Io { operation: found, .. }) if found == operation)
    };
    assert!(is_flush_error(device.flush()));
    // The device below would succeed from here on.
    device.inner().inner().flush().unwrap();
    assert!(is_flush_error(device.flush()));
    assert!(is_flush_error(device.flush_writes(durable)));
    assert!(is_flush_error(device.write_at(0, b"more")));
    assert!(is_flush_error(device.write_durable_at(0, b"more")));
    assert!(is_flush_error(device.zero_range(0, 4)));
    assert!(is_flush_error(device.discard(0, 4)));
    let mut bytes = [0; 4];
    device.read_at(0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"lost");
}

#[test]
fn a_failed_write_leaves_the_device_usable() {
    let device = GroupFlush::new(Faulty::new(MemoryDevice::new(1 << 20)));
    let fault = Fault::of(DeviceOperation::Write, Effect::NoSpace).when(Trigger::Nth(0));
    device.inner().inject(fault);
    assert!(device.write_durable_at(0, b"first").is_err());
    device.write_durable_at(0, b"second").unwrap();
    device.flush().unwrap();
}
