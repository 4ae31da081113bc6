//! Superblocks, whole and damaged.

use super::*;

const DEVICE_BYTES: u64 = 64 << 20;

fn superblock() -> Superblock {
    let geometry = Geometry::new(1024, 256, 250, 5, DEVICE_BYTES).unwrap();
    let mut superblock = Superblock::create(&NewVolume {
        geometry,
        seed: 0x1234_5678,
        uuid: Uuid::from_u128(7),
        label: [b'x'; LABEL_BYTES],
        created_s: 1000,
    });
    superblock.set_cursor(LogCursor {
        checkpoint: CheckpointNumber(1),
        block: PhysicalBlock(4),
        sequence: 0,
    });
    superblock
}

#[test]
fn what_is_written_is_read() {
    let bytes = superblock().encode();
    let read = Superblock::check(&bytes, DEVICE_BYTES).unwrap();
    assert_eq!(read.encode(), bytes);
    assert_eq!(read.cursor().block, PhysicalBlock(4));
    assert_eq!(read.label(), [b'x'; LABEL_BYTES]);
}

#[test]
fn every_damaged_byte_is_found() {
    let bytes = superblock().encode();
    for position in 0..SUMMED_BYTES {
        let mut damaged = bytes;
        damaged[position] ^= 0x55;
        assert!(Superblock::check(&damaged, DEVICE_BYTES).is_err(), "byte {position}");
    }
    for length in 0..SUPERBLOCK_BYTES {
        assert!(Superblock::check(&bytes[..length], DEVICE_BYTES).is_err());
    }
    assert!(Superblock::check(&bytes, DEVICE_BYTES - 1).is_err());
}
