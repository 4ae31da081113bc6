//! `ls`, `tree`, `stat`, `cat`, `find`: what they print, for people and for programs.

use crate::support::Fixture;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

fn filled() -> Fixture {
    let fixture = Fixture::new();
    fixture.put("source/a/long", vec![b'x'; 70_000]);
    fixture.fill(&["a/b/c", "a/d", ".hidden", "e"]);
    fixture
}

#[test]
fn ls_lists_in_all_its_forms() {
    let fixture = filled();
    assert_eq!(fixture.line("ls disk.img").good(), "a\ne\nlost+found\n");
    assert_eq!(fixture.line("ls disk.img:").good(), "a\ne\nlost+found\n");
    assert_eq!(fixture.line("ls disk.img:/").good(), "a\ne\nlost+found\n");
    assert_eq!(fixture.line("ls -a disk.img:/").good(), ".hidden\na\ne\nlost+found\n");
    assert_eq!(fixture.line("ls -d disk.img:/a").good(), "/a\n");
    assert_eq!(fixture.line("ls -r disk.img:/a").good(), "long\nd\nb\n");
    assert_eq!(fixture.line("ls -S disk.img:/a").good().lines().last(), Some("d"));
    let long = fixture.line("ls -l disk.img:/a").good();
    assert!(long.lines().any(|line| line.starts_with("-rw-r--r-- 1 ") && line.ends_with(" long")));
    assert!(long.contains(" 70000 "), "{long}");
    assert!(fixture.line("ls -lh disk.img:/a").good().contains(" 68K "), "in KiB");
    let all = fixture.line("ls -R disk.img:/a").good();
    assert!(all.contains("/a:\n") && all.contains("/a/b:\nc\n"), "{all}");
    let inode = fixture.line("ls -i disk.img:/e").good();
    assert!(inode.trim().split(' ').next().unwrap().parse::<u64>().is_ok(), "{inode}");
    let entries = fixture.line("ls --json disk.img:/a").json_lines();
    assert_eq!(entries.len(), 3);
    assert_eq!(entries.iter().filter(|entry| entry["size"] == 70_000).count(), 1);
    assert_eq!(fixture.line("ls disk.img:/a disk.img:/nope").code, Some(1));
}

#[test]
fn tree_draws() {
    let fixture = filled();
    let drawn = fixture.line("tree disk.img:/a").good();
    assert!(drawn.starts_with("/a\n├── b\n│   └── c\n├── d\n└── long\n"), "{drawn}");
    assert!(drawn.contains("3 files"), "{drawn}");
    assert!(!fixture.line("tree -L 1 disk.img:/a").good().contains("── c"));
    assert!(!fixture.line("tree -d disk.img:/a").good().contains("long"));
    assert!(fixture.line("tree -a disk.img").good().contains(".hidden"));
    assert!(!fixture.line("tree --json disk.img:/a").json_lines().is_empty());
}

#[test]
fn stat_tells_everything() {
    let fixture = filled();
    let text = fixture.line("stat disk.img:/a/long").good();
    for part in ["File: /a/long", "Size: 70000", "(0644/-rw-r--r--)", "regular file", "Birth: "] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let json = fixture.line("stat --json disk.img:/a/long").json();
    assert_eq!((&json["size"], &json["type"]), (&70_000.into(), &"regular".into()));
    let extents = fixture.line("stat --extents disk.img:/a/long").good();
    assert!(extents.len() > text.len(), "{extents}");
    fixture.line("ln -s e disk.img:/link").good();
    assert!(fixture.line("stat disk.img:/link").good().contains("symbolic link"));
    assert!(fixture.line("stat -L disk.img:/link").good().contains("regular file"));
}

#[test]
fn cat_prints_bytes_as_they_are() {
    let fixture = filled();
    let bytes: Vec<u8> = (0..=255).cycle().take(300_000).collect();
    fixture.put("binary", &bytes);
    fixture.line("cp binary disk.img:/").good();
    assert!(fixture.line("cat disk.img:/binary").bytes == bytes, "the content differs");
    assert_eq!(fixture.line("cat disk.img:/e disk.img:/a/d").good(), "ea/d");
    let done = fixture.line("cat disk.img:/a disk.img:/e disk.img:/nope");
    assert_eq!((done.code, done.stdout.as_str()), (Some(1), "e"));
    assert!(done.stderr.contains("disk.img:/a: is a directory"), "{}", done.stderr);
    assert!(done.stderr.contains("disk.img:/nope: no such file"), "{}", done.stderr);
}

#[test]
fn find_finds() {
    let fixture = filled();
    let found = |options: &str| fixture.line(&format!("find disk.img {options}")).good();
    assert_eq!(found("--name c"), "/a/b/c\n");
    assert_eq!(found("--type f --size +60K"), "/a/long\n");
    assert_eq!(found("--type d --max-depth 1"), "/\n/a\n/lost+found\n");
    assert_eq!(found("--name l* --print0"), "/a/long\0/lost+found\0");
    fixture.line("ln disk.img:/e disk.img:/e2").good();
    assert_eq!(found("--type f --links +1"), "/e\n/e2\n");
    assert_eq!(found("--user 4711"), "");
    let json = fixture.line("find disk.img --name c --json").json();
    assert_eq!(json["type"], "regular");
}

/// Names are bytes: what isn't UTF-8 goes in, is shown, found and taken out.
#[test]
fn names_that_are_no_text() {
    let fixture = Fixture::new();
    let name = OsStr::from_bytes(b"caf\xe9\n\x1b[31m");
    std::fs::create_dir(fixture.path("source")).unwrap();
    std::fs::write(fixture.path("source").join(name), "content").unwrap();
    fixture.line("cp source/. disk.img:/").good();
    assert!(fixture.line("ls disk.img").bytes.starts_with(b"caf\xe9\n\x1b[31m\n"));
    let json = fixture.line("ls --json disk.img").json_lines();
    assert_eq!(json[0]["name_bytes"][3], 0xe9);
    let mut place = b"disk.img:/".to_vec();
    place.extend(name.as_bytes());
    let place = OsStr::from_bytes(&place);
    assert_eq!(fixture.run(&["cat".as_ref(), place]).good(), "content");
    let wrong = OsStr::from_bytes(b"disk.img:/caf\xe8\x1b");
    assert!(fixture.run(&["cat".as_ref(), wrong]).bad(1).contains("/caf\\xe8\\u{1b}: no such"));
    fixture.run(&["mv".as_ref(), place, "disk.img:/cafe".as_ref()]).good();
    assert_eq!(fixture.paths(), ["/cafe"]);
    fixture.expect_sound();
}

/// Without `--json` nothing that comes from the image ends a reading command's output early.
#[test]
fn a_closed_pipe_is_no_error() {
    let fixture = filled();
    let mut child = fixture
        .command(&["find", "disk.img"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    assert!(matches!(child.wait().unwrap().code(), Some(0 | 1)));
}

#[test]
fn reading_changes_nothing() {
    let fixture = filled();
    let before = std::fs::read(fixture.path("disk.img")).unwrap();
    for line in [
        "ls -lR disk.img",
        "tree disk.img",
        "stat disk.img:/e",
        "cat disk.img:/e",
        "find disk.img",
        "getfattr disk.img:/e",
        "getfacl disk.img:/e",
        "info disk.img",
        "check disk.img",
        "cp disk.img:/a out",
    ] {
        assert_eq!(fixture.line(line).code, Some(0), "{line}");
    }
    assert!(std::fs::read(fixture.path("disk.img")).unwrap() == before);
}

/// Paths in several images say in which.
#[test]
fn paths_in_several_images_are_told_apart() {
    let fixture = Fixture::new();
    fixture.fill(&["a"]);
    std::fs::copy(fixture.path("disk.img"), fixture.path("b.img")).unwrap();
    for (line, expected) in [
        ("find disk.img:/a b.img:/a", "disk.img:/a\nb.img:/a\n"),
        ("ls disk.img:/a b.img:/a", "disk.img:/a\nb.img:/a\n"),
        ("find disk.img:/a disk.img:/a", "/a\n/a\n"),
    ] {
        assert_eq!(fixture.line(line).good(), expected, "{line}");
    }
    for line in ["du -s disk.img b.img", "stat disk.img b.img", "lsattr -d disk.img b.img"] {
        let shown = fixture.line(line).good();
        assert!(shown.contains("disk.img:/\n") && shown.contains("b.img:/\n"), "{line}: {shown}");
    }
    for line in ["find", "ls", "du", "stat", "lsattr -d", "tree"] {
        let found = fixture.line(&format!("{line} --json disk.img b.img")).json_lines();
        let of = |image: &str| found.iter().filter(|one| one["image"]["name"] == image).count();
        assert!(of("disk.img") > 0 && of("disk.img") + of("b.img") == found.len(), "{line}");
        let found = fixture.line(&format!("{line} --json disk.img")).json_lines();
        assert!(found.iter().all(|one| one["image"].is_null()), "{line}");
    }
}
