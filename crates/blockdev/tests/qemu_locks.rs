//! QEMU and we keep each other out of a file, by qemu-io(1).
#![cfg(not(loom))]
#![allow(clippy::unwrap_used, reason = "clippy does not see that helpers here are tests too")]

use drystone_blockdev::{DeviceError, Existing, FileDevice, OpenMode};
use drystone_testkit::judges::{have, run};
use std::io::Read;
use std::process::{Child, Command, Stdio};

const SIZE: u64 = 1 << 20;
/// To read as a virtual machine does: nobody may write meanwhile.
const READING_ALONE: &str = "driver=raw,read-only=on,file.driver=blkdebug,\
    file.take-child-perms.0=consistent-read,file.unshare-child-perms.0=write,\
    file.image.driver=file,file.image.filename=";

/// QEMU with an open image, until this is dropped.
struct Qemu(Child);

impl Qemu {
    fn open(arguments: &[&str], image: &str) -> Qemu {
        let mut command = Command::new("qemu-io");
        let piped = command.args(arguments).arg(image).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = piped.spawn().unwrap();
        // It asks for a command once it has opened the image.
        child.stdout.as_mut().unwrap().read_exact(&mut [0; 8]).unwrap();
        Qemu(child)
    }
}

impl Drop for Qemu {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

fn open_by_qemu(arguments: &[&str], image: &str) -> bool {
    let arguments = [arguments, &["-c", "length", image]].concat();
    let judged = run("qemu-io", arguments).unwrap();
    let is_refused = judged.output.contains("lock");
    assert!(judged.is_clean() != is_refused, "{}", judged.output);
    !is_refused
}

fn is_refused(opened: Result<(), DeviceError>) -> bool {
    match opened {
        Err(DeviceError::InUse { .. }) => true,
        opened => {
            opened.unwrap();
            false
        }
    }
}

#[test]
fn qemu_and_we_keep_each_other_out() {
    if !have("qemu-io") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    drop(FileDevice::create(&path, SIZE, Existing::Refuse).unwrap());
    let (write, read) = (OpenMode::ReadWrite, OpenMode::ReadOnly);
    let whole = |mode| FileDevice::open(&path, mode);
    let part = |mode, start| FileDevice::open_part(&path, mode, start..start + 65536);
    let name = path.to_str().unwrap();
    let alone = format!("{READING_ALONE}{name}");
    let by_qemu = |how: &str| match how {
        "writing" => open_by_qemu(&["-f", "raw"], name),
        "reading" => open_by_qemu(&["-r", "-f", "raw"], name),
        _ => open_by_qemu(&["-r", "--image-opts"], &alone),
    };

    // What QEMU has open.
    for (arguments, image, keeps_readers_out, keeps_writers_out) in
        [(&["-f", "raw"][..], name, true, true), (&["-r", "--image-opts"], &alone, false, true)]
    {
        let _qemu = Qemu::open(arguments, image);
        assert_eq!(is_refused(whole(write).map(drop)), keeps_writers_out, "{arguments:?}");
        assert_eq!(is_refused(whole(read).map(drop)), keeps_readers_out, "{arguments:?}");
        assert_eq!(is_refused(part(write, 0).map(drop)), keeps_writers_out, "{arguments:?}");
        assert_eq!(is_refused(part(read, 0).map(drop)), keeps_readers_out, "{arguments:?}");
        let create = FileDevice::create(&path, SIZE, Existing::Overwrite);
        assert_eq!(is_refused(create.map(drop)), keeps_writers_out, "{arguments:?}");
        FileDevice::open_to_look(&path).unwrap();
    }

    // What we have open.
    let held = whole(write).unwrap();
    assert!(!by_qemu("writing") && !by_qemu("reading alone"));
    drop(held);
    let held = [part(write, 0).unwrap(), part(write, 65536).unwrap()];
    assert!(!by_qemu("writing") && !by_qemu("reading") && !by_qemu("reading alone"));
    drop(held);
    let held = whole(read).unwrap();
    assert!(!by_qemu("writing") && by_qemu("reading") && by_qemu("reading alone"));
    drop(held);
    let held = part(read, 0).unwrap();
    assert!(!by_qemu("writing") && by_qemu("reading") && by_qemu("reading alone"));
    drop(held);
    assert!(by_qemu("writing"));
}
