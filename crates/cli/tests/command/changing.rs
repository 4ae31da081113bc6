//! What changes the tree and its metadata, from `mkdir` to `setfattr`: good and bad input.

use crate::support::{Fixture, finish};
use drystone_testkit::judges::{debugfs, have};
use std::fs::File;

#[test]
fn directories_come_and_go() {
    let fixture = Fixture::new();
    fixture.line("mkdir disk.img:/a disk.img:/b").good();
    fixture.line("mkdir -p disk.img:/a/b/c").good();
    fixture.line("mkdir -p disk.img:/a/b/c").good();
    assert!(fixture.line("mkdir disk.img:/a").bad(1).contains("disk.img:/a: file exists"));
    let message = fixture.line("mkdir disk.img:/x/y/z").bad(1);
    assert_eq!(message, "drystone: disk.img:/x: doesn't exist (-p makes it)\n");
    let message = fixture.line("mknod disk.img:/dev/null c 1 3").bad(1);
    assert_eq!(message, "drystone: disk.img:/dev: doesn't exist\n");
    assert!(fixture.line("rm disk.img:/a").bad(1).contains("is a directory"));
    fixture.line("rm -d disk.img:/b").good();
    assert!(fixture.line("rm -d disk.img:/a").bad(1).contains("not empty"));
    fixture.line("rm -r disk.img:/a").good();
    assert!(fixture.line("rm disk.img:/a").bad(1).contains("no such file"));
    fixture.line("rm -rf disk.img:/a").good();
    assert_eq!(fixture.paths(), [""; 0]);
    fixture.expect_sound();
}

/// The root stays, whatever is asked.
#[test]
fn the_root_is_not_removed() {
    let fixture = Fixture::new();
    fixture.fill(&["a"]);
    let message = fixture.line("rm -rf disk.img:/").bad(1);
    assert_eq!(message, "drystone: disk.img:/: the root directory can't be removed\n");
    for line in ["chmod 600 disk.img", "chown 1:1 disk.img", "touch disk.img", "rm -r disk.img"] {
        assert!(fixture.line(line).bad(2).contains("'disk.img:/' is the root directory"), "{line}");
    }
    fixture.line("mv disk.img:/ disk.img:/a").bad(1);
    assert_eq!(fixture.paths(), ["/a"]);
}

#[test]
fn names_move() {
    let fixture = Fixture::new();
    fixture.fill(&["a", "b", "d/x"]);
    fixture.line("mv disk.img:/a disk.img:/c").good();
    fixture.line("mv disk.img:/b disk.img:/c disk.img:/d").good();
    assert_eq!(fixture.paths(), ["/d", "/d/b", "/d/c", "/d/x"]);
    fixture.line("mv --exchange disk.img:/d/b disk.img:/d/c").good();
    assert_eq!(fixture.line("cat disk.img:/d/b").good(), "a");
    fixture.line("mv -n disk.img:/d/b disk.img:/d/c");
    assert_eq!(fixture.line("cat disk.img:/d/c").good(), "b");
    fixture.line("mkdir disk.img:/d/inner").good();
    let message = fixture.line("mv disk.img:/d disk.img:/d/inner").bad(1);
    assert!(message.contains("a directory can't be moved into itself"), "{message}");
    assert!(
        fixture
            .line("mv disk.img:/nope disk.img:/x")
            .bad(1)
            .contains("/nope: can't move to /x: no such")
    );
    assert!(fixture.line("mv -T disk.img:/d/b disk.img:/d/inner").bad(1).contains("directory"));
    fixture.expect_sound();
}

/// Where the reason is known, it is told in place of what the system would say.
#[test]
fn what_is_refused_says_why() {
    let fixture = Fixture::new();
    fixture.fill(&["a", "d/b"]);
    fixture.line("chattr +i disk.img:/a disk.img:/d/b").good();
    for (line, message) in [
        ("rm disk.img:/a", "disk.img:/a: is immutable ('drystone chattr -i' changes that)"),
        ("rm -r disk.img:/d", "disk.img:/d/b: is immutable ('drystone chattr -i' changes that)"),
        ("setfattr -n foo disk.img:/d", "'foo' needs a prefix: user., trusted., security."),
        ("setfattr -x user.nope disk.img:/d", "disk.img:/d: has no attribute user.nope"),
        ("getfattr -n user.nope disk.img:/d", "disk.img:/d: has no attribute user.nope"),
    ] {
        let done = fixture.line(line);
        assert_eq!(done.stdout, "", "{line}");
        let told = done.bad(1);
        assert!(told.contains(message), "{line}: {told}");
    }
}

/// What is said of an image as a whole isn't done to it when one of its files is named.
#[test]
fn a_path_is_not_ignored() {
    let fixture = Fixture::new();
    fixture.fill(&["a"]);
    let before = std::fs::read(fixture.path("disk.img")).unwrap();
    for line in [
        "compact disk.img:/a",
        "label disk.img:/a new",
        "tune disk.img:/a -m 1",
        "resize disk.img:/a 16M",
        "zero-free disk.img:/a",
        "trim disk.img:/a",
        "check disk.img:/nonexistent",
        "info disk.img:/a",
    ] {
        let message = fixture.line(line).bad(2);
        assert!(message.contains("write 'disk.img'"), "{line}: {message}");
    }
    assert!(std::fs::read(fixture.path("disk.img")).unwrap() == before);
    fixture.line("label disk.img:/ new").good();
    assert_eq!(fixture.line("label disk.img:").good(), "new\n");
}

#[test]
fn links_of_both_kinds() {
    let fixture = Fixture::new();
    fixture.fill(&["a", "d/b"]);
    fixture.line("ln disk.img:/a disk.img:/hard").good();
    fixture.line("ln -s d/b disk.img:/soft").good();
    fixture.run(&["ln", "-s", &"t".repeat(200), "disk.img:/slow"]).good();
    assert_eq!(fixture.line("cat disk.img:/soft").good(), "d/b");
    assert_eq!(fixture.line("stat --json disk.img:/hard").json()["links"], 2);
    let target = fixture.line("stat --json disk.img:/slow").json()["target"]["name"].to_string();
    assert_eq!(target.len(), 202);
    assert!(fixture.line("ln disk.img:/d disk.img:/e").bad(1).contains("disk.img:/"));
    assert!(fixture.line("ln -s x disk.img:/soft").bad(1).contains("exists"));
    assert!(fixture.line("cat disk.img:/slow").bad(1).contains("/slow: "));
    fixture.expect_sound();
}

/// What is in the way goes when its replacement is there.
#[test]
fn what_can_not_be_replaced_stays() {
    let fixture = Fixture::with(&["--size", "32M", "-b", "1K"]);
    fixture.fill(&["a", "d/b"]);
    let long = "t".repeat(5000);
    for arguments in [
        ["ln", "-sf", "", "disk.img:/a"],
        ["ln", "-sf", &long, "disk.img:/a"],
        ["ln", "-f", "disk.img:/d", "disk.img:/a"],
        ["ln", "-f", "disk.img:/nope", "disk.img:/a"],
    ] {
        fixture.run(&arguments).bad(1);
        assert_eq!(fixture.line("cat disk.img:/a").good(), "a", "{arguments:?}");
    }
    // Its blocks are too small for such a link.
    std::os::unix::fs::symlink(&long[..2000], fixture.path("link")).unwrap();
    fixture.line("cp link disk.img:/a").bad(1);
    assert_eq!(fixture.line("cat disk.img:/a").good(), "a");
    fixture.line("ln -sf d/b disk.img:/a").good();
    assert_eq!(fixture.line("cat disk.img:/a").good(), "d/b");
    fixture.line("ln -f disk.img:/d/b disk.img:/a").good();
    assert_eq!(fixture.line("stat --json disk.img:/a").json()["links"], 2);
    assert_eq!(fixture.paths(), ["/a", "/d", "/d/b"]);
    fixture.expect_sound();
}

#[test]
fn modes_and_owners() {
    let fixture = Fixture::new();
    fixture.fill(&["d/a", "d/b"]);
    let of = |path: &str, key: &str| {
        fixture.line(&format!("stat --json disk.img:{path}")).json()[key].to_string()
    };
    fixture.line("chmod 4640 disk.img:/d/a").good();
    assert_eq!(of("/d/a", "permissions"), "\"4640\"");
    fixture.line("chmod -R u+rwX,go-rwx disk.img:/d").good();
    assert_eq!(of("/d", "permissions"), "\"0700\"");
    assert_eq!(of("/d/b", "permissions"), "\"0600\"");
    fixture.line("chown 1000:70000 disk.img:/d/a").good();
    assert_eq!((of("/d/a", "user"), of("/d/a", "group")), ("1000".into(), "70000".into()));
    fixture.line("chown -R :33 disk.img:/d").good();
    assert_eq!((of("/d/a", "user"), of("/d/b", "group")), ("1000".into(), "33".into()));
    fixture.line("ln -s nowhere disk.img:/l").good();
    fixture.line("chown -h 5 disk.img:/l").good();
    assert_eq!(of("/l", "user"), "5");
    assert!(fixture.line("chown 5 disk.img:/l").bad(1).contains("no such file"));
    assert!(fixture.line("chmod 600 disk.img:/nope").bad(1).contains("no such file"));
    fixture.expect_sound();
}

#[test]
fn flags_are_those_of_lsattr() {
    let fixture = Fixture::new();
    fixture.fill(&["d/a", "d/e/b"]);
    fixture.line("ln -s a disk.img:/d/l").good();
    fixture.line("chattr +iA disk.img:/d/a").good();
    let shown = fixture.line("lsattr disk.img:/d").good();
    assert_eq!(
        shown.lines().collect::<Vec<_>>(),
        [
            "----i--A------e------- /d/a",
            "--------------e------- /d/e",
            "---------------------- /d/l",
        ]
    );
    assert!(fixture.line("rm disk.img:/d/a").bad(1).contains("is immutable"));
    if have("debugfs") {
        let stored = debugfs(&fixture.path("disk.img"), "stat /d/a").unwrap().output;
        assert!(stored.contains("Flags: 0x80090"), "{stored}");
    }
    fixture.line("chattr -i disk.img:/d/a").good();
    fixture.line("chattr -R +d disk.img:/d").good();
    let json = fixture.line("lsattr -d --json disk.img:/d").json();
    assert_eq!(json["flags"], serde_json::json!(["no_dump", "extents"]));
    assert!(fixture.line("lsattr -R disk.img:/d").good().contains("------d-------e------- /d/e/b"));
    fixture.line("chattr = disk.img:/d/a").good();
    assert_eq!(fixture.line("lsattr disk.img:/d/a").good(), "--------------e------- /d/a\n");
    fixture.line("rm disk.img:/d/a").good();
    assert!(fixture.line("chattr +i disk.img:/none").bad(1).contains("no such file"));
    fixture.expect_sound();
}

#[test]
fn nodes() {
    let fixture = Fixture::new();
    fixture.line("mknod disk.img:/null c 1 3 -m 666").good();
    fixture.line("mknod disk.img:/sda b 0x8 0").good();
    fixture.line("mknod disk.img:/pipe p").good();
    fixture.line("mknod disk.img:/socket s").good();
    let of = |path: &str| fixture.line(&format!("stat --json disk.img:{path}")).json();
    assert_eq!(of("/null")["device"], serde_json::json!({"major": 1, "minor": 3}));
    assert_eq!(
        (&of("/null")["permissions"], &of("/sda")["permissions"]),
        (&"0666".into(), &"0644".into())
    );
    assert_eq!((&of("/pipe")["type"], &of("/socket")["type"]), (&"fifo".into(), &"socket".into()));
    assert!(fixture.line("mknod disk.img:/null c 1 3").bad(1).contains("exists"));
    assert!(fixture.line("mknod disk.img:/x c 1").bad(2).contains("major and a minor"));
    assert!(fixture.line("mknod disk.img:/x p 1 2").bad(2).contains("only a device"));
    fixture.line("mknod disk.img:/x c 5000 1").bad(1);
    assert_eq!(fixture.paths(), ["/null", "/pipe", "/sda", "/socket"]);
    fixture.expect_sound();
}

#[test]
fn times() {
    let fixture = Fixture::new();
    fixture.line("touch disk.img:/a").good();
    let of = |key: &str| fixture.line("stat --json disk.img:/a").json()[key].clone();
    fixture.line("touch -d 2001-09-09T01:46:40Z disk.img:/a").good();
    fixture.line("touch -a -d @5 disk.img:/a").good();
    assert_eq!(of("modified"), "2001-09-09T01:46:40.000000000+00:00");
    assert_eq!(of("accessed"), "1970-01-01T00:00:05.000000000+00:00");
    fixture.line("touch -c disk.img:/none").good();
    assert_eq!(fixture.paths(), ["/a"]);
    assert!(fixture.line("touch disk.img:/none/b").bad(1).contains("no such file"));
    fixture.expect_sound();
}

#[test]
fn lengths() {
    let fixture = Fixture::new();
    fixture.line("truncate -s 100K disk.img:/a").good();
    fixture.line("truncate -s +1 disk.img:/a").good();
    let json = fixture.line("stat --json disk.img:/a").json();
    assert_eq!((&json["size"], &json["allocated"]), (&102_401.into(), &0.into()));
    fixture.line("truncate -s -102400 disk.img:/a").good();
    assert_eq!(fixture.line("cat disk.img:/a").bytes, [0]);
    fixture.line("truncate -c -s 5 disk.img:/none").good();
    assert_eq!(fixture.paths(), ["/a"]);
    fixture.line("truncate -s 10G disk.img:/a").good();
    assert!(fixture.line("truncate -s 1P disk.img:/a").bad(1).contains("disk.img:/a: "));
    assert!(fixture.line("truncate -s 1 disk.img:/").bad(1).contains("is a directory"));
    fixture.expect_sound();
}

#[test]
fn attributes_come_and_go() {
    let fixture = Fixture::new();
    fixture.fill(&["a"]);
    fixture.line("setfattr -n user.text --value words disk.img:/a").good();
    fixture.line("setfattr -n trusted.bytes --value 0x00ff disk.img:/a").good();
    fixture.line("setfattr -n user.empty disk.img:/a").good();
    assert_eq!(
        fixture.line("getfattr disk.img:/a").good(),
        "# file: /a\ntrusted.bytes=0x00ff\nuser.empty=\"\"\nuser.text=\"words\"\n\n"
    );
    let one = fixture.line("getfattr --json -n user.text disk.img:/a").json();
    assert_eq!(one["value"], "776f726473");
    fixture.line("setfattr -x user.text disk.img:/a").good();
    assert!(fixture.line("getfattr -n user.text disk.img:/a").bad(1).contains("/a: "));
    assert!(fixture.line("setfattr -x user.text disk.img:/a").bad(1).contains("/a: "));
    assert!(fixture.line("setfattr -n nonsense disk.img:/a").bad(1).contains("/a: "));
    // What is shown can be given back as it is.
    fixture.run(&["setfattr", "-n", "user.t", "--value", "\"0x41\"", "disk.img:/a"]).good();
    let shown = fixture.line("getfattr -n user.t disk.img:/a").good();
    assert_eq!(shown, "# file: /a\nuser.t=\"0x41\"\n\n");
    let one = fixture.line("getfattr --json -n user.t disk.img:/a").json();
    assert_eq!(one["value"], "30783431");
    let large = "v".repeat(60_000);
    assert!(
        fixture.run(&["setfattr", "-n", "user.l", "--value", &large, "disk.img:/a"]).code
            == Some(1)
    );
    fixture.expect_sound();
}

/// One image may be named many times, and others beside it.
#[test]
fn several_images_in_one_call() {
    let fixture = Fixture::new();
    fixture.line("mkfs other.img --size 8M -q").good();
    fixture.line("mkdir disk.img:/a other.img:/b ./disk.img:/a/c").good();
    assert_eq!(fixture.paths(), ["/a", "/a/c"]);
    assert!(fixture.line("ls disk.img other.img").good().contains("lost+found"));
    fixture.expect_sound();
    fixture.expect_sound_image("other.img");
}

/// Every command takes a policy, and what it leaves is sound; those that name nothing are refused.
#[test]
fn a_policy_can_be_chosen() {
    let fixture = Fixture::new();
    fixture.fill(&["a", "d/b"]);
    for policy in ["baseline", "scalable", "orphans=file-locked,group-lock=wait"] {
        fixture.line(&format!("--policy {policy} cp -r source disk.img:/copy")).good();
        fixture.line(&format!("rm -r disk.img:/copy --policy {policy}")).good();
        fixture.expect_sound();
    }
    let message = fixture.line("rm --policy orphans=none disk.img:/a").bad(1);
    assert!(message.contains("benchmarks only"), "{message}");
    fixture.line("mkfs plain.img --size 8M -O ^orphan_file").good();
    let message = fixture.line("mkdir --policy orphans=file plain.img:/d").bad(1);
    assert!(message.contains("orphan_file"), "{message}");
}

#[test]
fn streams() {
    let fixture = Fixture::new();
    let long = "0123456789abcdef".repeat(200_000);
    let from_input = |content: &str| {
        fixture.put("input", content);
        let mut copy = fixture.command(&["cp", "-", "disk.img:/a", "--json"]);
        finish(copy.stdin(File::open(fixture.path("input")).unwrap())).json()
    };
    assert_eq!(from_input(&long)["bytes"], long.len());
    assert_eq!(fixture.line("cp disk.img:/a -").good(), long);
    assert_eq!(from_input("short")["files"], 1);
    assert_eq!(fixture.line("cp disk.img:/a disk.img:/a -").good(), "shortshort");
    assert!(fixture.line("cp - disk.img:/").bad(1).contains("is a directory"));
    assert!(fixture.line("cp - - disk.img:/").bad(2).contains("one file in an image"));
    assert!(fixture.line("cp - host").bad(2).contains("one file in an image"));
    assert!(fixture.line("cp host -").bad(2).contains("one file in an image"));
    assert!(!fixture.path("-").exists());
    fixture.expect_sound();
}
