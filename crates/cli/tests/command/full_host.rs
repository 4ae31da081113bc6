//! A mount whose image lies on a host file system that fills up, and changes of such an image.

use super::mounting::Mounting;
use drystone_sync::thread;
use drystone_testkit::skip::{self, Prerequisite, skip};
use std::fs::{self, File};
use std::io::{ErrorKind, Result, Write};
use std::process::Command;
use std::time::Duration;

/// A mount of `small/disk.img` with these options, where `small` has room for a fifth of it. `None`,
/// after a note of the skip, where that isn't possible.
fn mounted(options: &str) -> Option<Mounting> {
    let mounting = Mounting::new()?;
    if !skip::is_root("a mount of what fills up") {
        return None;
    }
    fs::create_dir(mounting.fixture.path("small")).unwrap();
    if !on_small(&mounting, "mount", &["-t", "tmpfs", "-o", "size=12M", "tmpfs"]) {
        skip(Prerequisite::Host("a mount of tmpfs".into()), "a mount of what fills up");
        return None;
    }
    mounting.line("mkfs small/disk.img --size 64M -q").good();
    mounting.line(&format!("mount small/disk.img mnt -o {options}")).good();
    Some(mounting)
}

/// Runs `mount` or `umount`; true if it succeeds.
fn on_small(mounting: &Mounting, program: &str, words: &[&str]) -> bool {
    let small = mounting.fixture.path("small");
    Command::new(program).args(words).arg(small).status().unwrap().success()
}

fn write(mounting: &Mounting, name: &str, bytes: usize) -> Result<()> {
    let mut file = File::create(mounting.path(name))?;
    file.write_all(&vec![7; bytes])?;
    file.sync_all()
}

fn create(mounting: &Mounting, number: u32) -> Result<()> {
    File::create(mounting.path(&format!("empty{number}"))).and_then(|file| file.sync_all())
}

/// Writes files until the host has no room for the data of one more.
fn fill(mounting: &Mounting) {
    // Data that doesn't fit is refused, and stops nothing else.
    let full = (0..40).find_map(|number| write(mounting, &number.to_string(), 1 << 20).err());
    assert_eq!(full.unwrap().kind(), ErrorKind::StorageFull);
}

#[test]
fn a_host_that_stays_full_turns_the_mount_read_only() {
    let Some(mounting) = mounted("host-full-wait=0") else { return };
    write(&mounting, "kept", 100_000).unwrap();
    fill(&mounting);
    // A commit that doesn't fit stops the journal.
    let is_stopped = (0..100).any(|number| create(&mounting, number).is_err());
    assert!(is_stopped, "the log did not fill up");
    let refused = File::create(mounting.path("more")).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ReadOnlyFilesystem);
    let status = mounting.status().unwrap();
    assert_eq!(status["mode"], "ro");
    assert!(status["stopped"].as_str().unwrap().contains("space"), "{status}");
    assert!(mounting.line("mounts").good().contains("(ro, stopped: "));
    assert_eq!(fs::read(mounting.path("kept")).unwrap(), vec![7; 100_000]);
    assert!(mounting.unmount().bad(1).contains("not closed cleanly"));
    // On a working device it is recovered.
    let image = mounting.fixture.path("disk.img");
    fs::copy(mounting.fixture.path("small/disk.img"), image).unwrap();
    // The server and children of other tests close it a little later.
    let is_free = (0..100).any(|_| {
        let unmounted = on_small(&mounting, "umount", &["-q"]);
        if !unmounted {
            thread::sleep(Duration::from_millis(20));
        }
        unmounted
    });
    assert!(is_free);
    mounting.line("mount disk.img mnt").good();
    assert_eq!(fs::read(mounting.path("kept")).unwrap(), vec![7; 100_000]);
    mounting.unmount().good();
    mounting.fixture.expect_sound();
}

#[test]
fn a_full_host_is_waited_for() {
    let Some(mounting) = mounted("host-full-wait=600") else { return };
    let ballast = mounting.fixture.path("small/ballast");
    fs::write(&ballast, vec![1; 2 << 20]).unwrap();
    fill(&mounting);
    thread::scope(|scope| {
        let creating = scope.spawn(|| (0..100).try_for_each(|number| create(&mounting, number)));
        // The log finds no room long before the end.
        thread::sleep(Duration::from_secs(2));
        assert!(!creating.is_finished(), "the log did not fill up");
        fs::remove_file(&ballast).unwrap();
        creating.join().unwrap().unwrap();
    });
    assert!((0..100).all(|number| mounting.path(&format!("empty{number}")).exists()));
    mounting.unmount().good();
    mounting.line("check small/disk.img").good();
}

/// A change that finds no room for its undo log, or for blocks that it moves, leaves the image as it was.
#[test]
fn a_change_on_a_full_host_is_taken_back() {
    let Some(mounting) = Mounting::new() else { return };
    if !skip::is_root("a change on a full host") {
        return;
    }
    let small = mounting.fixture.path("small");
    fs::create_dir(&small).unwrap();
    if !on_small(&mounting, "mount", &["-t", "tmpfs", "-o", "size=24M", "tmpfs"]) {
        skip(Prerequisite::Host("a mount of tmpfs".into()), "a change on a full host");
        return;
    }
    mounting.line("mkfs small/disk.img --size 64M -b 1K -O ^has_journal -q").good();
    // What moves is after a file that goes, whose blocks become holes.
    for (name, length) in [("gone", 6 << 20), ("kept", 5 << 20)] {
        mounting.fixture.put(&format!("source/{name}"), vec![7; length]);
        mounting.line(&format!("cp source/{name} small/disk.img:/")).good();
    }
    mounting.line("rm small/disk.img:/gone").good();
    mounting.line("trim -q small/disk.img").good();
    let image = small.join("disk.img");
    let mut is_done = false;
    let mut refused = 0;
    for free in [0, 40 << 10, 120 << 10, 400 << 10, 2 << 20, 5 << 20, 12 << 20] {
        let ballast = small.join("ballast");
        fill_but(&ballast, free);
        let out = mounting.line("resize --minimum small/disk.img");
        is_done = out.code == Some(0);
        if !is_done {
            refused += 1;
            let message = out.bad(1);
            assert!(message.contains("space"), "{free}: {message}");
            assert_eq!(image.metadata().unwrap().len(), 64 << 20, "{free}");
        }
        fs::remove_file(&ballast).unwrap();
        assert!(!small.join("disk.img.undo").exists(), "{free}");
        mounting.line("check small/disk.img").good();
        assert_eq!(mounting.line("cat small/disk.img:/kept").bytes, vec![7; 5 << 20], "{free}");
    }
    assert!(is_done && refused > 1, "{refused}");
    assert!(on_small(&mounting, "umount", &["-q"]));
}

/// Writes a file that leaves so many bytes of the file system free.
fn fill_but(path: &std::path::Path, free: u64) {
    let mut file = File::create(path).unwrap();
    while file.write_all(&[1; 4096]).is_ok() {}
    let length = file.metadata().unwrap().len();
    file.set_len(length.saturating_sub(free)).unwrap();
}
