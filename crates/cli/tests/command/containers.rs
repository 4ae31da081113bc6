//! Images in qcow2 files: every command takes them, and QEMU and e2fsck judge.

use crate::support::{Fixture, tool};
use drystone_testkit::judges::have;
use drystone_testkit::skip;
use std::io::Read;
use std::process::{Command, Stdio};

/// The qcow2 is sound, and so is the file system in it.
#[track_caller]
fn expect_sound(fixture: &Fixture, name: &str) {
    let (path, raw) = (fixture.path(name), fixture.path("judged.img"));
    let checked = tool("qemu-img", &["check".as_ref(), path.as_ref()]);
    assert_eq!(checked.code, Some(0), "{}{}", checked.stdout, checked.stderr);
    let words = ["convert", "-O", "raw"].map(AsRef::as_ref);
    tool("qemu-img", &[&words[..], &[path.as_ref(), raw.as_ref()]].concat()).good();
    fixture.expect_sound_image("judged.img");
    fixture.line(&format!("check {name}")).good();
}

#[test]
fn images_are_made_filled_and_read_in_qcow2() {
    let fixture = Fixture::empty();
    fixture.put("tree/etc/hosts", "::1 localhost");
    fixture.put("tree/file", vec![7; 300_000]);
    fixture.line("build built.qcow2 --from tree -q").good();
    fixture.line("mkfs made.qcow2 --size 64M --label qcow -q").good();
    for name in ["built.qcow2", "made.qcow2"] {
        assert!(std::fs::read(fixture.path(name)).unwrap().starts_with(b"QFI\xfb"), "{name}");
    }
    assert!(std::fs::metadata(fixture.path("made.qcow2")).unwrap().len() < 8 << 20);
    fixture.line("cp -r built.qcow2:/etc made.qcow2:/copy").good();
    assert_eq!(fixture.line("cat made.qcow2:/copy/hosts").good(), "::1 localhost");
    fixture.line("mv made.qcow2:/copy/hosts made.qcow2:/").good();
    fixture.line("chmod 600 made.qcow2:/hosts").good();
    fixture.line("label made.qcow2 other").good();
    assert_eq!(fixture.line("info --json made.qcow2").json()["label"], "other");
    assert_eq!(fixture.line("diff made.qcow2:/hosts built.qcow2:/etc/hosts").code, Some(1));
    expect_sound(&fixture, "built.qcow2");
    expect_sound(&fixture, "made.qcow2");
    let message = fixture.line("mkfs made.qcow2 -q").bad(1);
    assert!(message.contains("isn't empty"), "{message}");
    fixture.line("mkfs made.qcow2 --force -q --type nilfs2 -B 64").good();
    fixture.line("cp -r tree made.qcow2:/").good();
    assert!(fixture.line("check made.qcow2").good().contains("clean"));
    let message = fixture.line("mkfs bad.qcow2 --size 4K -q").bad(2);
    assert!(!fixture.path("bad.qcow2").exists(), "{message}");
}

/// A qcow2 whose writer was killed while it counted lazily: it is read as it is, and opening it to write repairs
/// it.
#[test]
fn a_qcow2_that_was_not_closed_is_repaired_by_a_change() {
    let fixture = Fixture::empty();
    let path = fixture.path("disk.qcow2");
    let words = ["create", "-q", "-f", "qcow2", "-o", "lazy_refcounts=on"].map(AsRef::as_ref);
    tool("qemu-img", &[&words[..], &[path.as_ref(), "64M".as_ref()]].concat()).good();
    fixture.line("mkfs disk.qcow2 -q").good();
    fixture.put("file", "content");
    fixture.line("cp file disk.qcow2:/").good();
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    for change in ["chmod 600 disk.qcow2:/file", "label disk.qcow2 other"] {
        std::os::unix::fs::FileExt::write_all_at(&file, &[1], 79).unwrap();
        let is_dirty = || std::fs::read(&path).unwrap()[79] & 1 != 0;
        assert_eq!(fixture.line("cat disk.qcow2:/file").good(), "content");
        assert!(is_dirty());
        fixture.line(change).good();
        assert!(!is_dirty());
        assert_eq!(fixture.line("cat disk.qcow2:/file").good(), "content");
    }
    expect_sound(&fixture, "disk.qcow2");
}

/// A virtual machine would go on with what it knows of the image.
#[test]
fn an_image_that_qemu_has_open_is_refused() {
    if !have("qemu-io") {
        return;
    }
    let fixture = Fixture::empty();
    fixture.put("file", "content");
    fixture.put("tree/file", "content");
    fixture.line("mkfs disk.qcow2 --size 64M -q").good();
    let mut qemu = Command::new("qemu-io");
    let piped = qemu.args(["-f", "qcow2"]).arg(fixture.path("disk.qcow2"));
    let mut qemu = piped.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    // It asks for a command once it has opened the image.
    qemu.stdout.as_mut().unwrap().read_exact(&mut [0; 8]).unwrap();
    let before = std::fs::read(fixture.path("disk.qcow2")).unwrap();
    for line in ["ls disk.qcow2", "cp file disk.qcow2:/", "build disk.qcow2 --from tree --force"] {
        let message = fixture.line(line).bad(1);
        let named = format!("in use by another process: {} (qemu-io)", qemu.id());
        assert!(message.contains(&named), "{line}: {message}");
    }
    assert!(std::fs::read(fixture.path("disk.qcow2")).unwrap() == before);
    drop(qemu.stdin.take());
    qemu.wait().unwrap();
    fixture.line("cp file disk.qcow2:/").good();
}

#[test]
fn partitions_in_qcow2_are_named_as_elsewhere() {
    let fixture = Fixture::empty();
    fixture.partition("raw.img", "label: gpt\nsize=16M, type=linux, name=data\n");
    let paths = [fixture.path("raw.img"), fixture.path("disk.qcow2")];
    let words = ["convert", "-O", "qcow2"].map(AsRef::as_ref);
    tool("qemu-img", &[&words[..], &[paths[0].as_ref(), paths[1].as_ref()]].concat()).good();
    fixture.line("mkfs disk.qcow2#1 -q").good();
    fixture.put("file", "content");
    fixture.line("cp file disk.qcow2#data:/").good();
    assert_eq!(fixture.line("cat disk.qcow2:/file").good(), "content");
    let text = fixture.line("info disk.qcow2").good();
    assert!(text.contains("ext4"), "{text}");
    fixture.line("check disk.qcow2#1").good();
}

#[test]
fn qcow2_is_mounted() {
    if !skip::can_mount("mounts of qcow2") {
        return;
    }
    let fixture = Fixture::empty();
    fixture.line("mkfs disk.qcow2 --size 64M -q").good();
    fixture.line("chmod 777 disk.qcow2:/").good();
    std::fs::create_dir(fixture.path("mnt")).unwrap();
    fixture.line("mount disk.qcow2 mnt").good();
    for number in 0..50_u8 {
        std::fs::write(fixture.path(format!("mnt/{number}")), vec![number; 100_000]).unwrap();
    }
    let message = fixture.line("ls disk.qcow2").bad(1);
    assert!(message.contains("in use by another process"), "{message}");
    fixture.line("umount mnt").good();
    assert_eq!(fixture.line("cat disk.qcow2:/49").bytes, vec![49; 100_000]);
    expect_sound(&fixture, "disk.qcow2");
}
