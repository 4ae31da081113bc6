//! Loading, sharing, eviction and the journal's door.
#![allow(clippy::unwrap_used)]

use drystone_blockdev::{
    BlockDevice, Delays, DeviceOperation, Effect, Fault, Faulty, MemoryDevice, Timed,
};
use drystone_cache::{BlockInOtherUse, BlockUse, Cache, JournalDoor, Seal};
use drystone_sync::atomic::{AtomicU64, Ordering};
use drystone_sync::{Arc, thread};
use std::time::Duration;

const BLOCK: usize = 512;

fn device(blocks: u64) -> Arc<MemoryDevice> {
    let device = MemoryDevice::new(blocks * BLOCK as u64);
    for block in 0..blocks {
        device.write_at(block * BLOCK as u64, &[block as u8; BLOCK]).unwrap();
    }
    Arc::new(device)
}

#[test]
fn many_threads_that_miss_a_block_read_it_once() {
    let delays = Delays::none().with(DeviceOperation::Read, Duration::from_millis(20));
    let timed = Arc::new(Timed::new(device(4), delays));
    let cache = Cache::new(timed.clone(), BLOCK, 64 * BLOCK);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| assert_eq!(cache.read(2).unwrap().read()[7], 2));
        }
    });
    let statistics = cache.statistics();
    assert_eq!((statistics.misses, statistics.hits), (1, 7));
    let reads = timed.statistics();
    let reads = reads.iter().find(|kind| kind.operation == DeviceOperation::Read).unwrap();
    assert_eq!(reads.count, 1);
}

#[test]
fn a_failed_read_is_told_to_all_and_tried_again() {
    let faulty = Arc::new(Faulty::new(device(4)));
    let cache = Cache::new(faulty.clone(), BLOCK, 64 * BLOCK);
    faulty.inject(Fault::of(DeviceOperation::Read, Effect::InputOutputError));
    assert!(cache.read(1).is_err());
    assert!(cache.read(1).is_err());
    faulty.repair();
    assert_eq!(cache.read(1).unwrap().read()[0], 1);
    assert!(cache.read(4).is_err(), "past the end");
    assert!(cache.read(u64::MAX).is_err(), "past all ends");
}

#[test]
fn the_budget_is_kept_but_for_buffers_in_use() {
    let cache = Cache::new(device(1000), BLOCK, 64 * BLOCK);
    let held: Vec<_> = (0..20).map(|block| cache.read(block).unwrap()).collect();
    for block in 20..1000 {
        assert_eq!(cache.read(block).unwrap().read()[0], block as u8);
    }
    let statistics = cache.statistics();
    assert!(statistics.cached_bytes <= 64 * BLOCK as u64, "{statistics:?}");
    assert!(statistics.evictions >= 1000 - 64);
    for buffer in &held {
        let cached = cache.peek(buffer.number()).expect("a buffer in use was dropped");
        assert!(Arc::ptr_eq(buffer, &cached));
    }
}

#[test]
fn a_freed_block_can_come_and_go() {
    let cache = Cache::new(device(8), BLOCK, 64 * BLOCK);
    for round in 0..1000 {
        let buffer = cache.zeroed(round % 8);
        assert!(buffer.is_verified());
        cache.invalidate(round % 8);
        assert!(cache.peek(round % 8).is_none());
    }
    assert_eq!(cache.statistics().cached_bytes, 0);
    assert_eq!(cache.read(5).unwrap().read()[0], 5);
}

#[derive(Debug, PartialEq)]
enum Refused {
    Damaged,
    InOtherUse(u64),
}

impl From<BlockInOtherUse> for Refused {
    fn from(BlockInOtherUse { block }: BlockInOtherUse) -> Self {
        Refused::InOtherUse(block)
    }
}

/// A block made in memory needs no check and takes the first use that is noted.
#[test]
fn a_block_that_was_made_here_has_one_use() {
    let cache = Cache::new(device(8), BLOCK, 64 * BLOCK);
    let (first, second) = (BlockUse::new(1), BlockUse::new(2));
    let buffer = cache.zeroed(1);
    let unchecked = |_: &[u8]| -> Result<(), Refused> { panic!("it was made here") };
    assert_eq!(buffer.check_once(first, unchecked), Ok(()));
    assert_eq!(buffer.check_once(second, unchecked), Err(Refused::InOtherUse(1)));
    buffer.note_use(second);
    assert_eq!(buffer.check_once(second, unchecked), Ok(()));
    assert_eq!(buffer.check_once(first, unchecked), Err(Refused::InOtherUse(1)));
}

#[test]
fn a_block_is_verified_once_for_each_load() {
    let cache = Cache::new(device(8), BLOCK, 64 * BLOCK);
    let buffer = cache.read(1).unwrap();
    let calls = AtomicU64::new(0);
    let usage = BlockUse::new(1);
    let check = |result: Result<(), Refused>| {
        buffer.check_once(usage, |bytes| {
            assert_eq!(bytes[0], 1);
            calls.fetch_add(1, Ordering::Relaxed);
            result
        })
    };
    assert_eq!(check(Err(Refused::Damaged)), Err(Refused::Damaged));
    assert_eq!(check(Ok(())), Ok(()));
    assert_eq!(check(Err(Refused::Damaged)), Ok(()));
    assert_eq!(calls.load(Ordering::Relaxed), 2);
    let other = BlockUse::new(2);
    assert_eq!(buffer.check_once(other, |_| Ok(())), Err(Refused::InOtherUse(1)));
    cache.invalidate(1);
    assert!(!cache.read(1).unwrap().is_verified());
}

/// A thread waits for the buffer to check it. Meanwhile another one has checked it, and changes it.
#[test]
fn a_check_sees_no_change_that_came_after_another_check() {
    let cache = Cache::new(device(8), BLOCK, 64 * BLOCK);
    let buffer = cache.read(1).unwrap();
    let usage = BlockUse::new(1);
    let check = |bytes: &[u8]| if bytes[0] == 1 { Ok(()) } else { Err(Refused::Damaged) };
    let door = JournalDoor::to(&buffer);
    door.join(5, None);
    thread::scope(|scope| {
        let mut writer = door.write(None);
        let waiting = scope.spawn(|| buffer.check_once(usage, check));
        // Long enough for it to wait; if it comes later, it finds the block checked.
        thread::sleep(Duration::from_millis(50));
        buffer.note_use(usage);
        writer[0] = 99;
        drop(writer);
        assert_eq!(waiting.join().unwrap(), Ok(()));
    });
}

/// Writes the last byte.
struct Last(u8);

impl Seal for Last {
    fn seal(&self, _: u64, bytes: &mut [u8], _: u64) {
        bytes[BLOCK - 1] = self.0;
    }
}

/// Writes the noted parts into the last bytes.
struct Parts;

impl Seal for Parts {
    fn seal(&self, _: u64, bytes: &mut [u8], parts: u64) {
        bytes[BLOCK - 8..].copy_from_slice(&parts.to_le_bytes());
    }
}

#[test]
fn a_seal_is_told_what_was_noted() {
    let cache = Cache::new(device(8), BLOCK, 64 * BLOCK);
    let buffer = cache.read(1).unwrap();
    let seal: Arc<dyn Seal> = Arc::new(Parts);
    let door = JournalDoor::to(&buffer);
    door.join(5, Some(&seal));
    door.write(None).note_unfinished(0);
    door.write(None).note_unfinished(63);
    assert!(buffer.read().is_unfinished(63) && !buffer.read().is_unfinished(1));
    let parts = |frozen: &[u8]| frozen[BLOCK - 8..].try_into().map(u64::from_le_bytes).unwrap();
    assert_eq!(parts(&door.freeze(5).unwrap()), 1 << 63 | 1);
    assert!(!buffer.read().is_unfinished(63));
    door.join(6, None);
    door.write(None).note_unfinished(2);
    // Frozen when the next transaction asks for the buffer.
    door.join(7, None);
    assert!(!buffer.read().is_unfinished(2));
    assert_eq!(parts(&door.freeze(6).unwrap()), 1 << 2);
    door.write(None).note_unfinished(3);
    drop(door.create(7, Some(&seal)));
    assert_eq!(parts(&door.freeze(7).unwrap()), 0, "what was noted is gone");
}

#[test]
fn the_next_transaction_freezes_the_one_before() {
    let cache = Cache::new(device(8), BLOCK, 64 * BLOCK);
    let buffer = cache.read(1).unwrap();
    let seal: Arc<dyn Seal> = Arc::new(Last(77));
    let door = JournalDoor::to(&buffer);
    assert!(door.join(5, Some(&seal)));
    assert!(!door.join(5, None));
    assert!(door.is_joined(5));
    door.write(None)[0] = 50;
    assert!(door.join(6, None));
    door.write(None)[0] = 60;
    let frozen = door.freeze(5).unwrap();
    assert_eq!((frozen[0], frozen[BLOCK - 1]), (50, 77));
    assert!(door.freeze(5).is_none());
    let frozen = door.freeze(6).unwrap();
    assert_eq!((frozen[0], frozen[BLOCK - 1]), (60, 77));
    // The commit still has its clone: the next writer copies.
    assert!(door.join(7, None));
    door.write(None)[0] = 70;
    assert_eq!(frozen[0], 60);
    door.leave(7);
    assert!(door.freeze(7).is_none());
}
