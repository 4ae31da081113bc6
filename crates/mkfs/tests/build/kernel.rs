//! The kernel mounts an image and everything is there.

use crate::build;
use crate::trees::{content, varied};
use drystone_mkfs::build::Ext4BuildOptions;
use drystone_mkfs::tree::{FileTree, NodeKind, TreeNodeId};
use drystone_testkit::judges::kernel_mount;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

/// Files that are longer aren't compared byte by byte.
const COMPARED_BYTES_MAX: u64 = 32 << 20;

#[test]
fn the_kernel_finds_everything() {
    let mut tree = varied();
    let device = build(&mut tree, &Ext4BuildOptions::default());
    let folder = tempfile::tempdir().unwrap();
    let (image, at) = (folder.path().join("image"), folder.path().join("mounted"));
    std::fs::write(&image, device.to_vec()).unwrap();
    std::fs::create_dir(&at).unwrap();
    let Some(mounted) = kernel_mount(&image, &at, "ro").unwrap() else { return };
    compare(&tree, TreeNodeId::ROOT, mounted.path());
}

fn compare(tree: &FileTree, directory: TreeNodeId, at: &Path) {
    let mut found: Vec<_> =
        std::fs::read_dir(at).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    let mut expected: Vec<_> =
        tree.children(directory).map(|(name, _)| OsStr::from_bytes(name).to_owned()).collect();
    found.sort();
    expected.sort();
    assert_eq!(found, expected, "{}", at.display());
    for (name, id) in tree.children(directory) {
        let path = at.join(OsStr::from_bytes(name));
        let node = tree.node(id);
        let there = path.symlink_metadata().unwrap();
        let metadata = node.metadata();
        assert_eq!((there.uid(), there.gid()), (metadata.user, metadata.group), "{path:?}");
        assert_eq!(there.mtime(), node.modified().seconds, "{path:?}");
        assert_eq!(there.mtime_nsec(), i64::from(node.modified().nanoseconds), "{path:?}");
        let device = |major, minor| rustix::fs::makedev(major, minor);
        match node.kind() {
            NodeKind::Directory => compare(tree, id, &path),
            NodeKind::Symlink(target) => {
                assert_eq!(std::fs::read_link(&path).unwrap().as_os_str().as_bytes(), target);
                continue;
            }
            NodeKind::CharacterDevice { major, minor } | NodeKind::BlockDevice { major, minor } => {
                assert_eq!(there.rdev(), device(major, minor), "{path:?}");
            }
            NodeKind::File { size } => compare_file(tree, id, size, &path),
            NodeKind::Fifo | NodeKind::Socket => {}
        }
        assert_eq!(there.mode() & 0o7777, u32::from(metadata.permissions), "{path:?}");
        if tree.parent(id).is_none() {
            assert_eq!(there.nlink(), u64::from(node.links()), "{path:?}");
        }
        for xattr in &metadata.xattrs {
            let mut value = vec![0; 1 << 16];
            let length = rustix::fs::lgetxattr(&path, &xattr.name[..], &mut value[..]).unwrap();
            assert_eq!(value[..length], xattr.value, "{path:?}");
        }
    }
}

fn compare_file(tree: &FileTree, id: TreeNodeId, size: u64, path: &Path) {
    let file = std::fs::File::open(path).unwrap();
    let found = file.metadata().unwrap();
    assert_eq!(found.len(), size, "{path:?}");
    if size <= COMPARED_BYTES_MAX {
        assert!(std::fs::read(path).unwrap() == content(tree, id, size), "{path:?}");
        return;
    }
    // Long ones are holes but for a few bytes.
    assert!(found.blocks() * 512 < 1 << 20, "{path:?}");
    for piece in tree.node(id).segments() {
        let mut bytes = vec![0; piece.length as usize];
        file.read_exact_at(&mut bytes, piece.logical).unwrap();
        let mut expected = bytes.clone();
        tree.source(piece.source).read_at(piece.object, piece.offset, &mut expected).unwrap();
        assert_eq!(bytes, expected, "{path:?}");
    }
}
