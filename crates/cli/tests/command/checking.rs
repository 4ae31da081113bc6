//! `check`: exit codes, what it prints, and that it finds what `e2fsck` finds.

use crate::support::{Fixture, finish, tool};
use std::ffi::OsStr;
use std::fs::File;
use std::process::Command;

fn debugfs(fixture: &Fixture, request: &str) {
    let image = fixture.path("disk.img");
    let arguments: [&OsStr; 4] = ["-w".as_ref(), "-R".as_ref(), request.as_ref(), image.as_ref()];
    assert_eq!(tool("debugfs", &arguments).code, Some(0), "{request}");
}

#[test]
fn a_sound_image() {
    let fixture = Fixture::new();
    fixture.fill(&["a", "d/b"]);
    let text = fixture.line("check disk.img").good();
    assert!(text.starts_with("disk.img: clean, ") && text.contains("files"), "{text}");
    assert_eq!(fixture.line("check -q disk.img").good(), "");
    let report = fixture.line("check --json disk.img").json();
    assert_eq!((&report["errors"], &report["problems"]), (&0.into(), &serde_json::json!([])));
    assert_eq!(report["summary"]["directories"], 3);
}

#[test]
fn an_image_with_errors() {
    let fixture = Fixture::new();
    fixture.fill(&["a", "d/b"]);
    debugfs(&fixture, "set_inode_field /a links_count 7");
    let image = fixture.path("disk.img");
    assert_eq!(tool("e2fsck", &["-fn".as_ref(), image.as_ref()]).code, Some(4));
    let done = fixture.line("check disk.img");
    assert_eq!((done.code, done.stderr.as_str()), (Some(4), ""));
    let lines: Vec<_> = done.stdout.lines().collect();
    assert!(lines[0].contains("inode") && lines[0].contains('7'), "{lines:?}");
    assert!(lines.last().unwrap().starts_with("disk.img: 1 error, "), "{lines:?}");
    let done = fixture.line("check --json disk.img");
    assert_eq!(done.code, Some(4));
    let report: serde_json::Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!(report["errors"], 1);
    assert_eq!(report["problems"][0]["path"], "/a");
}

/// Wherever it ends.
#[test]
fn an_image_that_is_cut_off_says_so() {
    let fixture = Fixture::with(&["--size", "40M", "-b", "1K"]);
    fixture.fill(&["a", "d/b"]);
    let file = File::options().write(true).open(image(&fixture)).unwrap();
    for size in [30 << 20, 3_000_000, 1 << 20, 300_000, 10_000, 4096] {
        file.set_len(size).unwrap();
        let done = fixture.line("check disk.img");
        assert_eq!((done.code, done.stderr.as_str()), (Some(4), ""), "{size}: {}", done.stdout);
        let expected = "the image is cut off: 40960 blocks, but the device has only";
        assert!(done.stdout.contains(expected), "{size}: {}", done.stdout);
    }
}

#[test]
fn errors_are_repaired() {
    let fixture = Fixture::new();
    fixture.fill(&["a", "d/b"]);
    debugfs(&fixture, "set_inode_field /a links_count 7");
    let damaged = std::fs::read(image(&fixture)).unwrap();

    let planned = fixture.line("check -n disk.img");
    assert_eq!(planned.code, Some(4), "{planned:?}");
    assert!(planned.stdout.contains("7 links, counted 1 (/a): would be repaired"), "{planned:?}");
    assert!(std::fs::read(image(&fixture)).unwrap() == damaged);
    // Without a terminal nobody can be asked.
    assert_eq!(fixture.line("check --repair disk.img").code, Some(16));
    assert_eq!(fixture.line("check -y --no-replay disk.img").code, Some(16));

    let planned = fixture.line("check -n --json disk.img");
    assert_eq!(planned.code, Some(4), "{planned:?}");
    let report: serde_json::Value = serde_json::from_str(&planned.stdout).unwrap();
    assert_eq!((&report["repaired"], &report["planned"]), (&0.into(), &1.into()));
    assert_eq!(report["problems"][0]["repair"], "planned");

    let repaired = fixture.line("check -y --json disk.img --undo before.undo");
    assert_eq!(repaired.code, Some(1), "{repaired:?}");
    let report: serde_json::Value = serde_json::from_str(&repaired.stdout).unwrap();
    assert_eq!((&report["repaired"], &report["errors"]), (&1.into(), &0.into()));
    let problem = &report["problems"][0];
    assert_eq!((&problem["kind"], &problem["repair"]), (&"inode_links".into(), &"repaired".into()));
    assert_eq!(tool("e2fsck", &["-fn".as_ref(), image(&fixture).as_ref()]).code, Some(0));
    assert!(fixture.line("check -y disk.img").good().contains("0 problems repaired"));

    fixture.line("undo disk.img before.undo").good();
    assert!(std::fs::read(image(&fixture)).unwrap() == damaged);
    assert_eq!(fixture.line("check -p disk.img").code, Some(1));
}

#[test]
fn memory_is_bounded_on_request() {
    let fixture = Fixture::new();
    fixture.fill(&["a"]);
    let clean = fixture.line("check disk.img").good();
    assert_eq!(fixture.line("check --memory 1M disk.img").good(), clean);
    for command in ["check --memory 64 disk.img", "check -n --memory 64 disk.img"] {
        let failed = fixture.line(command);
        assert_eq!(failed.code, Some(8), "{failed:?}");
        assert!(failed.stderr.contains("memory, which is the limit, are too few"), "{failed:?}");
    }
}

/// At a terminal each problem is asked about.
#[test]
fn a_repair_asks_at_a_terminal() {
    let fixture = Fixture::new();
    fixture.fill(&["a", "b"]);
    debugfs(&fixture, "set_inode_field /a links_count 7");
    debugfs(&fixture, "set_inode_field /b links_count 7");
    let damaged = std::fs::read(image(&fixture)).unwrap();
    // The end of the input, too, leaves the image alone.
    let cases = [("y\ny\n", 1), ("what\nall\n", 1), ("yes\nno\n", 4), ("y\nq\n", 32), ("", 32)];
    for (answers, code) in cases {
        std::fs::write(image(&fixture), &damaged).unwrap();
        let call = format!("'{}' check --repair disk.img", env!("CARGO_BIN_EXE_drystone"));
        let input = fixture.path("input");
        std::fs::write(&input, answers).unwrap();
        let mut script = Command::new("script");
        script.args(["-qec", &call, "/dev/null"]).current_dir(fixture.path(""));
        let asked = finish(script.stdin(File::open(input).unwrap()));
        assert_eq!(asked.code, Some(code), "{answers:?}: {asked:?}");
        assert!(asked.stdout.contains("7 links, counted 1 (/a)"), "{asked:?}");
        assert_eq!(std::fs::read(image(&fixture)).unwrap() == damaged, code == 32, "{answers:?}");
        let left = fixture.line("check --json disk.img");
        let report: serde_json::Value = serde_json::from_str(&left.stdout).unwrap();
        let errors = match code {
            1 => 0,
            4 => 1,
            _ => 2,
        };
        assert_eq!(report["errors"], errors, "{answers:?}");
    }
}

/// An image that was not closed: what its journal holds is checked, and the image not changed.
#[test]
fn an_image_that_needs_recovery() {
    let fixture = Fixture::new();
    fixture.fill(&["a"]);
    // A block of inodes, as it is in the journal; at its place something is wrong with it.
    let place = tool("debugfs", &["-R".as_ref(), "imap /a".as_ref(), image(&fixture).as_ref()]);
    let block = place.stdout.split("located at block ").nth(1).unwrap().split(',').next().unwrap();
    let size = fixture.line("info --json disk.img").json()["block_size"].as_u64().unwrap();
    let bytes = std::fs::read(image(&fixture)).unwrap();
    let start = (block.parse::<u64>().unwrap() * size) as usize;
    fixture.put("block", &bytes[start..start + size as usize]);
    debugfs(&fixture, "set_inode_field /a links_count 7");
    let copy = fixture.path("block");
    fixture.put("script", format!("jo\njw -b {block} {}\njc\n", copy.display()));
    let script = fixture.path("script");
    let disk = image(&fixture);
    let arguments = ["-w".as_ref(), "-f".as_ref(), script.as_os_str(), disk.as_os_str()];
    assert_eq!(tool("debugfs", &arguments).code, Some(0));

    let before = std::fs::read(image(&fixture)).unwrap();
    let text = fixture.line("check disk.img").good();
    assert!(text.contains("one transaction of the journal was replayed"), "{text}");
    let done = fixture.line("check --no-replay disk.img");
    assert_eq!((done.code, done.stderr.as_str()), (Some(4), ""));
    assert!(done.stdout.contains("journal: needs to be replayed"), "{}", done.stdout);
    assert!(done.stdout.contains("7 links, counted 1 (/a)"), "{}", done.stdout);
    assert!(std::fs::read(image(&fixture)).unwrap() == before);
}

fn image(fixture: &Fixture) -> std::path::PathBuf {
    fixture.path("disk.img")
}
