//! Logs of a checkpoint aren't flushed one by one on Linux: after a crash, the first may be torn and the last
//! whole. Such a checkpoint counts neither for a mount nor for the checker, and no later log completes it.
#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use drystone_blockdev::{BlockDevice, MemoryDevice, Recording};
use drystone_nilfs2::{MountOptions, Nilfs2};
use drystone_nilfs2_check::{Nilfs2CheckOptions, check};
use drystone_nilfs2_format::geometry::{
    SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET_BYTES, second_superblock_offset,
};
use drystone_nilfs2_format::superblock::Superblock;
use drystone_sync::Arc;
use drystone_vfs::{FileSystem, RequestContext};
use std::time::Duration;
use support::churn::write_file;
use support::{image, judge, mount};

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

fn newest(device: &dyn BlockDevice) -> u64 {
    check(device, &Nilfs2CheckOptions::default()).unwrap().summary.newest_checkpoint
}

/// A volume without the first of the logs of its newest checkpoint, which made the file `large`. Also returns the
/// number of the checkpoint before.
fn torn() -> (Arc<MemoryDevice>, u64) {
    let device = image(8, BLOCK_BYTES as u32, BLOCKS_PER_SEGMENT as u32);
    let options = options();
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
    assert_eq!(newest(&*after), before + 1);

    // The first log lies after the one that the superblock names, up to the end of the segment.
    let superblock = Superblock::check(&known[0].1, after.size_bytes()).unwrap();
    let block = superblock.cursor().block.0;
    let end = (block / BLOCKS_PER_SEGMENT + 1) * BLOCKS_PER_SEGMENT;
    after.write_at((end - 1) * BLOCK_BYTES, &[0xAA; 16]).unwrap();
    (after, before)
}

fn options() -> MountOptions {
    MountOptions::default().commit_interval(Duration::from_secs(3600))
}

#[test]
fn a_checkpoint_without_its_first_log_does_not_count() {
    let (device, before) = torn();
    assert_eq!(newest(&*device), before);
    let fs = mount(&device, &MountOptions::default().read_only(true));
    assert_eq!(fs.checkpoints().unwrap().last().unwrap().number, before);
}

/// The next checkpoint has the same number, and its first log may be durable before the others.
#[test]
fn a_torn_checkpoint_is_not_completed_by_another_one() {
    let (device, before) = torn();
    let recording = Arc::new(Recording::new(device.snapshot()));
    let fs = Nilfs2::mount(Arc::clone(&recording) as Arc<dyn BlockDevice>, &options()).unwrap();
    write_file(&fs, "other", &[8; 400_000]).unwrap();
    fs.sync().unwrap();
    let context = RequestContext::superuser();
    for event in recording.events() {
        event.kind.apply(&*device).unwrap();
        let what = format!("after event {}", event.sequence);
        judge(&*device, &what);
        let fs = mount(&device, &MountOptions::default().read_only(true));
        assert!(fs.lookup(&context, fs.root(), b"large").is_err(), "{what}");
        // Both files have the same number.
        if let Ok(other) = fs.lookup(&context, fs.root(), b"other") {
            let mut bytes = vec![0; 400_000];
            fs.read(other.inode, 0, &mut bytes).unwrap();
            let wrong = bytes.iter().filter(|byte| **byte != 8).count();
            assert_eq!(wrong, 0, "{what}: bytes of a file that isn't there");
        }
    }
    let fs = mount(&device, &MountOptions::default().read_only(true));
    assert!(fs.lookup(&context, fs.root(), b"other").is_ok());
    assert_eq!(newest(&*device), fs.checkpoints().unwrap().last().unwrap().number);
    assert!(newest(&*device) > before);
}
