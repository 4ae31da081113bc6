//! `build --disk`: disks with partitions, judged by the programs for each part.

use crate::support::{Fixture, tool};
use drystone_testkit::judges::have;
use drystone_testkit::skip::{Prerequisite, skip};
use std::path::Path;

/// The start of a program for x86-64.
const PROGRAM: [u8; 20] = *b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x3e\0";

fn prepared() -> Fixture {
    let fixture = Fixture::empty();
    fixture.put("esp/EFI/BOOT/BOOTX64.EFI", vec![7; 100_000]);
    fixture.put("esp/loader/loader.conf", "timeout 3\n");
    fixture.put("root/etc/hosts", "::1 localhost");
    fixture.put("root/usr/bin/program", PROGRAM);
    fixture
}

/// Both tools find nothing wrong with the table, and the checkers nothing with what is in it.
#[track_caller]
fn expect_sound(fixture: &Fixture, name: &str) {
    let path = fixture.path(name);
    if have("sfdisk") {
        let judged = tool("sfdisk", &["--verify".as_ref(), path.as_ref()]);
        assert_eq!((judged.code, judged.stderr.as_str()), (Some(0), ""), "{}", judged.stdout);
    }
    if have("sgdisk") {
        let judged = tool("sgdisk", &["-v".as_ref(), path.as_ref()]).good();
        assert!(judged.contains("No problems found"), "{judged}");
    }
    fixture.line(&format!("check {name}#root")).good();
}

/// Copies a partition into a file of its own.
fn take(fixture: &Fixture, disk: &str, number: usize, to: &str) {
    let partition = &fixture.line(&format!("info --json {disk}")).json()["partitions"][number - 1];
    let number = |key: &str| partition[key].as_u64().unwrap() as usize;
    let bytes = std::fs::read(fixture.path(disk)).unwrap();
    fixture.put(to, &bytes[number("offset")..][..number("size")]);
}

#[test]
fn a_disk_has_an_esp_and_a_root_and_is_the_same_every_time() {
    let fixture = prepared();
    let made = fixture.line("build a.img --disk gpt --esp esp --from root --json").json();
    assert_eq!(made["disk"]["partitions"][0]["type"], "esp");
    assert_eq!(made["disk"]["partitions"][1]["type"], "root-x86-64");
    assert_eq!(made["size"], std::fs::metadata(fixture.path("a.img")).unwrap().len());
    let text = fixture.line("build b.img --disk gpt --esp esp --from root --threads 1").good();
    assert!(text.contains("#2 root: ") && text.contains("PARTUUID"), "{text}");
    let read = |name: &str| std::fs::read(fixture.path(name)).unwrap();
    assert!(read("a.img") == read("b.img"));
    expect_sound(&fixture, "a.img");
    assert_eq!(fixture.line("cat a.img#root:/etc/hosts").good(), "::1 localhost");
    assert_eq!(fixture.line("cat a.img:/etc/hosts").good(), "::1 localhost");
    let text = fixture.line("info a.img").good();
    assert!(text.contains("esp") && text.contains("root-x86-64"), "{text}");
    take(&fixture, "a.img", 1, "esp.img");
    take(&fixture, "a.img", 2, "root.img");
    fixture.expect_sound_image("root.img");
    assert_eq!(fixture.line("diff root.img root").good(), "");
    if have("fsck.fat") {
        tool("fsck.fat", &["-n".as_ref(), fixture.path("esp.img").as_ref()]).good();
    }
    if have("mtype") {
        let (image, file) = (fixture.path("esp.img"), "::loader/loader.conf");
        let words: [&std::ffi::OsStr; 3] = ["-i".as_ref(), image.as_ref(), file.as_ref()];
        assert_eq!(tool("mtype", &words).good(), "timeout 3\n");
    }
    if have("blkid") {
        let words = ["-p", "-o", "export", "--offset", "1048576"].map(AsRef::as_ref);
        let told = tool("blkid", &[&words[..], &[fixture.path("a.img").as_ref()]].concat());
        let told = told.good();
        assert!(told.contains("TYPE=vfat") && told.contains("LABEL=ESP"), "{told}");
    }
}

#[test]
fn disks_come_in_every_form_that_images_do() {
    let fixture = prepared();
    fixture.line("build d.qcow2 --disk gpt --esp esp --from root --free 10M -q").good();
    assert_eq!(fixture.line("cat d.qcow2#root:/etc/hosts").good(), "::1 localhost");
    let paths = [fixture.path("d.qcow2"), fixture.path("d.raw")];
    let words = ["convert", "-O", "raw"].map(AsRef::as_ref);
    if have("qemu-img") {
        let words = [&words[..], &[paths[0].as_ref(), paths[1].as_ref()]].concat();
        tool("qemu-img", &words).good();
        expect_sound(&fixture, "d.raw");
    }
    // Without an EFI system partition, and of another type.
    fixture.line("build n.img --disk gpt --type nilfs2 --from root --root-type home -q").good();
    expect_sound(&fixture, "n.img");
    let told = fixture.line("info --json n.img").json();
    assert_eq!(told["partitions"][0]["partition_type"], "home");
    assert_eq!(told["partitions"][0]["content"], "nilfs2");
    // The halves of the root hash are the UUIDs.
    let words = "build v.img --disk gpt --from root --immutable --verity-hash --json";
    let made = fixture.line(words).json();
    expect_sound(&fixture, "v.img");
    let parts = &made["disk"]["partitions"];
    assert_eq!(parts[1]["type"], "root-x86-64-verity");
    let uuid = |index: usize| parts[index]["uuid"].as_str().unwrap().replace('-', "");
    assert_eq!(uuid(0) + &uuid(1), made["verity"]["root_hash"].as_str().unwrap());
    if have("veritysetup") {
        take(&fixture, "v.img", 1, "data.img");
        take(&fixture, "v.img", 2, "hash.img");
        let hash = made["verity"]["root_hash"].as_str().unwrap();
        let (data, hashes) = (fixture.path("data.img"), fixture.path("hash.img"));
        let words = ["verify".as_ref(), data.as_ref(), hashes.as_ref(), hash.as_ref()];
        tool("veritysetup", &words).good();
    }
}

#[test]
fn disks_fill_what_is_there_and_replace_nothing_unasked() {
    let fixture = prepared();
    fixture.partition("whole.img", "label: gpt\nsize=60M, name=inner\n");
    let line = "build whole.img#inner --disk gpt --esp esp --from root -q";
    fixture.line(line).good();
    assert_eq!(fixture.line("cat whole.img#inner#root:/etc/hosts").good(), "::1 localhost");
    let size = fixture.line("info --json whole.img#inner#root").json();
    let bytes = size["blocks"].as_u64().unwrap() * size["block_size"].as_u64().unwrap();
    assert!((20 << 20..27 << 20).contains(&bytes), "{bytes}");
    assert!(fixture.line(line).bad(1).contains("isn't empty"));
    fixture.line(&format!("{line} --force")).good();
    fixture.line("check whole.img#inner#root").good();
    let message = fixture.line(&format!("{line} --force --esp-size 60M")).bad(2);
    assert!(message.contains("before the root"), "{message}");
    fixture.put("a.img", "precious");
    let message = fixture.line("build a.img --disk gpt --from root").bad(1);
    assert!(message.contains("isn't empty"), "{message}");
    assert_eq!(std::fs::read(fixture.path("a.img")).unwrap(), b"precious");
}

/// Firmware and kernels would look for the table elsewhere.
#[test]
fn a_device_with_large_sectors_keeps_what_it_holds() {
    let fixture = prepared();
    fixture.put("disk.img", vec![7; 64 << 20]);
    let path = fixture.path("disk.img");
    let words = ["--find", "--show", "--sector-size", "4096"].map(AsRef::as_ref);
    let attached = tool("losetup", &[&words[..], &[path.as_ref()]].concat());
    if attached.code != Some(0) {
        return skip(Prerequisite::LoopMounts, "a loop device with large sectors");
    }
    let device = attached.stdout.trim();
    let done = fixture.line(&format!("build {device} --disk gpt --from root --force -q"));
    tool("losetup", &["--detach".as_ref(), device.as_ref()]).good();
    let message = done.bad(2);
    assert!(message.contains("sectors of 4096 bytes"), "{message}");
    assert!(std::fs::read(path).unwrap().iter().all(|byte| *byte == 7));
}

#[test]
fn what_makes_no_disk_is_refused() {
    let fixture = prepared();
    std::os::unix::fs::symlink("x", fixture.path("esp/link")).unwrap();
    let message = fixture.line("build a.img --disk gpt --esp esp --from root").bad(1);
    assert!(message.contains("/link: FAT holds only directories and files"), "{message}");
    std::fs::remove_file(fixture.path("esp/link")).unwrap();
    for (line, code) in [
        ("build a.img --esp esp --from root", 2),
        ("build a.img --disk gpt --esp-size 64M --from root", 2),
        ("build a.img --disk gpt --root-type nonsense --from root", 2),
        ("build a.img --disk gpt --esp esp --esp-size 8M --from root", 1),
        ("build a.img --disk gpt --esp missing --from root", 1),
    ] {
        let done = fixture.line(line);
        assert_eq!(done.code, Some(code), "{line}: {}", done.stderr);
        assert!(!Path::exists(&fixture.path("a.img")), "{line}");
    }
    let done = fixture.line("build a.img --disk gpt --from esp");
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert!(done.stderr.contains("type linux-generic"), "{}", done.stderr);
}
