//! `getfacl` and `setfacl`, judged by the programs of that name.

use crate::mounting::Mounting;
use crate::support::{Done, Fixture, finish};
use drystone_testkit::environment::number;
use drystone_testkit::judges::{debugfs, have};
use drystone_testkit::skip::{Prerequisite, is_root, skip};
use fastrand::Rng;
use std::fs::File;
use std::path::Path;
use std::process::Command;

const SEQUENCES: u64 = 12;
const CALLS: usize = 12;

/// A program of the host in a directory.
fn host(directory: &Path, program: &str, arguments: &[&str]) -> Done {
    finish(Command::new(program).args(arguments).current_dir(directory))
}

#[test]
fn lists_are_changed_and_shown() {
    let fixture = Fixture::new();
    fixture.fill(&["d/a", "d/e/b"]);
    fixture.line("chmod 4751 disk.img:/d/a").good();
    fixture.line("setfacl -m u:1000:rwx,g:50:r disk.img:/d/a").good();
    fixture.line("chmod 4741 disk.img:/d/a").good();
    assert_eq!(
        fixture.line("getfacl disk.img:/d/a").good(),
        "# file: d/a\n# owner: 0\n# group: 0\n# flags: s--\nuser::rwx\nuser:1000:rwx\t#effective:r--\n\
         group::r-x\t#effective:r--\ngroup:50:r--\nmask::r--\nother::--x\n\n"
            .replace("owner: 0", &format!("owner: {}", rustix::process::geteuid()))
            .replace("group: 0", &format!("group: {}", rustix::process::getegid()))
    );
    let json = fixture.line("getfacl --json disk.img:/d/a").json();
    assert_eq!(json["flags"], "s--");
    let entry = serde_json::json!({"kind":"user","id":1000,"permissions":"rwx","effective":"r--"});
    assert_eq!((&json["access"][1], &json["default"]), (&entry, &serde_json::Value::Null));
    fixture.line("setfacl -R -m d:u:7:rX disk.img:/d").good();
    fixture.line("cp source/d/a disk.img:/d/e/new").good();
    assert!(fixture.line("getfacl -c disk.img:/d/e").good().contains("default:user:7:r-x\n"));
    assert!(fixture.line("getfacl -d disk.img:/d/e").good().contains("\nuser:7:r-x\n"));
    assert_eq!(fixture.line("getfacl -sR --json disk.img").json_lines().len(), 3);
    if have("debugfs") {
        let stored = debugfs(&fixture.path("disk.img"), "ea_list /d/e").unwrap().output;
        assert!(stored.contains("system.posix_acl_default"), "{stored}");
    }
    assert!(fixture.line("setfacl -m d:u:7:r disk.img:/d/a").bad(1).contains("only a directory"));
    assert!(fixture.line("setfacl -x u disk.img:/d/a").bad(1).contains("would be invalid"));
    assert!(fixture.line("setfacl -m u:7:r disk.img:/none").bad(1).contains("no such file"));
    assert!(fixture.line("setfacl -m u:lisa:r disk.img:/d").stderr.contains("isn't a number"));
    fixture.line("setfacl -Rb disk.img:/").good();
    assert_eq!(fixture.line("getfacl -sR disk.img").good(), "");
    fixture.expect_sound();
}

/// A file system without lists has permission bits.
#[test]
fn nilfs2_has_permission_bits() {
    let fixture = Fixture::empty();
    fixture.line("mkfs log.img --type nilfs2 --size 64M -B 64 -q").good();
    fixture.line("touch log.img:/a").good();
    fixture.line("setfacl -m u::rwx,g::x,o::- log.img:/a").good();
    assert_eq!(
        fixture.line("getfacl -c log.img:/a").good(),
        "user::rwx\ngroup::--x\nother::---\n\n"
    );
    assert!(fixture.line("setfacl -m u:1:r log.img:/a").bad(1).contains("log.img:/a: "));
}

#[test]
fn lists_are_restored() {
    let fixture = Fixture::new();
    fixture.fill(&["d/a", "d/e/b", "d/new\nline", "d/back\\slash"]);
    fixture.line("setfacl -R -m u:7:rwX,d:g:8:rx,m::r disk.img:/d").good();
    fixture.line("chmod 3770 disk.img:/d/e").good();
    fixture.line("chown -R 5:6 disk.img:/d").good();
    let saved = fixture.line("getfacl -R disk.img:/d").good();
    fixture.put("lists", &saved);
    let upset = || {
        fixture.line("setfacl -Rb disk.img:/d").good();
        fixture.line("setfacl -R -m d:u:1:r disk.img:/d").good();
        fixture.line("chmod -R 600 disk.img:/d").good();
        fixture.line("chown -R 0:0 disk.img:/d").good();
    };
    // What is as it was keeps its capabilities.
    let capability = "security.capability --value 0x0100000200200000000000000000000000000000";
    fixture.line(&format!("setfattr -n {capability} disk.img:/d/a")).good();
    fixture.line("setfacl --restore lists disk.img").good();
    assert!(fixture.line("getfattr disk.img:/d/a").good().contains("security.capability"));
    upset();
    fixture.line("setfacl --restore lists disk.img").good();
    assert_eq!(fixture.line("getfacl -R disk.img:/d").good(), saved);
    upset();
    fixture.put("lists", saved.replace("# file: d", "# file: /."));
    let mut call = fixture.command(&["setfacl", "--restore", "-", "disk.img:/d"]);
    finish(call.stdin(File::open(fixture.path("lists")).unwrap())).good();
    assert_eq!(fixture.line("getfacl -R disk.img:/d").good(), saved);
    fixture.put("lists", "# file: none\nuser::r\n\n# file: d\nuser::---\n# owner: lisa\n");
    let message = fixture.line("setfacl --restore lists disk.img").bad(1);
    assert!(message.contains("lists: line 6: 'lisa' isn't a number"), "{message}");
    fixture.put("lists", "# file: none\nuser::r\n\n# file: d/a\n# owner: 9\n");
    let message = fixture.line("setfacl --restore lists disk.img").bad(1);
    assert!(message.contains("disk.img:/none: no such file"), "{message}");
    assert_eq!(fixture.line("getfacl --json disk.img:/d/a").json()["user"], 9);
    fixture.expect_sound();
}

/// The kernel and getfacl see in a mount what we show, and set what we see.
#[test]
fn getfacl_on_a_mount_shows_the_same() {
    if !have("getfacl") {
        return;
    }
    let Some(mounting) = Mounting::new() else { return };
    let fixture = &mounting.fixture;
    fixture.line("mkdir disk.img:/d").good();
    fixture.line("setfacl -m u:1000:rwx,g:50:r,d:u:1:rx,d:m::r disk.img:/d").good();
    fixture.line("setfacl -m g:4294967294:rw disk.img:/etc/hosts").good();
    let shown = || fixture.line("getfacl disk.img disk.img:/d disk.img:/etc/hosts").good();
    let before = shown();
    mounting.line("mount disk.img mnt").good();
    let paths = ["-n", ".", "d", "etc/hosts"];
    let seen = host(&mounting.path(""), "getfacl", &paths).good();
    assert_eq!(seen, before);
    // Others may not.
    if is_root("setfacl on files of root") {
        host(&mounting.path(""), "setfacl", &["-m", "u:9:x,d:o::w", "d"]).good();
        host(&mounting.path(""), "setfacl", &["-b", "etc/hosts"]).good();
    }
    let seen = host(&mounting.path(""), "getfacl", &paths).good();
    mounting.unmount().good();
    assert_eq!(seen, shown());
    fixture.expect_sound();
}

/// Options in the order in which we obey them. A file has no default list: setfacl changes the other one
/// before it says so.
fn random_options(rng: &mut Rng, is_directory: bool) -> Vec<String> {
    const TAGS: [&str; 8] = ["u:", "u:1", "u:2", "g:", "g:1", "g:3", "m:", "o:"];
    const LETTERS: [&str; 8] = ["-", "r", "w", "x", "rx", "rwx", "rX", "5"];
    let mut options = Vec::new();
    for (option, odds) in [("-b", 12), ("-k", 12), ("-n", 6), ("--mask", 6), ("-d", 8)] {
        let is_refused = option == "--mask" && options.contains(&"-n".to_owned());
        if rng.u8(0..odds) == 0 && !is_refused && (is_directory || option != "-d") {
            options.push(option.to_owned());
        }
    }
    let may_be_default = is_directory && !options.contains(&"-d".to_owned());
    let mut words = |with_letters: bool| {
        let mut word = || {
            let default = if rng.u8(0..4) == 0 && may_be_default { "d:" } else { "" };
            let (tag, letters) = (TAGS[rng.usize(0..8)], LETTERS[rng.usize(0..8)]);
            let letters = if with_letters { format!(":{letters}") } else { String::new() };
            format!("{default}{tag}{letters}")
        };
        (0..1 + usize::from(with_letters)).map(|_| word()).collect::<Vec<_>>().join(",")
    };
    let (removed, added) = (words(false), words(true));
    if rng.u8(0..8) == 0 {
        options.extend(["--set".to_owned(), format!("u::rw,g::r,o::r,{added}")]);
    }
    if rng.u8(0..3) == 0 {
        options.extend(["-x".to_owned(), removed]);
    } else {
        options.extend(["-m".to_owned(), added]);
    }
    options
}

/// `DRYSTONE_SEED` and `DRYSTONE_SEQUENCES` select others.
#[test]
fn random_changes_are_those_of_setfacl() {
    if !have("setfacl") {
        return;
    }
    let first = number("DRYSTONE_SEED").unwrap_or(0);
    for seed in first..first + number("DRYSTONE_SEQUENCES").unwrap_or(SEQUENCES) {
        let mut rng = Rng::with_seed(seed);
        let fixture = Fixture::empty();
        fixture.line("mkfs disk.img --size 8M -q").good();
        fixture.put("f", "");
        std::fs::create_dir(fixture.path("d")).unwrap();
        if host(&fixture.path(""), "setfacl", &["-m", "u:1:r,u:1:-", "f"]).code != Some(0) {
            let lack = Prerequisite::Host("access control lists".to_owned());
            return skip(lack, "a comparison with setfacl");
        }
        host(&fixture.path(""), "setfacl", &["-b", "f"]).good();
        fixture.line("cp f d disk.img:/").good();
        let mut calls = Vec::new();
        for _ in 0..CALLS {
            let name = if rng.bool() { "f" } else { "d" };
            let mode = format!("{:o}", rng.u32(0..0o1000));
            if rng.u8(0..4) == 0 {
                calls.push(format!("chmod {mode} {name}"));
                host(&fixture.path(""), "chmod", &[&mode, name]).good();
                fixture.line(&format!("chmod {mode} disk.img:/{name}")).good();
                continue;
            }
            let options = random_options(&mut rng, name == "d");
            calls.push(format!("setfacl {} {name}", options.join(" ")));
            let words: Vec<&str> = options.iter().map(String::as_str).collect();
            let theirs = host(&fixture.path(""), "setfacl", &[&words[..], &[name]].concat());
            let place = format!("disk.img:/{name}");
            let ours = fixture.run(&[&["setfacl"], &words[..], &[&place]].concat());
            let history = calls.join("\n");
            let context =
                format!("DRYSTONE_SEED={seed}:\n{history}\n{}{}", ours.stderr, theirs.stderr);
            assert_eq!(ours.code == Some(0), theirs.code == Some(0), "{context}");
            let theirs = host(&fixture.path(""), "getfacl", &["-n", name]).good();
            let ours = fixture.line(&format!("getfacl {place}")).good();
            assert_eq!(ours, theirs, "{context}");
        }
        fixture.expect_sound();
    }
}
