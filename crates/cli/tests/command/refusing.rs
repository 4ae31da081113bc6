//! Images that can't be used: in use, read-only, not there, none, damaged.

use crate::support::{Fixture, is_root, tool};
use drystone_testkit::judges::kernel_mount;
use drystone_testkit::skip::{self, Prerequisite, skip};
use std::fs::File;
use std::os::unix::fs::{FileExt, PermissionsExt};

/// Another process has the image open: readers keep writers out, a writer everybody.
#[test]
fn an_image_in_use_is_refused() {
    let fixture = Fixture::new();
    fixture.fill(&["a"]);
    let lock = File::open(fixture.path("disk.img")).unwrap();
    lock.lock_shared().unwrap();
    // The test itself has it open, and for a moment a child that another test starts.
    let (refusal, itself) = ("drystone: disk.img: in use by another process: ", std::process::id());
    let is_refused =
        |message: &str| message.starts_with(refusal) && message.contains(&format!(" {itself} ("));
    assert_eq!(fixture.line("cat disk.img:/a").good(), "a");
    for line in ["rm disk.img:/a", "cp source/a disk.img:/b", "mkfs -f disk.img"] {
        let message = fixture.line(line).bad(1);
        assert!(is_refused(&message), "{line}: {message}");
    }
    lock.unlock().unwrap();
    lock.lock().unwrap();
    for line in ["ls disk.img", "info disk.img", "cp disk.img:/a out"] {
        let message = fixture.line(line).bad(1);
        assert!(is_refused(&message), "{line}: {message}");
    }
    fixture.line("check disk.img").bad(8);
    // Not by closing: a child that another test starts may hold the file open for a moment.
    lock.unlock().unwrap();
    fixture.line("rm disk.img:/a").good();
}

/// The kernel has the image mounted: no command writes a byte of it, by no name.
#[test]
fn an_image_that_the_kernel_has_mounted_is_refused() {
    let fixture = Fixture::with(&["--size", "16M", "-O", "quota"]);
    fixture.fill(&["a", "d/b"]);
    fixture.line("tune -q disk.img --label x --undo before.undo").good();
    std::fs::hard_link(fixture.path("disk.img"), fixture.path("other.img")).unwrap();
    let [image, directory] = ["disk.img", "kernel"].map(|name| fixture.path(name));
    let Some(mounted) = kernel_mount(&image, &directory, "").unwrap() else { return };
    let synced = File::open(&directory).unwrap();
    rustix::fs::syncfs(&synced).unwrap();
    drop(synced);
    let before = std::fs::read(&image).unwrap();
    let mut lines = vec![
        "mkfs -f disk.img",
        "build -f disk.img --from source",
        "cp source disk.img:/",
        "mkdir disk.img:/new",
        "mv disk.img:/a disk.img:/b",
        "rm -r disk.img:/d",
        "ln disk.img:/a disk.img:/l",
        "ln -s a disk.img:/l",
        "chmod 600 disk.img:/a",
        "chown 5 disk.img:/a",
        "truncate -s 5 disk.img:/a",
        "setfattr -n user.a disk.img:/a",
        "setfattr -x user.a disk.img:/a",
        "quota disk.img --user 5 --space-hard 1G",
        "quota disk.img --space-grace 3d",
        "label disk.img y",
        "uuid disk.img random",
        "tune disk.img --label y",
        "resize disk.img +8M",
        "resize -M disk.img",
        "compact disk.img",
        "defragment disk.img",
        "trim disk.img",
        "zero-free disk.img",
        "set disk.img superblock mnt_count=1 --i-know",
        "undo disk.img before.undo",
        "check -p disk.img",
        "check -y disk.img",
    ];
    if skip::can_mount("a mount of what the kernel has mounted") {
        lines.push("mount disk.img elsewhere");
        std::fs::create_dir(fixture.path("elsewhere")).unwrap();
    }
    for line in lines {
        for line in [line.to_owned(), line.replace("disk.img", "other.img")] {
            let code = if line.starts_with("check") { 8 } else { 1 };
            let message = fixture.line(&line).bad(code);
            assert!(message.contains("mounted at "), "{line}: {message}");
            assert!(std::fs::read(&image).unwrap() == before, "{line}");
        }
    }
    assert_eq!(fixture.line("cat disk.img:/a").good(), "a");
    mounted.unmount().unwrap();
    fixture.line("mkdir disk.img:/new").good();
    fixture.expect_sound();
}

/// `--read-only` keeps every changing command from changing anything.
#[test]
fn read_only_changes_nothing() {
    let fixture = Fixture::new();
    fixture.fill(&["a", "d/b"]);
    let before = std::fs::read(fixture.path("disk.img")).unwrap();
    for line in [
        "mkdir disk.img:/x",
        "mv disk.img:/a disk.img:/b",
        "rm -rf disk.img:/a",
        "ln -s a disk.img:/l",
        "ln disk.img:/a disk.img:/l",
        "chmod 600 disk.img:/a",
        "chown 5 disk.img:/a",
        "truncate -s 5 disk.img:/a",
        "truncate -s 5 disk.img:/new",
        "setfattr -n user.a disk.img:/a",
        "cp source/a disk.img:/new",
        "rm -f disk.img:/none",
        "undo disk.img",
        "import disk.img archive.tar",
    ] {
        let message =
            fixture.run(&[&["--read-only"], &line.split(' ').collect::<Vec<_>>()[..]].concat());
        assert!(message.bad(2).contains("read-only"), "{line}");
    }
    for line in ["mkfs disk.img --size 8M --force", "build disk.img --from source --force"] {
        let message = fixture.line(&format!("{line} --read-only")).bad(2);
        assert!(message.contains("--read-only"), "{line}: {message}");
    }
    assert!(std::fs::read(fixture.path("disk.img")).unwrap() == before);
    assert_eq!(fixture.line("--read-only cat disk.img:/a").good(), "a");
}

/// What the permissions of the image's file forbid.
#[test]
fn a_file_without_write_permission() {
    if is_root() {
        skip(Prerequisite::OrdinaryUser, "permissions don't stop root");
        return;
    }
    let fixture = Fixture::new();
    std::fs::set_permissions(fixture.path("disk.img"), PermissionsExt::from_mode(0o444)).unwrap();
    fixture.line("ls disk.img").good();
    assert!(fixture.line("mkdir disk.img:/a").bad(1).contains("Permission denied"));
}

#[test]
fn what_is_no_image_is_refused() {
    let fixture = Fixture::empty();
    fixture.put("zeros.img", vec![0; 1 << 20]);
    fixture.put("text.img", "hello");
    fixture.put("empty.img", "");
    std::fs::create_dir(fixture.path("folder.img")).unwrap();
    for image in ["zeros.img", "text.img", "empty.img", "folder.img", "none.img"] {
        for command in ["info", "ls", "mkdir", "check"] {
            let path = if command == "mkdir" { "/x" } else { "" };
            let place = if path.is_empty() { image.to_string() } else { format!("{image}:{path}") };
            let code = if command == "check" { 8 } else { 1 };
            let message = fixture.line(&format!("{command} {place}")).bad(code);
            assert!(message.starts_with(&format!("drystone: {image}: ")), "{message}");
            assert_eq!(message.lines().count(), 1, "{message}");
        }
    }
}

/// What is there besides the superblock isn't lost: the message says what finds it.
#[test]
fn a_lost_superblock_is_restored_as_the_message_says() {
    let fixture = Fixture::with(&["--size", "32M", "-b", "1K"]);
    fixture.fill(&["a"]);
    let file = File::options().write(true).open(fixture.path("disk.img")).unwrap();
    file.write_all_at(&[0; 1024], 1024).unwrap();
    for line in ["info disk.img", "ls disk.img", "tune disk.img -L x", "resize disk.img 40M"] {
        let message = fixture.line(line).bad(1);
        assert!(message.contains("neither ext4 (ext2, ext3) nor NILFS2"), "{line}: {message}");
        assert!(message.contains("'drystone check' looks for a copy"), "{line}: {message}");
    }
    assert_eq!(fixture.line("check -y disk.img").code, Some(1));
    assert_eq!(fixture.line("cat disk.img:/a").good(), "a");
    fixture.expect_sound();
}

/// A feature that nobody knows is named.
#[test]
fn unknown_features_are_refused_by_name() {
    let fixture = Fixture::new();
    let image = fixture.path("disk.img");
    let request = "ssv feature_incompat 0x80000042";
    let changed =
        tool("debugfs", &["-w".as_ref(), "-R".as_ref(), request.as_ref(), image.as_ref()]);
    assert_eq!(changed.code, Some(0), "{changed:?}");
    let message = fixture.line("ls disk.img").bad(1);
    assert!(message.contains("FEATURE_I31") || message.contains("80000000"), "{message}");
}

/// Damage is an error that names the place, for what lies there; the rest can be read.
#[test]
fn damage_is_named() {
    let fixture = Fixture::new();
    fixture.fill(&["a/b", "c"]);
    let image = fixture.path("disk.img");
    let extents = fixture.line("stat --json --extents disk.img:/a").json();
    let start = extents["extents"][0]["physical"].as_u64().unwrap();
    File::options().write(true).open(&image).unwrap().write_all_at(&[0xff; 1024], start).unwrap();
    let message = fixture.line("ls disk.img:/a").bad(1);
    assert!(message.starts_with("drystone: disk.img:/a: "), "{message}");
    assert_eq!(fixture.line("cat disk.img:/c").good(), "c");
    let done = fixture.line("check disk.img");
    assert_eq!(done.code, Some(4), "{done:?}");
}
