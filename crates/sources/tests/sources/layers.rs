//! Layers of images over each other, and what they take away.

use crate::layouts::{Layout, gzip, read};
use crate::listing::{ALL, content, list};
use crate::made::Made;
use drystone_mkfs::tree::FileTree;

/// Three layers that add, replace and take away.
fn layers() -> Vec<(&'static str, Vec<u8>)> {
    let base = Made::default()
        .directory("etc")
        .file("etc/kept", "kept")
        .file("etc/removed", "removed")
        .file("etc/replaced", "old")
        .file("opaque/below", "hidden")
        .file("opaque/sub/below", "hidden")
        .file("tree/a", "")
        .entry("lib", b'2', "usr/lib", b"")
        .file("usr/lib/one", "1")
        .end();
    let second = Made::default()
        // Whiteouts may come after what the layer itself brings.
        .file("opaque/own", "seen")
        .file("opaque/.wh..wh..opq", "")
        .file("etc/.wh.removed", "")
        .file("etc/.wh.never-there", "")
        .file(".wh.tree", "")
        .file("etc/replaced", "new")
        .entry("etc/linked", b'1', "etc/kept", b"")
        .file("etc/back", "")
        .file("etc/.wh.back", "")
        .file("lib/two", "2")
        .file(".wh..wh.plnk", "")
        .end();
    let third = Made::default().directory("tree").file("lib/.wh.one", "").end();
    vec![("+gzip", gzip(&base)), ("+zstd", zstd::encode_all(&second[..], 1).unwrap()), ("", third)]
}

fn check(tree: &FileTree) {
    let paths: Vec<String> = list(tree, ALL).into_keys().collect();
    assert_eq!(
        paths,
        [
            "",
            "/etc",
            "/etc/back",
            "/etc/kept",
            "/etc/linked",
            "/etc/replaced",
            "/lib",
            "/opaque",
            "/opaque/own",
            "/tree",
            "/usr",
            "/usr/lib",
            "/usr/lib/two",
        ]
    );
    let lookup = |path: &str| tree.lookup(path.as_bytes()).unwrap();
    assert_eq!(lookup("etc/linked"), lookup("etc/kept"));
    assert_eq!(content(tree, lookup("etc/replaced")), b"new");
}

#[test]
fn layers_over_each_other() {
    let layout = Layout::new();
    let image = layout.image("amd64", &layers());
    layout.index(&[image + "}"]);
    check(&layout.read(None, None).unwrap());
    // The same as an archive, and as a compressed one.
    let archive = layout.folder.path().join("layout.tar");
    let mut made = Made::default();
    for name in ["oci-layout", "index.json"] {
        let bytes = std::fs::read(layout.folder.path().join(name)).unwrap();
        made = made.entry(name, b'0', "", &bytes);
    }
    for blob in std::fs::read_dir(layout.folder.path().join("blobs/sha256")).unwrap() {
        let blob = blob.unwrap();
        let name = format!("blobs/sha256/{}", blob.file_name().display());
        made = made.entry(&name, b'0', "", &std::fs::read(blob.path()).unwrap());
    }
    let bytes = made.end();
    std::fs::write(&archive, &bytes).unwrap();
    check(&read(&archive, None, None).unwrap());
    std::fs::write(&archive, gzip(&bytes)).unwrap();
    check(&read(&archive, None, None).unwrap());
}

/// Reads two layers of an image.
fn over(lower: Made, upper: Made) -> Result<FileTree, String> {
    let layout = Layout::new();
    let image = layout.image("amd64", &[("", lower.end()), ("", upper.end())]);
    layout.index(&[image + "}"]);
    layout.read(None, None)
}

#[test]
fn whiteouts_are_not_led_away_by_replaced_links() {
    let lower = || Made::default().file("usr/lib/old", "").entry("lib", b'2', "usr/lib", b"");
    for whiteout in ["lib/.wh.old", "lib/.wh..wh..opq", "lib/sub/.wh.old"] {
        let upper = Made::default().file(whiteout, "").directory("lib").file("lib/new", "");
        let tree = over(lower(), upper).unwrap();
        assert!(tree.lookup(b"usr/lib/old").is_some(), "{whiteout}");
        assert!(tree.lookup(b"lib/new").is_some() && tree.lookup(b"lib/old").is_none());
    }
    // A link that stays leads on; a file is replaced like a link.
    let tree = over(lower(), Made::default().file("lib/.wh.old", "")).unwrap();
    assert!(tree.lookup(b"usr/lib/old").is_none());
    let upper = Made::default().directory("a").file("a/.wh.b", "").file("a/c", "");
    let tree = over(Made::default().file("a", ""), upper).unwrap();
    assert!(tree.lookup(b"a/c").is_some());
}

#[test]
fn whiteouts_hide_names() {
    let plain = || Made::default().file("d/a", "");
    for name in ["d/.wh..", "d/.wh..."] {
        let bad = || Made::default().file(name, "");
        for read in [over(plain(), bad()), over(bad(), plain())] {
            let expected = format!("{name} at byte 0: hides a directory that it is in");
            assert!(read.unwrap_err().contains(&expected));
        }
    }
}

/// aufs has the files with several names in a directory of its own.
#[test]
fn link_targets_of_aufs_are_not_in_the_image() {
    let layer = Made::default()
        .directory(".wh..wh.plnk")
        .file(".wh..wh.plnk/1.2", "hello")
        .entry("a", b'1', ".wh..wh.plnk/1.2", b"")
        .entry("d/b", b'1', ".wh..wh.plnk/1.2", b"")
        .file(".wh..wh.aufs", "");
    let layout = Layout::new();
    let image = layout.image("amd64", &[("", layer.end())]);
    layout.index(&[image + "}"]);
    let tree = layout.read(None, None).unwrap();
    let paths: Vec<String> = list(&tree, ALL).into_keys().collect();
    assert_eq!(paths, ["", "/a", "/d", "/d/b"]);
    let node = tree.lookup(b"a").unwrap();
    assert_eq!((tree.node(node).links(), content(&tree, node)), (2, b"hello".to_vec()));
}

#[test]
fn whiteouts_of_the_longest_names() {
    for length in [251, 252, 255] {
        let (path, whiteout) =
            ["", ".wh."].map(|start| format!("d/{start}{}", "n".repeat(length))).into();
        let lower = Made::default().pax(&[("path", path.as_bytes())]).file("x", "");
        let upper = Made::default().pax(&[("path", whiteout.as_bytes())]).file("x", "");
        let tree = over(lower, upper).unwrap();
        assert!(tree.lookup(b"d").is_some() && tree.lookup(path.as_bytes()).is_none());
    }
    let long = format!(".wh.{}", "n".repeat(256));
    let upper = Made::default().pax(&[("path", long.as_bytes())]).file("x", "");
    assert!(over(Made::default().file("a", ""), upper).unwrap_err().contains("255 fit"));
}
