//! Directories of the host read into trees.

use super::*;
use drystone_mkfs::tree::{Kind, Tree};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;

fn read(path: &Path) -> Tree {
    let mut tree = Tree::new();
    let exclude = |path: &[u8]| path == b"not/this";
    let options = DirectoryOptions { threads: 2, one_file_system: false, exclude: &exclude };
    read_directory(&mut tree, path, &options).unwrap();
    tree
}

fn content(tree: &Tree, path: &str) -> Result<Vec<u8>, drystone_mkfs::tree::SourceError> {
    let node = tree.node(tree.lookup(path.as_bytes()).unwrap());
    let Kind::File { size } = node.kind() else { panic!("{path} is no file") };
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
    assert_eq!(tree.node(lookup("symlink").unwrap()).kind(), Kind::Symlink(b"somewhere else"));
    assert_eq!((lookup("not/this"), lookup("not").is_some()), (None, true));
    assert_eq!(&content(&tree, "sparse").unwrap()[8 << 20..], b"end");
    let pieces: Vec<_> = tree.node(lookup("sparse").unwrap()).segments().collect();
    assert!(pieces.iter().map(|piece| piece.length).sum::<u64>() < 1 << 20, "{pieces:?}");
}

#[test]
fn what_changes_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["gone", "longer", "shorter"] {
        std::fs::write(folder.path().join(name), b"0123456789").unwrap();
    }
    let tree = read(folder.path());
    std::fs::remove_file(folder.path().join("gone")).unwrap();
    std::fs::write(folder.path().join("longer"), b"01234567890").unwrap();
    std::fs::write(folder.path().join("shorter"), b"0").unwrap();
    for (name, word) in [("gone", "vanished"), ("longer", "changed"), ("shorter", "shorter")] {
        let error = content(&tree, name).unwrap_err().to_string();
        assert!(error.contains(word) && error.contains(name), "{error}");
    }
}

#[test]
fn names_of_any_bytes_and_deep_trees() {
    let folder = tempfile::tempdir().unwrap();
    let odd = std::ffi::OsString::from_vec(b"\xff\n\x01".to_vec());
    std::fs::write(folder.path().join(&odd), b"1").unwrap();
    // Deeper than a path can be long.
    let name = "d".repeat(200);
    let mut at = std::fs::File::open(folder.path()).unwrap();
    for _ in 0..50 {
        rustix::fs::mkdirat(&at, name.as_str(), rustix::fs::Mode::RWXU).unwrap();
        let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECTORY;
        at = rustix::fs::openat(&at, name.as_str(), flags, rustix::fs::Mode::empty())
            .unwrap()
            .into();
    }
    let flags = rustix::fs::OFlags::CREATE | rustix::fs::OFlags::WRONLY;
    let file = rustix::fs::openat(&at, "f", flags, rustix::fs::Mode::RWXU).unwrap();
    rustix::io::write(&file, b"deep").unwrap();
    let tree = read(folder.path());
    assert!(tree.lookup(odd.as_bytes()).is_some());
    let path = [vec![name.as_str(); 50].join("/"), "f".into()].join("/");
    assert_eq!(content(&tree, &path).unwrap(), b"deep");
}
