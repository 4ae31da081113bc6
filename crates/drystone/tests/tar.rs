//! Archives that come out of images and go into them.
#![allow(clippy::unwrap_used, reason = "clippy does not see that helpers here are tests too")]

use drystone::compare::{CompareOptions, ComparedTree, compare};
use drystone::fs::FileTimes;
use drystone::sources::tar::{EntryKind, NewTarEntry, Time, padding};
use drystone::transfer::{self, CopyMonitor, CopyOptions, CopyProblem, CopySummary, Endpoint};
use drystone::vfs::{DeviceNumber, Errno, NewNode};
use drystone::{CreateOptions, ErrorCause, Fs, Image};
use drystone_sync::atomic::{AtomicU64, Ordering};
use std::fs::Permissions;
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};

fn image() -> Image {
    Image::in_memory(&CreateOptions::new(64 << 20)).unwrap()
}

/// An archive of these entries.
fn archive(entries: &[(&str, EntryKind, &[u8])]) -> Vec<u8> {
    let entries = entries.iter().map(|(name, kind, content)| packed(name, kind, 0o640, content));
    let mut bytes: Vec<u8> = entries.flatten().collect();
    bytes.extend([0; 1024]);
    bytes
}

fn packed(name: &str, kind: &EntryKind, mode: u16, content: &[u8]) -> Vec<u8> {
    let time = Time { seconds: 1_000_000_000, nanoseconds: 7 };
    let entry = NewTarEntry {
        name: name.as_bytes(),
        kind: kind.clone(),
        mode,
        user: 7,
        group: 8,
        modified: time,
        accessed: time,
        attributes: &Vec::new(),
    };
    let mut bytes = entry.head();
    bytes.extend(content);
    bytes.extend(padding(content.len() as u64));
    bytes
}

fn file(content: &[u8]) -> EntryKind {
    let run =
        drystone::sources::tar::DataRun { offset: 0, length: content.len() as u64, position: 0 };
    EntryKind::File { size: content.len() as u64, runs: vec![run] }
}

struct NoProblem;

impl CopyMonitor for NoProblem {
    fn problem(&self, problem: &CopyProblem) {
        panic!("{problem}");
    }
}

fn assert_same(first: (&Fs<'_>, &str), second: (&Fs<'_>, &str)) {
    let tree = |(fs, path)| ComparedTree {
        place: Endpoint::Image(Fs::file_system(fs)),
        path: Path::new(path),
    };
    let mut differences = Vec::new();
    let mut found = |difference: &_| differences.push(format!("{difference:?}"));
    let (first, second) = (tree(first), tree(second));
    compare(first, second, &CompareOptions::default(), &NoProblem, &mut found).unwrap();
    assert_eq!(differences, [""; 0]);
}

/// One of everything.
fn fill(fs: &Fs<'_>) {
    fs.create_dir_all("/top/closed/deep").unwrap();
    fs.write("/top/closed/deep/file", vec![3; 100_000]).unwrap();
    fs.hard_link("/top/closed/deep/file", "/top/other name").unwrap();
    let sparse = fs.create("/top/sparse").unwrap();
    sparse.write_all_at(b"middle", 1 << 20).unwrap();
    sparse.set_len(4 << 20).unwrap();
    fs.create("/top/hole").unwrap().set_len(1 << 20).unwrap();
    fs.write("/top/empty", "").unwrap();
    fs.symlink("/nowhere", "/top/link").unwrap();
    fs.set_lxattr("/top/link", "trusted.of", "a link").unwrap();
    let device = DeviceNumber { major: 1, minor: 3 };
    fs.make_node("/top/null", NewNode::CharacterDevice(device), 0o666).unwrap();
    fs.make_node("/top/disk", NewNode::BlockDevice(device), 0o600).unwrap();
    fs.make_node("/top/pipe", NewNode::Fifo, 0o600).unwrap();
    fs.set_xattr("/top/empty", "user.text", "value\n").unwrap();
    fs.set_xattr("/top/closed", "security.label", [0, 255]).unwrap();
    fs.chown("/top/closed/deep/file", Some(1000), Some(100)).unwrap();
    fs.set_permissions("/top/closed/deep/file", Permissions::from_mode(0o4711)).unwrap();
    fs.set_permissions("/top/closed", Permissions::from_mode(0o500)).unwrap();
    let time = UNIX_EPOCH + Duration::new(1_234_567_890, 123_456_789);
    for path in ["/top/closed/deep", "/top/closed", "/top/empty", "/top"] {
        fs.set_times(path, FileTimes::new().set_modified(time)).unwrap();
    }
}

#[test]
fn everything_comes_back() {
    let (first, second) = (image(), image());
    let (from, to) = (first.fs(), second.fs());
    fill(&from);
    let mut archive = Vec::new();
    let written = from.extract_tar("/top", &mut archive).unwrap();
    to.create_dir("/again").unwrap();
    let read = to.import_tar(&archive[..], "/again").unwrap();
    assert_eq!(read, written);
    assert_same((&from, "/top"), (&to, "/again"));
    // Over what is there.
    to.remove_file("/again/link").unwrap();
    to.symlink("/again/empty", "/again/link").unwrap();
    to.write("/again/sparse", "x").unwrap();
    to.import_tar(&archive[..], "/again").unwrap();
    assert_same((&from, "/top"), (&to, "/again"));
}

#[test]
fn what_other_programs_pack_is_read() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join("a/b")).unwrap();
    std::fs::write(folder.path().join("a/b/file"), "content").unwrap();
    std::fs::hard_link(folder.path().join("a/b/file"), folder.path().join("a/link")).unwrap();
    for options in ["-c", "-cz"] {
        let tar = Command::new("tar").args([options, "-C"]).arg(folder.path()).arg(".").output();
        let packed = tar.unwrap();
        assert!(packed.status.success(), "{packed:?}");
        let image = image();
        let fs = image.fs();
        fs.import_tar(&packed.stdout[..], "/").unwrap();
        assert_eq!(fs.read("/a/link").unwrap(), b"content");
        assert_eq!(fs.metadata("/a/b/file").unwrap().nlink(), 2);
    }
}

#[test]
fn directories_are_merged_into_and_all_else_replaced() {
    let image = image();
    let fs = image.fs();
    fs.create_dir_all("/into/there").unwrap();
    fs.set_permissions("/into/there", Permissions::from_mode(0o711)).unwrap();
    fs.write("/outside", "untouched").unwrap();
    fs.symlink("/outside", "/into/there/file").unwrap();
    fs.write("/into/there/kept", "x").unwrap();
    let archive = archive(&[
        ("there/file", file(b"new"), b"new"),
        ("missing/above/file", file(b"deep"), b"deep"),
    ]);
    fs.import_tar(&archive[..], "/into").unwrap();
    assert_eq!(fs.read("/outside").unwrap(), b"untouched");
    assert_eq!(fs.read("/into/there/kept").unwrap(), b"x");
    let made = fs.symlink_metadata("/into/there/file").unwrap();
    assert_eq!((made.len(), made.uid(), made.gid(), made.mode() & 0o7777), (3, 7, 8, 0o640));
    assert_eq!(made.modified().unwrap(), UNIX_EPOCH + Duration::new(1_000_000_000, 7));
    // The archive doesn't have these directories.
    assert_eq!(fs.metadata("/into/there").unwrap().mode() & 0o7777, 0o711);
    assert_eq!(fs.metadata("/into/missing/above").unwrap().mode() & 0o7777, 0o755);
    let in_the_way = self::archive(&[("there", file(b""), b"")]);
    let refused = fs.import_tar(&in_the_way[..], "/into").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::IsADirectory);
    assert_eq!(refused.to_string(), "cannot import '/into/there': is a directory");
}

/// A failure leaves neither half of the new entry nor a hole where the old one was.
#[test]
fn what_an_entry_replaces_stays_if_the_entry_can_not_be_made() {
    let image = Image::in_memory(&CreateOptions::new(8 << 20)).unwrap();
    let fs = image.fs();
    fs.create_dir_all("/into/d").unwrap();
    for path in ["/into/file", "/into/d/linked"] {
        fs.write(path, "old").unwrap();
    }
    let large = vec![1; 12 << 20];
    let too_large = archive(&[
        ("made", EntryKind::Directory, b""),
        ("made/file", file(b"new"), b"new"),
        ("file", file(&large), &large),
    ]);
    let refused = fs.import_tar(&too_large[..], "/into").unwrap_err();
    assert_eq!(refused.errno(), Errno::ENOSPC);
    let new = archive(&[("new", file(&large), &large)]);
    assert_eq!(fs.import_tar(&new[..], "/into").unwrap_err().errno(), Errno::ENOSPC);
    let link = archive(&[("d/linked", EntryKind::HardLink(b"d".into()), b"")]);
    assert_eq!(fs.import_tar(&link[..], "/into").unwrap_err().errno(), Errno::EPERM);
    for path in ["/into/file", "/into/d/linked"] {
        assert_eq!(fs.read(path).unwrap(), b"old", "{path}");
    }
    // What came before is complete.
    assert_eq!(fs.read("/into/made/file").unwrap(), b"new");
    assert_eq!(fs.metadata("/into/made").unwrap().mode() & 0o7777, 0o640);
    let mut names: Vec<_> =
        fs.read_dir("/into").unwrap().map(|e| e.unwrap().file_name().to_owned()).collect();
    names.sort();
    assert_eq!(names, ["d", "file", "made"]);
}

/// A monitor that counts, and asks for the end when so many bytes were copied.
#[derive(Default)]
struct EndAfter {
    bytes_max: u64,
    bytes: AtomicU64,
    entries: AtomicU64,
    problems: AtomicU64,
}

impl CopyMonitor for EndAfter {
    fn bytes(&self, count: u64) {
        self.bytes.fetch_add(count, Ordering::Relaxed);
    }

    fn entry(&self, _: &dyn Fn() -> PathBuf) {
        self.entries.fetch_add(1, Ordering::Relaxed);
    }

    fn problem(&self, _: &CopyProblem) {
        self.problems.fetch_add(1, Ordering::Relaxed);
    }

    fn is_cancelled(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) >= self.bytes_max
    }
}

/// The file that is being unpacked when the end comes is not there, and directories are complete.
#[test]
fn an_import_says_how_far_it_is_and_can_be_ended() {
    let image = image();
    let fs = image.fs();
    fs.create_dir("/into").unwrap();
    fs.write("/into/large", "old").unwrap();
    let large = vec![1; 3 << 20];
    let bytes = archive(&[
        ("d", EntryKind::Directory, b""),
        ("large", file(b"x"), b"x"),
        ("large", file(&large), &large),
        ("last", file(b"x"), b"x"),
    ]);
    let opener = drystone::sources::Opener::new(&std::env::temp_dir());
    let archive = opener.read("a.tar", &bytes[..]).unwrap();
    let import = |bytes_max| {
        let monitor = EndAfter { bytes_max, ..EndAfter::default() };
        let summary = transfer::import(
            &archive,
            fs.file_system(),
            fs.context(),
            Path::new("/into"),
            &CopyOptions::default(),
            &monitor,
        );
        let EndAfter { bytes, entries, problems, .. } = monitor;
        let counted = [bytes, entries, problems].map(AtomicU64::into_inner);
        (summary.unwrap(), counted)
    };
    let (ended, counted) = import(2 << 20);
    assert_eq!((ended.is_stopped, ended.files, ended.directories), (true, 1, 1));
    assert_eq!(counted, [(2 << 20) + 1, 2, 0]);
    assert_eq!(fs.read("/into/large").unwrap(), b"x");
    assert_eq!(fs.metadata("/into/d").unwrap().mode() & 0o7777, 0o640);
    assert_eq!(fs.read_dir("/into").unwrap().count(), 2);
    let (whole, counted) = import(u64::MAX);
    assert_eq!((whole.is_stopped, whole.files, whole.bytes), (false, 3, (3 << 20) + 2));
    assert_eq!(counted, [(3 << 20) + 2, 4, 0]);
    assert_eq!(import(0).0, CopySummary { is_stopped: true, ..CopySummary::default() });
}

/// `tar -r` appends entries of directories that the archive has already.
#[test]
fn the_last_entry_of_a_directory_counts() {
    let image = image();
    let fs = image.fs();
    fs.create_dir("/into").unwrap();
    fs.write("/into/other", "a file in its place").unwrap();
    let mut bytes = Vec::new();
    for (name, mode) in [("d", 0o755), ("other", 0o755), ("d/within", 0o755), ("d", 0o700)] {
        bytes.extend(packed(name, &EntryKind::Directory, mode, b""));
    }
    bytes.extend([0; 1024]);
    assert_eq!(fs.import_tar(&bytes[..], "/into").unwrap().directories, 3);
    for (path, mode) in [("/into/d", 0o700), ("/into/d/within", 0o755), ("/into/other", 0o755)] {
        assert_eq!(fs.metadata(path).unwrap().mode() & 0o7777, mode, "{path}");
    }
}

#[test]
fn paths_are_as_long_as_those_of_system_calls() {
    let image = image();
    let long = "d/".repeat(3000) + "file";
    let long = archive(&[(&long, file(b""), b"")]);
    let refused = image.fs().import_tar(&long[..], "/").unwrap_err();
    assert_eq!(refused.errno(), Errno::ENAMETOOLONG);
}

#[test]
fn no_archive_reaches_outside() {
    let image = image();
    let fs = image.fs();
    fs.create_dir_all("/etc").unwrap();
    fs.create_dir_all("/srv/etc").unwrap();
    fs.write("/etc/secret", "secret").unwrap();
    let target = |path: &str| EntryKind::Symlink(path.into());
    let archive = archive(&[
        ("absolute", target("/etc"), b""),
        ("absolute/a", file(b"a"), b"a"),
        ("relative", target("../../etc"), b""),
        ("relative/b", file(b"b"), b"b"),
    ]);
    fs.import_tar(&archive[..], "/srv").unwrap();
    assert!(!fs.exists("/etc/a").unwrap() && !fs.exists("/etc/b").unwrap());
    assert_eq!(
        (fs.read("/srv/etc/a").unwrap(), fs.read("/srv/etc/b").unwrap()),
        (b"a".into(), b"b".into())
    );
    let links = self::archive(&[
        ("absolute", target("/etc"), b""),
        ("stolen", EntryKind::HardLink(b"absolute/secret".into()), b""),
    ]);
    let refused = fs.import_tar(&links[..], "/srv").unwrap_err();
    assert_eq!(refused.errno(), Errno::ENOENT);
    assert!(!fs.exists("/srv/stolen").unwrap());
    let circle =
        self::archive(&[("circle", target("circle"), b""), ("circle/a", file(b"a"), b"a")]);
    let refused = fs.import_tar(&circle[..], "/srv").unwrap_err();
    assert_eq!(refused.errno(), Errno::ELOOP);
    let up = self::archive(&[("../etc/a", file(b"a"), b"a")]);
    assert_eq!(fs.import_tar(&up[..], "/srv").unwrap_err().kind(), ErrorKind::InvalidData);
}

#[test]
fn a_damaged_archive_changes_nothing() {
    let image = image();
    let fs = image.fs();
    let content = vec![1; 5000];
    let whole = archive(&[("a", file(b"a"), b"a"), ("b", file(&content), &content)]);
    let unread = fs.import_tar(&whole[..4000], "/").unwrap_err();
    assert_eq!((unread.operation(), unread.path()), (Some("import"), Some(Path::new("/"))));
    assert_eq!(unread.kind(), ErrorKind::InvalidData);
    assert!(matches!(unread.cause(), ErrorCause::Source(_)));
    assert!(!fs.exists("/a").unwrap());
    struct Broken;
    impl std::io::Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            Err(ErrorKind::ConnectionReset.into())
        }
    }
    assert_eq!(fs.import_tar(Broken, "/").unwrap_err().kind(), ErrorKind::ConnectionReset);
    fs.write("/file", "").unwrap();
    assert_eq!(fs.import_tar(&whole[..], "/file").unwrap_err().kind(), ErrorKind::NotADirectory);
    assert_eq!(fs.import_tar(&whole[..], "/none").unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn what_an_ordinary_user_unpacks_is_theirs() {
    let image = image();
    let fs = image.fs();
    fs.create_dir("/home").unwrap();
    let user = fs.as_user(1000, 100, &[]);
    let archive = archive(&[("a", file(b"a"), b"a")]);
    let refused = user.import_tar(&archive[..], "/home").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
    fs.chown("/home", Some(1000), Some(100)).unwrap();
    user.import_tar(&archive[..], "/home").unwrap();
    let made = fs.metadata("/home/a").unwrap();
    assert_eq!((made.uid(), made.gid(), made.mode() & 0o7777), (1000, 100, 0o640));
    // What was root's would run as the user for everybody else.
    let mut set_id = packed("program", &file(b"a"), 0o6755, b"a");
    set_id.extend([0; 1024]);
    user.import_tar(&set_id[..], "/home").unwrap();
    assert_eq!(fs.metadata("/home/program").unwrap().mode() & 0o7777, 0o755);
    fs.import_tar(&set_id[..], "/").unwrap();
    assert_eq!(fs.metadata("/program").unwrap().mode() & 0o7777, 0o6755);
}

/// What is unpacked has the lists of the archive, and not those that its directory gives to new entries.
#[test]
fn lists_are_those_of_the_archive() {
    let image = image();
    let fs = image.fs();
    fs.create_dir("/listed").unwrap();
    let list = drystone_ext4_format::acl::Acl::from_mode(0o700).to_attribute();
    fs.set_xattr("/listed", "system.posix_acl_default", &list).unwrap();
    fs.create_dir("/listed/inherits").unwrap();
    assert_eq!(fs.list_xattrs("/listed/inherits").unwrap(), ["system.posix_acl_default"]);
    let archive = archive(&[("d", EntryKind::Directory, b""), ("a", file(b"a"), b"a")]);
    fs.import_tar(&archive[..], "/listed").unwrap();
    for path in ["/listed/d", "/listed/a"] {
        assert_eq!(fs.list_xattrs(path).unwrap(), [""; 0], "{path}");
        assert_eq!(fs.metadata(path).unwrap().mode() & 0o7777, 0o640, "{path}");
    }
    assert_eq!(fs.list_xattrs("/listed").unwrap(), ["system.posix_acl_default"]);
}
