//! Names: files, directories, links, nodes.

use crate::attributes::{as_nobody, reachable};
use crate::support::{Mounted, errno, is_root, run};
use drystone_fuse::Transport;
use drystone_vfs::{NewNode, RequestContext};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};

pub fn files_come_and_go(mounted: &Mounted) {
    let (a, d) = (mounted.path("a"), mounted.path("d"));
    assert_eq!(errno(File::open(&a)), Errno::NOENT);
    fs::write(&a, "content").unwrap();
    assert_eq!(fs::read(&a).unwrap(), b"content");
    let again = File::options().write(true).create_new(true).open(&a);
    assert_eq!(errno(again), Errno::EXIST);
    fs::create_dir(&d).unwrap();
    assert_eq!(errno(fs::create_dir(&d)), Errno::EXIST);
    assert_eq!(fs::metadata(&d).unwrap().nlink(), 2);
    fs::create_dir(d.join("e")).unwrap();
    assert_eq!(fs::metadata(&d).unwrap().nlink(), 3);
    assert_eq!(errno(fs::remove_dir(&d)), Errno::NOTEMPTY);
    assert_eq!(errno(fs::remove_file(&d)), Errno::ISDIR);
    assert_eq!(errno(fs::remove_dir(&a)), Errno::NOTDIR);
    fs::remove_file(&a).unwrap();
    assert_eq!(errno(fs::remove_file(&a)), Errno::NOENT);
    fs::write(&a, "back").unwrap();
    assert_eq!(fs::read(&a).unwrap(), b"back");
    fs::remove_dir_all(&d).unwrap();
    let long = mounted.path(&"x".repeat(255));
    fs::write(&long, "").unwrap();
    assert_eq!(errno(fs::write(mounted.path(&"x".repeat(256)), "")), Errno::NAMETOOLONG);
    // The root has the number that it has in every ext4 image.
    assert_eq!(fs::metadata(mounted.root()).unwrap().ino(), 2);
}

pub fn names_move(mounted: &Mounted) {
    let path = |name: &str| mounted.path(name);
    let rename = |from: &str, to: &str, flags| {
        rustix::fs::renameat_with(CWD, path(from), CWD, path(to), flags)
    };
    fs::write(path("a"), "a").unwrap();
    fs::write(path("b"), "b").unwrap();
    assert_eq!(rename("a", "b", RenameFlags::NOREPLACE), Err(Errno::EXIST));
    rename("a", "b", RenameFlags::EXCHANGE).unwrap();
    assert_eq!(fs::read(path("a")).unwrap(), b"b");
    fs::rename(path("a"), path("b")).unwrap();
    assert_eq!(fs::read(path("b")).unwrap(), b"b");
    assert!(!path("a").exists());
    if is_root() {
        rename("b", "c", RenameFlags::WHITEOUT).unwrap();
        let whiteout = fs::symlink_metadata(path("b")).unwrap();
        assert!(whiteout.file_type().is_char_device() && whiteout.rdev() == 0);
    } else {
        fs::rename(path("b"), path("c")).unwrap();
    }
    fs::create_dir_all(path("d/e")).unwrap();
    assert_eq!(errno(fs::rename(path("d"), path("d/e/f"))), Errno::INVAL);
    fs::rename(path("d/e"), path("e")).unwrap();
    assert_eq!(fs::metadata(path("d")).unwrap().nlink(), 2);
    fs::rename(path("c"), path("e/c")).unwrap();
    assert_eq!(fs::read(path("e/c")).unwrap(), b"b");
    fs::hard_link(path("e/c"), path("l")).unwrap();
    assert_eq!(fs::metadata(path("l")).unwrap().nlink(), 2);
    assert_eq!(fs::metadata(path("l")).unwrap().ino(), fs::metadata(path("e/c")).unwrap().ino());
    fs::remove_file(path("e/c")).unwrap();
    assert_eq!(fs::metadata(path("l")).unwrap().nlink(), 1);
}

pub fn listings_are_complete(mounted: &Mounted) {
    let directory = mounted.path("many");
    fs::create_dir(&directory).unwrap();
    let name = |number: u32| format!("file with a somewhat long name {number}");
    for number in 0..2000 {
        File::create(directory.join(name(number))).unwrap();
    }
    let listed = || -> BTreeSet<String> {
        let entries = fs::read_dir(&directory).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    };
    let expected: BTreeSet<String> = (0..2000).map(name).collect();
    assert_eq!(listed(), expected);
    // With attributes, and again from the kernel's cache.
    let long = run("ls", &["-lna", "many"], &mounted.root());
    assert_eq!(long.lines().count(), 2003);
    assert_eq!(listed(), expected);
    for number in (0..2000).step_by(2) {
        fs::remove_file(directory.join(name(number))).unwrap();
    }
    assert_eq!(listed(), (0..2000).filter(|number| number % 2 == 1).map(name).collect());
    let dots = run("ls", &["-ai", "many"], &mounted.root());
    let first = dots.lines().next().unwrap().trim().to_owned();
    assert_eq!(first, format!("{} .", fs::metadata(&directory).unwrap().ino()));
    fs::remove_dir_all(&directory).unwrap();
}

pub fn nodes_of_every_type(mounted: &Mounted) {
    let path = |name: &str| mounted.path(name);
    symlink("target/that/is/nowhere", path("l")).unwrap();
    assert_eq!(fs::read_link(path("l")).unwrap().to_str(), Some("target/that/is/nowhere"));
    assert_eq!(errno(File::open(path("l"))), Errno::NOENT);
    let long = "x/".repeat(2000);
    symlink(&long, path("long")).unwrap();
    assert_eq!(fs::read_link(path("long")).unwrap().to_str(), Some(long.as_str()));
    run("mkfifo", &["p"], &mounted.root());
    assert!(fs::metadata(path("p")).unwrap().file_type().is_fifo());
    let _socket = std::os::unix::net::UnixListener::bind(path("s")).unwrap();
    assert!(fs::metadata(path("s")).unwrap().file_type().is_socket());
    if is_root() {
        let device = rustix::fs::makedev(1, 3);
        rustix::fs::mknodat(CWD, path("null"), FileType::CharacterDevice, Mode::RUSR, device)
            .unwrap();
        assert_eq!(fs::metadata(path("null")).unwrap().rdev(), device);
        // It leads to the device.
        assert_eq!(fs::read(path("null")).unwrap(), b"");
        let large = rustix::fs::makedev(259, 0x1_2345);
        rustix::fs::mknodat(CWD, path("block"), FileType::BlockDevice, Mode::RUSR, large).unwrap();
        assert_eq!(fs::metadata(path("block")).unwrap().rdev(), large);
    }
}

pub fn unlinked_files_live_while_open(mounted: &Mounted) {
    let path = mounted.path("gone");
    let mut file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    file.write_all(b"still here").unwrap();
    fs::remove_file(&path).unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    file.write_all(b", and longer").unwrap();
    file.sync_all().unwrap();
    let mut content = String::new();
    file.seek(SeekFrom::Start(0)).unwrap();
    file.read_to_string(&mut content).unwrap();
    assert_eq!(content, "still here, and longer");
    // A file that stays open would keep the mount from ending; this one doesn't.
    drop(file);
    let other = mounted.path("other");
    fs::write(&other, "x").unwrap();
    let open = File::open(&other).unwrap();
    fs::rename(mounted.path("other"), mounted.path("moved")).unwrap();
    fs::write(mounted.path("other"), "y").unwrap();
    fs::rename(mounted.path("other"), mounted.path("moved")).unwrap();
    assert_eq!(open.metadata().unwrap().nlink(), 0);
    assert_eq!(std::io::read_to_string(open).unwrap(), "x");
}

pub fn unnamed_files(mounted: &Mounted) {
    let flags = OFlags::TMPFILE | OFlags::RDWR;
    let made = rustix::fs::open(mounted.root(), flags, Mode::RUSR | Mode::WUSR);
    if mounted.transport == Transport::Fuser {
        assert_eq!(made.unwrap_err(), Errno::OPNOTSUPP);
        return;
    }
    let mut file = File::from(made.unwrap());
    file.write_all(b"named later").unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    let own = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
    rustix::fs::linkat(CWD, own, CWD, mounted.path("named"), AtFlags::SYMLINK_FOLLOW).unwrap();
    assert_eq!(fs::read(mounted.path("named")).unwrap(), b"named later");
    assert_eq!(file.metadata().unwrap().nlink(), 1);
    // And one that is never closed.
    let made = rustix::fs::open(mounted.root(), flags, Mode::RUSR | Mode::WUSR).unwrap();
    File::from(made).write_all(&[1; 100_000]).unwrap();
}

/// The kernel asks to create a file that exists without its knowledge: the file is opened, by those who
/// may.
pub fn what_the_kernel_takes_for_new_is_checked(mounted: &Mounted) {
    fs::set_permissions(mounted.root(), PermissionsExt::from_mode(0o777)).unwrap();
    reachable(mounted);
    for name in ["a", "b"] {
        assert!(!mounted.path(name).exists());
        let (root, fs) = (RequestContext::superuser(), mounted.image().file_system());
        let made = fs.create(&root, fs.root(), name.as_bytes(), NewNode::Regular, 0o600).unwrap();
        fs.forget(made.inode, 1);
    }
    assert!(!as_nobody(mounted, "echo theirs > a"));
    let mut open = File::options();
    open.read(true).write(true).create(true).truncate(false);
    let mut file = open.open(mounted.path("b")).unwrap();
    file.write_all(b"mine").unwrap();
    assert_eq!(fs::read(mounted.path("b")).unwrap(), b"mine");
    assert_eq!(fs::read(mounted.path("a")).unwrap(), b"");
    let again = File::options().write(true).create_new(true).open(mounted.path("a"));
    assert_eq!(errno(again), Errno::EXIST);
}
