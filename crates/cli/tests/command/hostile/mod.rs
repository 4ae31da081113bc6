//! Hostile images: every command ends with a message and not a panic, in bounded time and memory,
//! and writes nothing that the image doesn't hold.

mod commands;
mod corrupt_image;
mod nilfs2;

use crate::support::Fixture;
use commands::{READING, every_command, harmless};
use corrupt_image::CorruptImage;
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::Path;

#[test]
fn names_of_reserved_inodes() {
    for number in [1, 3, 5, 7, 8, 10] {
        let corrupt = CorruptImage::new(&[]);
        corrupt.point(2, b"a", number, 1);
        let journal = corrupt.bytes(corrupt.first_block(8) * 1024, 1024);
        let message = harmless(&corrupt.fixture, "cat disk.img:/a");
        assert!(message.contains("is reserved"), "inode {number}: {message}");
        let message = harmless(&corrupt.fixture, "cp source disk.img:/a");
        assert!(!message.is_empty(), "inode {number}");
        assert_eq!(corrupt.bytes(corrupt.first_block(8) * 1024, 4), journal[..4]);
        if number == 8 {
            every_command(&corrupt.fixture);
        }
    }
}

#[test]
fn groups_that_share_their_bitmaps() {
    for offset in [0, 4, 8] {
        let corrupt = CorruptImage::new(&[]);
        let shared = corrupt.word(corrupt.descriptor(0) + offset);
        corrupt.put_word(corrupt.descriptor(1) + offset, shared);
        every_command(&corrupt.fixture);
    }
}

#[test]
fn files_over_metadata() {
    let corrupt = CorruptImage::new(&[]);
    let place = corrupt.inode(corrupt.number("/a"));
    for block in
        [2, corrupt.word(corrupt.descriptor(0) + 4), corrupt.word(corrupt.descriptor(0) + 8)]
    {
        corrupt.put_word(place + 40 + 12 + 8, block);
        let before = corrupt.bytes(0, 16 << 20);
        let message = harmless(&corrupt.fixture, "cat disk.img:/a");
        assert!(message.contains("metadata"), "block {block}: {message}");
        harmless(&corrupt.fixture, "truncate --size 0 disk.img:/a");
        assert_eq!(
            corrupt.bytes(block * 1024, 1024)[64..],
            before[block as usize * 1024..][64..1024]
        );
        corrupt.put(0, &before);
        every_command(&corrupt.fixture);
    }
}

/// Each directory has two names for the next, and the last leads back: so many paths that nobody sees
/// their end.
#[test]
fn directories_with_many_paths() {
    let mut path = "d".to_owned();
    let mut names = Vec::new();
    for _ in 0..40 {
        path += "/x";
        names.extend([format!("{path}/y"), format!("{path}/z")]);
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let corrupt = CorruptImage::new(&names);
    let mut path = "/d/x".to_owned();
    let top = corrupt.number(&path);
    let mut here = top;
    for _ in 1..40 {
        path += "/x";
        let next = corrupt.number(&path);
        corrupt.point(here, b"y", next, 2);
        here = next;
    }
    corrupt.point(here, b"y", top, 2);
    every_command(&corrupt.fixture);
    for line in ["find disk.img", "tree disk.img", "ls -R disk.img", "extract disk.img --to OUT"] {
        let message = harmless(&corrupt.fixture, line);
        assert!(message.contains("another place in the tree"), "{line}: {message}");
    }
}

/// Groups, inodes and blocks by the million, in a file that is a hole.
#[test]
fn huge_counts() {
    for has_meta_groups in [false, true] {
        let corrupt = CorruptImage::new(&[]);
        let groups: u64 = 1 << 24;
        corrupt.file.set_len((groups * 16) << 10).unwrap();
        corrupt.put_word(1024, groups * 8);
        corrupt.put_word(1024 + 4, groups * 16);
        corrupt.put_word(1024 + 32, 16);
        corrupt.put_word(1024 + 36, 16);
        corrupt.put_word(1024 + 40, 8);
        if has_meta_groups {
            corrupt.put_word(1024 + 0x60, corrupt.word(1024 + 0x60) | 0x10);
        }
        for line in READING.iter().filter(|line| !line.contains("OUT")) {
            harmless(&corrupt.fixture, line);
        }
        for line in [
            "mkdir disk.img:/new",
            "trim disk.img",
            "zero-free disk.img",
            "tune disk.img --features quota",
            "uuid disk.img random",
            "resize disk.img --minimum",
            "compact disk.img",
            "check -p disk.img",
            "check -y disk.img",
        ] {
            harmless(&corrupt.fixture, line);
        }
    }
}

/// The space that a tree takes.
fn kib_below(path: &Path) -> u64 {
    let metadata = std::fs::symlink_metadata(path).unwrap();
    let below = metadata.is_dir().then(|| std::fs::read_dir(path).unwrap());
    let below = below.into_iter().flatten().map(|entry| kib_below(&entry.unwrap().path()));
    metadata.blocks() / 2 + below.sum::<u64>()
}

/// A file that claims to be dense and has one block, and many that have the same blocks.
#[test]
fn what_comes_out_is_no_more_than_what_is_in() {
    let names: Vec<String> = (0..200).map(|number| format!("many/{number}")).collect();
    let corrupt = CorruptImage::new(&names.iter().map(String::as_str).collect::<Vec<_>>());
    let hollow = corrupt.inode(corrupt.number("/a"));
    corrupt.put_word(hollow + 4, 600 << 20);
    corrupt.put_word(hollow + 28, 600 << 11);
    // 2 MiB each, all at one place that is free.
    let start = corrupt.free_blocks(2048);
    for name in &names {
        let place = corrupt.inode(corrupt.number(&format!("/{name}")));
        corrupt.put_word(place + 4, 2 << 20);
        corrupt.put_word(place + 28, 2 << 11);
        corrupt.put(place + 40 + 12 + 4, &2048_u16.to_le_bytes());
        corrupt.put_word(place + 40 + 12 + 8, start);
    }
    corrupt.fixture.put("tree/many/5", "a user's");
    let message = harmless(&corrupt.fixture, "extract -j 1 disk.img --to tree");
    assert!(message.contains("those of another file"), "{message}");
    // A refused file isn't even begun: only the first one and the earlier files are there.
    assert_eq!(std::fs::read_dir(corrupt.fixture.path("tree/many")).unwrap().count(), 2);
    assert_eq!(std::fs::read(corrupt.fixture.path("tree/many/5")).unwrap(), b"a user's");
    harmless(&corrupt.fixture, "extract disk.img --to archive.tar");
    std::fs::create_dir(corrupt.fixture.path("copy")).unwrap();
    harmless(&corrupt.fixture, "cp disk.img:/ copy");
    let kib = |path: &str| kib_below(&corrupt.fixture.path(path));
    for place in ["tree", "archive.tar", "copy"] {
        assert!(kib(place) <= 17 << 10, "{place} takes {} KiB", kib(place));
    }
    assert_eq!(std::fs::metadata(corrupt.fixture.path("tree/a")).unwrap().size(), 600 << 20);
    every_command(&corrupt.fixture);
}

/// An empty file with many names, of which the image counts one or two.
#[test]
fn uncounted_names_are_no_copies() {
    let names: Vec<String> = (0..40).map(|number| format!("many/{number:02}")).collect();
    for counted in [1_u16, 2] {
        let corrupt = CorruptImage::new(&names.iter().map(String::as_str).collect::<Vec<_>>());
        let (file, directory) = (corrupt.number("/many/00"), corrupt.number("/many"));
        // Without content and blocks.
        corrupt.put(corrupt.inode(file) + 26, &counted.to_le_bytes());
        corrupt.put_word(corrupt.inode(file) + 4, 0);
        corrupt.put_word(corrupt.inode(file) + 28, 0);
        corrupt.put(corrupt.inode(file) + 40 + 2, &[0; 2]);
        for number in 1..40 {
            corrupt.point(directory, format!("{number:02}").as_bytes(), file, 1);
        }
        for line in
            ["extract disk.img --to tree", "cp disk.img:/ copy", "extract disk.img --to a.tar"]
        {
            let message = harmless(&corrupt.fixture, line);
            assert!(message.contains("copied under another name"), "{line}: {message}");
        }
        for copy in ["tree/many", "copy/many"] {
            let made = std::fs::read_dir(corrupt.fixture.path(copy)).unwrap();
            let made: HashSet<u64> = made.map(|entry| entry.unwrap().ino()).collect();
            assert_eq!(made.len(), 1, "{copy}");
        }
    }
}

/// Directories that are one on the disk.
#[test]
fn directories_that_share_their_names() {
    let corrupt = CorruptImage::new(&["many/0/x", "many/1/x", "many/2/x", "many/3/x"]);
    let shared = corrupt.first_block(corrupt.number("/many/0"));
    for number in 1..4 {
        let place = corrupt.inode(corrupt.number(&format!("/many/{number}")));
        corrupt.put_word(place + 40 + 12 + 8, shared);
    }
    for line in ["extract disk.img --to tree", "extract disk.img --to tree.tar"] {
        let message = harmless(&corrupt.fixture, line);
        assert_eq!(message.matches("those of another file").count(), 3, "{line}: {message}");
    }
    assert_eq!(std::fs::read_dir(corrupt.fixture.path("tree/many")).unwrap().count(), 1);
    every_command(&corrupt.fixture);
}

/// One that can't be read hides no other.
#[test]
fn what_can_not_be_read_is_left_out() {
    let corrupt = CorruptImage::new(&["b/x", "c/y"]);
    let long = "t".repeat(100);
    corrupt.fixture.line(&format!("ln -s {long} disk.img:/bad")).good();
    for path in ["/b", "/bad"] {
        // Into the descriptors of groups.
        corrupt.put_word(corrupt.inode(corrupt.number(path)) + 40 + 12 + 8, 2);
    }
    for (line, expected) in [
        ("ls -R disk.img", "/c:\ny\n"),
        ("ls -lR disk.img", " y\n"),
        ("find disk.img", "/c/y\n"),
        ("find --json disk.img", "\"/c/y\""),
        ("tree disk.img", "y\n"),
    ] {
        let done = corrupt.fixture.line(line);
        assert_eq!(done.code, Some(1), "{line}: {}", done.stderr);
        assert!(done.stdout.contains(expected), "{line}: {}", done.stdout);
        assert!(done.stderr.contains("disk.img:/b: "), "{line}: {}", done.stderr);
    }
    let done = corrupt.fixture.line("find --json disk.img");
    assert!(done.stderr.contains("disk.img:/bad: "), "{}", done.stderr);
}

#[test]
fn impossible_names() {
    for (at, name) in
        [("first", &b".."[..]), ("firs", b".."), ("firs", b"x/yz"), ("firs", b"x\0yz")]
    {
        let corrupt = CorruptImage::new(&["many/1", &format!("many/{at}")]);
        let record = corrupt.record(corrupt.number("/many"), at.as_bytes());
        corrupt.put(record + 8, name);
        corrupt.put(record + 6, &[name.len() as u8]);
        std::fs::create_dir(corrupt.fixture.path("tree")).unwrap();
        for line in
            ["extract disk.img --to tree", "extract disk.img --to tree.tar", "ls disk.img:/many"]
        {
            let message = harmless(&corrupt.fixture, line);
            let told = ["impossible name", "name holds the byte"];
            assert!(told.iter().any(|told| message.contains(told)), "{line}: {message}");
        }
        every_command(&corrupt.fixture);
    }
}

#[test]
fn names_that_steer_a_terminal() {
    let corrupt = CorruptImage::new(&["many/\u{1b}]0;x\u{7}", "many/\u{1b}[2J"]);
    // Each has something wrong, which is told by its name.
    let directory = corrupt.number("/many");
    corrupt.point(directory, "\u{1b}[2J".as_bytes(), 8, 1);
    every_command(&corrupt.fixture);
    let message = harmless(&corrupt.fixture, "find disk.img");
    assert!(message.contains("\\u{1b}[2J"), "{message}");
}

/// Directories in directories, and in each of them two files that have another name elsewhere: neither a
/// walk nor a copy keeps a path for each.
#[test]
fn deep_trees() {
    let fixture = Fixture::with(&["--size", "64M", "-b", "1K", "-N", "16384"]);
    let name = "n".repeat(200);
    let flags = OFlags::DIRECTORY | OFlags::RDONLY;
    let make = |directory: &OwnedFd, name: &str| {
        rustix::fs::mkdirat(directory, name, Mode::RWXU).unwrap();
        rustix::fs::openat(directory, name, flags, Mode::empty()).unwrap()
    };
    std::fs::create_dir(fixture.path("source")).unwrap();
    let mut here = rustix::fs::openat(CWD, fixture.path("source"), flags, Mode::empty()).unwrap();
    // One is come to before the deep ones, one after them.
    let flat = [make(&here, "a"), make(&here, "z")];
    for depth in 0..2000 {
        here = make(&here, &name);
        for (file, flat) in ["f", "g"].iter().zip(&flat) {
            let flags = OFlags::CREATE | OFlags::WRONLY;
            rustix::fs::openat(&here, *file, flags, Mode::RWXU).unwrap();
            let other = format!("{depth:04}");
            rustix::fs::linkat(&here, *file, flat, other, AtFlags::empty()).unwrap();
        }
    }
    let remove = |tree: &str| {
        let mut remove = std::process::Command::new("rm");
        crate::support::finish(remove.arg("-r").arg(fixture.path(tree))).good();
    };
    fixture.line("cp source disk.img:/d").good();
    remove("source");
    // Without root, extracted files can't be given to other users.
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    let chown = format!("chown -R {}:{} disk.img:/", user.as_raw(), group.as_raw());
    for line in [
        "ls -R disk.img",
        "find disk.img",
        "tree disk.img",
        "chmod -R 700 disk.img:/",
        &chown,
        "diff disk.img:/ disk.img:/",
        "extract -j 1 disk.img --to out",
        "diff disk.img:/ out",
        "extract disk.img --to -",
        "check disk.img",
        "rm -r disk.img:/d",
    ] {
        let message = harmless(&fixture, line);
        assert_eq!(message, "", "{line}");
    }
    remove("out");
    fixture.expect_sound();
}
