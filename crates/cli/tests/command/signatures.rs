//! What another format keeps on a file, a disk or a partition is written over only if that is forced.

use crate::support::{Fixture, tool};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

const SIZE: u64 = 16 << 20;

/// Makes a file of [`SIZE`] that `wipefs` takes for something of this type.
fn make_foreign(path: &Path, kind: &str) {
    let file = File::create(path).unwrap();
    file.set_len(SIZE).unwrap();
    let (program, arguments): (_, &[&str]) = match kind {
        "vfat" => ("mkfs.fat", &[]),
        "nilfs2" => ("mkfs.nilfs2", &["-q", "-B", "16"]),
        _ => {
            // A RAID whose metadata lies at the end.
            let superblock = [0xa92b_4efc_u32, 0, 90].map(u32::to_le_bytes).concat();
            return file.write_all_at(&superblock, SIZE - (64 << 10)).unwrap();
        }
    };
    let arguments: Vec<&OsStr> =
        arguments.iter().map(AsRef::as_ref).chain([path.as_ref()]).collect();
    let made = tool(program, &arguments);
    assert_eq!(made.code, Some(0), "{}", made.stderr);
}

/// The types that `wipefs` finds.
fn found(path: &Path) -> Vec<String> {
    let arguments = ["-n", "-i", "-O", "TYPE"].map(OsStr::new);
    let mut types: Vec<String> = tool("wipefs", &[&arguments[..], &[path.as_ref()]].concat())
        .good()
        .lines()
        .map(str::to_string)
        .collect();
    types.dedup();
    types
}

#[test]
fn what_is_foreign_is_written_over_only_if_forced() {
    let fixture = Fixture::empty();
    fixture.put("root/file", "content");
    fixture.partition("table", "label: gpt\nsize=16M\n");
    let table = fixture.line("info --json table").json();
    let offset = table["partitions"][0]["offset"].as_u64().unwrap();
    let [foreign, disk, part] = ["foreign", "disk", "part"].map(|name| fixture.path(name));
    for kind in ["vfat", "nilfs2", "linux_raid_member"] {
        make_foreign(&foreign, kind);
        assert_eq!(found(&foreign), [kind]);
        let content = fs::read(&foreign).unwrap();
        for command in ["mkfs -q", "build -q --from root"] {
            let message = fixture.line(&format!("{command} foreign")).bad(1);
            assert!(message.contains("--force"), "{kind}, {command}: {message}");
            assert!(fs::read(&foreign).unwrap() == content, "{kind}, {command}");

            fs::copy(fixture.path("table"), &disk).unwrap();
            let opened = File::options().read(true).write(true).open(&disk).unwrap();
            opened.write_all_at(&content, offset).unwrap();
            drop(opened);
            let before = fs::read(&disk).unwrap();
            let message = fixture.line(&format!("{command} disk#1")).bad(1);
            assert!(message.contains("--force"), "{kind}, {command}: {message}");
            assert!(fs::read(&disk).unwrap() == before, "{kind}, {command}");

            fixture.line(&format!("{command} --force disk#1")).good();
            let after = fs::read(&disk).unwrap();
            let (start, end) = (offset as usize, (offset + SIZE) as usize);
            assert!(after[..start] == before[..start] && after[end..] == before[end..], "{kind}");
            fs::write(&part, &after[start..end]).unwrap();
            assert_eq!(found(&part), ["ext4"], "{kind}, {command}");
            fixture.expect_sound_image("part");
        }
    }
}
