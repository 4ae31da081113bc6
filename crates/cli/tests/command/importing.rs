//! `import`: archives of GNU tar, compared with what GNU tar itself makes of them.

use crate::copying::{assert_same, make_tree, seen};
use crate::support::{Fixture, finish};
use drystone_testkit::skip;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::Read;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::{Command, Stdio};

/// Calls GNU tar in the folder.
fn tar(fixture: &Fixture, arguments: &str) {
    let mut tar = Command::new("tar");
    tar.current_dir(fixture.path("")).args(["--xattrs", "--xattrs-include=*", "--acls"]);
    // It finds some of the times odd.
    let done = finish(tar.args(arguments.split(' ')));
    assert_eq!(done.code, Some(0), "{}", done.stderr);
}

#[test]
fn an_archive_of_everything_comes_in_as_it_was() {
    if !skip::is_root("an archive's owners") {
        return;
    }
    let fixture = Fixture::empty();
    make_tree(&fixture.path("source"));
    fs::remove_file(fixture.path("source/socket")).unwrap();
    let expected = seen(&fixture.path("source"), true);
    for (options, input) in [("--format=posix -S", "a.tar"), ("--format=posix -z -S", "-")] {
        tar(&fixture, &format!("{options} -cf a.tar -C source ."));
        fixture.line("mkfs disk.img -q -f --size 96M").good();
        let mut import = fixture.command(&["import", "disk.img", input, "--json"]);
        import.stdin(fs::File::open(fixture.path("a.tar")).unwrap());
        let summary = finish(&mut import).json();
        assert_eq!((&summary["failed"], &summary["not_kept"]), (&0.into(), &0.into()));
        assert_eq!((&summary["hard_links"], &summary["stopped"]), (&3.into(), &false.into()));
        fixture.expect_sound();
        fixture.line("extract disk.img --to out -q").good();
        assert_same(&expected, &seen(&fixture.path("out"), true));
        fs::remove_dir_all(fixture.path("out")).unwrap();
    }
}

/// What is there is merged and replaced as tar does it on this machine.
#[test]
fn what_is_there_is_replaced_as_by_tar() {
    let fixture = Fixture::new();
    for (name, content) in [
        ("new/file", "new"),
        ("new/d/in", "new and longer"),
        ("new/was-link", "x"),
        ("new/was-link-to-directory/f", "x"),
        ("new/linked", "linked"),
        ("there/file", "old, and longer than the new one"),
        ("there/d/in", "old"),
        ("there/d/kept", "kept"),
        ("there/kept", "kept"),
        ("there/becomes-link", "x"),
        ("there/other-name", "x"),
    ] {
        fixture.put(name, content);
    }
    symlink("file", fixture.path("new/becomes-link")).unwrap();
    symlink("kept", fixture.path("there/was-link")).unwrap();
    symlink("d", fixture.path("there/was-link-to-directory")).unwrap();
    fs::hard_link(fixture.path("new/linked"), fixture.path("new/other-name")).unwrap();
    fs::hard_link(fixture.path("there/file"), fixture.path("there/second")).unwrap();
    fs::set_permissions(fixture.path("new/d"), PermissionsExt::from_mode(0o700)).unwrap();
    fixture.line("cp there disk.img:/").good();
    tar(&fixture, "--format=posix -cf a.tar -C new .");
    fixture.line("import disk.img:/there a.tar").good();
    tar(&fixture, "-xf a.tar -C there");
    fixture.line("extract disk.img:/there --to out -q").good();
    assert_same(&seen(&fixture.path("there"), false), &seen(&fixture.path("out"), false));
    fixture.expect_sound();
}

#[test]
fn what_is_not_wanted_stays_out() {
    let fixture = Fixture::new();
    for name in ["source/a", "source/b/a", "source/b/c", "source/d/e/f", "source/g/d/h"] {
        fixture.put(name, "x");
    }
    tar(&fixture, "--owner=7 --group=8 -cf a.tar -C source .");
    fixture.line("import disk.img a.tar --exclude a --exclude /d/* --no-owners").good();
    assert_eq!(fixture.paths(), ["/b", "/b/c", "/d", "/g", "/g/d", "/g/d/h"]);
    let owner = || {
        let stat = fixture.line("stat --json disk.img:/b/c").json();
        (stat["user"].as_u64().unwrap(), stat["group"].as_u64().unwrap())
    };
    assert_eq!(owner(), (0, 0));
    fixture.line("import disk.img a.tar").good();
    assert_eq!(owner(), (7, 8));
    fixture.expect_sound();
}

#[test]
fn what_can_not_be_imported_is_named() {
    let fixture = Fixture::with(&["--size", "4M"]);
    fixture.fill(&["d/in", "file"]);
    for name in ["new/a", "new/d", "new/z"] {
        fixture.put(name, name);
    }
    tar(&fixture, "-cf a.tar -C new .");
    let done = fixture.line("import disk.img a.tar --json");
    let summary: serde_json::Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!((&summary["files"], &summary["failed"]), (&2.into(), &1.into()));
    assert_eq!(done.bad(1), "drystone: can't import disk.img:/d: is a directory\n");
    assert_eq!(fixture.paths(), ["/a", "/d", "/d/in", "/file", "/z"]);
    let whole = fs::read(fixture.path("a.tar")).unwrap();
    fixture.put("cut.tar", &whole[..1500]);
    fixture.put("no.tar", "no archive");
    for (line, message) in [
        ("import disk.img cut.tar", "cut.tar: at byte "),
        ("import disk.img no.tar", "no.tar: at byte 0: "),
        ("import disk.img none.tar", "none.tar: No such file"),
        ("import disk.img:/none a.tar", "disk.img:/none: no such file"),
        ("import disk.img:/file a.tar", "disk.img:/file: not a directory"),
        ("import none.img a.tar", "none.img: "),
    ] {
        let done = fixture.line(line);
        assert!(done.stderr.contains(message), "{line}: {}", done.stderr);
        done.bad(1);
    }
    fixture.put("new/large", vec![1; 8 << 20]);
    tar(&fixture, "-cf large.tar -C new large z");
    fixture.line("rm disk.img:/z").good();
    let message = fixture.line("import disk.img large.tar").bad(1);
    assert!(message.contains("can't import disk.img:/large: no space left"), "{message}");
    assert!(message.contains("stopped there: what comes after is missing"), "{message}");
    assert_eq!(fixture.paths(), ["/a", "/d", "/d/in", "/file"]);
    fixture.expect_sound();
}

#[test]
fn an_interrupted_import_closes_the_image() {
    let fixture = Fixture::with(&["--size", "256M", "--inodes", "8000"]);
    for file in 0..3000 {
        fixture.put(&format!("source/{}/{file}", file % 20), vec![file as u8; 5000 + file]);
    }
    tar(&fixture, "-cf a.tar -C source .");
    // It says what it unpacks into a pipe, and stands still when that is full.
    let mut command = fixture.command(&["import", "-v", "disk.img", "a.tar"]);
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    child.stderr.as_mut().unwrap().read_exact(&mut [0; 30_000]).unwrap();
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{message}");
    assert!(message.contains("drystone: interrupted; what was unpacked"), "{message}");
    assert_eq!(fixture.line("info --json disk.img").json()["needs_recovery"], false);
    fixture.expect_sound();
    let files = fixture.paths();
    assert!((100..3000).contains(&files.len()), "{}", files.len());
    assert!(!files.iter().any(|path| path.contains(".part")), "{files:?}");
}
