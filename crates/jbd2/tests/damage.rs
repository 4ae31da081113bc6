//! Which damage in the log is an error, and what a crash may leave.
#![allow(clippy::unwrap_used)]

mod common;

use common::{BLOCK, Fixture, USER_BLOCKS, area, memory, options, read_block};
use drystone_blockdev::{BlockDevice, DeviceOperation, Effect, Fault, Faulty};
use drystone_jbd2::{JournalError, needs_recovery, recover};
use drystone_jbd2_format::{
    Commit, CompatFeatures, Format, IncompatFeatures, MAGIC, Superblock, TransactionChecksum,
    encode_commit,
};
use drystone_sync::Arc;

const DESCRIPTOR: u32 = 1;
const COMMIT: u32 = 2;
/// Offsets of the checksum in a commit block, and of the highest byte of its seconds that isn't
/// zero.
const COMMIT_CHECKSUM: u64 = 0x10;
const COMMIT_SECONDS: u64 = 0x34;
const SUPERBLOCK: u64 = (USER_BLOCKS + 1000) * BLOCK as u64;

type Device = Arc<dyn BlockDevice>;

/// A log of five transactions, each with a copy of block 3, the last of which is at home already.
fn five_transactions() -> Device {
    let fixture = Fixture::simple();
    for value in 1..=5 {
        fixture.set(3, value);
        fixture.journal.commit_and_wait().unwrap();
    }
    let device = fixture.crash();
    device.write_at(3 * BLOCK as u64, &[5; BLOCK]).unwrap();
    device
}

/// The journal block of this kind that belongs to a transaction.
fn find(device: &Device, kind: u32, sequence: u32) -> u64 {
    let header: Vec<u8> = [MAGIC, kind, sequence].into_iter().flat_map(u32::to_be_bytes).collect();
    let blocks = device.size_bytes() / BLOCK as u64;
    (0..blocks).find(|block| read_block(device, *block).starts_with(&header)).unwrap()
}

/// Flips bits of a byte in such a block.
fn damage(device: &Device, (kind, sequence, offset): (u32, u32, u64)) {
    let place = find(device, kind, sequence) * BLOCK as u64 + offset;
    let mut byte = [0];
    device.read_at(place, &mut byte).unwrap();
    device.write_at(place, &[byte[0] & 0x0f ^ 0x01]).unwrap();
}

fn transactions(device: &Device, made_seconds: u64) -> u64 {
    recover(device, &area(128), BLOCK as u32, made_seconds).unwrap().report.transactions
}

fn superblock(device: &Device) -> Superblock {
    let mut bytes = [0; BLOCK];
    device.read_at(SUPERBLOCK, &mut bytes).unwrap();
    Superblock::check(&bytes).unwrap()
}

/// Older copies would go over what is at home, and later transactions would be forgotten.
#[test]
fn damage_to_a_complete_transaction_is_an_error() {
    for damaged in [
        (DESCRIPTOR, 1, 30),
        (DESCRIPTOR, 2, 30),
        (DESCRIPTOR, 5, 30),
        (COMMIT, 1, COMMIT_CHECKSUM),
        (COMMIT, 2, COMMIT_CHECKSUM),
        (COMMIT, 5, COMMIT_CHECKSUM),
        // It looks like a leftover, but the next transaction follows.
        (COMMIT, 2, COMMIT_SECONDS),
    ] {
        let device = five_transactions();
        damage(&device, damaged);
        let outcome = recover(&device, &area(128), BLOCK as u32, 0);
        assert!(matches!(outcome, Err(JournalError::Corrupt(_))), "{damaged:?}: {outcome:?}");
        assert_eq!(read_block(&device, 3)[9], 5, "{damaged:?}");
        assert!(needs_recovery(&device, &area(128), BLOCK as u32).unwrap(), "{damaged:?}");
    }
}

#[test]
fn a_torn_descriptor_without_its_commit_block_ends_the_log() {
    let device = five_transactions();
    damage(&device, (DESCRIPTOR, 4, 30));
    // What follows a crash is a leftover from an earlier round, or nothing.
    for sequence in [4, 5] {
        device.write_at(find(&device, COMMIT, sequence) * BLOCK as u64, &[0; 12]).unwrap();
    }
    assert_eq!(transactions(&device, 0), 3);
}

/// A journal may be made over an older one without being cleared: a crash before a commit block
/// leaves what was there before.
#[test]
fn a_commit_block_of_an_earlier_journal_ends_the_log() {
    // Not earlier than a previous transaction or the journal itself.
    for (sequence, made_seconds) in [(4, 0), (1, 1000)] {
        let device = five_transactions();
        let format = Format::new(
            BLOCK as u32,
            [8; 16],
            CompatFeatures::empty(),
            IncompatFeatures::CHECKSUM_V3,
        );
        for later in sequence..=5 {
            let commit = Commit { seconds: 999, nanoseconds: 0 };
            let block = encode_commit(&format, later, commit, &TransactionChecksum::new());
            device.write_at(find(&device, COMMIT, later) * BLOCK as u64, &block).unwrap();
        }
        assert_eq!(transactions(&device, made_seconds), u64::from(sequence) - 1);
    }
}

/// Then a commit block says nothing about its transaction's blocks.
#[test]
fn with_asynchronous_commits_damage_ends_the_log() {
    for damaged in [(DESCRIPTOR, 4, 30), (COMMIT, 4, COMMIT_CHECKSUM)] {
        let device = five_transactions();
        let mut superblock = superblock(&device);
        let (start, sequence) = (superblock.start(), superblock.sequence());
        superblock.set_log(None, sequence);
        let incompat = superblock.incompat() | IncompatFeatures::ASYNC_COMMIT;
        superblock.set_features(superblock.compat(), incompat);
        superblock.set_log(start, sequence);
        device.write_at(SUPERBLOCK, &superblock.to_bytes()).unwrap();
        damage(&device, damaged);
        assert_eq!(transactions(&device, 0), 3, "{damaged:?}");
    }
}

/// Nothing is written before the whole log has been read.
#[test]
fn a_copy_that_cannot_be_read_leaves_all_as_it_was() {
    for checksums in [false, true] {
        let device = Arc::new(Faulty::new(memory()));
        let options = options().checksums(checksums);
        let fixture = Fixture::new(device.clone(), 128, options);
        // Up to the end of the journal's first piece; the next piece is read separately.
        for value in 1..=13 {
            fixture.set(5, value);
            fixture.journal.commit_and_wait().unwrap();
        }
        for block in [3, 10, 20] {
            fixture.set(block, block as u8);
        }
        fixture.journal.commit_and_wait().unwrap();
        let last = fixture.crash();
        let copy = (USER_BLOCKS..).find(|block| read_block(&last, *block) == [20; BLOCK]).unwrap();
        let place = copy * BLOCK as u64..(copy + 1) * BLOCK as u64;
        device.inject(Fault::of(DeviceOperation::Read, Effect::InputOutputError).in_range(place));
        assert!(recover(&last, &area(128), BLOCK as u32, 0).is_err());
        device.repair();
        assert_eq!([3, 10, 20].map(|block| read_block(&last, block)[9]), [0; 3]);
        assert_eq!(transactions(&last, 0), 14);
        assert_eq!([3, 10, 20].map(|block| read_block(&last, block)[9]), [3, 10, 20]);
    }
}

/// The log is read many blocks at a time, and what is behind its end is of no use.
#[test]
fn only_blocks_of_the_log_have_to_be_readable() {
    for checksums in [false, true] {
        let device = Arc::new(Faulty::new(memory()));
        let fixture = Fixture::new(device.clone(), 128, options().checksums(checksums));
        for value in 1..=4 {
            fixture.set(5, value);
            fixture.journal.commit_and_wait().unwrap();
        }
        let last = fixture.crash();
        let is_commit =
            |block: &u64| read_block(&last, *block)[..8] == [0xc0, 0x3b, 0x39, 0x98, 0, 0, 0, 2];
        let commit = (USER_BLOCKS..USER_BLOCKS + 2000).rev().find(is_commit).unwrap();
        for (block, can_recover) in [(commit + 1, false), (commit + 2, true)] {
            let place = block * BLOCK as u64..(block + 1) * BLOCK as u64;
            device
                .inject(Fault::of(DeviceOperation::Read, Effect::InputOutputError).in_range(place));
            let recovered = recover(&last, &area(128), BLOCK as u32, 0);
            assert_eq!(recovered.is_ok(), can_recover, "{recovered:?}");
            device.repair();
        }
        assert_eq!(read_block(&last, 5)[9], 4);
    }
}
