//! `diff`: what it finds, how it says so, and its exit codes.

use crate::copying::make_tree;
use crate::support::Fixture;
use std::fs;
use std::os::unix::fs::PermissionsExt;

#[test]
fn copies_are_the_same_and_changes_are_found() {
    let fixture = Fixture::with(&["--size", "96M"]);
    make_tree(&fixture.path("source"));
    fixture.line("cp source/. disk.img:/").good();
    for line in [
        "diff disk.img source",
        "diff source disk.img:/ -j 3",
        "diff disk.img disk.img",
        "diff disk.img:/d source/d",
        "diff source source",
    ] {
        assert_eq!(fixture.line(line).good(), "", "{line}");
    }
    fs::copy(fixture.path("disk.img"), fixture.path("new.img")).unwrap();
    fixture.line("chmod 0600 new.img:/empty").good();
    fixture.line("rm new.img:/d/deep/file-9").good();
    fixture.line("rm new.img:/d/second").good();
    fixture.line("cp new.img:/first new.img:/d/second").good();
    fixture.line("setfattr -n user.a --value y new.img:/attributes").good();
    let done = fixture.line("diff disk.img new.img --ignore times");
    assert_eq!((done.code, done.stderr.as_str()), (Some(1), ""));
    let expected = "\
/attributes: xattr user.a: \"x\" -> \"y\"
/d/deep/file-9: only in disk.img:/ (file)
/empty: mode: 0644 -> 0600
";
    let lines = |text: &str| {
        let kept = |line: &&str| !line.contains(": links: ");
        text.lines().filter(kept).map(|line| format!("{line}\n")).collect::<String>()
    };
    assert_eq!(lines(&done.stdout), expected);
    assert!(done.stdout.contains(" in disk.img:/ only\n"), "{}", done.stdout);
    let done = fixture.line("diff disk.img new.img --ignore times,mode,links,xattrs --json");
    assert_eq!(done.code, Some(1));
    let line: serde_json::Value = serde_json::from_str(done.stdout.trim_end()).unwrap();
    assert_eq!((&line["name"], &line["what"]), (&"/d/deep/file-9".into(), &"only".into()));
    assert_eq!((&line["a"], &line["b"]), (&"file".into(), &serde_json::Value::Null));
}

#[test]
fn what_can_not_be_compared_is_trouble() {
    let fixture = Fixture::new();
    fixture.fill(&["a"]);
    fixture.put("no-image", "x");
    for (line, message) in [
        ("diff disk.img", "<B>"),
        ("diff disk.img nope", "nope: "),
        ("diff disk.img no-image", "no-image: "),
        ("diff disk.img:/nope source", "disk.img:/nope: no such file"),
        ("diff disk.img:/a source", ": type: file -> directory"),
        ("diff disk.img source --ignore nonsense", "nonsense"),
    ] {
        let done = fixture.line(line);
        let code = if message.contains("type") { 1 } else { 2 };
        assert_eq!(done.code, Some(code), "{line}: {done:?}");
        assert!((done.stderr + &done.stdout).contains(message), "{line}");
    }
    fs::set_permissions(fixture.path("source"), PermissionsExt::from_mode(0o700)).unwrap();
    let done = fixture.line("diff disk.img source --ignore times");
    assert_eq!((done.code, done.stdout.as_str()), (Some(1), "/: mode: 0755 -> 0700\n"));
}
