//! Copies between the host and the in-memory model, in every direction.

mod host_tree;
mod replaced;
mod swapped;
mod without_acl;

use super::{CopyItem, CopyMonitor, CopyOptions, CopyProblem, CopySummary, Endpoint, Side, copy};
use drystone_sync::{LockClass, Mutex};
use drystone_testkit::model::{Configuration, MemoryFileSystem};
use drystone_vfs::{
    Errno, FileSystem, NewNode, RequestContext, SetAttributes, SetTime, Timestamp, XattrMode,
    find_path,
};
use host_tree::{make_host_tree, picture_of_host};
use std::ffi::OsString;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

static PROBLEMS: LockClass = LockClass::new("problems of a test", 200);

/// Gathers problems.
struct GatheredProblems(Mutex<Vec<CopyProblem>>);

impl GatheredProblems {
    fn new() -> GatheredProblems {
        GatheredProblems(Mutex::new(&PROBLEMS, Vec::new()))
    }

    fn texts(&self) -> Vec<String> {
        self.0.lock().iter().map(CopyProblem::to_string).collect()
    }
}

impl CopyMonitor for GatheredProblems {
    fn problem(&self, problem: &CopyProblem) {
        self.0.lock().push(problem.clone());
    }
}

fn options(threads: usize) -> CopyOptions {
    CopyOptions { threads, ..CopyOptions::default() }
}

fn item(path: impl Into<PathBuf>, name: &str) -> CopyItem {
    CopyItem { path: path.into(), name: Some(name.into()) }
}

/// Copies one item and expects no problem.
fn copy_well(from: Endpoint<'_>, item: CopyItem, to: Endpoint<'_>, into: &Path) -> CopySummary {
    let monitor = GatheredProblems::new();
    let summary = copy(from, &[item], to, into, &options(4), &monitor).unwrap();
    assert_eq!(monitor.texts(), [""; 0]);
    summary
}

fn memory() -> MemoryFileSystem {
    MemoryFileSystem::new(Configuration::default())
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[test]
fn a_tree_goes_in_across_and_out_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("tree");
    make_host_tree(&tree);
    let (first, second) = (memory(), memory());
    let root = Path::new("/");

    let summary = copy_well(Endpoint::Host, item(&tree, "in"), Endpoint::Image(&first), root);
    assert_eq!((summary.hard_links, summary.symlinks), (100, 1));
    assert_eq!(summary.special, if is_root() { 2 } else { 1 });
    assert!(summary.bytes < 8 << 20, "holes were copied");

    let across =
        copy_well(Endpoint::Image(&first), item("/in", "across"), Endpoint::Image(&second), root);
    assert_eq!(across, summary);
    let inside = copy_well(
        Endpoint::Image(&second),
        item("/across", "inside"),
        Endpoint::Image(&second),
        root,
    );
    assert_eq!(inside, summary);

    let out = folder.path().join("out");
    std::fs::create_dir(&out).unwrap();
    let summary_out =
        copy_well(Endpoint::Image(&second), item("/inside", "tree"), Endpoint::Host, &out);
    assert_eq!(summary_out, summary);
    let (expected, found) = (picture_of_host(&tree), picture_of_host(&out.join("tree")));
    assert!(expected.len() > 850);
    for (path, text) in &expected {
        assert_eq!(Some(text), found.get(path), "{}", path.display());
    }
    assert_eq!(expected.len(), found.len());
    let sparse = std::fs::metadata(out.join("tree/sparse")).unwrap();
    assert!(sparse.blocks() * 512 < 1 << 20, "holes were filled");
    assert_eq!((first.references(), second.references()), (0, 0));
}

#[test]
fn existing_entries_are_merged_and_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("tree");
    std::fs::create_dir_all(tree.join("directory")).unwrap();
    std::fs::write(tree.join("directory/a"), "new").unwrap();
    std::fs::write(tree.join("b"), "new b").unwrap();
    let image = memory();
    let out = folder.path().join("out");
    let outside = folder.path().join("outside");
    std::fs::create_dir_all(out.join("directory")).unwrap();
    std::fs::write(&outside, "untouched").unwrap();
    std::fs::write(out.join("directory/other"), "stays").unwrap();
    symlink(&outside, out.join("directory/a")).unwrap();
    symlink(&outside, out.join("b")).unwrap();

    let merged = CopyItem { path: tree, name: None };
    copy_well(Endpoint::Host, merged.clone(), Endpoint::Image(&image), Path::new("/"));
    copy_well(Endpoint::Host, merged, Endpoint::Image(&image), Path::new("/"));
    let root = CopyItem { path: "/".into(), name: None };
    copy_well(Endpoint::Image(&image), root, Endpoint::Host, &out);
    assert_eq!(std::fs::read_to_string(out.join("directory/a")).unwrap(), "new");
    assert_eq!(std::fs::read_to_string(out.join("b")).unwrap(), "new b");
    assert_eq!(std::fs::read_to_string(out.join("directory/other")).unwrap(), "stays");
    assert_eq!(std::fs::read_to_string(&outside).unwrap(), "untouched");
    assert_eq!(image.references(), 0);
}

#[test]
fn nothing_is_made_through_a_link_out_of_the_target() {
    let folder = tempfile::tempdir().unwrap();
    let (out, outside) = (folder.path().join("out"), folder.path().join("outside"));
    std::fs::create_dir_all(&out).unwrap();
    std::fs::create_dir_all(&outside).unwrap();
    symlink(&outside, out.join("directory")).unwrap();
    let image = memory();
    let context = RequestContext::superuser();
    let directory =
        image.create(&context, image.root(), b"directory", NewNode::Directory, 0o755).unwrap();
    image.create(&context, directory.inode, b"evil", NewNode::Regular, 0o644).unwrap();
    let monitor = GatheredProblems::new();
    let items = [item("/directory", "directory")];
    let summary =
        copy(Endpoint::Image(&image), &items, Endpoint::Host, &out, &options(2), &monitor).unwrap();
    assert_eq!(summary.failed, 1);
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0);
}

#[test]
fn a_failed_entry_is_named_and_the_rest_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("taken")).unwrap();
    std::fs::write(folder.path().join("good"), "x").unwrap();
    let image = memory();
    let context = RequestContext::superuser();
    let taken =
        image.create(&context, image.root(), b"taken", NewNode::Regular, 0o644).unwrap().inode;
    image.forget(taken, 1);
    let monitor = GatheredProblems::new();
    let items = [
        item(folder.path().join("missing"), "missing"),
        item(folder.path().join("taken"), "taken"),
        item(folder.path().join("good"), "good"),
    ];
    let root = Path::new("/");
    let to = Endpoint::Image(&image);
    let summary = copy(Endpoint::Host, &items, to, root, &options(1), &monitor).unwrap();
    assert_eq!((summary.failed, summary.files), (2, 1));
    let mut texts = monitor.texts();
    texts.sort();
    assert_eq!(texts[0], "can't make /taken: not a directory");
    assert!(texts[1].contains("missing: No such file"), "{}", texts[1]);
    assert_eq!(image.references(), 0);
}

/// Makes a file shorter once its first bytes are copied.
struct Shortening<'f> {
    file: &'f std::fs::File,
    problems: GatheredProblems,
}

impl CopyMonitor for Shortening<'_> {
    fn bytes(&self, _count: u64) {
        self.file.set_len(1 << 20).unwrap();
    }

    fn problem(&self, problem: &CopyProblem) {
        self.problems.problem(problem);
    }
}

/// The lost end of a file with holes doesn't become zeros without a word.
#[test]
fn a_sparse_file_that_gets_shorter_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sparse");
    std::fs::write(&path, vec![7; 4 << 20]).unwrap();
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    file.set_len(16 << 20).unwrap();
    assert!(file.metadata().unwrap().blocks() * 512 < 16 << 20);
    let image = memory();
    let monitor = Shortening { file: &file, problems: GatheredProblems::new() };
    let (from, to) = (Endpoint::Host, Endpoint::Image(&image));
    let items = [item(&path, "sparse")];
    let summary = copy(from, &items, to, Path::new("/"), &options(1), &monitor).unwrap();
    let texts = monitor.problems.texts();
    assert_eq!((summary.failed, texts.len()), (1, 1), "{texts:?}");
    assert!(texts[0].contains("the file ends too early"), "{texts:?}");
}

#[test]
fn a_directory_is_not_copied_into_itself() {
    let image = memory();
    let context = RequestContext::superuser();
    let a = image.create(&context, image.root(), b"a", NewNode::Directory, 0o755).unwrap();
    let b = image.create(&context, a.inode, b"b", NewNode::Directory, 0o755).unwrap();
    image.forget(a.inode, 1);
    image.forget(b.inode, 1);
    for (path, name) in [("/a", Some("c")), ("/", None), ("/", Some("c"))] {
        let monitor = GatheredProblems::new();
        let items = [CopyItem { path: path.into(), name: name.map(OsString::from) }];
        let place = Endpoint::Image(&image);
        let summary = copy(place, &items, place, Path::new("/a/b"), &options(2), &monitor).unwrap();
        assert_eq!((summary.failed, summary.directories), (1, 0));
        assert!(monitor.texts()[0].contains("the target lies in it"), "{:?}", monitor.texts());
    }
    let file = image.create(&context, image.root(), b"f", NewNode::Regular, 0o644).unwrap();
    image.forget(file.inode, 1);
    let monitor = GatheredProblems::new();
    let place = Endpoint::Image(&image);
    let summary =
        copy(place, &[item("/f", "f")], place, Path::new("/"), &options(1), &monitor).unwrap();
    assert_eq!(summary.failed, 1);
    assert!(monitor.texts()[0].contains("the same file"));
    assert_eq!(image.references(), 0);
}

#[test]
fn files_to_leave_out_are_left_out() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("image"), "x").unwrap();
    std::fs::write(folder.path().join("other"), "x").unwrap();
    let stat = std::fs::metadata(folder.path().join("image")).unwrap();
    let image = memory();
    let monitor = GatheredProblems::new();
    let options = CopyOptions { excluded: vec![(stat.dev(), stat.ino())], ..options(2) };
    let items = [CopyItem { path: folder.path().to_path_buf(), name: None }];
    let to = Endpoint::Image(&image);
    let summary = copy(Endpoint::Host, &items, to, Path::new("/"), &options, &monitor).unwrap();
    assert_eq!((summary.files, summary.failed, summary.not_kept), (1, 0, 1));
    assert!(monitor.0.lock()[0].is_warning);
    let items = [item(folder.path().join("image"), "image")];
    let to = Endpoint::Image(&image);
    let summary = copy(Endpoint::Host, &items, to, Path::new("/"), &options, &monitor).unwrap();
    assert_eq!((summary.files, summary.failed, summary.not_kept), (0, 1, 0));
}

#[test]
fn files_to_spare_are_not_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    std::fs::write(&path, "the image").unwrap();
    let stat = std::fs::metadata(&path).unwrap();
    let image = memory();
    copy_well(Endpoint::Host, item(path.clone(), "image"), Endpoint::Image(&image), Path::new("/"));
    let monitor = GatheredProblems::new();
    let options = CopyOptions { excluded: vec![(stat.dev(), stat.ino())], ..options(2) };
    let items = [CopyItem { path: "/image".into(), name: Some("image".into()) }];
    let from = Endpoint::Image(&image);
    let summary = copy(from, &items, Endpoint::Host, folder.path(), &options, &monitor).unwrap();
    assert_eq!((summary.files, summary.failed), (0, 1));
    assert!(monitor.texts()[0].contains("it is the image itself"), "{:?}", monitor.texts());
    assert_eq!(std::fs::read(&path).unwrap(), b"the image");
    assert_eq!(std::fs::metadata(&path).unwrap().ino(), stat.ino());
}

#[test]
fn inherited_acls_do_not_stay() {
    let image = memory();
    let context = RequestContext::superuser();
    // Version 2; user::rwx, group::r-x, other::r-x.
    let mut acl = vec![2, 0, 0, 0];
    for (tag, permissions) in [(1_u16, 7_u16), (4, 5), (0x20, 5)] {
        acl.extend(tag.to_le_bytes());
        acl.extend(permissions.to_le_bytes());
        acl.extend(u32::MAX.to_le_bytes());
    }
    let name = b"system.posix_acl_default";
    image.set_xattr(&context, image.root(), name, &acl, XattrMode::Set).unwrap();
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("d")).unwrap();
    std::fs::set_permissions(folder.path().join("d"), PermissionsExt::from_mode(0o700)).unwrap();
    let from = item(folder.path().join("d"), "d");
    copy_well(Endpoint::Host, from, Endpoint::Image(&image), Path::new("/"));
    let copied = find_path(&image, &context, b"/d", false).unwrap();
    assert_eq!(image.list_xattrs(&context, copied.inode()).unwrap(), Vec::<Vec<u8>>::new());
    assert_eq!(copied.attributes().permissions, 0o700);
}

#[test]
fn a_full_target_stops_the_copy_with_one_report() {
    let folder = tempfile::tempdir().unwrap();
    for file in 0..200 {
        std::fs::write(folder.path().join(file.to_string()), vec![1; 100_000]).unwrap();
    }
    let image = MemoryFileSystem::new(Configuration {
        space_max: Some(4_000_000),
        ..Configuration::default()
    });
    let monitor = GatheredProblems::new();
    let items = [item(folder.path(), "tree")];
    let to = Endpoint::Image(&image);
    let summary = copy(Endpoint::Host, &items, to, Path::new("/"), &options(4), &monitor).unwrap();
    assert!(summary.files > 20 && summary.files < 41, "{summary:?}");
    // Each thread may have been in the middle of a file.
    assert!((1..=4).contains(&summary.failed), "{summary:?}");
    let whole = summary.files * 100_000;
    assert!((whole..=whole + 4 * 100_000).contains(&summary.bytes), "{summary:?}");
    let problems = monitor.0.lock();
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert_eq!(problems[0].side, Side::Target);
    assert_eq!(problems[0].cause.code(), Errno::ENOSPC.code());
    assert!(summary.is_stopped);
    assert_eq!(image.references(), 0);
}

/// File systems say of an attribute that is too large what they say when they are full.
#[test]
fn an_attribute_that_is_too_large_fails_its_file_only() {
    let image = memory();
    let context = RequestContext::superuser();
    for (name, length) in [(b"a", 10), (b"b", 60_000), (b"c", 100), (b"d", 60_000), (b"e", 0)] {
        let file = image.create(&context, image.root(), name, NewNode::Regular, 0o644).unwrap();
        let value = vec![7; length];
        for name in [&b"user.small"[..], b"user.x"] {
            let value = if name == b"user.x" { &value[..] } else { b"1" };
            image.set_xattr(&context, file.inode, name, value, XattrMode::Set).unwrap();
        }
        image.forget(file.inode, 1);
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("small.img");
    let made = drystone_mkfs::MkfsOptions::new(8 << 20, [1; 16], [2; 4], 1);
    crate::make_image(&path, &made, false).unwrap();
    let target = crate::Image::open(&path).unwrap();
    let items = [CopyItem { path: "/".into(), name: None }];
    let monitor = GatheredProblems::new();
    let to = Endpoint::Image(target.file_system());
    let summary = copy(Endpoint::Image(&image), &items, to, Path::new("/"), &options(2), &monitor);
    let summary = summary.unwrap();
    assert_eq!((summary.files, summary.failed), (5, 2), "{:?}", monitor.texts());
    let mut texts = monitor.texts();
    texts.sort();
    assert!(texts[0].starts_with("can't keep an extended attribute of /b:"), "{texts:?}");
    let b = find_path(target.file_system(), &context, b"/b", false).unwrap();
    let kept = target.file_system().list_xattrs(&context, b.inode()).unwrap();
    assert_eq!(kept, [b"user.small".to_vec()]);
    drop(b);
    target.close().unwrap();
    // The host may have room for them or not: all files come out.
    let out = folder.path().join("out");
    std::fs::create_dir(&out).unwrap();
    let monitor = GatheredProblems::new();
    let summary =
        copy(Endpoint::Image(&image), &items, Endpoint::Host, &out, &options(2), &monitor);
    let summary = summary.unwrap();
    assert_eq!(summary.files, 5);
    assert_eq!(summary.failed + summary.not_kept, monitor.texts().len() as u64);
}

/// Inodes may share attributes, which a small image may hold any number of times.
#[test]
fn attributes_come_out_so_often_only() {
    let image = MemoryFileSystem::new(Configuration {
        space_max: Some(1 << 20),
        ..Configuration::default()
    });
    let context = RequestContext::superuser();
    for number in 0..300 {
        let name = number.to_string();
        let file = image.create(&context, image.root(), name.as_bytes(), NewNode::Regular, 0o644);
        let file = file.unwrap().inode;
        let value = vec![7; 60_000];
        image.set_xattr(&context, file, b"user.x", &value, XattrMode::Set).unwrap();
        image.forget(file, 1);
    }
    let root = CopyItem { path: "/".into(), name: None };
    let mut out = Vec::new();
    let monitor = GatheredProblems::new();
    let summary = super::archive(&image, &root, &mut out, &options(1), &monitor).unwrap();
    assert_eq!(summary.files, 300);
    assert!((10..40).contains(&summary.failed), "{summary:?}");
    assert!(out.len() < 18 << 20, "{}", out.len());
    assert!(monitor.texts()[0].contains("share more"), "{:?}", monitor.texts());
    let folder = tempfile::tempdir().unwrap();
    let monitor = GatheredProblems::new();
    let to = Endpoint::Host;
    let summary = copy(Endpoint::Image(&image), &[root], to, folder.path(), &options(2), &monitor);
    assert!(summary.unwrap().failed >= 10);
    assert!(monitor.texts().iter().any(|text| text.contains("share more")));
}

#[test]
fn times_before_1970_and_set_id_bits_come_out() {
    let image = memory();
    let context = RequestContext::superuser();
    let file = image.create(&context, image.root(), b"f", NewNode::Regular, 0o4755).unwrap();
    let time = SetTime::At(Timestamp { seconds: -10, nanoseconds: 5 });
    // Of the caller, who may not be able to give files away.
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    let changes = SetAttributes {
        permissions: Some(0o4755),
        user: Some(user.as_raw()),
        group: Some(group.as_raw()),
        modified: Some(time),
        ..SetAttributes::default()
    };
    image.set_attributes(&context, file.inode, &changes).unwrap();
    image.forget(file.inode, 1);
    let folder = tempfile::tempdir().unwrap();
    copy_well(Endpoint::Image(&image), item("/f", "f"), Endpoint::Host, folder.path());
    let stat = std::fs::metadata(folder.path().join("f")).unwrap();
    assert_eq!((stat.mtime(), stat.mtime_nsec()), (-10, 5));
    if is_root() {
        assert_eq!(stat.mode() & 0o7777, 0o4755);
    }
}

#[test]
fn an_item_gets_no_name_that_leads_elsewhere() {
    let source = memory();
    let made =
        source.create(&RequestContext::superuser(), source.root(), b"f", NewNode::Regular, 0o600);
    source.forget(made.unwrap().inode, 1);
    let folder = tempfile::tempdir().unwrap();
    let into = folder.path().join("into");
    std::fs::create_dir(&into).unwrap();
    for name in ["../escaped", "..", ".", "", "a/b", "a\0b"] {
        let items = [item("/f", name), item("/", name)];
        let monitor = GatheredProblems::new();
        let places = (Endpoint::Image(&source), Endpoint::Host);
        let summary = copy(places.0, &items, places.1, &into, &options(2), &monitor).unwrap();
        assert_eq!((summary.failed, summary.files, summary.directories), (2, 0, 0), "{name:?}");
        assert!(monitor.texts()[0].contains("can't be a name"), "{:?}", monitor.texts());
        let archived = super::archive(
            &source,
            &items[0],
            &mut Vec::new(),
            &options(1),
            &GatheredProblems::new(),
        );
        assert!(archived.is_err(), "{name:?}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    assert_eq!(std::fs::read_dir(&into).unwrap().count(), 0);
    assert_eq!(source.references(), 0);
}
