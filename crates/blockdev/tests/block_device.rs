//! A block device of the kernel. Needs root and loop devices; the skip is noted where there are none.
#![allow(clippy::unwrap_used, reason = "clippy does not see that helpers here are tests too")]

use drystone_blockdev::{BlockDevice, DeviceError, Existing, FileDevice, OpenMode};
use drystone_sync::{clock, thread};
use drystone_testkit::skip::{Prerequisite, skip};
use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

const SIZE: u64 = 1 << 20;
/// How long the system may take for what it does behind a test.
const WAIT: Duration = Duration::from_secs(10);

const EXCLUSIVE: i32 = rustix::fs::OFlags::EXCL.bits() as i32;

/// A loop device, detached at the end whatever happens.
struct Loop {
    path: String,
    directory: TempDir,
}

impl Loop {
    /// A device of `SIZE` zeros. `None`, after a note of the skip, where there are none.
    fn of_new_image() -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let image = directory.path().join("image");
        drop(FileDevice::create(&image, SIZE, Existing::Refuse).unwrap());
        let output = Command::new("losetup").args(["--find", "--show"]).arg(image).output();
        let attached = output.ok().filter(|output| output.status.success());
        let path = attached.and_then(|output| String::from_utf8(output.stdout).ok());
        let path = path.map(|path| path.trim().to_owned()).filter(|path| !path.is_empty());
        if path.is_none() {
            skip(Prerequisite::LoopMounts, "a loop device");
        }
        Some(Self { path: path?, directory })
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.path]).status();
    }
}

/// Claims the device, as a mount does. What was closed stays claimed for a moment if another test has
/// just forked a child, which inherits the open files until it runs its program.
fn claimed(path: &str) -> File {
    let mut exclusive = OpenOptions::new();
    exclusive.read(true).custom_flags(EXCLUSIVE);
    let start = clock::now();
    loop {
        match exclusive.open(path) {
            Err(error) if error.kind() == ErrorKind::ResourceBusy => {
                assert!(start.elapsed() < WAIT, "{path} stays claimed");
                thread::sleep(Duration::from_millis(5));
            }
            opened => return opened.unwrap(),
        }
    }
}

/// The claim is of the whole device, whichever part is opened.
#[test]
fn a_part_of_a_block_device_claims_it() {
    let Some(block) = Loop::of_new_image() else { return };
    let part = || FileDevice::open_part(&block.path, OpenMode::ReadWrite, 4096..8192);
    let held = part().unwrap();
    held.write_at(0, &[3; 4096]).unwrap();
    assert_eq!(held.size_bytes(), 4096);
    let mut exclusive = OpenOptions::new();
    exclusive.read(true).custom_flags(EXCLUSIVE);
    assert_eq!(exclusive.open(&block.path).unwrap_err().kind(), ErrorKind::ResourceBusy);
    drop(held);
    let claim = claimed(&block.path);
    assert!(matches!(part(), Err(DeviceError::InUse { .. })));
    drop(claim);
    part().unwrap();
}

#[test]
fn a_block_device_is_measured_written_and_claimed() {
    let Some(block) = Loop::of_new_image() else { return };

    let device = FileDevice::open(&block.path, OpenMode::ReadWrite).unwrap();
    assert_eq!(device.size_bytes(), SIZE);
    // Offsets that aren't multiples of the sector size.
    device.write_at(100, &[7; 10_000]).unwrap();
    device.zero_range(4096, 4096).unwrap();
    device.zero_range(300, 10).unwrap();
    device.discard(512 * 1024, 4096).unwrap();
    device.write_durable_at(SIZE - 3, b"end").unwrap();
    let mut bytes = vec![1; SIZE as usize];
    device.read_at(0, &mut bytes).unwrap();
    let mut expected = vec![0; SIZE as usize];
    expected[100..10_100].fill(7);
    expected[4096..8192].fill(0);
    expected[300..310].fill(0);
    expected[SIZE as usize - 3..].copy_from_slice(b"end");
    assert!(bytes == expected);
    assert!(matches!(device.write_at(SIZE, &[0]), Err(DeviceError::OutOfRange { .. })));

    let error = FileDevice::open(&block.path, OpenMode::ReadWrite).unwrap_err();
    assert!(matches!(error, DeviceError::InUse { .. }), "{error:?}");
    drop(device);
    let reader = FileDevice::open(&block.path, OpenMode::ReadOnly).unwrap();
    reader.read_at(0, &mut bytes).unwrap();
    assert!(bytes == expected);
}

#[test]
fn what_is_discarded_of_a_block_device_takes_no_space() {
    let Some(block) = Loop::of_new_image() else { return };
    let device = FileDevice::open(&block.path, OpenMode::ReadWrite).unwrap();
    device.write_at(0, &vec![7; SIZE as usize]).unwrap();
    device.flush().unwrap();
    let used = || block.directory.path().join("image").metadata().unwrap().blocks() * 512;
    assert!(used() >= SIZE);
    device.discard(SIZE / 4, SIZE / 2).unwrap();
    device.flush().unwrap();
    assert!(used() <= SIZE / 2 + (64 << 10), "{} bytes", used());
    let mut byte = [0];
    for (at, expected) in [(SIZE / 4 - 1, 7), (SIZE / 4, 0), (SIZE * 3 / 4, 7)] {
        device.read_at(at, &mut byte).unwrap();
        assert_eq!(byte, [expected]);
    }
}

/// As another machine does, which shares the disk.
#[test]
fn what_changes_behind_a_block_device_is_read_after_a_refresh() {
    let Some(block) = Loop::of_new_image() else { return };
    let device = FileDevice::open(&block.path, OpenMode::ReadWrite).unwrap();
    device.write_durable_at(5 << 10, &[1; 1024]).unwrap();
    let behind = OpenOptions::new().write(true).open(block.directory.path().join("image"));
    behind.unwrap().write_all_at(&[2; 1024], 5 << 10).unwrap();
    let mut bytes = [0; 1024];
    device.refresh(5 << 10, 1024);
    device.read_at(5 << 10, &mut bytes).unwrap();
    assert_eq!(bytes, [2; 1024]);
}

/// A child that another thread forks keeps the claim until it runs its program.
#[test]
fn a_claim_that_ends_soon_is_waited_for() {
    let Some(block) = Loop::of_new_image() else { return };
    // Claimed without a lock, as the child has it.
    let claim = OpenOptions::new().read(true).custom_flags(EXCLUSIVE).open(&block.path).unwrap();
    thread::scope(|scope| {
        scope.spawn(move || {
            thread::sleep(Duration::from_millis(50));
            drop(claim);
        });
        FileDevice::open(&block.path, OpenMode::ReadWrite).unwrap();
    });
}

/// However the file was opened: the kernel must not mount what we write.
#[test]
fn a_block_device_that_was_opened_elsewhere_is_claimed() {
    let Some(block) = Loop::of_new_image() else { return };
    let open = |flags| {
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(flags).open(&block.path)
    };
    let device = FileDevice::from_file(open(0).unwrap(), &block.path, OpenMode::ReadWrite).unwrap();
    device.write_at(0, &[7; 512]).unwrap();
    assert_eq!(open(EXCLUSIVE).unwrap_err().kind(), ErrorKind::ResourceBusy);
    drop(device);
    let claim = claimed(&block.path);
    let refused = FileDevice::from_file(open(0).unwrap(), &block.path, OpenMode::ReadWrite);
    assert!(matches!(refused, Err(DeviceError::InUse { .. })), "{refused:?}");
    drop(claim);
}

/// A flush then waits less.
#[test]
fn the_system_begins_to_write_large_writes_at_once() {
    const LARGE: usize = 512 << 10;
    let Some(block) = Loop::of_new_image() else { return };
    let device = FileDevice::open(&block.path, OpenMode::ReadWrite).unwrap();
    let name = Path::new(&block.path).file_name().unwrap();
    let statistics = Path::new("/sys/class/block").join(name).join("stat");
    let written = || {
        let text = std::fs::read_to_string(&statistics).unwrap();
        text.split_whitespace().nth(6).unwrap().parse::<usize>().unwrap() * 512
    };
    let before = written();
    device.write_at(0, &[1; 4096]).unwrap();
    device.write_at(LARGE as u64, &[2; LARGE]).unwrap();
    let start = clock::now();
    while written() - before < LARGE {
        assert!(start.elapsed() < WAIT, "{} bytes are written", written() - before);
        thread::sleep(Duration::from_millis(5));
    }
    device.flush().unwrap();
    assert_eq!(written() - before, LARGE + 4096);
}
