//! A directory with everything that a format can hold.

use drystone_testkit::skip::{Prerequisite, skip};
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, XattrFlags, lsetxattr, utimensat};
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

/// What a format can hold; each includes the ones before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Files and links with short names, whole seconds.
    V7,
    /// Devices, pipes, paths in two parts.
    Ustar,
    /// Long names and targets, names of any bytes, large numbers, times before 1970.
    Gnu,
    /// Nanoseconds, attributes, lists.
    Pax,
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// True if the program is installed; otherwise the skip is noted.
pub fn has(program: &str) -> bool {
    let mut command = Command::new(program);
    let run = command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    let is_there = run.status().is_ok_and(|status| status.success());
    if !is_there {
        skip(Prerequisite::Program(program.to_owned()), "it isn't installed");
    }
    is_there
}

/// Fills a directory.
pub fn make(root: &Path, level: Level) {
    let path = |name: &[u8]| root.join(OsStr::from_bytes(name));
    std::fs::create_dir_all(path(b"sub/deeper")).unwrap();
    std::fs::create_dir(path(b"empty")).unwrap();
    std::fs::write(path(b"nothing"), b"").unwrap();
    std::fs::write(path(b"sub/one"), [1; 512]).unwrap();
    std::fs::write(path(b"sub/more"), [2; 513]).unwrap();
    std::fs::write(path(b"sub/deeper/large"), vec![3; 100_000]).unwrap();
    std::fs::hard_link(path(b"sub/one"), path(b"sub/deeper/again")).unwrap();
    symlink("sub/one", path(b"link")).unwrap();
    symlink("/nowhere", path(b"sub/dangling")).unwrap();
    let mode = |name: &[u8], mode| {
        std::fs::set_permissions(path(name), PermissionsExt::from_mode(mode)).unwrap();
    };
    mode(b"sub", 0o1777);
    mode(b"empty", 0o2750);
    mode(b"nothing", 0o4711);
    if level >= Level::Ustar {
        let long = [&b"sub/"[..], &[b'd'; 90], b"/", &[b'n'; 99]].concat();
        std::fs::create_dir_all(path(&long[..94])).unwrap();
        std::fs::write(path(&long), b"long").unwrap();
        let node = |name: &[u8], kind, device| {
            let mode = rustix::fs::Mode::from_raw_mode(0o620);
            rustix::fs::mknodat(CWD, path(name), kind, mode, device).unwrap();
        };
        use rustix::fs::{FileType, makedev};
        node(b"fifo", FileType::Fifo, 0);
        if is_root() {
            node(b"null", FileType::CharacterDevice, makedev(1, 3));
            node(b"disk", FileType::BlockDevice, makedev(259, 1000));
        }
    }
    if level >= Level::Gnu {
        let mut long = b"sub".to_vec();
        for _ in 0..3 {
            long.extend([&b"/"[..], &[b'x'; 200]].concat());
            std::fs::create_dir(path(&long)).unwrap();
        }
        long.extend([&b"/"[..], &[b'y'; 255]].concat());
        std::fs::write(path(&long), b"very long").unwrap();
        std::fs::hard_link(path(&long), path(b"sub/zz-short")).unwrap();
        symlink(OsStr::from_bytes(&[b't'; 1500]), path(b"far")).unwrap();
        std::fs::write(path(b"sub/any \n\t\\\"\xff\x80 bytes"), b"name").unwrap();
        if is_root() {
            rustix::fs::chown(path(b"sub/more"), uid(3_000_000), gid(4_000_000_000)).unwrap();
        }
    }
    if level >= Level::Pax {
        attributes(root);
    }
    let nanoseconds = if level >= Level::Pax { 123_456_789 } else { 0 };
    set_times(root, 1_600_000_000, nanoseconds);
    if level >= Level::Gnu {
        set_time(&path(b"sub/more"), -86_400, 0);
        set_time(&path(b"sub/one"), 5_000_000_000, nanoseconds);
    }
}

fn uid(id: u32) -> Option<rustix::fs::Uid> {
    Some(rustix::fs::Uid::from_raw(id))
}

fn gid(id: u32) -> Option<rustix::fs::Gid> {
    Some(rustix::fs::Gid::from_raw(id))
}

/// A file with data at the start, in the middle and at the end, or only holes.
pub fn make_sparse(root: &Path) {
    let file = File::create(root.join("sparse")).unwrap();
    for piece in 0..40 {
        file.write_all_at(&[b'a' + (piece % 26) as u8; 4096], piece * (1 << 20)).unwrap();
    }
    file.set_len((40 << 20) + 77).unwrap();
    let file = File::create(root.join("hollow")).unwrap();
    file.set_len(3 << 20).unwrap();
    let file = File::create(root.join("tail")).unwrap();
    file.write_all_at(b"end", 1 << 20).unwrap();
    set_times(root, 1_600_000_000, 0);
}

fn attributes(root: &Path) {
    let set = |name: &str, attribute: &str, value: &[u8]| {
        let path = root.join(name);
        lsetxattr(path, attribute, value, XattrFlags::empty()).unwrap();
    };
    set("sub/one", "user.text", b"some text");
    set("sub/one", "user.bytes", b"\0\n=\xff");
    set("sub/one", "user.empty", b"");
    set("sub", "user.na%3Dme=x", b"y");
    // bsdtar encodes more of a name than GNU tar.
    set("sub", "user.two words", b"");
    set("sub", "user.two%20words", b"z");
    if is_root() {
        set("sub/more", "security.capability", b"\x01\0\0\x02\0\x20\0\0\0\0\0\0\0\0\0\0\0\0\0\0");
        set("link", "trusted.of.link", b"value");
    }
    let list = access_list();
    set("sub/deeper/large", "system.posix_acl_access", &list);
    set("empty", "system.posix_acl_default", &list);
}

/// A list as Linux stores it.
pub fn access_list() -> Vec<u8> {
    // acl(5): owner rwx, user 1 r-x, group r--, group 7 rw-, mask rwx, others none.
    let entries: [(u16, u16, u32); 6] = [
        (1, 7, u32::MAX),
        (2, 5, 1),
        (4, 4, u32::MAX),
        (8, 6, 7),
        (16, 7, u32::MAX),
        (32, 0, u32::MAX),
    ];
    let mut list = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        list.extend(tag.to_le_bytes());
        list.extend(permissions.to_le_bytes());
        list.extend(id.to_le_bytes());
    }
    list
}

/// Sets the times of everything, of directories after what is in them.
fn set_times(path: &Path, seconds: i64, nanoseconds: i64) {
    if path.is_dir() && !path.is_symlink() {
        for entry in std::fs::read_dir(path).unwrap() {
            set_times(&entry.unwrap().path(), seconds, nanoseconds);
        }
    }
    set_time(path, seconds, nanoseconds);
}

pub fn set_time(path: &Path, seconds: i64, nanoseconds: i64) {
    let time = Timespec { tv_sec: seconds, tv_nsec: nanoseconds };
    let times = Timestamps { last_access: time, last_modification: time };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}
