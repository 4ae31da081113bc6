//! An image that the kernel uses as a disk isn't written.
#![allow(clippy::unwrap_used, reason = "a test")]

use drystone::{Error, Image, OpenOptions, make_image};
use drystone_blockdev::KernelUse;
use drystone_mkfs::Options;
use drystone_testkit::judges::{Scratch, kernel_mount, run};
use drystone_testkit::skip::{Lack, is_root, skip};
use std::fs::{self, File, OpenOptions as HostOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

fn image(scratch: &Scratch) -> (PathBuf, Options) {
    let path = scratch.join("a.img");
    let options = Options::new(8 << 20, [1; 16], [2; 4], 1_000_000_000);
    make_image(&path, &options, false).unwrap();
    (path, options)
}

fn usage<T>(result: Result<T, Error>) -> KernelUse {
    match result {
        Err(Error::InUseByKernel(usage)) => usage,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("the kernel's disk was opened to be written"),
    }
}

#[test]
fn a_mounted_image_is_not_written() {
    let scratch = Scratch::new("kernel-use-mounted").unwrap();
    let (path, options) = image(&scratch);
    let directory = scratch.join("a mount");
    let Some(mounted) = kernel_mount(&path, &directory, "").unwrap() else { return };
    let before = fs::read(&path).unwrap();
    // Neither by its name nor by another.
    let [link, symlink] = ["link.img", "symlink.img"].map(|name| scratch.join(name));
    fs::hard_link(&path, &link).unwrap();
    std::os::unix::fs::symlink(&path, &symlink).unwrap();
    for name in [&path, &link, &symlink] {
        let expected = KernelUse::Mounted(directory.canonicalize().unwrap());
        assert_eq!(usage(Image::open(name, &OpenOptions::default())), expected);
        assert_eq!(usage(make_image(name, &options, true)), expected);
    }
    assert!(fs::read(&path).unwrap() == before, "what the kernel has mounted has changed");
    let read_only = OpenOptions { read_only: true, ..OpenOptions::default() };
    Image::open(&path, &read_only).unwrap().close().unwrap();
    mounted.unmount().unwrap();
    Image::open(&path, &OpenOptions::default()).unwrap().close().unwrap();
}

#[test]
fn an_image_behind_a_claimed_loop_device_is_not_written() {
    if !is_root("a claimed loop device") {
        return;
    }
    if !Path::new("/dev/loop-control").exists() {
        return skip(Lack::LoopMounts, "a claimed loop device");
    }
    let scratch = Scratch::new("kernel-use-claimed").unwrap();
    let (path, _) = image(&scratch);
    let attached = run("losetup", ["--find", "--show", path.to_str().unwrap()]).unwrap();
    attached.expect_clean("losetup");
    let device = Loop(attached.output.trim().into());
    let claim = || -> File {
        let mut options = HostOptions::new();
        options.read(true).custom_flags(rustix::fs::OFlags::EXCL.bits() as i32);
        options.open(&device.0).unwrap()
    };
    // Nobody has it open: nothing of it is in the kernel's memory.
    Image::open(&path, &OpenOptions::default()).unwrap().close().unwrap();
    let claimed = claim();
    let expected = KernelUse::LoopDevice(device.0.clone());
    assert_eq!(usage(Image::open(&path, &OpenOptions::default())), expected);
    drop(claimed);
    Image::open(&path, &OpenOptions::default()).unwrap().close().unwrap();
}

/// An attached loop device, until dropped.
struct Loop(PathBuf);

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = run("losetup", [Path::new("-d"), &self.0]);
    }
}
