//! Damage of single fields, by debugfs or by edits of bytes: e2fsck and the checker come to the same
//! verdict, and the checker names the kind and the place.

use crate::editor::{At, Change, Chosen, Editor, Verdict, judge, make, request};
use crate::images;
use Change::{Directory, Journal, Requests};
use Chosen::{Logical, Node};
use Verdict::{Damaged, Sound, Strict};
use drystone_ext4_format::{GroupNumber, InodeNumber, PhysicalBlock};
use drystone_fsck::IssueLocation;
use drystone_testkit::judges::{FeatureSet, Scratch, e2fsck_check, have, run};
use std::ffi::OsStr;
use std::fs::{self, File};

/// Offsets in the journal's superblock.
const JOURNAL_INCOMPAT: usize = 0x28;
const JOURNAL_UUID: usize = 0x30;
const JOURNAL_USERS: usize = 0x40;
const JOURNAL_FAST_BLOCKS: usize = 0x54;
/// The journal's flag of fast commits.
const FAST_COMMIT: u32 = 0x20;

/// Where the length of its name lies in a record, and its type.
const LENGTH: usize = 6;
const TYPE: usize = 7;
/// Where the record of `..` starts, and the one after it.
const SECOND: usize = 12;
const THIRD: usize = 24;

const ROWS: &[(&str, Change, Verdict<At>)] = &[
    // The index's root hides behind records of both dots.
    (
        "default-1k",
        Directory("/many", Logical(0), TYPE, &[1]),
        Damaged("directory_type", At::Record("/many", 0, 0)),
    ),
    (
        "default-1k",
        Directory("/many", Logical(0), SECOND + TYPE, &[1]),
        Damaged("directory_type", At::Record("/many", 0, SECOND)),
    ),
    (
        "default-1k",
        Directory("/many", Logical(0), TYPE, &[9]),
        Damaged("directory_type", At::Record("/many", 0, 0)),
    ),
    (
        "default-1k",
        Directory("/many", Node, LENGTH, &[1]),
        Damaged("corrupt_directory_index", At::Block("/many", Node)),
    ),
    // A reader that finds no type asks the inode.
    ("default-1k", Directory("/many", Logical(0), TYPE, &[0]), Sound),
    ("default-1k", Directory("/many", Logical(1), TYPE, &[0]), Sound),
    ("default-1k", Directory("/directory/below", Logical(0), THIRD + TYPE, &[0]), Sound),
    (
        "default-1k",
        Directory("/directory/below", Logical(0), THIRD + TYPE, &[1]),
        Damaged("directory_type", At::Record("/directory/below", 0, THIRD)),
    ),
    (
        "inline-data-1k",
        Requests("sif /directory/below flags 0x10001000"),
        Damaged("inode_flag", At::Inode("/directory/below")),
    ),
    // The second word of a root of extents: how many entries fit, and the depth.
    (
        "default-1k",
        Requests("sif /large block[1] 1"),
        Damaged("corrupt_extent_header", At::Inode("/large")),
    ),
    (
        "default-1k",
        Requests("sif /large block[1] 5"),
        Damaged("corrupt_extent_header", At::Inode("/large")),
    ),
    ("default-1k", Requests("sif /large block[1] 2"), Sound),
    // A journal in the image has one user at most, and no UUID that anybody looks for.
    ("default-1k", Journal(&[(JOURNAL_USERS, 2)]), Damaged("journal_users", At::Image)),
    ("default-1k", Journal(&[(JOURNAL_USERS, 0)]), Sound),
    ("default-1k", Journal(&[(JOURNAL_UUID, 0x1111_1111)]), Sound),
    ("default-1k", Journal(&[(JOURNAL_FAST_BLOCKS, 0x3ff)]), Sound),
    ("default-1k", Journal(&[(JOURNAL_INCOMPAT, FAST_COMMIT)]), Damaged("journal_room", At::Image)),
    (
        "default-1k",
        Journal(&[(JOURNAL_INCOMPAT, FAST_COMMIT), (JOURNAL_FAST_BLOCKS, 0x3ff)]),
        Damaged("journal_corrupt", At::Image),
    ),
    ("fast-commit", Journal(&[(JOURNAL_INCOMPAT, FAST_COMMIT)]), Sound),
    (
        "fast-commit",
        Journal(&[(JOURNAL_INCOMPAT, FAST_COMMIT), (JOURNAL_FAST_BLOCKS, 0x200)]),
        Damaged("journal_room", At::Image),
    ),
    // The fifth word: the length of the first extent, with the bit of those not written.
    ("quota", Requests("sif <3> block[4] 0x8002"), Damaged("corrupt_quota", At::Image)),
    // Reserved inodes have no flags that would change what they are, and need those that they have.
    ("default-1k", Requests("sif <1> flags 0x10000000"), Damaged("inode_flag", At::Inode("<1>"))),
    ("default-1k", Requests("sif <5> flags 0x1000"), Damaged("inode_flag", At::Inode("<5>"))),
    ("default-1k", Requests("sif <6> flags 0x40000000"), Damaged("inode_flag", At::Inode("<6>"))),
    ("default-1k", Requests("sif <7> flags 0x80000"), Damaged("inode_purpose", At::Inode("<7>"))),
    ("default-1k", Requests("sif <7> flags 0x10000000"), Damaged("inode_flag", At::Inode("<7>"))),
    ("default-1k", Requests("sif <7> flags 0x40000"), Damaged("inode_sectors", At::Inode("<7>"))),
    ("default-1k", Requests("sif <8> flags 0"), Damaged("journal_hole", At::Image)),
    ("default-1k", Requests("sif <8> flags 0x81000"), Damaged("inode_flag", At::Inode("<8>"))),
    ("default-1k", Requests("sif <9> flags 0x1000"), Damaged("inode_flag", At::Inode("<9>"))),
    ("default-1k", Requests("sif <10> flags 0x40000000"), Damaged("inode_flag", At::Inode("<10>"))),
    // Without its feature it isn't an orphan file that the number names.
    (
        "default-1k",
        Requests("ssv orphan_file_inum 8"),
        Strict("superblock_field_without_feature", At::Image),
    ),
    // All descriptors may lie in front of the first of those groups.
    ("meta-bg", Requests("ssv first_meta_bg 1"), Sound),
];

#[test]
fn both_say_the_same_of_a_field() {
    if !have("debugfs") {
        return;
    }
    let _alone = images::alone();
    let scratch = Scratch::new("fsck-edited").unwrap();
    let image = scratch.join("image");
    let mut failures = String::new();
    for (number, (name, change, expected)) in ROWS.iter().enumerate() {
        let original = make(&scratch, FeatureSet::by_name(name).unwrap());
        fs::copy(&original, &image).unwrap();
        let editor = Editor::open(&image);
        let expected = expected.map(|at| editor.place(at));
        editor.change(change);
        if fs::read(&original).unwrap() == fs::read(&image).unwrap() {
            failures += &format!("row {number}, {name}: changes nothing\n");
        } else if let Err(failure) = judge(&image, expected) {
            failures += &format!("row {number}, {name}: {failure}\n");
        }
    }
    assert!(failures.is_empty(), "{failures}");
}

/// Bad blocks may lie in copies of the superblock, which are lost with them, and where nothing else
/// is; but no inode can lie in one.
#[test]
fn bad_blocks_in_use_are_found() {
    if !have("debugfs") {
        return;
    }
    let _alone = images::alone();
    let scratch = Scratch::new("fsck-bad-blocks").unwrap();
    let image = make(&scratch, FeatureSet::by_name("default-1k").unwrap());
    let table = Editor::open(&image).map.descriptor(GroupNumber::FIRST).inode_table;
    // The reserved inodes are in front, whose loss e2fsck doesn't survive.
    let block = PhysicalBlock::new(table.get() + 6);
    request(&image, &format!("sif <1> block[0] {block}; sif <1> blocks 2"));
    let inode = Some(InodeNumber::BAD_BLOCKS);
    let place = IssueLocation { inode, block: Some(block), ..IssueLocation::default() };
    judge(&image, Damaged("blocks_claimed_twice", place)).unwrap();

    let list = scratch.join("list");
    fs::write(&list, "1500\n8193\n8194\n").unwrap();
    File::create(&image).unwrap().set_len(16 << 20).unwrap();
    let arguments = ["-q", "-F", "-t", "ext4", "-b", "1024", "-l"].map(OsStr::new);
    let arguments = arguments.into_iter().chain([list.as_os_str(), image.as_os_str()]);
    run("mke2fs", arguments).unwrap().expect_clean("mke2fs");
    judge(&image, Sound).unwrap();
}

/// Whether there is a copy of the superblock or not, both tell what is wrong with the first.
#[test]
fn a_first_meta_group_out_of_range_is_named() {
    if !have("debugfs") {
        return;
    }
    let _alone = images::alone();
    let scratch = Scratch::new("fsck-meta-groups").unwrap();
    let alone = FeatureSet::by_name("meta-bg").unwrap();
    let copied = FeatureSet {
        name: "meta-bg-copied",
        arguments: "-t ext4 -b 1024 -O meta_bg,^resize_inode",
        block_size: 1024,
        ..*alone
    };
    let image = scratch.join("image");
    for (set, kind, ours, theirs) in [
        (alone, "superblock_field", "s_first_meta_bg is 5000", "First_meta_bg is too big"),
        (&copied, "superblock_unusable", "first meta block group is 5000", "trying backup blocks"),
    ] {
        fs::copy(make(&scratch, set), &image).unwrap();
        request(&image, "ssv first_meta_bg 5000");
        judge(&image, Damaged(kind, IssueLocation::default())).unwrap();
        let told = images::problems(&images::check_file(&image));
        assert!(told.contains(ours), "{told}");
        assert!(e2fsck_check(&image).unwrap().output.contains(theirs));
    }
}
