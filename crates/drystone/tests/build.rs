//! Images built through the library, and rebuilt from one another.
#![allow(clippy::unwrap_used, reason = "a test")]

use drystone::mkfs::build::{BuildMonitor, Size};
use drystone::vfs::{Errno, Exclude, NewNode, OwnerMap};
use drystone::{
    BuildOptions, CreateOptions, ErrorCause, FileSystemKind, Image, build_image, check_image,
    check_nilfs2,
};
use drystone_sync::atomic::{AtomicBool, Ordering};
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

/// A tree with a symbolic link, a hole, a file with two names, and something to leave out.
fn tree(at: &Path) {
    fs::create_dir_all(at.join("etc/ssl")).unwrap();
    fs::write(at.join("etc/hostname"), "wall\n").unwrap();
    fs::hard_link(at.join("etc/hostname"), at.join("etc/name")).unwrap();
    fs::set_permissions(at.join("etc/ssl"), PermissionsExt::from_mode(0o710)).unwrap();
    symlink("hostname", at.join("etc/link")).unwrap();
    let file = fs::File::create(at.join("hole")).unwrap();
    file.set_len(1 << 20).unwrap();
    fs::write(at.join("left.pyc"), "out").unwrap();
}

fn options() -> BuildOptions {
    BuildOptions::default()
        .exclude(Exclude::new(["*.pyc".into()]))
        .owners(OwnerMap { all: Some((3, 4)), ..OwnerMap::default() })
        .threads(2)
}

/// What is expected of an image of [`tree`].
fn look(name: &Path, kind: FileSystemKind) {
    match kind {
        FileSystemKind::Ext4 => {
            let report = check_image(name, &Default::default(), &mut |_| {}).unwrap();
            assert!(report.is_clean(), "{report:?}");
        }
        FileSystemKind::Nilfs2 => {
            let report = check_nilfs2(name, &Default::default()).unwrap();
            assert!(report.is_clean(), "{report:?}");
        }
    }
    let image = Image::options().read_only(true).open(name).unwrap();
    assert_eq!(image.kind(), kind);
    let fs = image.fs();
    assert_eq!(fs.read("/etc/link").unwrap(), b"wall\n");
    let named = fs.metadata("/etc/name").unwrap();
    assert_eq!((named.nlink(), named.uid(), named.gid()), (2, 3, 4));
    assert_eq!(fs.metadata("/etc/ssl").unwrap().mode() & 0o7777, 0o710);
    assert_eq!(fs.metadata("/hole").unwrap().len(), 1 << 20);
    assert!(fs.metadata("/hole").unwrap().blocks() < 64);
    assert!(!fs.exists("/left.pyc").unwrap());
}

#[test]
fn images_are_built_and_built_again_from_an_image() {
    let folder = tempfile::tempdir().unwrap();
    let (sources, at) = (folder.path().join("tree"), |name: &str| folder.path().join(name));
    tree(&sources);
    for kind in [FileSystemKind::Ext4, FileSystemKind::Nilfs2] {
        let first = at(kind.name());
        let built = build_image(&first, [&sources], &options().kind(kind), &()).unwrap();
        assert_eq!(built.size_bytes, fs::metadata(&first).unwrap().len());
        // ext4 has a lost+found, too.
        let files = if kind == FileSystemKind::Ext4 { 7 } else { 6 };
        assert_eq!((built.files, built.data_bytes), (files, 5));
        look(&first, kind);
        let image = Image::options().read_only(true).open(&first).unwrap();
        for other in [FileSystemKind::Ext4, FileSystemKind::Nilfs2] {
            let again = at("again");
            image.fs().build("/", &again, &BuildOptions::default().kind(other)).unwrap();
            look(&again, other);
            fs::remove_file(&again).unwrap();
        }
        // Archives beside it are gone.
        let left: Vec<_> =
            fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().path()).collect();
        assert!(left.iter().all(|path| [at("tree"), at("ext4"), at("nilfs2")].contains(path)));
    }
}

#[test]
fn devices_are_filled() {
    let folder = tempfile::tempdir().unwrap();
    let (sources, disk) = (folder.path().join("tree"), folder.path().join("disk"));
    tree(&sources);
    fs::write(&disk, vec![0; 64 << 20]).unwrap();
    let part = folder.path().join("disk@offset=1M");
    for kind in [FileSystemKind::Ext4, FileSystemKind::Nilfs2] {
        let built = build_image(&part, [&sources], &options().kind(kind).overwrite(true), &());
        assert_eq!(built.unwrap().size_bytes, 63 << 20);
        look(&part, kind);
    }
    let error = build_image(&part, [&sources], &options(), &()).unwrap_err();
    assert!(matches!(error.cause(), ErrorCause::HoldsData), "{error}");
    let larger = options().size(Size::Fixed(64 << 20)).overwrite(true);
    let error = build_image(&part, [&sources], &larger, &()).unwrap_err();
    assert!(matches!(error.cause(), ErrorCause::NoRoom { .. }), "{error}");
    let smaller = options().kind(FileSystemKind::Nilfs2).size(Size::Fixed(32 << 20));
    let error = build_image(&part, [&sources], &smaller.overwrite(true), &()).unwrap_err();
    assert!(matches!(error.cause(), ErrorCause::DeviceSize { .. }), "{error}");
}

/// Goes on until data are written.
struct CancelledLate(AtomicBool);

impl BuildMonitor for CancelledLate {
    fn wrote(&self, _bytes: u64, _files: u64) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

#[test]
fn a_device_holds_no_image_when_a_build_was_cancelled() {
    let folder = tempfile::tempdir().unwrap();
    let (sources, disk) = (folder.path().join("tree"), folder.path().join("disk"));
    tree(&sources);
    for name in ["a", "b", "c"] {
        fs::write(sources.join(name), vec![1; 80 << 20]).unwrap();
    }
    let part = folder.path().join("disk@offset=1M");
    for kind in [FileSystemKind::Ext4, FileSystemKind::Nilfs2] {
        fs::write(&disk, []).unwrap();
        fs::File::options().write(true).open(&disk).unwrap().set_len(400 << 20).unwrap();
        let monitor = CancelledLate(AtomicBool::new(false));
        let error = build_image(&part, [&sources], &options().kind(kind), &monitor).unwrap_err();
        assert_eq!(error.errno(), Errno::EINTR, "{error}");
        Image::open(&part).unwrap_err();
    }
}

#[test]
fn what_an_archive_can_not_hold_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let image = Image::in_memory(&CreateOptions::new(16 << 20)).unwrap();
    let root = image.file_system().root();
    let superuser = drystone::vfs::RequestContext::superuser();
    let made = image.file_system().create(&superuser, root, b"s", NewNode::Socket, 0o600).unwrap();
    image.file_system().forget(made.inode, 1);
    let built = image.fs().build("/", folder.path().join("a.img"), &BuildOptions::default());
    assert_eq!(built.unwrap().warnings, ["sockets are left out, 1 of them: archives hold none"]);
}

#[test]
fn what_fails_leaves_nothing_and_says_what_and_where() {
    struct Cancelled;
    impl BuildMonitor for Cancelled {
        fn is_cancelled(&self) -> bool {
            true
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let (sources, name) = (folder.path().join("tree"), folder.path().join("a.img"));
    tree(&sources);
    let failing = |sources: &Path, options: BuildOptions, errno: Errno, kind: ErrorKind| {
        let error = build_image(&name, [sources], &options, &()).unwrap_err();
        assert_eq!((error.errno(), error.kind()), (errno, kind), "{error}");
        assert_eq!((error.operation(), error.path()), (Some("build"), Some(&*name)), "{error}");
        assert!(!name.exists());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    };
    let none = folder.path().join("none");
    let error = build_image(&name, [&none], &options(), &()).unwrap_err();
    assert_eq!((error.errno(), error.kind()), (Errno::ENOENT, ErrorKind::NotFound), "{error}");
    assert_eq!((error.operation(), error.path()), (Some("read"), Some(&*none)), "{error}");
    fs::write(sources.join("large"), vec![1; 300 << 10]).unwrap();
    let small = options().size(Size::Fixed(100 << 10));
    failing(&sources, small, Errno::ENOSPC, ErrorKind::StorageFull);
    let long = options().label("seventeen letters");
    failing(&sources, long, Errno::EINVAL, ErrorKind::InvalidInput);
    let error = build_image(&name, [""; 0], &options(), &()).unwrap_err();
    assert_eq!(error.errno(), Errno::EINVAL, "{error}");
    let error = build_image(&name, [&sources], &options(), &Cancelled).unwrap_err();
    assert_eq!((error.errno(), error.kind()), (Errno::EINTR, ErrorKind::Interrupted));
    let long = CreateOptions::new(16 << 20).label("seventeen letters");
    let error = Image::create(&name, &long).unwrap_err();
    assert_eq!(error.errno(), Errno::EINVAL, "{error}");
    assert!(!name.exists());
    fs::write(&name, "something").unwrap();
    let error = build_image(&name, [&sources], &options(), &()).unwrap_err();
    assert_eq!(error.errno(), Errno::EEXIST, "{error}");
    assert_eq!(fs::read(&name).unwrap(), b"something");
}

#[test]
fn an_ordinary_user_builds_nothing_of_an_image() {
    let folder = tempfile::tempdir().unwrap();
    let image = Image::in_memory(&CreateOptions::new(16 << 20)).unwrap();
    let user = image.fs().as_user(1, 1, &[]);
    let built = user.build("/", folder.path().join("a.img"), &BuildOptions::default());
    assert_eq!(built.unwrap_err().errno(), Errno::EPERM);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}
