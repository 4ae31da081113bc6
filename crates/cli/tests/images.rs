//! The command on images that `mke2fs` made.
#![allow(clippy::unwrap_used, reason = "a test may fail so")]

use assert_cmd::Command;
use std::path::{Path, PathBuf};

/// An image that `mke2fs` makes with these arguments.
fn make(folder: &Path, arguments: &[&str]) -> PathBuf {
    let path = folder.join("test.img");
    let output = std::process::Command::new("mke2fs")
        .env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin")
        .args(["-q", "-F", "-t", "ext4"])
        .args(arguments)
        .arg(&path)
        .arg("16M")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    path
}

fn drystone(arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::cargo_bin("drystone").unwrap();
    let output = command.env("TZ", "UTC").args(arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
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
        ["Label            a label", "Blocks           16384 (16M)", "Inodes           2048"]
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
    let status = std::process::Command::new("e2fsck")
        .env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin")
        .args(["-fn", path])
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .status();
    assert!(status.unwrap().success());
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
