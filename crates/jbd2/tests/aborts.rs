//! What stops the journal for good.

#![allow(clippy::unwrap_used)]

mod common;

use common::{BLOCK, Fixture, USER_BLOCKS, memory, options, read_block};
use drystone_blockdev::{
    BlockDevice, DeviceError, DeviceOperation, Effect, Fault, Faulty, MemoryDevice, Stepped,
};
use drystone_cache::Cache;
use drystone_jbd2::{Journal, JournalError};
use drystone_sync::atomic::{AtomicBool, Ordering};
use drystone_sync::{Arc, thread};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

#[test]
fn a_panic_with_an_open_handle_leaves_nothing_of_its_changes() {
    let fixture = Fixture::simple();
    fixture.set(3, 1);
    fixture.set(4, 1);
    fixture.journal.commit_and_wait().unwrap();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let mut handle = fixture.journal.start(2).unwrap();
        handle.write(&fixture.buffer(3), None).unwrap().fill(2);
        resume_unwind(Box::new("before block 4 is changed"));
    }));
    assert!(panicked.is_err());
    assert!(matches!(fixture.journal.error(), Some(JournalError::Stopped(_))));
    assert!(matches!(fixture.journal.start(1), Err(JournalError::Aborted(_))));
    assert!(fixture.journal.commit_and_wait().is_err());
    let fixture = fixture.crash_and_recover();
    assert_eq!((fixture.home(3), fixture.home(4)), (1, 1));
}

/// The commit waits for the handle when that panics.
#[test]
fn a_panic_does_not_let_a_waiting_commit_go_on() {
    let fixture = Fixture::simple();
    fixture.set(3, 1);
    fixture.journal.commit_and_wait().unwrap();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let mut handle = fixture.journal.start(2).unwrap();
        handle.write(&fixture.buffer(3), None).unwrap().fill(2);
        fixture.journal.force_commit(handle.tid());
        resume_unwind(Box::new("while a commit waits"));
    }));
    assert!(panicked.is_err());
    assert!(fixture.journal.commit_and_wait().is_err());
    let fixture = fixture.crash_and_recover();
    assert_eq!(fixture.home(3), 1);
}

/// A commit waits for a checkpoint to free space in the log, and the checkpoint fails.
#[test]
fn a_checkpoint_that_fails_at_the_superblock_stops_the_commit_that_waits() {
    static HAS_PANICKED: AtomicBool = AtomicBool::new(false);
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        HAS_PANICKED.store(true, Ordering::SeqCst);
        report(panic);
    }));
    let device = Arc::new(Stepped::new(memory()));
    // There is room for one transaction.
    let fixture = Fixture::new(device.clone(), 12, options());
    let journal = &fixture.journal;
    let superblock = (USER_BLOCKS + 1000) * BLOCK as u64;
    let change = |value| {
        let mut handle = journal.start(4).unwrap();
        for block in 0..4 {
            handle.write(&fixture.buffer(block), None).unwrap().fill(value);
        }
        let tid = handle.tid();
        handle.stop().unwrap();
        journal.force_commit(tid);
        tid
    };
    let home = USER_BLOCKS * BLOCK as u64;
    device.hold(move |operation, offset, _| {
        (operation == DeviceOperation::Write && offset < home).then_some(0)
    });
    journal.wait(change(1)).unwrap();
    // More than half of the log is used, so a checkpoint is due.
    let first_home = device.wait();
    let tid = change(2);
    while journal.statistics().log_full_waits == 0 {
        thread::yield_now();
    }
    device.hold(move |operation, offset, _| {
        (operation == DeviceOperation::Write && offset == superblock).then_some(0)
    });
    device.release(first_home.number);
    device.fail(device.wait().number);
    assert!(journal.wait(tid).is_err());
    device.release_all();
    assert!(matches!(journal.error(), Some(JournalError::Device(_))));
    let fixture = fixture.crash_and_recover();
    assert_eq!(fixture.home(1), 1);
    assert!(!HAS_PANICKED.load(Ordering::SeqCst), "a thread has panicked");
}

/// Changes that exist only in memory stay readable.
#[test]
fn a_panic_while_the_log_is_written_drops_no_changes() {
    let device = Arc::new(Stepped::new(memory()));
    let fixture = Fixture::new(device.clone(), 128, options());
    fixture.set(3, 1);
    device.hold(|operation, _, _| {
        if operation == DeviceOperation::Write {
            resume_unwind(Box::new("in the device"));
        }
        None
    });
    assert!(fixture.journal.commit_and_wait().is_err());
    device.release_all();
    // More than the cache holds.
    for block in USER_BLOCKS..USER_BLOCKS + 1900 {
        fixture.buffer(block);
    }
    assert_eq!(fixture.buffer(3).read()[9], 1);
    assert_eq!(fixture.home(3), 0);
}

/// Neither call may report success before the other knows the outcome.
#[test]
fn two_closes_at_once_have_one_outcome() {
    for is_failing in [false, true] {
        let device = Arc::new(Stepped::new(memory()));
        let fixture = Fixture::new(device.clone(), 128, options());
        let journal = &fixture.journal;
        fixture.set(3, 1);
        device.hold(|operation, _, _| (operation == DeviceOperation::Write).then_some(0));
        thread::scope(|scope| {
            let first = scope.spawn(|| journal.close());
            let held = device.wait();
            let second = scope.spawn(|| journal.close());
            // Time in which it could return too early.
            thread::sleep(Duration::from_millis(50));
            device.hold(|_, _, _| None);
            if is_failing {
                device.fail(held.number);
            } else {
                device.release(held.number);
            }
            let outcomes = [first.join().unwrap(), second.join().unwrap()];
            assert_eq!(outcomes.map(|outcome| outcome.is_err()), [is_failing; 2]);
        });
        assert_eq!(fixture.home(3), u8::from(!is_failing));
    }
}

/// Otherwise commits that free those blocks would wait forever.
#[test]
fn a_panic_while_blocks_are_written_home_aborts() {
    let device = Arc::new(Stepped::new(memory()));
    let fixture = Fixture::new(device.clone(), 128, options());
    fixture.set(3, 1);
    fixture.journal.commit_and_wait().unwrap();
    device.hold(|operation, offset, _| {
        let is_home = offset < USER_BLOCKS * BLOCK as u64;
        if operation == DeviceOperation::Write && is_home {
            resume_unwind(Box::new("in the device"));
        }
        None
    });
    let panicked = catch_unwind(AssertUnwindSafe(|| fixture.journal.checkpoint_all()));
    assert!(panicked.is_err());
    assert!(matches!(fixture.journal.start(1), Err(JournalError::Aborted(_))));
    device.release_all();
    let fixture = fixture.crash_and_recover();
    assert_eq!(fixture.home(3), 1);
}

const SUPERBLOCK: Range<u64> =
    (USER_BLOCKS + 1000) * BLOCK as u64..(USER_BLOCKS + 1001) * BLOCK as u64;
const LOG: Range<u64> = (USER_BLOCKS + 1001) * BLOCK as u64..(USER_BLOCKS + 2000) * BLOCK as u64;
const HOME: Range<u64> = 0..USER_BLOCKS * BLOCK as u64;

fn with_full(place: Range<u64>, wait: Duration) -> (Arc<Faulty<MemoryDevice>>, Fixture) {
    let device = Arc::new(Faulty::new(memory()));
    let options = options().full_medium_wait(wait);
    let fixture = Fixture::new(device.clone(), 128, options);
    fixture.set(3, 1);
    fixture.journal.commit_and_wait().unwrap();
    fixture.set(3, 2);
    device.inject(Fault::of(DeviceOperation::Write, Effect::NoSpace).in_range(place));
    (device, fixture)
}

#[test]
fn a_full_medium_is_waited_for() {
    for place in [LOG, HOME, SUPERBLOCK] {
        let (device, fixture) = with_full(place, Duration::from_secs(600));
        let journal = &fixture.journal;
        thread::scope(|scope| {
            let writing =
                scope.spawn(|| journal.commit_and_wait().and_then(|()| journal.checkpoint_all()));
            while device.failures() < 2 {
                thread::yield_now();
            }
            device.repair();
            writing.join().unwrap().unwrap();
        });
        fixture.set(4, 1);
        journal.commit_and_wait().unwrap();
        assert_eq!(fixture.home(3), 2);
    }
}

#[test]
fn without_a_log_a_full_medium_is_waited_for_too() {
    let device = Arc::new(Faulty::new(memory()));
    let cache = Arc::new(Cache::new(device.clone(), BLOCK, 512 * BLOCK));
    let options = options().full_medium_wait(Duration::from_secs(600));
    let journal = Journal::unlogged(cache.clone(), options).unwrap();
    let mut handle = journal.start(1).unwrap();
    handle.write(&cache.read(3).unwrap(), None).unwrap().fill(7);
    handle.stop().unwrap();
    device.inject(Fault::of(DeviceOperation::Write, Effect::NoSpace).in_range(HOME));
    thread::scope(|scope| {
        let writing = scope.spawn(|| journal.commit_and_wait());
        while device.failures() < 2 {
            thread::yield_now();
        }
        device.repair();
        writing.join().unwrap().unwrap();
    });
    let device: Arc<dyn BlockDevice> = device;
    assert_eq!(read_block(&device, 3)[0], 7);
}

#[test]
fn a_medium_that_stays_full_stops_the_journal() {
    for place in [LOG, HOME, SUPERBLOCK] {
        let (device, fixture) = with_full(place, Duration::from_millis(1));
        let journal = &fixture.journal;
        let written = journal.commit_and_wait().and_then(|()| journal.checkpoint_all());
        assert!(written.is_err());
        let error = journal.error();
        assert!(
            matches!(error, Some(JournalError::Device(DeviceError::NoSpace { .. }))),
            "{error:?}"
        );
        device.repair();
        assert!(journal.commit_and_wait().is_err());
        let fixture = fixture.crash_and_recover();
        assert!(fixture.home(3) >= 1);
    }
}
