//! `build`.

use crate::mounting::Mounting;
use crate::support::{Fixture, finish, tool};
use drystone::Image;
use drystone_testkit::comparison::{Tolerance, compare};
use drystone_testkit::judges::have;
use drystone_testkit::operations::{Profile, generate};
use drystone_testkit::skip::{self, Prerequisite, skip};
use std::path::Path;
use std::process::{Command, Stdio};

/// A folder with a tree of a few files.
fn prepared() -> Fixture {
    let fixture = Fixture::empty();
    for number in 0..50 {
        let name = format!("root/d{}/{number}", number % 7);
        fixture.put(&name, vec![number as u8; number * 1000]);
    }
    std::os::unix::fs::symlink("d1/1", fixture.path("root/link")).unwrap();
    std::fs::hard_link(fixture.path("root/d1/1"), fixture.path("root/other")).unwrap();
    fixture
}

fn judge(image: &Path) {
    let done = tool("e2fsck", &["-fn".as_ref(), image.as_os_str()]);
    assert_eq!(done.code, Some(0), "{}", done.stdout);
}

fn same(left: &Path, right: &Path) -> bool {
    std::fs::read(left).unwrap() == std::fs::read(right).unwrap()
}

fn names_in(fixture: &Fixture) -> Vec<String> {
    let entries = std::fs::read_dir(fixture.path("")).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// The log of a change of the old image says nothing about the new one.
#[test]
fn a_new_image_forgets_an_interrupted_change_of_the_old_one() {
    let fixture = Fixture::new();
    fixture.put("tree/file", "content");
    let log = fixture.path("disk.img.undo");
    fixture.line("tune disk.img --label x --undo kept.undo").good();
    std::fs::rename(fixture.path("kept.undo"), &log).unwrap();
    fixture.line("build disk.img --from tree --force -q").good();
    assert!(!log.exists());
    assert_eq!(fixture.line("cat disk.img:/file").good(), "content");
    // What isn't a log stays.
    std::fs::write(&log, "my notes").unwrap();
    fixture.line("build disk.img --from tree --force -q").good();
    assert_eq!(std::fs::read(&log).unwrap(), b"my notes");
}

#[test]
fn a_directory_and_a_tar_of_it_give_the_same_bytes() {
    let fixture = prepared();
    let text = fixture.line("build a.img --from root --threads 1").good();
    assert!(text.starts_with("a.img: ") && text.contains("UUID"), "{text}");
    judge(&fixture.path("a.img"));
    assert_eq!(fixture.line("diff a.img root").good(), "");
    fixture.line("build b.img --from root --threads 8").good();
    assert!(same(&fixture.path("a.img"), &fixture.path("b.img")), "threads");
    let mut tar = Command::new("tar");
    tar.args(["-cf", "root.tar", "--format=pax", "-C", "root", "."]);
    assert!(tar.current_dir(fixture.path("")).status().unwrap().success());
    fixture.line("build c.img --from root.tar").good();
    assert!(same(&fixture.path("a.img"), &fixture.path("c.img")), "from a tar");
    let mut stream = fixture.command(&["build", "-", "--from", "-"]);
    stream.stdin(Stdio::from(std::fs::File::open(fixture.path("root.tar")).unwrap()));
    let done = finish(&mut stream);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert!(done.bytes == std::fs::read(fixture.path("a.img")).unwrap(), "as a stream");
    assert!(done.stderr.contains("UUID"), "{}", done.stderr);
}

#[test]
fn owners_times_and_what_is_left_out() {
    let fixture = prepared();
    fixture.put("devices", "/dev/console type=character device=5:1 mode=600\n");
    fixture
        .line("build a.img --from root --owner 7:8 --mtime-clamp 1000 --exclude d[2-6] --manifest devices -L name --random-uuid")
        .good();
    judge(&fixture.path("a.img"));
    let json = fixture.line("stat a.img:/d1/1 --json").json();
    assert_eq!((json["user"].as_u64(), json["group"].as_u64()), (Some(7), Some(8)), "{json}");
    assert!(json["modified"].as_str().unwrap().starts_with("1970-01-01T00:16:40"), "{json}");
    let console = fixture.line("stat a.img:/dev/console --json").json();
    assert_eq!(console["device"]["major"], 5, "{console}");
    fixture.line("stat a.img:/d2").bad(1);
    assert!(fixture.line("info a.img").good().contains("name"));
    let mut clamped = fixture.command(&["build", "b.img", "--from", "root", "--mtime-clamp"]);
    let text = finish(clamped.env("SOURCE_DATE_EPOCH", "77")).good();
    assert!(!text.is_empty());
    let json = fixture.line("stat b.img:/d1/1 --json").json();
    assert!(json["modified"].as_str().unwrap().starts_with("1970-01-01T00:01:17"), "{json}");
}

#[test]
fn what_fails_leaves_nothing() {
    let fixture = prepared();
    let before = names_in(&fixture);
    let text = fixture.line("build a.img --from root --size 1M").bad(1);
    assert!(text.contains("too small by") && text.contains("would do"), "{text}");
    fixture.line("build a.img --from nowhere").bad(1);
    fixture.line("build a.img").bad(2);
    fixture.line("build a.img --from root --free 20% --size 40M").bad(2);
    fixture.put("truncated.tar", {
        let mut header = vec![0; 512];
        header[..4].copy_from_slice(b"name");
        header
    });
    fixture.line("build a.img --from truncated.tar").bad(1);
    std::fs::remove_file(fixture.path("truncated.tar")).unwrap();
    assert_eq!(names_in(&fixture), before);
    fixture.put("a.img", "something");
    let text = fixture.line("build a.img --from root").bad(1);
    assert!(text.contains("--force"), "{text}");
    fixture.line("build a.img --from root --force").good();
    judge(&fixture.path("a.img"));
}

#[test]
fn what_is_no_source_is_called_so() {
    let fixture = prepared();
    fixture.put("motd", "hello");
    for (source, expected) in [
        (
            "motd",
            "motd: neither a directory nor an archive; a list (--from-list) takes single files",
        ),
        ("oci:root", "index.json is missing"),
    ] {
        let message = fixture.line(&format!("build new.img --from {source}")).bad(1);
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn an_image_without_its_journal_says_so() {
    let fixture = prepared();
    let message = fixture.line("build new.img --from root --size 7M -O has_journal").bad(2);
    assert!(message.contains("a journal needs an image of 2048 blocks"), "{message}");
    assert!(!fixture.path("new.img").exists());
    let done = fixture.line("build new.img --from root --size 7M");
    let expected = "drystone: the image is too small for a journal: it has none\n";
    assert_eq!((done.code, done.stderr.as_str()), (Some(0), expected));
    let made = fixture.line("mkfs small.img --size 1M").good();
    assert!(made.contains("1 group, no journal, for which it is too small, UUID"), "{made}");
}

#[test]
fn sizes_and_json() {
    let fixture = prepared();
    let json = fixture.line("build a.img --from root --free 50% --json").json();
    let size = json["size"].as_u64().unwrap();
    assert_eq!(fixture.path("a.img").metadata().unwrap().len(), size);
    assert!(json["files"].as_u64().unwrap() > 50, "{json}");
    judge(&fixture.path("a.img"));
    // The engine takes over what it had no part in.
    fixture.line("cp root a.img:/again").good();
    fixture.line("rm -r a.img:/d1").good();
    judge(&fixture.path("a.img"));
    let small = fixture.line("build b.img --from root --immutable --json").json();
    assert!(small["size"].as_u64().unwrap() < size / 2, "{small}");
    judge(&fixture.path("b.img"));
    assert_eq!(small["journal_blocks"], 0);
    fixture.line("build c.img --from root --size 100M --min-inodes 30000 -q").good();
    judge(&fixture.path("c.img"));
}

#[test]
fn the_hash_tree_is_what_veritysetup_makes() {
    let fixture = prepared();
    let json = fixture.line("build a.img --from root --immutable --verity-hash --json").json();
    let verity = &json["verity"];
    let (root, offset) = (verity["root_hash"].as_str().unwrap(), &verity["hash_offset"]);
    judge(&fixture.path("a.img"));
    let mut verify = Command::new("veritysetup");
    let offset = format!("--hash-offset={offset}");
    verify.args(["verify", "a.img", "a.img", root, &offset]).current_dir(fixture.path(""));
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    if have("veritysetup") {
        let done = verify.env("PATH", path).output().unwrap();
        let text = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(done.status.success(), "{text}");
    }
}

#[test]
fn a_block_device_is_filled() {
    if !skip::is_root("a loop device") {
        return;
    }
    let fixture = prepared();
    fixture.put("disk", vec![0xa5; 48 << 20]);
    let mut attach = Command::new("losetup");
    attach.args(["--find", "--show"]).arg(fixture.path("disk"));
    let done = attach.output().unwrap();
    if !done.status.success() {
        skip(Prerequisite::LoopMounts, "a loop device");
        return;
    }
    let device = String::from_utf8(done.stdout).unwrap().trim().to_string();
    let refused = fixture.run(&["build", &device, "--from", "root"]);
    let line = ["build", &device, "--from", "root", "--force", "--verity-hash", "--size", "48M"];
    let before_writing = fixture.run(&line);
    let is_untouched = std::fs::read(fixture.path("disk")).unwrap() == vec![0xa5; 48 << 20];
    let built = fixture.run(&["build", &device, "--from", "root", "--force"]);
    let detached = Command::new("losetup").args(["--detach", &device]).status().unwrap();
    assert!(detached.success());
    assert!(refused.bad(1).contains("--force"));
    let text = before_writing.bad(1);
    assert!(
        text.contains("the partition or device ends after") && !text.contains("incomplete"),
        "{text}"
    );
    assert!(is_untouched);
    built.good();
    judge(&fixture.path("disk"));
    assert_eq!(fixture.line("cat disk:/d1/1").bytes.len(), 1000);
}

#[test]
fn what_a_user_extracts_is_built_again_the_same() {
    const USER: u32 = 65_534;
    if !skip::is_root("being another user") {
        return;
    }
    let fixture = prepared();
    let manifest = "/null type=character device=1:3 mode=666\n/link uid=7\n/pipe type=fifo gid=9\n\
                    /d1/1 uid=5 gid=6 mode=4755 xattr.trusted.x=\\x00y\n";
    fixture.put("manifest", manifest);
    fixture.line("build a.img --from root --manifest manifest").good();
    std::os::unix::fs::chown(fixture.path(""), Some(USER), Some(USER)).unwrap();
    // Users need not reach the folder that it was built in.
    let program = fixture.put_program("drystone", crate::support::command().get_program());
    let as_user = |line: &str| {
        let mut command = Command::new("setpriv");
        let user = [format!("--reuid={USER}"), format!("--regid={USER}"), "--clear-groups".into()];
        command.args(user).arg(&program).args(line.split(' ')).current_dir(fixture.path(""));
        let done = finish(&mut command);
        assert_eq!(done.code, Some(0), "{}", done.stderr);
    };
    as_user("extract a.img --to out --manifest-out lost");
    as_user("build b.img --from out --manifest lost");
    assert!(same(&fixture.path("a.img"), &fixture.path("b.img")));
}

/// Random operations come out the same on what was built and on what the engine filled itself.
#[test]
fn the_engine_works_on_what_was_built() {
    let fixture = Fixture::empty();
    // The names that the operations use.
    for number in 0..40 {
        fixture.put(&format!("top/d/n{number}"), vec![number as u8; number * 3000]);
        fixture.put(&format!("top/d/file-{number}"), "short");
    }
    for (seed, profile) in (0..).zip(Profile::ALL) {
        // Files of an ordinary user are root's in both.
        fixture
            .line("build -f built.img --from top --owner 0:0 --size 64M --min-inodes 4000 -q")
            .good();
        fixture.line("mkfs -f filled.img --size 64M --block-size 4K --inodes 4000 -q").good();
        fixture.line("cp -r --no-owners top/d filled.img:/ -q").good();
        let images =
            ["built.img", "filled.img"].map(|name| Image::open(fixture.path(name)).unwrap());
        let operations = generate(seed, profile, "/d", 300);
        let [left, right] = [&images[0], &images[1]].map(|image| image.file_system());
        if let Err(difference) = compare(left, right, &operations, Tolerance::default()) {
            panic!("profile {}, seed {seed}: {difference}", profile.name);
        }
        for image in images {
            image.close().unwrap();
        }
        judge(&fixture.path("built.img"));
    }
}

/// When the command has returned, the name of what it made is durable too: it is there after a crash, whole.
#[test]
fn what_was_made_survives_a_crash() {
    let Some(mounting) = Mounting::new() else { return };
    mounting.fixture.put("root/file", "content");
    mounting.line("build first.img --from root -q").good();
    for (line, made) in [
        ("build mnt/built.img --from root -q", "built.img"),
        ("extract first.img --to mnt/tree.tar -q", "tree.tar"),
    ] {
        // Nothing else is to make it durable.
        mounting.line("mount disk.img mnt -o commit=300").good();
        mounting.line(line).good();
        let before = std::fs::read(mounting.path(made)).unwrap();
        mounting.crash();
        mounting.line("mount disk.img mnt").good();
        let names = std::fs::read_dir(mounting.path("")).unwrap();
        let names: Vec<_> = names.map(|name| name.unwrap().file_name()).collect();
        assert!(names.iter().any(|name| name == made), "{line}: {names:?}");
        assert!(std::fs::read(mounting.path(made)).unwrap() == before, "{line}");
        mounting.unmount().good();
    }
    mounting.fixture.expect_sound();
}
