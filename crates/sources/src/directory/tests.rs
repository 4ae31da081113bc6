//! Directories of the host read into trees.

use super::*;
use drystone_mkfs::tree::{
    FileTree, InodeTimestamp, NodeContent, NodeKind, NodeMetadata, NodeToInsert,
};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;

fn read(path: &Path) -> FileTree {
    let mut tree = FileTree::new();
    let exclude = |path: &[u8]| path == b"not/this";
    read_directory(&mut tree, path, &options(&exclude, &|| false)).unwrap();
    tree
}

fn options<'o>(
    exclude: &'o (dyn Fn(&[u8]) -> bool + Sync),
    is_cancelled: &'o (dyn Fn() -> bool + Sync),
) -> DirectoryOptions<'o> {
    DirectoryOptions { threads: 2, one_file_system: false, exclude, is_cancelled }
}

fn content(tree: &FileTree, path: &str) -> Result<Vec<u8>, drystone_mkfs::tree::SourceError> {
    let node = tree.node(tree.lookup(path.as_bytes()).unwrap());
    let NodeKind::File { size } = node.kind() else { panic!("{path} is no file") };
    let mut bytes = vec![0; size as usize];
    for segment in node.segments() {
        let start = segment.logical as usize;
        let target = &mut bytes[start..start + segment.length as usize];
        tree.source(segment.source).read_at(segment.object, segment.offset, target)?;
    }
    Ok(bytes)
}

#[test]
fn everything_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    std::fs::create_dir_all(root.join("a/b")).unwrap();
    std::fs::create_dir_all(root.join("not/this/either")).unwrap();
    std::fs::write(root.join("a/b/file"), b"text").unwrap();
    std::fs::set_permissions(root.join("a/b"), PermissionsExt::from_mode(0o2751)).unwrap();
    std::fs::hard_link(root.join("a/b/file"), root.join("link")).unwrap();
    symlink("somewhere else", root.join("symlink")).unwrap();
    let sparse = std::fs::File::create(root.join("sparse")).unwrap();
    sparse.write_all_at(b"end", 8 << 20).unwrap();
    let tree = read(root);
    let lookup = |path: &str| tree.lookup(path.as_bytes());
    assert_eq!(content(&tree, "a/b/file").unwrap(), b"text");
    assert_eq!(lookup("link"), lookup("a/b/file"));
    assert_eq!(tree.node(lookup("link").unwrap()).links(), 2);
    assert_eq!(tree.node(lookup("a/b").unwrap()).metadata().permissions, 0o2751);
    assert_eq!(tree.node(lookup("symlink").unwrap()).kind(), NodeKind::Symlink(b"somewhere else"));
    assert_eq!((lookup("not/this"), lookup("not").is_some()), (None, true));
    assert_eq!(&content(&tree, "sparse").unwrap()[8 << 20..], b"end");
    let pieces: Vec<_> = tree.node(lookup("sparse").unwrap()).segments().collect();
    assert!(pieces.iter().map(|piece| piece.length).sum::<u64>() < 1 << 20, "{pieces:?}");
}

#[test]
fn what_changes_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["gone", "longer", "shorter", "rewritten", "replaced"] {
        std::fs::write(folder.path().join(name), b"0123456789").unwrap();
    }
    let tree = read(folder.path());
    // Longer than a tick of the clock that stamps files.
    drystone_sync::thread::sleep(std::time::Duration::from_millis(20));
    let with_time_of_the_old_one = |name: &str, to: &str| {
        let old = std::fs::metadata(folder.path().join(to)).unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, b"abcdefghij").unwrap();
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        file.set_modified(old.modified().unwrap()).unwrap();
        std::fs::rename(path, folder.path().join(to)).unwrap();
    };
    with_time_of_the_old_one("rewritten", "rewritten");
    with_time_of_the_old_one("new", "replaced");
    std::fs::remove_file(folder.path().join("gone")).unwrap();
    std::fs::write(folder.path().join("longer"), b"01234567890").unwrap();
    std::fs::write(folder.path().join("shorter"), b"0").unwrap();
    for (name, word) in [
        ("gone", "vanished"),
        ("longer", "changed"),
        ("shorter", "shorter"),
        ("rewritten", "changed"),
        ("replaced", "changed"),
    ] {
        let error = content(&tree, name).unwrap_err().to_string();
        assert!(error.contains(word) && error.contains(name), "{error}");
    }
}

#[test]
fn a_walk_ends_when_it_is_asked_to() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("file"), b"").unwrap();
    let ended = read_directory(&mut FileTree::new(), folder.path(), &options(&|_| false, &|| true));
    assert!(matches!(ended, Err(DirectoryError::Cancelled)), "{ended:?}");
}

/// Another file system's directory is taken as empty, and an empty one is merged like any other.
#[test]
fn what_earlier_sources_have_stays_where_the_walk_ends() {
    let mut tree = FileTree::new();
    let new = NodeToInsert::File(NodeContent::Bytes(b"text".to_vec()));
    let about = NodeMetadata::default();
    tree.insert(b"proc/kept", new, &about, InodeTimestamp::default()).unwrap();
    let exclude = |path: &[u8]| path != b"proc";
    let options = DirectoryOptions { one_file_system: true, ..options(&exclude, &|| false) };
    read_directory(&mut tree, Path::new("/"), &options).unwrap();
    let names: Vec<_> = tree.children(tree.lookup(b"proc").unwrap()).collect();
    assert_eq!(names, [(&b"kept"[..], tree.lookup(b"proc/kept").unwrap())]);
    assert_eq!(tree.node(tree.lookup(b"proc").unwrap()).metadata().permissions, 0o555);
}

#[test]
fn nobody_waits_for_a_thread_that_panicked() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("file"), b"").unwrap();
    let exclude = |_: &[u8]| panic!("as it should");
    let ended = std::panic::catch_unwind(|| {
        let mut tree = FileTree::new();
        read_directory(&mut tree, folder.path(), &options(&exclude, &|| false)).map(|()| 1)
    });
    assert!(ended.is_err());
}

/// Levels of a tree that is deeper than a path can be long.
const DEPTH: usize = 50;

fn deep_name() -> String {
    "d".repeat(200)
}

/// Makes such a tree, and returns its lowest directory.
fn make_deep(at: &Path) -> std::os::fd::OwnedFd {
    let mut at = std::fs::File::open(at).unwrap().into();
    for _ in 0..DEPTH {
        rustix::fs::mkdirat(&at, deep_name(), rustix::fs::Mode::RWXU).unwrap();
        let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECTORY;
        at = rustix::fs::openat(&at, deep_name(), flags, rustix::fs::Mode::empty()).unwrap();
    }
    at
}

#[test]
fn names_of_any_bytes_and_deep_trees() {
    let folder = tempfile::tempdir().unwrap();
    let odd = std::ffi::OsString::from_vec(b"\xff\n\x01".to_vec());
    std::fs::write(folder.path().join(&odd), b"1").unwrap();
    let at = make_deep(folder.path());
    let flags = rustix::fs::OFlags::CREATE | rustix::fs::OFlags::WRONLY;
    let file = rustix::fs::openat(&at, "f", flags, rustix::fs::Mode::RWXU).unwrap();
    rustix::io::write(&file, b"deep").unwrap();
    let tree = read(folder.path());
    assert!(tree.lookup(odd.as_bytes()).is_some());
    let path = [vec![deep_name().as_str(); DEPTH].join("/"), "f".into()].join("/");
    assert_eq!(content(&tree, &path).unwrap(), b"deep");
}

/// What lies deep is opened from a directory above it: from the root, the time for a tree would grow
/// with the square of its depth.
#[test]
fn what_lies_deep_is_not_opened_from_the_root() {
    let folder = tempfile::tempdir().unwrap();
    let [root, away] = ["root", "away"].map(|name| folder.path().join(name));
    std::fs::create_dir_all(root.join("top")).unwrap();
    make_deep(&root.join("top"));
    // No path of the root leads to the lower half any more when it is listed.
    let exclude = |path: &[u8]| {
        if path.len() > 8000 && !away.exists() {
            std::fs::rename(root.join("top"), &away).unwrap();
        }
        false
    };
    let mut tree = FileTree::new();
    read_directory(&mut tree, &root, &options(&exclude, &|| false)).unwrap();
    assert!(away.exists());
    let path = ["top".into(), vec![deep_name().as_str(); DEPTH].join("/")].join("/");
    assert!(tree.lookup(path.as_bytes()).is_some());
}

/// Files are replaced between the listing and the reading.
#[test]
fn what_is_swapped_in_is_not_followed() {
    let folder = tempfile::tempdir().unwrap();
    let (root, outside) = (folder.path().join("root"), folder.path().join("outside"));
    for directory in [&root.join("a/b"), &root.join("pipe"), &outside.join("b")] {
        std::fs::create_dir_all(directory).unwrap();
    }
    std::fs::write(root.join("a/b/file"), b"inside").unwrap();
    std::fs::write(root.join("pipe/file"), b"inside").unwrap();
    let tree = read(&root);
    // The same length and time, so that only the path differs.
    std::fs::write(outside.join("b/file"), b"secret").unwrap();
    let listed = std::fs::metadata(root.join("a/b/file")).unwrap().modified().unwrap();
    let secret = std::fs::File::options().write(true).open(outside.join("b/file")).unwrap();
    secret.set_modified(listed).unwrap();
    std::fs::rename(root.join("a"), folder.path().join("away")).unwrap();
    symlink("../outside", root.join("a")).unwrap();
    let error = content(&tree, "a/b/file").unwrap_err().to_string();
    assert!(error.contains("was replaced"), "{error}");

    let pipe = root.join("pipe/file");
    std::fs::remove_file(&pipe).unwrap();
    let kind = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, kind, rustix::fs::Mode::RWXU, 0).unwrap();
    let error = drystone_sync::thread::scope(|scope| {
        let reader = scope.spawn(|| content(&tree, "pipe/file").unwrap_err().to_string());
        // Nobody opens the other end before this has passed.
        let limit = drystone_sync::clock::now() + std::time::Duration::from_secs(20);
        while !reader.is_finished() && drystone_sync::clock::now() < limit {
            drystone_sync::thread::sleep(std::time::Duration::from_millis(1));
        }
        let has_waited = !reader.is_finished();
        if has_waited {
            let flags = rustix::fs::OFlags::WRONLY;
            drop(rustix::fs::open(&pipe, flags, rustix::fs::Mode::empty()).unwrap());
        }
        let error = reader.join().unwrap();
        assert!(!has_waited, "the reader waited for the other end of a pipe: {error}");
        error
    });
    assert!(error.contains("was replaced"), "{error}");
}

#[test]
fn steps_lead_where_one_call_does() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join("a/b")).unwrap();
    std::fs::write(folder.path().join("a/b/file"), b"1").unwrap();
    symlink("a", folder.path().join("link")).unwrap();
    symlink("file", folder.path().join("a/b/link")).unwrap();
    let root: std::os::fd::OwnedFd = std::fs::File::open(folder.path()).unwrap().into();
    let flags = rustix::fs::OFlags::RDONLY;
    let opens = [files::open_without_links, files::open_step_by_step];
    for open in opens {
        open(&root, b"a/b/file", flags).unwrap();
        open(&root, b".", flags).unwrap();
        for path in [&b"link/b/file"[..], b"a/b/link", b"a/none"] {
            open(&root, path, flags).unwrap_err();
        }
        for path in [&b"../file"[..], b"a/../../file", b"/etc/passwd"] {
            assert_eq!(open(&root, path, flags).unwrap_err(), rustix::io::Errno::XDEV);
        }
    }
}
