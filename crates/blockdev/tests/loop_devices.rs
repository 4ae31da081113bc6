//! A file behind a loop device that is in use isn't written, whatever has become of its name.
#![cfg(not(loom))]
#![allow(clippy::unwrap_used, reason = "a test")]

use drystone_blockdev::{DeviceError, FileDevice, KernelUse, OpenMode};
use drystone_testkit::judges::{LoopDevice, Scratch};
use std::fs::{self, File};
use std::os::unix::fs::OpenOptionsExt;

/// Opens it as a mount does.
fn claim(device: &LoopDevice) -> File {
    let exclusive = rustix::fs::OFlags::EXCL.bits() as i32;
    File::options().read(true).custom_flags(exclusive).open(&device.0).unwrap()
}

#[test]
fn a_file_without_its_name_is_found_by_its_loop_device() {
    let scratch = Scratch::new("loop-without-name").unwrap();
    let [path, link, other] = ["c.img", "d.img", "other.img"].map(|name| scratch.join(name));
    for path in [&path, &other] {
        File::create(path).unwrap().set_len(1 << 20).unwrap();
    }
    fs::hard_link(&path, &link).unwrap();
    let Some(device) = LoopDevice::attach(&path, "a loop device").unwrap() else { return };
    let claimed = claim(&device);
    fs::remove_file(&path).unwrap();
    // Another file of that size gets the name.
    fs::rename(&other, &path).unwrap();
    match FileDevice::open(&link, OpenMode::ReadWrite) {
        Err(DeviceError::InUseByKernel { usage, .. }) => {
            assert_eq!(usage, KernelUse::LoopDevice(device.0.clone()));
        }
        other => panic!("{other:?}"),
    }
    FileDevice::open(&path, OpenMode::ReadWrite).unwrap();
    drop(claimed);
    FileDevice::open(&link, OpenMode::ReadWrite).unwrap();
}
