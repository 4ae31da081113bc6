//! A forked child has a copy of a device, and leaves its parent's locks alone.
#![cfg(not(loom))]
#![allow(clippy::unwrap_used, reason = "a test")]

use drystone_blockdev::{BlockDevice, DeviceError, Existing, FileDevice, OpenMode};
use drystone_testkit::forked::in_child;

#[test]
fn a_device_that_a_child_drops_stays_locked() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    let device = FileDevice::create(&path, 1 << 20, Existing::Refuse).unwrap();
    let second = folder.path().join("second");
    FileDevice::create(&second, 1 << 20, Existing::Refuse).unwrap();
    let mut held = Some(FileDevice::open_part(&second, OpenMode::ReadWrite, 0..65536).unwrap());
    let mut copy = Some(device);
    in_child(|| {
        drop(copy.take());
        drop(held.take());
        // What a child has opened is its own.
        let third = folder.path().join("third");
        drop(FileDevice::create(&third, 4096, Existing::Refuse).unwrap());
        FileDevice::open(&third, OpenMode::ReadWrite).unwrap();
    })
    .unwrap();
    let refused = FileDevice::open(&path, OpenMode::ReadWrite);
    assert!(matches!(refused, Err(DeviceError::InUse { .. })), "{refused:?}");
    let refused = FileDevice::open_part(&second, OpenMode::ReadWrite, 0..4096);
    assert!(matches!(refused, Err(DeviceError::InUse { .. })), "{refused:?}");
    copy.as_ref().unwrap().write_at(0, &[1; 512]).unwrap();
    drop((copy, held));
    FileDevice::open(&path, OpenMode::ReadWrite).unwrap();
    FileDevice::open(&second, OpenMode::ReadWrite).unwrap();
}
