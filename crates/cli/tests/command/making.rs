//! `mkfs` and `info`.

use crate::support::{Done, Fixture, call, tool};
use drystone_testkit::skip::{self, Prerequisite, skip};
use std::path::{Path, PathBuf};
use std::process::Command;

/// An image that `mke2fs` makes with these arguments.
fn make(folder: &Path, arguments: &[&str]) -> PathBuf {
    let path = folder.join("test.img");
    let mut all: Vec<&std::ffi::OsStr> = ["-q", "-F", "-t", "ext4"].map(AsRef::as_ref).into();
    all.extend(arguments.iter().map(AsRef::<std::ffi::OsStr>::as_ref));
    all.extend([path.as_os_str(), "16M".as_ref()]);
    assert_eq!(tool("mke2fs", &all).code, Some(0));
    path
}

fn drystone(arguments: &[&str]) -> (Option<i32>, String, String) {
    let Done { code, stdout, stderr, .. } = call(arguments);
    (code, stdout, stderr)
}

#[test]
fn info_tells_what_mke2fs_made() {
    let folder = tempfile::tempdir().unwrap();
    let uuid = "12345678-1234-4234-8234-123456789abc";
    let image = make(folder.path(), &["-L", "a label", "-U", uuid, "-b", "1024", "-N", "2048"]);
    let image = image.to_str().unwrap();
    let (code, stdout, stderr) = drystone(&["info", image]);
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    for line in
        ["Label            a label", "Blocks           16384 (16 MiB)", "Inodes           2048"]
    {
        assert!(stdout.contains(line), "{line} in {stdout}");
    }
    let (code, stdout, _) = drystone(&["info", "--json", image]);
    assert_eq!(code, Some(0));
    let json: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(json["uuid"], uuid);
    assert_eq!(json["block_size"], 1024);
    assert_eq!(json["state"][0], "clean");
    assert!(json["features"].as_array().unwrap().iter().any(|name| name == "metadata_csum"));
}

#[test]
fn what_is_no_image_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("zeros.img");
    std::fs::write(&path, vec![0; 1 << 20]).unwrap();
    let path = path.to_str().unwrap();
    for command in ["info", "ls"] {
        let (code, _, stderr) = drystone(&[command, path]);
        assert_eq!(code, Some(1), "{stderr}");
        assert!(stderr.starts_with(&format!("drystone: {path}: ")), "{stderr}");
    }
}

#[test]
fn what_mkfs_makes_e2fsck_finds_clean() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("made.img");
    let path = path.to_str().unwrap();
    let (code, stdout, stderr) =
        drystone(&["mkfs", path, "--size", "64M", "-L", "made", "-O", "^resize_inode"]);
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    assert!(stdout.starts_with(path), "{stdout}");
    assert_eq!(tool("e2fsck", &["-fn".as_ref(), path.as_ref()]).code, Some(0));
    let (_, stdout, _) = drystone(&["info", path]);
    assert!(stdout.contains("Label            made\n") && !stdout.contains("resize_inode"));
    let (code, _, stderr) = drystone(&["mkfs", path]);
    assert_eq!(code, Some(1));
    assert!(stderr.contains("--force overwrites it"), "{stderr}");
    let (code, stdout, _) = drystone(&["mkfs", path, "--force", "--json"]);
    assert_eq!(code, Some(0));
    let json: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(json["blocks"].as_u64().unwrap() * json["block_size"].as_u64().unwrap(), 64 << 20);
}

/// Each option of `mkfs` shows in what `info` says or `dumpe2fs` finds.
#[test]
fn mkfs_does_what_its_options_say() {
    for (options, key, value) in [
        ("--size 8M --block-size 1K", "block_size", "1024"),
        ("--size 64M -b 64K", "block_size", "65536"),
        ("--size 32M --features bigalloc --cluster-size 64K", "cluster_size", "65536"),
        ("--size 16M --inode-size 512", "inode_size", "512"),
        ("--size 16M --inodes 4096", "inodes", "4096"),
        ("--size 16M --label a-label", "label", "\"a-label\""),
        ("--size 16M --reserved-percent 0", "blocks_reserved", "0"),
        ("--size 16M --journal-size 0", "journal_inode", "null"),
        ("--size 16M --timestamp 86400", "created", "86400"),
        (
            "--size 16M --uuid 12345678-1234-4234-8234-123456789abc",
            "uuid",
            "\"12345678-1234-4234-8234-123456789abc\"",
        ),
        ("--size 1M", "blocks", "1024"),
    ] {
        let fixture = Fixture::empty();
        fixture.line(&format!("mkfs disk.img {options}")).good();
        let found = fixture.line("info --json disk.img").json();
        assert_eq!(found[key].to_string(), value, "{options}");
        fixture.expect_sound();
    }
}

#[test]
fn the_same_options_make_the_same_image() {
    let fixture = Fixture::empty();
    let uuid = "12345678-1234-4234-8234-123456789abc";
    for name in ["a.img", "b.img"] {
        let options = format!("--size 16M --uuid {uuid} --hash-seed {uuid} --timestamp 1000000000");
        fixture.line(&format!("mkfs {name} {options}")).good();
    }
    let read = |name: &str| std::fs::read(fixture.path(name)).unwrap();
    assert!(read("a.img") == read("b.img"), "they differ");
}

#[test]
fn large_images_are_sparse() {
    use std::os::unix::fs::MetadataExt;
    let fixture = Fixture::with(&["--size", "1T"]);
    let metadata = std::fs::metadata(fixture.path("disk.img")).unwrap();
    assert_eq!(metadata.len(), 1 << 40);
    assert!(metadata.blocks() * 512 < 1 << 30, "{} sectors", metadata.blocks());
    assert_eq!(fixture.paths(), [""; 0]);
}

#[test]
fn what_mkfs_cannot_make_is_refused() {
    let fixture = Fixture::empty();
    for (options, message) in [
        ("--size 4K", "small"),
        ("--size 64M --block-size 3000", "block"),
        ("--size 64M --inode-size 100", "inode"),
        ("--size 64M --label seventeen-letters", "label"),
        ("--size 64M --features metadata_csum,nonsense", "nonsense"),
        ("--size 64M --uuid 1", "UUID"),
    ] {
        let done = fixture.line(&format!("mkfs disk.img {options}"));
        assert!(matches!(done.code, Some(1 | 2)), "{options}: {done:?}");
        assert!(done.stderr.to_lowercase().contains(&message.to_lowercase()), "{done:?}");
    }
    let done = fixture.line("mkfs no/such/folder/disk.img --size 8M").bad(1);
    assert!(done.contains("No such file"), "{done}");
}

/// NILFS2 fills its device: another size is refused, and nothing is written.
#[test]
fn nilfs2_fills_a_device() {
    if !skip::is_root("a loop device") {
        return;
    }
    let fixture = Fixture::empty();
    fixture.put("disk", vec![0; 64 << 20]);
    let mut attach = Command::new("losetup");
    let done = attach.args(["--find", "--show"]).arg(fixture.path("disk")).output().unwrap();
    if !done.status.success() {
        return skip(Prerequisite::LoopMounts, "a loop device");
    }
    let device = String::from_utf8(done.stdout).unwrap().trim().to_string();
    let refused = ["32M", "128M"]
        .map(|size| fixture.run(&["mkfs", "-t", "nilfs2", "-B", "16", &device, "--size", size]));
    let untouched = std::fs::read(fixture.path("disk")).unwrap();
    let made = fixture.run(&["mkfs", "-t", "nilfs2", "-B", "16", &device, "--size", "64M", "-q"]);
    assert!(Command::new("losetup").args(["--detach", &device]).status().unwrap().success());
    for refused in refused {
        let message = refused.bad(1);
        assert!(message.contains("which has 67108864 bytes"), "{message}");
    }
    assert!(untouched.iter().all(|&byte| byte == 0));
    made.good();
    fixture.line("check disk").good();
}
