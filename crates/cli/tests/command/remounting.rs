//! Mounts that are changed while they go on, which takes root.

use crate::mounting::Mounting;
use crate::support::tool;
use drystone_testkit::judges::e2fsck_check;
use drystone_testkit::skip::{self, Prerequisite, skip};
use rustix::io::Errno;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

fn errno<T>(done: std::io::Result<T>) -> Option<Errno> {
    done.err().and_then(|error| Errno::from_io_error(&error))
}

#[track_caller]
fn fails(mounting: &Mounting, line: &str, why: &str) {
    let told = mounting.line(line).bad(1);
    assert!(told.contains(why), "{told}");
}

/// The words that the mount table has for a directory.
fn words_of(directory: &Path) -> Vec<String> {
    let directory = directory.canonicalize().unwrap();
    let table = fs::read_to_string("/proc/self/mounts").unwrap();
    let line = table.lines().find(|line| line.split(' ').nth(1) == directory.to_str()).unwrap();
    line.split(' ').nth(3).unwrap().split(',').map(str::to_owned).collect()
}

fn needs_recovery(mounting: &Mounting) -> bool {
    let image = mounting.fixture.path("disk.img");
    let shown = tool("dumpe2fs", &["-h".as_ref(), image.as_os_str()]);
    assert_eq!(shown.code, Some(0), "{}", shown.stderr);
    shown.stdout.contains("needs_recovery")
}

#[test]
fn a_mount_becomes_read_only_and_writable_again() {
    let Some(mounting) = Mounting::new() else { return };
    if !skip::is_root("a change of a mount") {
        return;
    }
    mounting.line("mount disk.img mnt").good();
    let open = File::create(mounting.path("new")).unwrap();
    fs::write(mounting.path("other"), "other").unwrap();
    assert!(needs_recovery(&mounting));
    fails(&mounting, "mount mnt -o remount,ro", "in use");
    fs::write(mounting.path("other"), "goes on").unwrap();
    drop(open);
    mounting.line("mount mnt -o remount,ro").good();
    assert!(words_of(&mounting.path("")).contains(&"ro".to_owned()));
    assert_eq!(mounting.status().unwrap()["mode"], "ro");
    assert!(!needs_recovery(&mounting));
    let judged = e2fsck_check(&mounting.fixture.path("disk.img")).unwrap();
    judged.expect_clean("while it is mounted read-only");
    assert_eq!(errno(fs::write(mounting.path("other"), "x")), Some(Errno::ROFS));
    assert_eq!(errno(fs::remove_file(mounting.path("other"))), Some(Errno::ROFS));
    assert_eq!(fs::read_to_string(mounting.path("other")).unwrap(), "goes on");

    mounting.line("mount disk.img mnt -o remount,rw").good();
    assert!(needs_recovery(&mounting));
    fs::write(mounting.path("other"), "again").unwrap();
    mounting.line("mount mnt -o remount,ro,commit=7,nofail").good();
    mounting.unmount().good();
    mounting.fixture.expect_sound();
    assert_eq!(mounting.line("cat disk.img:/other").good(), "again");

    mounting.line("mount disk.img mnt -o ro").good();
    mounting.line("mount mnt -o remount,ro").good();
    fails(&mounting, "mount mnt -o remount,rw", "it was mounted with 'ro': unmount it");
    let told = mounting.line("mount mnt -o remount,colour").bad(2);
    assert!(told.contains("unknown mount option 'colour'"), "{told}");
    mounting.unmount().good();
    fails(&mounting, "mount mnt -o remount,ro", "no image is mounted there");
}

#[test]
fn access_times_are_kept_as_the_last_word_says() {
    let Some(mounting) = Mounting::new() else { return };
    if !skip::is_root("a change of a mount") {
        return;
    }
    mounting.line("mount disk.img mnt -o noatime").good();
    // Listings reach the server when the kernel has none in its cache.
    let is_kept = |name: &str| {
        let path = mounting.path(name);
        fs::create_dir(&path).unwrap();
        let accessed = || {
            let found = fs::metadata(&path).unwrap();
            (found.atime(), found.atime_nsec())
        };
        let before = accessed();
        drystone_sync::thread::sleep(std::time::Duration::from_millis(20));
        assert_eq!(fs::read_dir(&path).unwrap().count(), 0);
        accessed() != before
    };
    assert!(!is_kept("a"));
    mounting.line("mount mnt -o remount,strictatime").good();
    assert!(is_kept("b"));
    mounting.line("mount mnt -o remount,nodiratime").good();
    assert!(!is_kept("c"));
    assert!(words_of(&mounting.path("")).contains(&"nodiratime".to_owned()));
    mounting.line("mount mnt -o remount,relatime,diratime").good();
    assert!(is_kept("d"));
    let words = words_of(&mounting.path(""));
    assert!(words.contains(&"relatime".to_owned()), "{words:?}");
    assert!(words.contains(&"nosuid".to_owned()), "{words:?}");
    mounting.line("mount mnt -o remount,suid,noexec").good();
    let words = words_of(&mounting.path(""));
    assert!(!words.contains(&"nosuid".to_owned()) && words.contains(&"noexec".to_owned()));
    mounting.unmount().good();
    mounting.fixture.expect_sound();
}

/// mount(8) calls the program for the type that the mount table has.
#[test]
fn mount_finds_the_program() {
    let Some(mounting) = Mounting::new() else { return };
    if !skip::is_root("the entry of a mount in the table of mount(8)") {
        return;
    }
    let program = assert_cmd::cargo::cargo_bin("drystone");
    let script = format!(
        "#!/bin/bash\necho \"$@\" >> '{}'\nexec -a mount.fuse.drystone '{}' \"$@\"\n",
        mounting.fixture.path("called").display(),
        program.display()
    );
    mounting.put_in_sbin("mount.fuse.drystone", &script);
    let script = "mount -t overlay overlay -o lowerdir=$PWD/sbin:/usr/sbin /usr/sbin || exit 99
        mnt=$PWD/mnt
        mount -t fuse.drystone $PWD/disk.img $mnt -o nodev && echo one > mnt/new || exit 1
        mount -o remount,ro $mnt || exit 2
        (echo two > mnt/new) 2>/dev/null && exit 3
        dumpe2fs -h disk.img 2>/dev/null | grep needs_recovery && exit 4
        mount -o remount,rw,noatime $mnt || exit 5
        echo three > mnt/new || exit 6
        grep \" $mnt \" /proc/mounts
        $0 umount mnt";
    let done = mounting.run_apart(script);
    if done.code == Some(99) {
        skip(Prerequisite::Kernel("overlay mounts".into()), done.stderr);
        return;
    }
    let called = fs::read_to_string(mounting.fixture.path("called")).unwrap_or_default();
    let table = done.good();
    let words: Vec<_> = table.split(' ').nth(3).unwrap().split(',').collect();
    assert!(words.contains(&"rw") && words.contains(&"noatime"), "{table}\n{called}");
    assert!(words.contains(&"nodev") && !words.contains(&"nosuid"), "{table}\n{called}");
    mounting.fixture.expect_sound();
    assert_eq!(mounting.line("cat disk.img:/new").good(), "three\n");
}
