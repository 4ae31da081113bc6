//! After a truncation is durable, the bytes past the file's new end are cleared on the device: another
//! system that uses the image expects zeros there.
#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use drystone_blockdev::{BlockDevice, DeviceOperation, Effect, Fault, Faulty, MemoryDevice};
use drystone_ext4::{Ext4, MountOptions};
use drystone_sync::{Arc, thread};
use drystone_vfs::{FileSystem, InodeNumber, NewNode, RequestContext, SetAttributes};
use std::time::Duration;
use support::image_with;

const BLOCK: usize = 4096;
/// Where the files are cut.
const SIZE: usize = 100;

fn open(interval: Duration) -> (Arc<Faulty<MemoryDevice>>, Ext4) {
    let image = image_with(64, |options| options.block_size = Some(BLOCK as u32));
    let device = Arc::new(Faulty::new(image));
    let options = MountOptions::default().commit_interval(interval);
    let fs = Ext4::open(device.clone(), options).unwrap();
    (device, fs)
}

/// A durable file of one block of `byte`, and the block's offset on the device.
fn block_of(fs: &Ext4, name: &str, byte: u8) -> (InodeNumber, u64) {
    let me = RequestContext::superuser();
    let made = fs.create(&me, fs.root(), name.as_bytes(), NewNode::Regular, 0o644).unwrap();
    fs.write(&me, made.inode, 0, &[byte; BLOCK]).unwrap();
    fs.sync_inode(made.inode, false).unwrap();
    let extents = fs.extents(made.inode, 0, u64::MAX, 1).unwrap();
    (made.inode, extents[0].physical)
}

fn cut(fs: &Ext4, file: InodeNumber) {
    let size = SetAttributes { size: Some(SIZE as u64), ..SetAttributes::default() };
    fs.set_attributes(&RequestContext::superuser(), file, &size).unwrap();
}

fn is_cleared(device: &dyn BlockDevice, place: u64) -> bool {
    let mut block = [0; BLOCK];
    device.read_at(place, &mut block).unwrap();
    block[SIZE..].iter().all(|byte| *byte == 0)
}

#[test]
fn by_a_sync_of_the_file() {
    let (device, fs) = open(Duration::from_secs(3600));
    let (file, place) = block_of(&fs, "f", 7);
    cut(&fs, file);
    assert!(!is_cleared(&device, place), "a crash would leave the old size and cleared bytes");
    fs.sync_inode(file, true).unwrap();
    assert!(is_cleared(&device, place));
    fs.close().unwrap();
}

#[test]
fn after_the_commit_interval() {
    let (device, fs) = open(Duration::from_millis(20));
    let (file, place) = block_of(&fs, "f", 7);
    cut(&fs, file);
    for _ in 0..1000 {
        if is_cleared(&device, place) {
            return fs.close().unwrap();
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("the end was not cleared");
}

#[test]
fn by_the_next_sync_if_one_fails() {
    let (device, fs) = open(Duration::from_secs(3600));
    let files = [1, 2, 3].map(|byte| block_of(&fs, &byte.to_string(), byte));
    for (file, _) in files {
        cut(&fs, file);
    }
    let place = files[0].1;
    let fault = Fault::of(DeviceOperation::Write, Effect::InputOutputError);
    device.inject(fault.in_range(place..place + BLOCK as u64));
    assert!(fs.sync().is_err());
    device.repair();
    fs.sync().unwrap();
    for (_, place) in files {
        assert!(is_cleared(&device, place));
    }
    fs.close().unwrap();
}
