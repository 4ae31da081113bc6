//! A mounted image that grows.

use crate::mounting::Mounting;
use std::fs::{self, File};
use std::io::Write;

/// Writes a file of 1 MiB. That there is no room shows when it is synced.
fn write(mounting: &Mounting, number: usize) -> std::io::Result<()> {
    let mut file = File::create(mounting.path(&format!("{number}")))?;
    file.write_all(&vec![7; 1 << 20])?;
    file.sync_all()
}

#[test]
fn a_full_mount_grows_and_takes_writes_again() {
    let Some(mounting) = Mounting::new() else { return };
    mounting.line("mount disk.img mnt").good();
    fs::create_dir(mounting.path("inside")).unwrap();
    let mut count = 0;
    while write(&mounting, count).is_ok() {
        count += 1;
        assert!(count < 32, "it doesn't fill up");
    }
    let shape = |mounting: &Mounting| mounting.status().unwrap()["shape"].clone();
    let blocks = |mounting: &Mounting| shape(mounting)["blocks"].as_u64().unwrap();
    let before = blocks(&mounting);
    let told = mounting.line("resize mnt +64M").good();
    assert!(told.starts_with("mnt: ") && told.contains("before"), "{told}");
    let bytes = shape(&mounting)["block_size"].as_u64().unwrap();
    assert_eq!(blocks(&mounting), before + (64 << 20) / bytes);
    for number in count..count + 40 {
        write(&mounting, number).unwrap();
    }
    // Any directory of the mount will do.
    let json = mounting.line("resize mnt/inside 120M --json").json();
    assert_eq!(json["blocks_before"].as_u64().unwrap(), before + (64 << 20) / bytes);
    assert_eq!(json["blocks"].as_u64().unwrap() * bytes, 120 << 20);

    let refused = |line: &str, code: i32, why: &str| {
        let told = mounting.line(line).bad(code);
        assert!(told.contains(why), "{line}: {told}");
    };
    refused("resize mnt 20M", 1, "unmount it first");
    refused("resize mnt -20M", 1, "unmount it first");
    refused("resize mnt --minimum", 2, "unmount it first");
    refused("resize mnt +1M --undo log", 2, "unmount it first");
    refused("resize . +1M", 1, "neither an image nor in a mount");
    refused("resize disk.img +1M", 1, "in use");
    mounting.unmount().good();
    mounting.fixture.expect_sound();
    assert_eq!(fs::metadata(mounting.fixture.path("disk.img")).unwrap().len(), 120 << 20);
    mounting.line("mount disk.img mnt").good();
    for number in 0..count + 40 {
        let content = fs::read(mounting.path(&format!("{number}"))).unwrap();
        assert!(content == vec![7; 1 << 20], "{number}");
    }
    mounting.unmount().good();
    mounting.line("mount disk.img mnt -o ro").good();
    refused("resize mnt +1M", 1, "read-only");
    mounting.unmount().good();
}
