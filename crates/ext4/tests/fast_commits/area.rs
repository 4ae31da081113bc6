//! The area of fast commits in an image: finding, filling and emptying it.

use drystone_blockdev::{BlockDevice, MemoryDevice};
use drystone_ext4_format::superblock::{SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET_BYTES, Superblock};
use drystone_jbd2::{FastCommit, encode_fast_commits};
use drystone_ondisk::crc32c;

/// Offsets in the journal's superblock, which is big-endian.
const LENGTH: usize = 0x10;
const SEQUENCE: usize = 0x18;
const START: usize = 0x1c;
const INCOMPAT: usize = 0x28;
const AREA_BLOCKS: usize = 0x54;
const CHECKSUM: usize = 0xfc;
const JOURNAL_BYTES: usize = 1024;

const CHECKSUM_V3: u32 = 0x10;
const FAST_COMMIT: u32 = 0x20;
const AREA_BLOCKS_DEFAULT: u64 = 256;
/// The number of the transaction after the last full commit.
const TRANSACTION: u32 = 1000;

/// The start of a journal: its magic number, and the type of a superblock of version 2.
const JOURNAL_START: [u8; 8] = [0xc0, 0x3b, 0x39, 0x98, 0, 0, 0, 4];

pub fn superblock(device: &dyn BlockDevice) -> Superblock {
    let mut bytes = [0; SUPERBLOCK_BYTES];
    device.read_at(SUPERBLOCK_OFFSET_BYTES, &mut bytes).unwrap();
    Superblock::check(&bytes).unwrap()
}

/// The offset of the journal's superblock, and its bytes. The journal lies in one piece.
fn journal(device: &dyn BlockDevice) -> (u64, [u8; JOURNAL_BYTES]) {
    let block_size = superblock(device).layout().block_size() as u64;
    let mut bytes = [0; JOURNAL_BYTES];
    for block in 0..device.size_bytes() / block_size {
        device.read_at(block * block_size, &mut bytes).unwrap();
        if bytes.starts_with(&JOURNAL_START) {
            return (block * block_size, bytes);
        }
    }
    panic!("the image has no journal")
}

fn number(bytes: &[u8], place: usize) -> u32 {
    u32::from_be_bytes(bytes[place..place + 4].try_into().unwrap())
}

/// Where the area begins, in bytes.
fn start(device: &dyn BlockDevice) -> u64 {
    let block_size = superblock(device).layout().block_size() as u64;
    let (place, bytes) = journal(device);
    let blocks = match number(&bytes, AREA_BLOCKS) {
        0 => AREA_BLOCKS_DEFAULT,
        blocks => u64::from(blocks),
    };
    // Linux leaves one block in front of it unused.
    place + (u64::from(number(&bytes, LENGTH)) - blocks + 1) * block_size
}

/// Removes all fast commits, wherever the area is: they begin with the tag and the length of a head, and
/// no features.
pub fn empty(device: &MemoryDevice) {
    let block_size = superblock(device).layout().block_size() as u64;
    let mut bytes = [0; 8];
    for block in 0..device.size_bytes() / block_size {
        device.read_at(block * block_size, &mut bytes).unwrap();
        if bytes == [9, 0, 8, 0, 0, 0, 0, 0] {
            device.write_at(block * block_size, &[0; 8]).unwrap();
        }
    }
}

/// Changes a closed image into one that a crash left after a full commit and these fast commits.
pub fn fill(device: &MemoryDevice, commits: &[FastCommit]) {
    let (place, mut bytes) = journal(device);
    let mut put = |place: usize, number: u32| {
        bytes[place..place + 4].copy_from_slice(&number.to_be_bytes());
    };
    put(SEQUENCE, TRANSACTION);
    put(START, 1);
    put(INCOMPAT, CHECKSUM_V3 | FAST_COMMIT | 0x3);
    put(AREA_BLOCKS, 64);
    put(0x50, 0x0400_0000);
    put(CHECKSUM, 0);
    let checksum = crc32c(!0, &bytes);
    bytes[CHECKSUM..CHECKSUM + 4].copy_from_slice(&checksum.to_be_bytes());
    device.write_at(place, &bytes).unwrap();
    let mut superblock = superblock(device);
    superblock.set_needs_recovery(true);
    device.write_at(SUPERBLOCK_OFFSET_BYTES, &superblock.encode()).unwrap();
    let block_size = superblock.layout().block_size();
    let area = encode_fast_commits(commits, TRANSACTION, block_size);
    assert!(area.len() < 63 * block_size, "the fast commits don't fit");
    device.write_at(start(device), &area).unwrap();
}
