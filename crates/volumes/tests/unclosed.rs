//! A qcow2 that QEMU has marked as not closed: because it runs, or because it ended.
#![allow(clippy::unwrap_used, reason = "a test")]

use drystone_blockdev::{BlockDevice, DeviceError, OpenMode};
use drystone_testkit::judges::{Scratch, have, run};
use drystone_volumes::{VolumeError, VolumeName, open_as_named};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Where the header says that the image wasn't closed.
const DIRTY_AT: usize = 79;
const DISK_BYTES: usize = 8 << 20;

fn qemu_img(arguments: &str, paths: &[&Path]) {
    let words = arguments.split_whitespace().map(AsRef::as_ref);
    let words: Vec<&std::ffi::OsStr> =
        words.chain(paths.iter().map(|path| path.as_os_str())).collect();
    run("qemu-img", words).unwrap().expect_clean(arguments);
}

fn open(path: &Path, mode: OpenMode) -> Result<drystone_sync::Arc<dyn BlockDevice>, VolumeError> {
    open_as_named(&VolumeName::find(path).unwrap(), mode)
}

fn is_dirty(path: &Path) -> bool {
    std::fs::read(path).unwrap()[DIRTY_AT] & 1 != 0
}

/// QEMU, which has written to an image that it counts lazily.
struct Qemu(Child);

impl Qemu {
    fn write_to(path: &Path) -> Qemu {
        let mut command = Command::new("qemu-io");
        let piped = command.args(["-f", "qcow2"]).arg(path).stdin(Stdio::piped());
        let mut qemu = Qemu(piped.stdout(Stdio::piped()).spawn().unwrap());
        for command in ["write -P 7 0 1M\n", "flush\n"] {
            qemu.wait();
            qemu.0.stdin.as_mut().unwrap().write_all(command.as_bytes()).unwrap();
        }
        qemu.wait();
        qemu
    }

    /// Until it asks for a command.
    fn wait(&mut self) {
        let mut output = Vec::new();
        while !output.ends_with(b"qemu-io> ") {
            let mut byte = [0];
            self.0.stdout.as_mut().unwrap().read_exact(&mut byte).unwrap();
            output.push(byte[0]);
        }
    }

    fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

fn lazy_image(scratch: &Scratch) -> PathBuf {
    let path = scratch.join("disk");
    qemu_img("create -q -f qcow2 -o lazy_refcounts=on", &[&path, Path::new("8M")]);
    path
}

/// Its mark says that it wasn't closed, and mustn't be taken away.
#[test]
fn an_image_that_qemu_writes_is_not_repaired() {
    if !have("qemu-io") {
        return;
    }
    let scratch = Scratch::new("unclosed-running").unwrap();
    let path = lazy_image(&scratch);
    let qemu = Qemu::write_to(&path);
    assert!(is_dirty(&path));
    let before = std::fs::read(&path).unwrap();
    for mode in [OpenMode::ReadOnly, OpenMode::ReadWrite] {
        let refused = open(&path, mode).unwrap_err();
        assert!(matches!(refused, VolumeError::Device(DeviceError::InUse { .. })), "{refused}");
    }
    assert!(std::fs::read(&path).unwrap() == before);
    qemu.kill();
    drop(open(&path, OpenMode::ReadWrite).unwrap());
    assert!(!is_dirty(&path));
    expect_written(&path);
    qemu_img("check -f qcow2", &[&path]);
}

fn expect_written(path: &Path) {
    let mut bytes = vec![0; DISK_BYTES];
    open(path, OpenMode::ReadOnly).unwrap().read_at(0, &mut bytes).unwrap();
    let (written, rest) = bytes.split_at(1 << 20);
    assert!(written.iter().all(|byte| *byte == 7) && rest.iter().all(|byte| *byte == 0));
}

/// Only reference counts may be wrong, which reading needs as little as a backup may repair them.
#[test]
fn an_image_that_was_not_closed_is_read_as_it_is() {
    if !have("qemu-io") {
        return;
    }
    let scratch = Scratch::new("unclosed-read").unwrap();
    let path = lazy_image(&scratch);
    Qemu::write_to(&path).kill();
    assert!(is_dirty(&path));
    let before = std::fs::read(&path).unwrap();
    let above = scratch.join("above");
    qemu_img("create -q -f qcow2 -b disk -F qcow2", &[&above]);
    for path in [&path, &above] {
        expect_written(path);
    }
    // A raw file below may hold what looks like that header.
    let raw = scratch.join("on-raw");
    qemu_img("create -q -f qcow2 -b disk -F raw", &[&raw]);
    let mut bytes = vec![0; before.len()];
    open(&raw, OpenMode::ReadOnly).unwrap().read_at(0, &mut bytes).unwrap();
    assert!(bytes == before);
    assert!(std::fs::read(&path).unwrap() == before);
}
