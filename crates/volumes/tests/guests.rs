//! Raw disks whose guests have written the header of an image.
#![allow(clippy::unwrap_used, reason = "a test")]

use drystone_blockdev::{BlockDevice, OpenMode};
use drystone_testkit::judges::{Scratch, run};
use drystone_volumes::{VolumeError, VolumeName, open_as_named};
use std::path::{Path, PathBuf};

const SECRET: &[u8] = b"what the guest isn't to see";

fn open(path: &Path, suffix: &str) -> Result<drystone_sync::Arc<dyn BlockDevice>, VolumeError> {
    let name = PathBuf::from(format!("{}{suffix}", path.display()));
    open_as_named(&VolumeName::find(&name).unwrap(), OpenMode::ReadWrite)
}

fn image(path: &Path, backing: &Path) {
    let words = ["create", "-q", "-f", "qcow2", "-F", "raw", "-b"];
    let paths = [backing.to_str().unwrap(), path.to_str().unwrap()];
    run("qemu-img", words.into_iter().chain(paths)).unwrap().expect_clean("create");
}

fn holds_secret(path: &Path) -> bool {
    std::fs::read(path).unwrap().windows(SECRET.len()).any(|bytes| bytes == SECRET)
}

/// A write to a cluster copies the rest of it from the backing file.
#[test]
fn a_guest_does_not_get_files_of_the_host() {
    let scratch = Scratch::new("guests").unwrap();
    let secret = scratch.join("secret");
    let mut bytes = vec![0; 1 << 20];
    bytes[8192..8192 + SECRET.len()].copy_from_slice(SECRET);
    std::fs::write(&secret, bytes).unwrap();
    let folder = scratch.join("images");
    std::fs::create_dir(&folder).unwrap();
    let beside = folder.join("secret");
    std::fs::copy(&secret, &beside).unwrap();
    for (name, backing) in [("guest.img", &beside), ("guest.img", &secret), ("disk.qcow2", &secret)]
    {
        let path = folder.join(name);
        image(&path, backing);
        let error = open(&path, "").unwrap_err().to_string();
        assert!(error.contains("isn't used") && error.contains("@format=qcow2"), "{error}");
        let size = std::fs::metadata(&path).unwrap().len();
        let raw = open(&path, "@format=raw").unwrap();
        assert_eq!(raw.size_bytes(), size);
        raw.write_at(4096, b"x").unwrap();
        drop(raw);
        assert!(!holds_secret(&path), "{name}");
    }
    let path = folder.join("disk.qcow2");
    for (backing, suffix) in [(&beside, ""), (&beside, "@offset=0"), (&secret, "@format=qcow2")] {
        image(&path, backing);
        open(&path, suffix).unwrap().write_at(0, b"x").unwrap();
        assert!(holds_secret(&path));
    }
    let error = open(&secret, "@format=qcow2").unwrap_err().to_string();
    assert!(error.contains("not a qcow2"), "{error}");
}
