//! Logs of a checkpoint aren't flushed one by one on Linux: after a crash, the first may be torn and the last
//! whole. Such a checkpoint counts neither for a mount nor for the checker.
#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use drystone_blockdev::{BlockDevice, MemoryDevice};
use drystone_nilfs2::MountOptions;
use drystone_nilfs2_check::{Nilfs2CheckOptions, check};
use drystone_nilfs2_format::geometry::{
    SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET_BYTES, second_superblock_offset,
};
use drystone_nilfs2_format::superblock::Superblock;
use drystone_sync::Arc;
use drystone_vfs::FileSystem;
use std::time::Duration;
use support::churn::write_file;
use support::{image, mount};

const BLOCK_BYTES: u64 = 4096;
const BLOCKS_PER_SEGMENT: u64 = 16;

/// The superblocks of a device, with their places.
fn superblocks(device: &MemoryDevice) -> Vec<(u64, Vec<u8>)> {
    [SUPERBLOCK_OFFSET_BYTES, second_superblock_offset(device.size_bytes())]
        .map(|offset| {
            let mut bytes = vec![0; SUPERBLOCK_BYTES];
            device.read_at(offset, &mut bytes).unwrap();
            (offset, bytes)
        })
        .into()
}

#[test]
fn a_checkpoint_without_its_first_log_does_not_count() {
    let device = image(8, BLOCK_BYTES as u32, BLOCKS_PER_SEGMENT as u32);
    let options = MountOptions::default().commit_interval(Duration::from_secs(3600));
    let fs = mount(&device, &options);
    write_file(&fs, "small", b"small").unwrap();
    let before = fs.make_checkpoint().unwrap();
    fs.unmount().unwrap();
    let fs = mount(&device, &options);
    let known = superblocks(&device);
    write_file(&fs, "large", &[7; 400_000]).unwrap();
    fs.sync().unwrap();
    let after = Arc::new(MemoryDevice::from_bytes(&device.to_vec()));
    for (offset, bytes) in &known {
        after.write_at(*offset, bytes).unwrap();
    }
    let newest = |device: &MemoryDevice| {
        let report = check(device, &Nilfs2CheckOptions::default()).unwrap();
        report.summary.newest_checkpoint
    };
    assert_eq!(newest(&after), before + 1);

    // The first log lies behind the one that the superblock names, up to the end of the segment.
    let superblock = Superblock::check(&known[0].1, after.size_bytes()).unwrap();
    let block = superblock.cursor().block.0;
    let end = (block / BLOCKS_PER_SEGMENT + 1) * BLOCKS_PER_SEGMENT;
    after.write_at((end - 1) * BLOCK_BYTES, &[0xAA; 16]).unwrap();
    assert_eq!(newest(&after), before);
    let fs = mount(&after, &MountOptions::default().read_only(true));
    assert_eq!(fs.checkpoints().unwrap().last().unwrap().number, before);
}
