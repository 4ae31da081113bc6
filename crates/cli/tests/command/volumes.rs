//! Images in partitions of disks: every command takes them by one name.

use crate::support::{Fixture, tool};
use drystone_testkit::skip;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

/// An EFI system partition, two partitions for images, and one for swap.
const DISK: &str = "label: gpt\nlabel-id: 11111111-2222-4333-8444-555555555555\n\
    size=2M, type=uefi, name=EFI, uuid=AAAAAAAA-BBBB-4CCC-8DDD-000000000001\n\
    size=16M, type=4F68BCE3-E8CD-4DB1-96E7-FBCAF984B709, name=system, uuid=AAAAAAAA-BBBB-4CCC-8DDD-000000000002\n\
    size=24M, type=linux, name=data, uuid=AAAAAAAA-BBBB-4CCC-8DDD-000000000003\n";
const MIB: u64 = 1 << 20;

fn disk() -> Fixture {
    let fixture = Fixture::empty();
    fixture.partition("whole.img", DISK);
    fixture
}

/// What is in a part of a disk, as a file of its own for e2fsck.
fn expect_sound_part(fixture: &Fixture, offset: u64, length: u64) {
    let mut disk = File::open(fixture.path("whole.img")).unwrap();
    disk.seek(SeekFrom::Start(offset)).unwrap();
    let mut bytes = Vec::new();
    disk.take(length).read_to_end(&mut bytes).unwrap();
    fixture.put("part.img", bytes);
    fixture.expect_sound_image("part.img");
}

#[test]
fn images_are_made_filled_and_read_in_partitions() {
    let fixture = disk();
    fixture.put("tree/etc/hosts", "::1 localhost");
    fixture.put("tree/file", "content");
    fixture.line("build whole.img#root --from tree --label os -q").good();
    fixture.line("mkfs whole.img#data --label data -q").good();
    let table_before = std::fs::read(fixture.path("whole.img")).unwrap()[..MIB as usize].to_vec();
    // Each by its number, name, UUID, type or offset; from one partition to the other.
    fixture.line("cp -r whole.img#2:/etc whole.img#data:/copy").good();
    assert_eq!(fixture.line("cat whole.img#3:/copy/hosts").good(), "::1 localhost");
    let uuid = "whole.img#aaaaaaaa-bbbb-4ccc-8ddd-000000000003";
    assert_eq!(fixture.line(&format!("ls {uuid}:/copy")).good(), "hosts\n");
    assert_eq!(fixture.line("cat whole.img@offset=3M:/file").good(), "content");
    fixture.line("mv whole.img#os:/file whole.img#os:/etc").good();
    assert_eq!(fixture.line("ls whole.img#root-x86-64:/etc").good(), "file\nhosts\n");
    assert_eq!(fixture.line("diff whole.img#2:/etc/hosts whole.img#3:/copy/hosts").good(), "");
    fixture.line("check whole.img#system").good();
    fixture.line("check -q whole.img#data").good();
    let table_after = std::fs::read(fixture.path("whole.img")).unwrap()[..MIB as usize].to_vec();
    assert!(table_before == table_after, "something was written before the first partition");
    expect_sound_part(&fixture, 3 * MIB, 16 * MIB);
    expect_sound_part(&fixture, 19 * MIB, 24 * MIB);
    assert_eq!(tool("sgdisk", &["-v".as_ref(), fixture.path("whole.img").as_ref()]).code, Some(0));
}

#[test]
fn the_one_file_system_of_a_disk_is_taken() {
    let fixture = disk();
    let message = fixture.line("ls whole.img").bad(1);
    assert!(message.contains("without a file system that is known here"), "{message}");
    fixture.line("mkfs whole.img#data -q").good();
    fixture.line("mkdir whole.img:/directory").good();
    assert_eq!(fixture.line("ls whole.img#data:/").good(), "directory\nlost+found\n");
    assert!(fixture.line("check whole.img").good().contains("clean"));
    let message = fixture.line("ls whole.img#1:/").bad(1);
    assert!(message.contains("neither ext4 (ext2, ext3) nor NILFS2"), "{message}");
    fixture.line("mkfs whole.img#system -q").good();
    let message = fixture.line("ls whole.img:/").bad(1);
    assert!(message.contains("#2 (ext4, 'system'), #3 (ext4, 'data')"), "{message}");
    assert!(message.contains("IMAGE#NUMBER"), "{message}");
}

#[test]
fn a_disk_is_not_taken_for_an_empty_place() {
    let fixture = disk();
    fixture.put("tree/file", "content");
    let before = std::fs::read(fixture.path("whole.img")).unwrap();
    fixture.line("mkfs whole.img -q").bad(1);
    fixture.line("build whole.img --from tree -q").bad(1);
    // Neither is a name that leads nowhere made into a file, nor a checkpoint into an image.
    for name in ["whole.img#9", "whole.img#nothing", "whole.img@12", "whole.img@offset=63M,size=2M"]
    {
        fixture.line(&format!("mkfs {name} --size 8M --force -q")).bad(1);
        fixture.line(&format!("build {name} --from tree --force -q")).bad(1);
        fixture
            .line(&format!("bench metadata --image {name}"))
            .code
            .filter(|code| *code > 0)
            .unwrap();
    }
    assert!(std::fs::read(fixture.path("whole.img")).unwrap() == before);
    let mut names: Vec<_> = std::fs::read_dir(fixture.path("")).unwrap().collect();
    names.retain(|name| name.as_ref().unwrap().file_name().to_string_lossy().starts_with("whole"));
    assert_eq!(names.len(), 1, "{names:?}");
    fixture.line("mkfs whole.img#data -q").good();
    let message = fixture.line("mkfs whole.img#data -q").bad(1);
    assert!(message.contains("isn't empty"), "{message}");
    let message = fixture.line("build whole.img#data --from tree -q").bad(1);
    assert!(message.contains("isn't empty"), "{message}");
    fixture.line("build whole.img#data --from tree --force -q").good();
    let message = fixture.line("build whole.img#1 --from tree --size 4M").bad(2);
    assert!(message.contains("device"), "{message}");
    fixture.line("mkfs whole.img#system --type nilfs2 -B 64 -q").good();
    fixture.line("cp -r tree whole.img#system:/").good();
    assert!(fixture.line("check whole.img#2").good().contains("clean"));
}

#[test]
fn a_disk_is_described() {
    let fixture = disk();
    fixture.line("mkfs whole.img#data --label home -q").good();
    let text = fixture.line("info whole.img").good();
    for line in [
        "Type             gpt",
        "UUID             11111111-2222-4333-8444-555555555555",
        "   1      1048576   2.0M  esp                -            EFI",
        "   2      3145728    16M  root-x86-64        -            system",
        "   3     19922944    24M  linux-generic      ext4         data, label home",
    ] {
        assert!(text.lines().any(|found| found.trim_end() == line), "{line}:\n{text}");
    }
    let json = fixture.line("info --json whole.img").json();
    assert_eq!((&json["type"], &json["partitions"][2]["is_known"]), (&"gpt".into(), &true.into()));
    assert_eq!(json["partitions"][2]["offset"], 19 * MIB);
    assert_eq!(json["partitions"][0]["content"], serde_json::Value::Null);
    let json = fixture.line("info --json whole.img#data").json();
    assert_eq!(json["uuid"], fixture.line("info --json whole.img#3").json()["uuid"]);
    assert_eq!((&json["type"], &json["label"]), (&"ext4".into(), &"home".into()));
    // An MBR.
    fixture.partition("old.img", "label: dos\nlabel-id: 0x1234abcd\nsize=8M, type=83\n");
    let text = fixture.line("info old.img").good();
    assert!(text.contains("Type             mbr\nUUID             1234abcd"), "{text}");
}

#[test]
fn partitions_are_mounted_side_by_side() {
    if !skip::can_mount("mounts of partitions") {
        return;
    }
    let fixture = disk();
    fixture.line("mkfs whole.img#system -q").good();
    fixture.line("mkfs whole.img#data -q").good();
    for name in ["system", "data"] {
        fixture.line(&format!("chmod 777 whole.img#{name}:/")).good();
        std::fs::create_dir(fixture.path(name)).unwrap();
        fixture.line(&format!("mount whole.img#{name} {name}")).good();
        std::fs::write(fixture.path(name).join("file"), name).unwrap();
    }
    let listed = fixture.line("mounts").good();
    let full = fixture.path("whole.img").canonicalize().unwrap();
    assert!(listed.contains(&format!("{}#data", full.display())), "{listed}");
    for command in ["ls whole.img#data:/", "mkdir whole.img#2:/a", "mkfs whole.img --force -q"] {
        let message = fixture.line(command).bad(1);
        assert!(message.contains("in use by another process"), "{command}: {message}");
    }
    // The table can be looked at meanwhile.
    assert!(fixture.line("info whole.img").good().contains("ext4"));
    for name in ["system", "data"] {
        fixture.line(&format!("umount {name}")).good();
        assert_eq!(fixture.line(&format!("cat whole.img#{name}:/file")).good(), name);
    }
    expect_sound_part(&fixture, 3 * MIB, 16 * MIB);
    expect_sound_part(&fixture, 19 * MIB, 24 * MIB);
}
