//! The journal: its blocks, and recovery from any of them.

use crate::input::{BLOCK, Input};
use drystone_blockdev::{BlockDevice, MemoryDevice};
use drystone_jbd2::{JournalArea, JournalExtent, recover};
use drystone_jbd2_format::{
    BlockKind, Commit, DescriptorBuilder, FastCommitScan, Format, IncompatFeatures, NewJournal,
    RevokeBuilder, Superblock, TransactionChecksum, check_commit, check_descriptor, check_revoke,
    encode_commit, format_journal_superblock, kind_at,
};
use drystone_sync::Arc;

const BLOCKS: u32 = 64;
const FIRST: u64 = 32;

fn journal(incompat: IncompatFeatures) -> NewJournal {
    NewJournal {
        block_size_bytes: BLOCK as u32,
        length_blocks: BLOCKS,
        first_block: 1,
        uuid: [7; 16],
        users: Vec::new(),
        user_count: 1,
        incompat,
        fast_commit_blocks: 0,
    }
}

/// Superblock, descriptor, revoke and commit blocks of a journal.
pub fn journal_blocks(data: &[u8]) {
    let mut input = Input(data);
    let incompat = match input.u8() % 3 {
        0 => IncompatFeatures::empty(),
        1 => IncompatFeatures::WIDE,
        _ => IncompatFeatures::REVOKE,
    };
    let sound = format_journal_superblock(&journal(incompat));
    let bytes = input.change(&sound);
    if let Ok(superblock) = Superblock::check(&bytes) {
        let _ = (superblock.log(), superblock.fast_commit_area(), superblock.start());
        let _ = (superblock.users(), superblock.format().tags_per_descriptor());
        let again = superblock.to_bytes();
        assert!(Superblock::check(&again).is_ok());
    }
    let Ok(superblock) = Superblock::check(&sound) else { return };
    let format = superblock.format();
    for sound in blocks_of(&format) {
        let bytes = input.change(&sound);
        let Some(kind) = kind_at(&bytes, 1) else { continue };
        match kind {
            BlockKind::Descriptor => {
                if let Ok(tags) = check_descriptor(&format, &bytes, 1, 2) {
                    assert!(tags.count() <= BLOCK / 8);
                }
            }
            BlockKind::Revoke => {
                if let Ok(blocks) = check_revoke(&format, &bytes, 1, 2) {
                    assert!(blocks.count() <= BLOCK / 4);
                }
            }
            _ => drop(check_commit(&format, &bytes, 1, 2, &TransactionChecksum::new())),
        }
    }
    for area in [input.0, &bytes] {
        let mut scan = FastCommitScan::new(1);
        let _ = area.chunks(BLOCK).all(|block| scan.block(block));
        let _ = scan.finish();
    }
}

/// A descriptor, a revoke and a commit block of transaction 1.
fn blocks_of(format: &Format) -> [Box<[u8]>; 3] {
    let mut descriptor = DescriptorBuilder::new(format, 1);
    descriptor.push(3, false, 0);
    descriptor.push(4, true, 0);
    let mut revoke = RevokeBuilder::new(format, 1);
    revoke.push(5);
    let commit = Commit { seconds: 1, nanoseconds: 2 };
    let commit = encode_commit(format, 1, commit, &TransactionChecksum::new());
    [descriptor.finish(), revoke.finish(), commit]
}

/// Recovery from any log on a small device.
pub fn journal_recovery(data: &[u8]) {
    let mut input = Input(data);
    let sound = format_journal_superblock(&journal(IncompatFeatures::REVOKE));
    let Ok(mut superblock) = Superblock::check(&sound) else { return };
    superblock.set_log(Some(1), 1);
    let format = superblock.format();
    let device = MemoryDevice::new((FIRST + u64::from(BLOCKS)) * BLOCK as u64);
    let put = |block: u32, bytes: &[u8]| {
        let offset = (FIRST + u64::from(block)) * BLOCK as u64;
        let _ = device.write_at(offset, bytes);
    };
    let head = match input.u8() % 2 {
        0 => superblock.to_bytes().to_vec(),
        _ => input.change(&superblock.to_bytes()),
    };
    put(0, &head);
    let mut block = 1;
    let mut sequence = 1;
    // Two copies follow each descriptor.
    while block + 5 < BLOCKS && !input.is_empty() {
        let [descriptor, revoke, commit] = blocks_of_sequence(&format, sequence);
        put(block, &input.change(&descriptor));
        put(block + 1, &[sequence as u8; BLOCK]);
        put(block + 2, &[0; BLOCK]);
        put(block + 3, &input.change(&revoke));
        put(block + 4, &input.change(&commit));
        block += 5;
        sequence += 1;
    }
    let extent = JournalExtent { physical_start: FIRST, length_blocks: BLOCKS };
    let area = JournalArea::internal([extent]);
    let device: Arc<dyn BlockDevice> = Arc::new(device);
    if let Ok(recovery) = recover(&device, &area, BLOCK as u32, 0) {
        assert!(recovery.report.replayed_blocks <= u64::from(BLOCKS));
        // The log stays until the file system has replayed them.
        if recovery.fast_commits.is_none() {
            let again = recover(&device, &area, BLOCK as u32, 0);
            let transactions = again.map(|recovery| recovery.report.transactions);
            assert_eq!(transactions.ok(), Some(0), "recovered twice");
        }
    }
}

fn blocks_of_sequence(format: &Format, sequence: u32) -> [Box<[u8]>; 3] {
    blocks_of(format).map(|mut block| {
        block[8..12].copy_from_slice(&sequence.to_be_bytes());
        block
    })
}
