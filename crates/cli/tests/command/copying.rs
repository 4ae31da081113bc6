//! `cp`: into, out of, between and inside images, with everything kept that both ends can hold.

use crate::support::{Fixture, is_root};
use drystone_testkit::judges::kernel_mount;
use drystone_testkit::skip::{Prerequisite, skip};
use drystone_testkit::tree::{TreeOptions, TreeSnapshot, diff};
use rustix::fs::{AtFlags, CWD, FileType, Mode, XattrFlags};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;

/// A tree of everything that a host has: as far as this one and its user can make it.
pub fn make_tree(root: &Path) {
    fs::create_dir_all(root.join("d/deep/deeper")).unwrap();
    fs::write(root.join("empty"), "").unwrap();
    for length in [1_usize, 60, 159, 4096, 70_001, 1_500_000] {
        let content: Vec<u8> = (0..length).map(|at| (at * 31 / 7 + at / 4096) as u8).collect();
        fs::write(root.join(format!("d/of-{length}")), content).unwrap();
    }
    for index in 0..300 {
        fs::write(root.join(format!("d/deep/file-{index}")), index.to_string()).unwrap();
    }
    for name in ["first", "d/second", "d/deep/third"] {
        match root.join("first").exists() {
            true => fs::hard_link(root.join("first"), root.join(name)).unwrap(),
            false => fs::write(root.join(name), "several names").unwrap(),
        }
    }
    symlink("d/of-60", root.join("short-link")).unwrap();
    symlink("n".repeat(300), root.join("long-link")).unwrap();
    fs::hard_link(root.join("long-link"), root.join("long-link-too")).unwrap();
    let sparse = File::create(root.join("sparse")).unwrap();
    for at in [65_536_u64, 8 << 20, 20 << 20] {
        sparse.write_all_at(&[7; 4096], at).unwrap();
    }
    sparse.set_len(30 << 20).unwrap();
    drop(sparse);
    for mode in [0o400, 0o755, 0o1777, 0o2750, 0o4711] {
        let path = root.join(format!("mode-{mode:o}"));
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
    }
    fs::write(root.join("attributes"), "").unwrap();
    let long = vec![b'v'; 300];
    for (name, value) in [("user.a", &b"x"[..]), ("user.long", &long), ("user.empty", b"")] {
        set_attribute(&root.join("attributes"), name, value);
    }
    // A list for user 1001 beside owner, group, mask and others.
    let list = [
        &2_u32.to_le_bytes()[..],
        &entry(0x01, 7, u32::MAX),
        &entry(0x02, 5, 1001),
        &entry(0x04, 5, u32::MAX),
        &entry(0x10, 7, u32::MAX),
        &entry(0x20, 0, u32::MAX),
    ]
    .concat();
    set_attribute(&root.join("attributes"), "system.posix_acl_access", &list);
    set_attribute(&root.join("d/deep"), "system.posix_acl_default", &list);
    let node = |name: &str, kind, device| {
        rustix::fs::mknodat(CWD, root.join(name), kind, Mode::from_raw_mode(0o640), device)
            .unwrap();
    };
    node("fifo", FileType::Fifo, 0);
    node("socket", FileType::Socket, 0);
    if is_root() {
        node("character", FileType::CharacterDevice, rustix::fs::makedev(1, 3));
        node("block", FileType::BlockDevice, rustix::fs::makedev(300, 70_000));
        std::os::unix::fs::chown(root.join("empty"), Some(1000), Some(70_000)).unwrap();
        // CAP_NET_RAW, as `setcap cap_net_raw+ep` writes it.
        let capability = [0x0200_0001_u32, 1 << 13, 0, 0, 0].map(u32::to_le_bytes).concat();
        set_attribute(&root.join("mode-755"), "security.capability", &capability);
        set_attribute(&root.join("attributes"), "trusted.t", b"t");
    }
    for (name, seconds) in [("empty", -5), ("short-link", 4_000_000_000), ("d", 1_000_000_000)] {
        let time = rustix::fs::Timespec { tv_sec: seconds, tv_nsec: 123_456_789 };
        let times = rustix::fs::Timestamps { last_access: time, last_modification: time };
        rustix::fs::utimensat(CWD, root.join(name), &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
    }
}

fn entry(tag: u16, permissions: u16, identity: u32) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes[..2].copy_from_slice(&tag.to_le_bytes());
    bytes[2..4].copy_from_slice(&permissions.to_le_bytes());
    bytes[4..].copy_from_slice(&identity.to_le_bytes());
    bytes
}

/// Sets an attribute where the host's file system has such.
fn set_attribute(path: &Path, name: &str, value: &[u8]) {
    match rustix::fs::setxattr(path, name, value, XattrFlags::empty()) {
        Err(rustix::io::Errno::NOTSUP) => {
            skip(
                Prerequisite::Host(format!("{name} in the folder for temporary files")),
                "an attribute",
            );
        }
        other => other.unwrap(),
    }
}

/// Everything that can be seen but the times of access, which reading changes.
pub fn seen(root: &Path, holes: bool) -> TreeSnapshot {
    let options = TreeOptions { times: true, holes, ..TreeOptions::default() };
    let mut tree = TreeSnapshot::from_host(root, &options).unwrap();
    for facts in tree.entries.values_mut() {
        facts.remove("accessed");
        // Some hosts don't count subdirectories.
        if facts.get("type").is_some_and(|kind| kind == "Directory") {
            facts.remove("links");
        }
    }
    tree
}

#[track_caller]
pub fn assert_same(left: &TreeSnapshot, right: &TreeSnapshot) {
    let lines = diff(left, right);
    assert!(lines.is_empty(), "{}", lines.join("\n"));
}

/// What the kernel shows of an image, where it can be asked.
fn seen_by_kernel(fixture: &Fixture, image: &str) -> Option<TreeSnapshot> {
    let mounted = kernel_mount(&fixture.path(image), &fixture.path("mounted"), "ro").unwrap()?;
    let tree = seen(mounted.path(), true);
    mounted.unmount().unwrap();
    Some(tree)
}

/// In, inside, to another image, and out again, with one to eight threads: the same each time.
#[test]
fn a_tree_goes_round_unchanged() {
    let fixture = Fixture::with(&["--size", "96M"]);
    make_tree(&fixture.path("source"));
    let expected = seen(&fixture.path("source"), true);
    for (threads, options) in [(1, ""), (2, "-r "), (8, "-a ")] {
        fixture.line("mkfs disk.img -q -f --size 96M").good();
        fixture.line("mkfs other.img -q -f --size 96M --block-size 1K -O inline_data").good();
        let cp = |places: &str| {
            let done = fixture.line(&format!("cp {options}--threads {threads} {places}"));
            done.without_losses().good();
        };
        cp("source/. disk.img:/");
        fixture.expect_sound();
        if let Some(found) = seen_by_kernel(&fixture, "disk.img") {
            assert_same(&expected, &found);
        }
        cp("disk.img:/ out");
        assert_same(&expected, &seen(&fixture.path("out"), true));
        cp("disk.img:/ other.img:/");
        cp("disk.img:/d disk.img:/inside");
        cp("disk.img:/inside out-inside");
        fixture.expect_sound();
        fixture.expect_sound_image("other.img");
        if let Some(found) = seen_by_kernel(&fixture, "other.img") {
            // Blocks of 1 KiB make holes of their own size.
            let without = |mut tree: TreeSnapshot| {
                tree.entries.values_mut().for_each(|facts| drop(facts.remove("data")));
                tree
            };
            assert_same(&without(expected.clone()), &without(found));
        }
        // Names that lie elsewhere weren't copied.
        let without_links = |mut tree: TreeSnapshot| {
            tree.entries.values_mut().for_each(|facts| drop(facts.remove("links")));
            tree
        };
        let inside = without_links(seen(&fixture.path("out-inside"), true));
        assert_same(&without_links(seen(&fixture.path("source/d"), true)), &inside);
        cp("other.img:/ out-other");
        assert_same(
            &seen(&fixture.path("source"), false),
            &seen(&fixture.path("out-other"), false),
        );
        for name in ["out", "out-inside", "out-other"] {
            fs::remove_dir_all(fixture.path(name)).unwrap();
        }
    }
}

#[test]
fn places_are_understood_as_cp_does() {
    let fixture = Fixture::new();
    fixture.fill(&["a", "d/b"]);
    fixture.line("cp disk.img:/a new-name").good();
    assert_eq!(fs::read_to_string(fixture.path("new-name")).unwrap(), "a");
    fixture.line("cp new-name disk.img:/d").good();
    fixture.line("cp disk.img:/a new-name disk.img:/d").good();
    fixture.line("cp -T disk.img:/d disk.img:/e").good();
    fixture.put("tree/in-the-root", "");
    fixture.line("cp -T tree disk.img:/").good();
    fixture.line("stat disk.img:/in-the-root").good();
    assert!(fixture.line("cp -T tree/in-the-root disk.img:/").bad(1).contains("Not a directory"));
    fixture.line("cp disk.img:/d disk.img:/e").good();
    let expected = ["/a", "/d", "/d/a", "/d/b", "/d/new-name", "/e", "/e/a", "/e/b", "/e/d"];
    assert_eq!(fixture.paths()[..9], expected);
    let summary = fixture.line("cp --json disk.img:/e disk.img:/f").json();
    assert_eq!((&summary["files"], &summary["directories"]), (&6.into(), &2.into()));
    fixture.line("cp --no-owners --no-xattrs disk.img:/a disk.img:/plain").good();
    fixture.expect_sound();
}

#[test]
fn what_can_not_be_copied_is_named() {
    let fixture = Fixture::new();
    fixture.fill(&["a", "d/b"]);
    for (line, message) in [
        ("cp nope disk.img:/", "nope: "),
        ("cp disk.img:/nope out", "disk.img:/nope: no such file"),
        ("cp disk.img:/a no/such/folder/", "no/such: No such file"),
        ("cp disk.img:/a disk.img:/no/such/x", "disk.img:/no/such"),
        ("cp disk.img:/d disk.img:/d/e", "disk.img:/d"),
        ("cp source/a disk.img:/a/x", "disk.img:/a"),
        ("cp no.img:/a out", "no.img: "),
        ("cp source/d no.img:/", "no.img: "),
    ] {
        let done = fixture.line(line);
        assert_eq!(done.code, Some(1), "{line}: {done:?}");
        assert!(done.stderr.contains(message), "{line}: {}", done.stderr);
    }
    let done = fixture.line("cp source/a nope source/d disk.img:/d");
    assert_eq!(done.code, Some(1));
    assert_eq!(fixture.paths(), ["/a", "/d", "/d/a", "/d/b", "/d/d", "/d/d/b"]);
    fixture.expect_sound();
}

/// The image in the tree that is copied into it would grow for ever.
#[test]
fn an_image_is_not_copied_into_itself() {
    let fixture = Fixture::new();
    fixture.put("beside", "x");
    let done = fixture.line("cp . disk.img:/copy");
    assert!(done.stderr.contains("disk.img: it is the image itself"), "{}", done.stderr);
    assert_eq!(fixture.paths(), ["/copy", "/copy/beside"]);
    fixture.expect_sound();
}

#[test]
fn a_full_image_says_so_once_and_stays_sound() {
    let fixture = Fixture::with(&["--size", "8M"]);
    for index in 0..40 {
        fixture.put(&format!("source/d/{index}"), vec![b'x'; 400_000]);
    }
    let message = fixture.line("cp --threads 4 source/d disk.img:/").bad(1);
    assert!(message.contains("no space left"), "{message}");
    assert!(message.contains("the copy stopped there"), "{message}");
    assert_eq!(message.lines().count(), 2, "{message}");
    fixture.expect_sound();
    fixture.line("rm -r disk.img:/d").good();
    fixture.put("small", "x");
    fixture.line("cp small disk.img:/").good();
    fixture.expect_sound();
}
