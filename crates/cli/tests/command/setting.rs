//! `set`, beside what dumpe2fs and debugfs say afterwards.

use crate::support::{Done, Fixture, tool};
use drystone_testkit::judges::kernel_mount;
use serde_json::Value;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::fs::FileExt;

const WITHOUT_CHECKSUMS: &str = "^extent,^64bit,^metadata_csum,^metadata_csum_seed";

fn debugfs(fixture: &Fixture, request: &str) -> String {
    let image = fixture.path("disk.img");
    tool("debugfs", &[OsStr::new("-R"), OsStr::new(request), image.as_os_str()]).stdout
}

fn dumpe2fs(fixture: &Fixture) -> String {
    tool("dumpe2fs", &[fixture.path("disk.img").as_os_str()]).stdout
}

/// An image with a file of many extents, a directory and attributes in a block.
fn filled(options: &[&str]) -> Fixture {
    let fixture = Fixture::with(&[&["--size", "32M", "-b", "1K"], options].concat());
    fixture.put("source/d/file", "content");
    fixture.put("source/other", "content");
    fixture.put("source/scattered", "");
    let scattered = File::options().write(true).open(fixture.path("source/scattered")).unwrap();
    for piece in 0..20 {
        scattered.write_all_at(&[b'x'; 4096], piece * 32_768).unwrap();
    }
    fixture.line("cp -r source/. disk.img:/").good();
    let value = "v".repeat(600);
    fixture.run(&["setfattr", "-n", "user.note", "--value", &value, "disk.img:/other"]).good();
    fixture
}

fn number_of(fixture: &Fixture, path: &str) -> u64 {
    fixture.line(&format!("stat --json disk.img:{path}")).json()["inode"].as_u64().unwrap()
}

/// `PART` with words between spaces, and one assignment that may have spaces.
fn set(fixture: &Fixture, part: &str, assignment: &str) -> Done {
    set_with(fixture, part, assignment, &[])
}

fn set_with(fixture: &Fixture, part: &str, assignment: &str, options: &[&str]) -> Done {
    let mut words = vec!["set", "disk.img"];
    words.extend(part.split(' '));
    words.extend([assignment, "--i-know"]);
    words.extend(options);
    fixture.run(&words)
}

/// The structure in what `inspect` shows that has a field of this name.
fn holding<'v>(shown: &'v Value, field: &str) -> Option<&'v Value> {
    let parts = |key: &str| shown[key].as_array().map_or(&[][..], Vec::as_slice);
    if parts("fields").iter().any(|found| found["name"] == field) {
        return Some(shown);
    }
    parts("parts").iter().find_map(|part| holding(part, field))
}

fn value<'v>(shown: &'v Value, field: &str) -> &'v Value {
    let structure = holding(shown, field).unwrap_or_else(|| panic!("{field}: {shown}"));
    let fields = structure["fields"].as_array().unwrap();
    &fields.iter().find(|found| found["name"] == field).unwrap()["value"]
}

fn inspected(fixture: &Fixture, part: &str) -> Value {
    fixture.line(&format!("inspect --json disk.img {part}")).json()
}

/// Sets a field and finds it set, with a checksum that is right.
#[track_caller]
fn set_and_see(fixture: &Fixture, part: &str, field: &str, number: u64) {
    let before = inspected(fixture, part);
    let has_checksum = holding(&before, field).unwrap()["checksum"] != "none";
    let told = set_with(fixture, part, &format!("{field}={number:#x}"), &["--json"]).json();
    assert_eq!(&told["before"], value(&before, field), "{part} {field}");
    assert_eq!(told["after"], number, "{part} {field}");
    let after = inspected(fixture, part);
    assert_eq!(*value(&after, field), number, "{part} {field}");
    let verdict = &holding(&after, field).unwrap()["checksum"];
    assert_eq!(*verdict, if has_checksum { "good" } else { "none" }, "{part} {field}: {after}");
}

#[test]
fn other_programs_see_what_was_set() {
    for options in [&[][..], &["-O", WITHOUT_CHECKSUMS]] {
        let fixture = filled(options);
        let has_checksums = options.is_empty();
        set_and_see(&fixture, "superblock", "mnt_count", 7);
        let told = set(&fixture, "superblock", "volume_name=tested").good();
        assert!(told.contains("(tested)"), "{told}");
        let uuid = "00112233-4455-6677-8899-aabbccddeeff";
        set(&fixture, "superblock", &format!("journal_uuid={uuid}")).good();
        let told = dumpe2fs(&fixture);
        for line in ["Mount count:              7\n", "Filesystem volume name:   tested\n"] {
            assert!(told.contains(line), "{told}");
        }
        set_and_see(&fixture, "group 1", "used_dirs_count", 9);
        assert!(dumpe2fs(&fixture).contains(" 9 directories"), "{}", dumpe2fs(&fixture));

        let file = number_of(&fixture, "/scattered");
        set_and_see(&fixture, &format!("inode {file}"), "links_count", 7);
        set_and_see(&fixture, &format!("inode {file}"), "uid_lo", 0xfffe);
        let told = debugfs(&fixture, "stat /scattered");
        assert!(told.contains("Links: 7 ") && told.contains("User: 65534 "), "{told}");

        // The blocks that belong to inodes: a node of the map, a directory, attributes.
        let shown = inspected(&fixture, &format!("extents <{file}>"));
        if has_checksums {
            let node = value(&shown, "index[0].leaf_lo").as_u64().unwrap();
            set_and_see(&fixture, &format!("block {node}"), "extent[1].block", 33);
            assert!(debugfs(&fixture, "dump_extents /scattered").contains("    33 -    36 "));
        } else {
            let node = value(&shown, "indirect").as_u64().unwrap();
            set_and_see(&fixture, &format!("block {node}"), "pointer[20]", 3000);
            assert!(debugfs(&fixture, "stat /scattered").contains("(32):3000"));
        }
        let directory = fixture.line("stat --json --extents disk.img:/d").json();
        let block = directory["extents"][0]["physical"].as_u64().unwrap() / 1024;
        let told = set(&fixture, &format!("block {block}"), "file=12").good();
        assert!(told.contains(": file: ") && told.contains(" -> 12\n"), "{told}");
        set(&fixture, &format!("block {block}"), "file.file_type=7").good();
        let told = debugfs(&fixture, "ls -l /d");
        assert!(told.contains("    12 ") && told.contains("(7)"), "{told}");
        let shown = fixture.line(&format!("inspect disk.img block {block}")).good();
        assert!(shown.contains("12 (symlink)") && !shown.contains("WRONG"), "{shown}");

        let file = number_of(&fixture, "/other");
        let shown = inspected(&fixture, &format!("inode {file}"));
        let block = value(&shown, "file_acl_lo").as_u64().unwrap();
        set_and_see(&fixture, &format!("block {block}"), "reference_count", 3);
        set_and_see(&fixture, &format!("inode {file}"), "user.note.value_size", 500);
        let told = fixture.line("getfattr --json disk.img:/other").json();
        assert_eq!(told["value"].as_str().unwrap().len(), 1000, "{told}");

        set_and_see(&fixture, "journal", "s_max_transaction", 0x1234);
        let journal = inspected(&fixture, "journal");
        assert_eq!(journal["fields"][0]["value"], 0xc03b_3998_u32);
        set(&fixture, "group 0", "block bitmap/bit[8000]=1").good();
        set(&fixture, "group 0", "inode bitmap/bit[100]=1").good();
        assert!(debugfs(&fixture, "testb 8001").contains("marked in use"));
        assert!(debugfs(&fixture, "testi <101>").contains("marked in use"));
        let shown = inspected(&fixture, "group 0");
        assert!(!shown.to_string().contains("\"wrong\""), "{shown}");
    }
}

#[test]
fn checksums_follow_unless_they_are_to_stay() {
    let fixture = filled(&["-O", "orphan_file,mmp"]);
    let mmp = value(&inspected(&fixture, "superblock"), "mmp_block").as_u64().unwrap();
    let orphans = value(&inspected(&fixture, "superblock"), "orphan_file_inum").as_u64().unwrap();
    let orphans = inspected(&fixture, &format!("inode {orphans}"));
    let orphans = value(&orphans, "extent[0].start_lo").as_u64().unwrap();
    for (part, field) in [
        ("superblock", "mnt_count"),
        ("group 0", "free_inodes_count"),
        ("inode 2", "atime"),
        ("journal", "s_errno"),
        (&format!("block {mmp}"), "time"),
    ] {
        let verdict = || {
            let shown = inspected(&fixture, part);
            holding(&shown, field).unwrap()["checksum"].as_str().unwrap().to_owned()
        };
        let old = value(&inspected(&fixture, part), field).to_string();
        assert_eq!(verdict(), "good", "{part}");
        set_with(&fixture, part, &format!("{field}=5"), &["--keep-checksum"]).good();
        assert_eq!(verdict(), "wrong", "{part}");
        // A checksum that was wrong is right afterwards.
        set(&fixture, part, &format!("{field}={old}")).good();
        assert_eq!(verdict(), "good", "{part}");
    }
    let part = format!("block {orphans}");
    let shown = || holding(&inspected(&fixture, &part), "magic").unwrap().clone();
    let magic = value(&shown(), "magic").to_string();
    set_with(&fixture, &part, "checksum=5", &["--keep-checksum"]).good();
    assert_eq!(shown()["checksum"], "wrong");
    set(&fixture, &part, &format!("magic={magic}")).good();
    assert_eq!(shown()["checksum"], "good");
    fixture.expect_sound();
    // A checksum itself can only be set where it isn't computed.
    let before = std::fs::read(fixture.path("disk.img")).unwrap();
    let message = set(&fixture, "superblock", "checksum=5").bad(1);
    assert!(message.contains("--keep-checksum"), "{message}");
    assert!(std::fs::read(fixture.path("disk.img")).unwrap() == before);
    set_with(&fixture, "superblock", "checksum=5", &["--keep-checksum"]).good();
    assert_eq!(inspected(&fixture, "superblock")["checksum"], "wrong");
}

#[test]
fn undo_gives_the_bytes_back() {
    let fixture = filled(&[]);
    let before = std::fs::read(fixture.path("disk.img")).unwrap();
    for (number, (part, assignment)) in [
        ("superblock", "magic=0"),
        ("superblock", "log_block_size=77"),
        ("group 0", "inode_table=0"),
        ("group 0", "inode bitmap/bit[3]=0"),
        ("inode 2", "mode=0"),
        ("inode 2", "extent tree, root/magic=1"),
        ("journal", "s_start=7"),
    ]
    .into_iter()
    .enumerate()
    {
        let log = format!("{number}.undo");
        set_with(&fixture, part, assignment, &["--undo", &log]).good();
        assert!(std::fs::read(fixture.path("disk.img")).unwrap() != before, "{part} {assignment}");
        fixture.line(&format!("undo disk.img {log}")).good();
        assert!(std::fs::read(fixture.path("disk.img")).unwrap() == before, "{part} {assignment}");
    }
    // Or by hand, even without a superblock.
    set(&fixture, "superblock", "magic=0").good();
    assert!(fixture.line("ls disk.img").code == Some(1));
    set(&fixture, "superblock", "magic=0xef53").good();
    assert!(std::fs::read(fixture.path("disk.img")).unwrap() == before);
    assert!(!fixture.path("disk.img.undo").exists());
}

#[test]
fn what_cannot_be_set_is_refused_with_the_reason() {
    let fixture = filled(&[]);
    let before = std::fs::read(fixture.path("disk.img")).unwrap();
    let message = fixture.line("set disk.img superblock mnt_count=7").bad(2);
    assert!(message.contains("files can be lost") && message.contains("--i-know"), "{message}");
    fixture.line("set --read-only disk.img superblock mnt_count=7 --i-know").bad(2);
    for arguments in ["superblock --i-know", "superblock x --i-know", "htree / x=1 --i-know"] {
        let done = fixture.line(&format!("set disk.img {arguments}"));
        assert_eq!(done.code, Some(2), "{}", done.stderr);
    }
    for (part, assignment, words) in [
        ("superblock", "none=7", &["none: there is no such field in superblock"][..]),
        ("superblock", "mnt_count=65536", &["mnt_count: 65536 doesn't fit", "2 bytes"]),
        ("superblock", "mnt_count=-32769", &["doesn't fit"]),
        ("superblock", "mnt_count=", &["isn't a number"]),
        ("superblock", "volume_name=seventeen letters", &["17 bytes", "the field 16 bytes"]),
        ("superblock", "uuid=1234", &["16 bytes", "32 hexadecimal digits"]),
        ("group 99", "flags=1", &["it has groups 0 to 3"]),
        ("group 0", "block bitmap/bit[8192]=1", &["no such field"]),
        ("group 0", "block bitmap/bit[0]=2", &["neither 0 nor 1"]),
        ("group 0", "bit[0]=1", &["'block bitmap, block ", "/bit[0]'", "'inode bitmap, block "]),
        ("inode 1000000", "mode=0", &["there is no inode 1000000"]),
        ("block 99999999", "x=0", &["beyond the end"]),
        ("inode 2", "mode=0x1ffff", &["2 bytes"]),
    ] {
        let message = set(&fixture, part, assignment).bad(1);
        for word in words {
            assert!(message.contains(word), "{part} {assignment}: {message}");
        }
    }
    let twice = ["set", "disk.img", "superblock", "uuid=hex:00", "mnt_count=1", "--i-know"];
    fixture.run(&twice).bad(1);
    let twice = ["set", "disk.img", "superblock", "mnt_count=1", "mnt_count=2", "--i-know"];
    let message = fixture.run(&twice).bad(1);
    assert!(message.contains("shares bytes with mnt_count"), "{message}");
    fixture.put("taken.undo", "taken");
    set_with(&fixture, "superblock", "mnt_count=1", &["--undo", "taken.undo"]).bad(1);
    assert!(std::fs::read(fixture.path("disk.img")).unwrap() == before);

    fixture.line("mkfs log.img --type nilfs2 --size 64M -B 64 -q").good();
    let message = fixture.line("set log.img superblock magic=0 --i-know").bad(1);
    assert!(
        message.contains("a NILFS2 volume can't be repaired or changed as a whole"),
        "{message}"
    );
    let message = fixture.line("check -n log.img").bad(8);
    assert!(
        message.contains("a NILFS2 volume can't be repaired or changed as a whole"),
        "{message}"
    );
}

#[test]
fn an_image_in_use_is_not_touched() {
    let fixture = filled(&[]);
    let lock = File::open(fixture.path("disk.img")).unwrap();
    lock.lock_shared().unwrap();
    let message = set(&fixture, "superblock", "mnt_count=1").bad(1);
    assert!(message.starts_with("drystone: disk.img: in use by another process"), "{message}");
    lock.unlock().unwrap();
    let [image, directory] = ["disk.img", "kernel"].map(|name| fixture.path(name));
    let Some(mounted) = kernel_mount(&image, &directory, "").unwrap() else { return };
    let message = set(&fixture, "superblock", "mnt_count=1").bad(1);
    assert!(message.contains("mounted at "), "{message}");
    mounted.unmount().unwrap();
}

/// Several fields at once, and names that look like a path or an assignment.
/// A place in it would have overflowed to one in the superblock.
#[test]
fn a_bitmap_that_lies_nowhere_has_no_bits() {
    let fixture =
        Fixture::with(&["--size", "16M", "-O", "64bit,^metadata_csum,^metadata_csum_seed"]);
    set(&fixture, "group 0", "block_bitmap_hi=0xffffffff").good();
    let before = std::fs::read(fixture.path("disk.img")).unwrap();
    let message = set(&fixture, "group 0", "block bitmap/bit[8648]=1").bad(1);
    assert!(message.contains("no such field"), "{message}");
    assert!(std::fs::read(fixture.path("disk.img")).unwrap() == before);
}

#[test]
fn fields_are_found_by_any_name() {
    let fixture = Fixture::new();
    fixture.put("source/a=b", "x");
    fixture.put("source/tail", "x");
    fixture.line("cp -r source disk.img:/").good();
    fixture.line("setfattr -n user.a/b=c --value x disk.img:/source/tail").good();
    let told = fixture
        .line("set disk.img superblock mnt_count=3 state=0x1 checkinterval=010 --i-know")
        .good();
    assert_eq!(told.lines().count(), 3, "{told}");
    assert!(told.contains("superblock: checkinterval: 0 -> 8\n"), "{told}");
    let file = number_of(&fixture, "/source/tail");
    let directory = fixture.line("stat --json --extents disk.img:/source").json();
    let block_size = fixture.line("info --json disk.img").json()["block_size"].as_u64().unwrap();
    let block = directory["extents"][0]["physical"].as_u64().unwrap() / block_size;
    let part = format!("block {block}");
    assert!(set(&fixture, &part, "a=b=2").good().ends_with(" -> 2\n"));
    assert!(set(&fixture, &part, "records/a=b=11").good().ends_with(": 2 -> 11\n"));
    let message = set(&fixture, &part, "tail.inode=0").bad(1);
    assert!(message.contains("several") && message.contains("'tail.inode@0x"), "{message}");
    let place = message.split('\'').nth(1).unwrap();
    set(&fixture, &part, &format!("{place}=11")).good();
    let shown = inspected(&fixture, &format!("inode {file}"));
    assert!(holding(&shown, "user.a/b=c.value_size").is_some(), "{shown}");
    set(&fixture, &format!("inode {file}"), "user.a/b=c.value_size=0").good();
    let message = set(&fixture, &format!("inode {file}"), "magic=0").bad(1);
    assert!(message.contains("'extent tree, root/magic'"), "{message}");
    set(&fixture, &format!("inode {file}"), "extent tree/magic=0").good();
}
