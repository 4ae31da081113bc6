//! An image that the kernel uses as a disk isn't written.
#![allow(clippy::unwrap_used, reason = "a test")]

use drystone::{Error, ErrorCause, Image, make_image};
use drystone_blockdev::KernelUse;
use drystone_mkfs::MkfsOptions;
use drystone_sync::{clock, thread};
use drystone_testkit::judges::{LoopDevice, Scratch, kernel_mount};
use std::fs::{self, File, OpenOptions as HostOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

fn image(scratch: &Scratch) -> (PathBuf, MkfsOptions) {
    let path = scratch.join("a.img");
    let options = MkfsOptions::new(8 << 20, [1; 16], [2; 4], 1_000_000_000);
    make_image(&path, &options, false).unwrap();
    (path, options)
}

fn usage<T>(result: Result<T, Error>) -> KernelUse {
    match result.map_err(Error::into_cause) {
        Err(ErrorCause::InUseByKernel(usage)) => usage,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("the kernel's disk was opened to be written"),
    }
}

fn holds_data<T>(result: Result<T, Error>) -> bool {
    result.is_err_and(|error| matches!(error.cause(), ErrorCause::HoldsData))
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
        assert_eq!(usage(Image::open(name)), expected);
        assert_eq!(usage(make_image(name, &options, true)), expected);
    }
    assert!(fs::read(&path).unwrap() == before, "what the kernel has mounted has changed");
    let read_only = Image::options().read_only(true);
    read_only.open(&path).unwrap().close().unwrap();
    mounted.unmount().unwrap();
    Image::open(&path).unwrap().close().unwrap();
}

#[test]
fn an_image_behind_a_claimed_loop_device_is_not_written() {
    let scratch = Scratch::new("kernel-use-claimed").unwrap();
    let (path, _) = image(&scratch);
    let Some(device) = LoopDevice::attach(&path, "a loop device").unwrap() else { return };
    let claim = || -> File {
        let mut options = HostOptions::new();
        options.read(true).custom_flags(rustix::fs::OFlags::EXCL.bits() as i32);
        options.open(&device.0).unwrap()
    };
    // Nobody has it open: nothing of it is in the kernel's memory.
    Image::open(&path).unwrap().close().unwrap();
    let claimed = claim();
    let expected = KernelUse::LoopDevice(device.0.clone());
    assert_eq!(usage(Image::open(&path)), expected);
    drop(claimed);
    Image::open(&path).unwrap().close().unwrap();
}

/// Of a device both ends are looked at, and erased, as far as it goes beyond the image too.
#[test]
fn a_device_with_something_at_its_end_is_not_empty() {
    let scratch = Scratch::new("kernel-use-end").unwrap();
    let path = scratch.join("disk");
    let file = File::create(&path).unwrap();
    file.set_len(64 << 20).unwrap();
    let magic = 0xa92b_4efc_u32.to_le_bytes();
    let end = (64 << 20) - (64 << 10);
    file.write_all_at(&magic, end).unwrap();
    let Some(device) = LoopDevice::attach(&path, "a loop device").unwrap() else { return };
    let options = MkfsOptions::new(32 << 20, [1; 16], [2; 4], 1_000_000_000);
    assert!(holds_data(make_image(&device.0, &options, false)));
    make_image(&device.0, &options, true).unwrap();
    let mut found = [1; 4];
    File::open(&device.0).unwrap().read_exact_at(&mut found, end).unwrap();
    assert_eq!(found, [0; 4]);
    // An image that is larger than the device leaves what is there.
    let large = options.size_bytes(128 << 20);
    make_image(&device.0, &large, true).unwrap_err();
    Image::open(&device.0).unwrap().close().unwrap();
}

/// A disk of two partitions with an image in each; how the second is mounted by itself.
fn disk(scratch: &Scratch) -> (PathBuf, [PathBuf; 2], String) {
    let path = scratch.join("disk");
    File::create(&path).unwrap().set_len(32 << 20).unwrap();
    let script = scratch.join("script");
    fs::write(&script, "label: gpt\nsize=10M\nsize=12M\n").unwrap();
    let mut sfdisk = std::process::Command::new("sfdisk");
    let paths = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    sfdisk.arg("-q").arg(&path).env("PATH", paths).stdin(File::open(&script).unwrap());
    assert!(sfdisk.status().unwrap().success());
    let partitions = [1, 2].map(|number| PathBuf::from(format!("{}#{number}", path.display())));
    for (partition, size) in partitions.iter().zip([10_u64 << 20, 12 << 20]) {
        let options = MkfsOptions::new(size, [1; 16], [2; 4], 1_000_000_000);
        make_image(partition, &options, false).unwrap();
        assert!(holds_data(make_image(partition, &options, false)));
    }
    let options = format!("offset={},sizelimit={}", 11 << 20, 12 << 20);
    (path, partitions, options)
}

#[test]
fn a_mounted_partition_is_not_written_and_others_are() {
    let scratch = Scratch::new("kernel-use-partition").unwrap();
    let (path, [first, second], options) = disk(&scratch);
    let directory = scratch.join("a mount");
    let Some(mounted) = kernel_mount(&path, &directory, &options).unwrap() else { return };
    let expected = KernelUse::Mounted(directory.canonicalize().unwrap());
    assert_eq!(usage(Image::open(&second)), expected);
    let overlapping = PathBuf::from(format!("{}@offset=12M", path.display()));
    assert_eq!(usage(Image::open(&overlapping)), expected);
    let options = MkfsOptions::new(12 << 20, [1; 16], [2; 4], 1_000_000_000);
    assert_eq!(usage(make_image(&second, &options, true)), expected);
    assert_eq!(usage(make_image(&path, &options, true)), expected);
    Image::open(&first).unwrap().close().unwrap();
    mounted.unmount().unwrap();
    Image::open(&second).unwrap().close().unwrap();
}

/// Opens a device that we have closed. A child that another test has just forked may hold our descriptor until
/// it executes its program.
fn claim(options: &HostOptions, device: &Path) -> File {
    let end = clock::now() + Duration::from_secs(10);
    loop {
        match options.open(device) {
            Err(error) if error.kind() == ErrorKind::ResourceBusy && clock::now() < end => {
                thread::sleep(Duration::from_millis(1));
            }
            opened => return opened.unwrap(),
        }
    }
}

#[test]
fn a_partition_of_a_claimed_device_is_not_written() {
    let scratch = Scratch::new("kernel-use-device-partition").unwrap();
    let (path, [_, of_file], _) = disk(&scratch);
    let Some(device) = LoopDevice::attach(&path, "a loop device").unwrap() else { return };
    let of_device = PathBuf::from(format!("{}#2", device.0.display()));
    let mut exclusive = HostOptions::new();
    exclusive.read(true).custom_flags(rustix::fs::OFlags::EXCL.bits() as i32);
    let image = Image::open(&of_device).unwrap();
    exclusive.open(&device.0).unwrap_err();
    image.close().unwrap();
    let claimed = claim(&exclusive, &device.0);
    let refused = Image::open(&of_device);
    assert!(matches!(refused.unwrap_err().cause(), ErrorCause::InUse));
    let expected = KernelUse::LoopDevice(device.0.clone());
    assert_eq!(usage(Image::open(&of_file)), expected);
    drop(claimed);
    Image::open(&of_file).unwrap().close().unwrap();
}
