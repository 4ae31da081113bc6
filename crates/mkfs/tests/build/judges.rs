//! The judges of an image.

use crate::trees::content;
use drystone_blockdev::MemoryDevice;
use drystone_mkfs::tree::{FileTree, NodeKind, TreeNodeId};
use drystone_testkit::judges::have;
use ext4_view::Ext4;
use std::process::Command;

/// Files that are longer aren't compared byte by byte.
const COMPARED_BYTES_MAX: u64 = 32 << 20;

/// Has e2fsck and the checker judge an image.
pub fn judge(device: &MemoryDevice) {
    let report =
        drystone_fsck::check(device, &drystone_fsck::CheckOptions::default(), &mut |_| {}).unwrap();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    std::fs::write(&path, device.to_vec()).unwrap();
    if !have("e2fsck") {
        return;
    }
    let output = Command::new("e2fsck").arg("-fn").arg(&path).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
}

/// Reads everything with `ext4-view`.
pub fn compare(tree: &FileTree, device: &MemoryDevice) {
    let image = Ext4::load(Box::new(device.to_vec())).unwrap();
    compare_directory(tree, TreeNodeId::ROOT, &image);
}

fn compare_directory(tree: &FileTree, directory: TreeNodeId, image: &Ext4) {
    let path = tree.directory_path(directory);
    let mut found: Vec<Vec<u8>> = image
        .read_dir(&path[..])
        .unwrap()
        .map(|entry| entry.unwrap().file_name().as_ref().to_vec())
        .filter(|name| name != b"." && name != b"..")
        .collect();
    let mut expected: Vec<Vec<u8>> =
        tree.children(directory).map(|(name, _)| name.to_vec()).collect();
    found.sort();
    expected.sort();
    assert_eq!(found, expected, "{}", path.escape_ascii());
    for (name, id) in tree.children(directory) {
        let path = tree.entry_path(directory, name);
        let shown = path.escape_ascii().to_string();
        let node = tree.node(id);
        let there = image.symlink_metadata(&path[..]).unwrap();
        let metadata = node.metadata();
        assert_eq!((there.uid(), there.gid()), (metadata.user, metadata.group), "{shown}");
        match node.kind() {
            NodeKind::Symlink(target)
                if target.split(|&byte| byte == b'/').any(|name| name.len() > 255) =>
            {
                // `ext4-view` refuses a target that could never be followed.
                continue;
            }
            NodeKind::Symlink(target) => {
                let found = image.read_link(&path[..]).unwrap();
                assert_eq!(AsRef::<[u8]>::as_ref(&found), target, "{shown}");
                continue;
            }
            NodeKind::Directory => compare_directory(tree, id, image),
            NodeKind::File { size } => {
                assert_eq!(there.len(), size, "{shown}");
                if size <= COMPARED_BYTES_MAX {
                    let found = image.read(&path[..]).unwrap();
                    assert!(found == content(tree, id, size), "{shown}: another content");
                }
            }
            _ => {}
        }
        assert_eq!(there.mode() & 0o7777, metadata.permissions, "{shown}");
    }
}
