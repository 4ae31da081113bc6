//! Immutable and append-only files that programs have open already.

use crate::support::{Mounted, errno};
use drystone_sync::thread;
use drystone_testkit::skip;
use rustix::fs::{Advice, IFlags, OFlags};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

/// Sets one of the flags, or none.
fn guard(path: &Path, flag: IFlags) {
    let file = File::open(path).unwrap();
    let flags = rustix::fs::ioctl_getflags(&file).unwrap();
    let flags = flags - IFlags::IMMUTABLE - IFlags::APPEND;
    rustix::fs::ioctl_setflags(&file, flags | flag).unwrap();
}

/// The content on the server, not what the kernel has cached.
fn stored(path: &Path) -> Vec<u8> {
    let file = File::open(path).unwrap();
    rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).unwrap();
    fs::read(path).unwrap()
}

/// Waits until programs see this content, without dropping what the kernel has cached.
#[track_caller]
fn expect_seen(path: &Path, content: &[u8]) {
    let is_seen = || fs::read(path).unwrap() == content;
    for _ in 0..500 {
        if is_seen() {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
    let seen = String::from_utf8_lossy(&fs::read(path).unwrap()).into_owned();
    panic!("{seen:?} stays in the kernel's cache");
}

pub fn immutable_files_take_only_what_was_written_before(mounted: &Mounted) {
    if !skip::is_root("the immutable flag") {
        return;
    }
    let path = mounted.path("f");
    fs::write(&path, "stored").unwrap();
    let file = File::options().write(true).open(&path).unwrap();
    file.write_all_at(b"before", 0).unwrap();
    guard(&path, IFlags::IMMUTABLE);
    file.sync_all().unwrap();
    assert_eq!(stored(&path), b"before");
    // The kernel takes it, but the server doesn't.
    file.write_all_at(b"behind", 0).unwrap();
    assert_eq!(errno(file.sync_all()), Errno::PERM);
    guard(&path, IFlags::empty());
    drop(file);
    assert_eq!(stored(&path), b"before");
}

pub fn append_only_files_keep_what_is_stored(mounted: &Mounted) {
    if !skip::is_root("the append-only flag") {
        return;
    }
    let path = mounted.path("f");
    fs::write(&path, "stored").unwrap();
    let changer = File::options().append(true).open(&path).unwrap();
    let mut appender = File::options().append(true).open(&path).unwrap();
    appender.write_all(b" before").unwrap();
    guard(&path, IFlags::APPEND);
    // Appends beside a change are stored.
    rustix::fs::fcntl_setfl(&changer, OFlags::empty()).unwrap();
    changer.write_all_at(b"X", 2).unwrap();
    appender.write_all(b" behind").unwrap();
    assert_eq!(errno(changer.sync_all()), Errno::PERM);
    guard(&path, IFlags::empty());
    drop((changer, appender));
    assert_eq!(stored(&path), b"stored before behind");
}

pub fn refused_changes_leave_the_cache(mounted: &Mounted) {
    if !skip::is_root("the two flags") {
        return;
    }
    let path = mounted.path("immutable");
    fs::write(&path, "stored").unwrap();
    let changer = File::options().write(true).open(&path).unwrap();
    guard(&path, IFlags::IMMUTABLE);
    changer.write_all_at(b"change", 0).unwrap();
    assert_eq!(errno(changer.sync_all()), Errno::PERM);
    // A program that doesn't sync learns of it from its next write.
    assert_eq!(errno(changer.write_all_at(b"change", 0)), Errno::PERM);
    expect_seen(&path, b"stored");
    // The change isn't missing: nobody can write it again.
    changer.sync_all().unwrap();
    guard(&path, IFlags::empty());

    let path = mounted.path("append-only");
    fs::write(&path, "stored").unwrap();
    let changer = File::options().append(true).open(&path).unwrap();
    guard(&path, IFlags::APPEND);
    rustix::fs::fcntl_setfl(&changer, OFlags::empty()).unwrap();
    changer.write_all_at(b"X", 2).unwrap();
    assert_eq!(errno(changer.sync_all()), Errno::PERM);
    expect_seen(&path, b"stored");
    changer.sync_all().unwrap();
    let mut appender = File::options().append(true).open(&path).unwrap();
    for _ in 0..3 {
        appender.write_all(b" more").unwrap();
        appender.sync_all().unwrap();
    }
    guard(&path, IFlags::empty());
    drop((changer, appender));
    assert_eq!(stored(&path), b"stored more more more");
}

pub fn direct_appends_go_beside_gathered_ones(mounted: &Mounted) {
    if !skip::is_root("the append-only flag") {
        return;
    }
    let path = mounted.path("f");
    let mut file = File::options().append(true).create(true).open(&path).unwrap();
    guard(&path, IFlags::APPEND);
    let direct = i32::try_from(OFlags::DIRECT.bits()).unwrap();
    let mut direct = File::options().append(true).custom_flags(direct).open(&path).unwrap();
    file.write_all(&[1; 8192]).unwrap();
    direct.write_all(&[2; 4096]).unwrap();
    file.write_all(&[3; 100]).unwrap();
    file.sync_all().unwrap();
    guard(&path, IFlags::empty());
    let expected = [&[1; 8192][..], &[2; 4096], &[3; 100]].concat();
    assert!(stored(&path) == expected);
}
