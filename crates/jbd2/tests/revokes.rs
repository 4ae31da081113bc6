//! Metadata blocks that are freed and reused.

#![allow(clippy::unwrap_used)]

mod common;

use common::{BLOCK, Fixture, USER_BLOCKS, area, memory, options, read_block};
use drystone_blockdev::{BlockDevice, DeviceOperation, MemoryDevice, Stepped};
use drystone_jbd2::{CommitListener, JournalError, recover};
use drystone_jbd2_format::MAGIC;
use drystone_sync::{Arc, thread};

#[test]
fn a_revoked_block_keeps_its_new_content() {
    let fixture = Fixture::simple();
    fixture.set(3, 5);
    fixture.journal.commit_and_wait().unwrap();
    let mut handle = fixture.journal.start(1).unwrap();
    handle.forget(3).unwrap();
    handle.stop().unwrap();
    fixture.journal.commit_and_wait().unwrap();
    // Reused as data, behind the journal's back.
    fixture.device.write_at(3 * BLOCK as u64, &[8; BLOCK]).unwrap();
    fixture.set(4, 1);
    fixture.journal.commit_and_wait().unwrap();
    fixture.journal.checkpoint_all().unwrap();
    assert_eq!(fixture.home(3), 8, "a checkpoint overwrote a reused block");
    fixture.set(4, 2);
    fixture.journal.commit_and_wait().unwrap();
    let fixture = fixture.crash_and_recover();
    assert_eq!((fixture.home(3), fixture.home(4)), (8, 2));
}

#[test]
fn a_revoked_block_is_not_replayed() {
    let fixture = Fixture::simple();
    fixture.set(3, 5);
    fixture.journal.commit_and_wait().unwrap();
    let mut handle = fixture.journal.start(1).unwrap();
    handle.forget(3).unwrap();
    handle.stop().unwrap();
    fixture.journal.commit_and_wait().unwrap();
    fixture.device.write_at(3 * BLOCK as u64, &[8; BLOCK]).unwrap();
    let device = fixture.crash();
    let report = recover(&device, &area(128), BLOCK as u32, 0).unwrap().report;
    assert_eq!((report.transactions, report.revoked_blocks, report.replayed_blocks), (2, 1, 0));
    assert_eq!(read_block(&device, 3)[9], 8);
}

#[test]
fn a_block_revoked_and_created_in_one_transaction_is_replayed() {
    let fixture = Fixture::simple();
    fixture.set(3, 5);
    fixture.journal.commit_and_wait().unwrap();
    let mut handle = fixture.journal.start(2).unwrap();
    handle.forget(3).unwrap();
    handle.create(&fixture.cache.zeroed(3), None).unwrap()[9] = 6;
    handle.stop().unwrap();
    fixture.journal.commit_and_wait().unwrap();
    let fixture = fixture.crash_and_recover();
    assert_eq!(read_block(&fixture.device, 3)[8..11], [0, 6, 0]);
}

#[test]
fn a_block_created_after_its_revoke_is_replayed() {
    let fixture = Fixture::simple();
    fixture.set(3, 5);
    let mut handle = fixture.journal.start(1).unwrap();
    handle.forget(3).unwrap();
    handle.stop().unwrap();
    fixture.journal.commit_and_wait().unwrap();
    let mut handle = fixture.journal.start(1).unwrap();
    handle.create(&fixture.cache.zeroed(3), None).unwrap()[9] = 6;
    handle.stop().unwrap();
    fixture.journal.commit_and_wait().unwrap();
    let fixture = fixture.crash_and_recover();
    assert_eq!(fixture.home(3), 6);
}

/// What it revokes isn't known, so the copies can't be replayed and the transaction can't be left
/// out.
#[test]
fn a_damaged_revoke_block_of_a_complete_transaction_is_an_error() {
    let fixture = Fixture::simple();
    fixture.set(3, 5);
    fixture.journal.commit_and_wait().unwrap();
    let mut handle = fixture.journal.start(2).unwrap();
    handle.forget(3).unwrap();
    handle.write(&fixture.buffer(4), None).unwrap().fill(6);
    handle.stop().unwrap();
    fixture.journal.commit_and_wait().unwrap();
    let device = fixture.crash();
    let blocks = device.size_bytes() / BLOCK as u64;
    let is_revoke = |block: &u64| {
        let bytes = read_block(&device, *block);
        bytes[..4] == MAGIC.to_be_bytes() && bytes[4..8] == 5_u32.to_be_bytes()
    };
    let revoke = (0..blocks).find(is_revoke).unwrap();
    device.write_at(revoke * BLOCK as u64 + 20, &[9]).unwrap();
    let outcome = recover(&device, &area(128), BLOCK as u32, 0);
    assert!(matches!(outcome, Err(JournalError::Corrupt(_))), "{outcome:?}");
    assert_eq!((read_block(&device, 3)[9], read_block(&device, 4)[9]), (0, 0));
}

/// Uses block 3 for data as soon as that is allowed.
struct Reuse {
    device: Arc<Stepped<MemoryDevice>>,
    freed: u64,
}

impl CommitListener for Reuse {
    fn committed(&self, tid: u64) {
        if tid == self.freed {
            self.device.inner().write_at(3 * BLOCK as u64, &[8; BLOCK]).unwrap();
        }
    }
}

/// A checkpoint has begun to write an old copy home when the block is changed, freed and reused.
#[test]
fn a_copy_on_its_way_home_does_not_land_on_a_reused_block() {
    let device = Arc::new(Stepped::new(memory()));
    let fixture = Fixture::new(device.clone(), 128, options());
    let journal = &fixture.journal;
    let first = fixture.set(3, 5);
    journal.commit_and_wait().unwrap();
    journal.add_listener(Arc::new(Reuse { device: device.clone(), freed: first + 2 }));
    let home = 3 * BLOCK as u64;
    device.hold(move |operation, offset, _| {
        (operation == DeviceOperation::Write && offset == home).then_some(0)
    });
    thread::scope(|scope| {
        let checkpoint = scope.spawn(|| journal.checkpoint_all());
        let held = device.wait();
        fixture.set(3, 6);
        journal.commit_and_wait().unwrap();
        let mut handle = journal.start(1).unwrap();
        handle.forget(3).unwrap();
        let freed = handle.tid();
        handle.stop().unwrap();
        journal.force_commit(freed);
        while journal.statistics().revoke_waits == 0 && !journal.is_committed(freed) {
            thread::yield_now();
        }
        device.release(held.number);
        checkpoint.join().unwrap().unwrap();
        journal.wait(freed).unwrap();
    });
    assert_eq!(fixture.home(3), 8, "a checkpoint overwrote a reused block");
    let fixture = fixture.crash_and_recover();
    assert_eq!(fixture.home(3), 8);
}

/// As in Linux, a damaged copy of a block that isn't replayed doesn't matter.
#[test]
fn a_damaged_copy_counts_only_if_it_is_not_revoked() {
    for is_revoked in [false, true] {
        let options = options().checksums(true);
        let fixture = Fixture::new(Arc::new(memory()), 128, options);
        fixture.set(3, 5);
        fixture.journal.commit_and_wait().unwrap();
        if is_revoked {
            let mut handle = fixture.journal.start(1).unwrap();
            handle.forget(3).unwrap();
            handle.stop().unwrap();
        }
        fixture.set(4, 6);
        fixture.journal.commit_and_wait().unwrap();
        let device = fixture.crash();
        let is_copy = |block: &u64| read_block(&device, *block) == [5; BLOCK];
        let copy = (USER_BLOCKS..USER_BLOCKS + 2000).find(is_copy).unwrap();
        device.write_at(copy * BLOCK as u64 + 100, &[1]).unwrap();
        let recovered = recover(&device, &area(128), BLOCK as u32, 0);
        assert_eq!(recovered.is_ok(), is_revoked, "{recovered:?}");
        assert_eq!(
            read_block(&device, 4)[9] == 6,
            is_revoked,
            "nothing of a damaged log is replayed"
        );
    }
}
