//! A file behind a loop device that is in use isn't written, whatever has become of its name.
#![cfg(not(loom))]
#![allow(clippy::unwrap_used, reason = "a test")]

use drystone_blockdev::{DeviceError, FileDevice, KernelUse, OpenMode};
use drystone_testkit::judges::{Scratch, run};
use drystone_testkit::skip::{Prerequisite, is_root, skip};
use std::fs::{self, File};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// An attached loop device, until dropped.
struct Loop(PathBuf);

impl Loop {
    /// Nothing, after a note of the skip, where that is impossible.
    fn attach(path: &Path) -> Option<Loop> {
        if !is_root("a loop device") {
            return None;
        }
        if !Path::new("/dev/loop-control").exists() {
            skip(Prerequisite::LoopMounts, "a loop device");
            return None;
        }
        let attached = run("losetup", ["--find", "--show", path.to_str().unwrap()]).unwrap();
        attached.expect_clean("losetup");
        Some(Loop(attached.output.trim().into()))
    }

    /// As a mount does.
    fn claim(&self) -> File {
        let exclusive = rustix::fs::OFlags::EXCL.bits() as i32;
        File::options().read(true).custom_flags(exclusive).open(&self.0).unwrap()
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = run("losetup", [Path::new("-d"), &self.0]);
    }
}

#[test]
fn a_file_without_its_name_is_found_by_its_loop_device() {
    let scratch = Scratch::new("loop-without-name").unwrap();
    let [path, link, other] = ["c.img", "d.img", "other.img"].map(|name| scratch.join(name));
    for path in [&path, &other] {
        File::create(path).unwrap().set_len(1 << 20).unwrap();
    }
    fs::hard_link(&path, &link).unwrap();
    let Some(device) = Loop::attach(&path) else { return };
    let claimed = device.claim();
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
