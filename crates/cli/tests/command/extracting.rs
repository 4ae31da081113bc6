//! `extract`: trees as directories, judged by what made the source.

use crate::copying::{assert_same, make_tree, seen};
use crate::support::{Fixture, finish};
use drystone_testkit::judges::{kernel_mount, run};
use drystone_testkit::skip::{self, Prerequisite, skip};
use rustix::fs::{CWD, FileType, Mode, makedev};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;

/// An image with a tree of everything, and the tree.
pub fn full() -> Fixture {
    let fixture = Fixture::with(&["--size", "96M"]);
    make_tree(&fixture.path("source"));
    fixture.line("cp source/. disk.img:/").good();
    fixture
}

#[test]
fn a_directory_comes_out_as_it_was() {
    let fixture = full();
    let expected = seen(&fixture.path("source"), true);
    for threads in [1, 8] {
        let text = fixture.line(&format!("extract disk.img --to out -j {threads}")).good();
        assert!(text.starts_with("out: ") && text.lines().count() == 1, "{text}");
        assert_same(&expected, &seen(&fixture.path("out"), true));
        fs::remove_dir_all(fixture.path("out")).unwrap();
    }
    let summary = fixture.line("extract disk.img:/d --to d --json").json();
    assert_eq!((&summary["failed"], &summary["not_kept"]), (&0.into(), &0.into()));
    assert!(summary["files"].as_u64() > Some(300) && summary["bytes"].as_u64() > Some(1 << 20));
    assert_eq!(fs::read_to_string(fixture.path("d/second")).unwrap(), "several names");
    fixture.line("extract disk.img:/first --to d -q").good();
    assert_eq!(fs::read_to_string(fixture.path("d/first")).unwrap(), "several names");
}

#[test]
fn what_is_excluded_stays_in_the_image() {
    let fixture = Fixture::new();
    fixture.fill(&["a", "b/a", "b/c", "d/e/f", "g/d/h"]);
    fixture.line("mkdir disk.img:/lost+found/kept").good();
    fixture.line("extract disk.img --to out -q --exclude a --exclude /d/*").good();
    let found = finish(std::process::Command::new("find").arg(fixture.path("out")).args([
        "-mindepth",
        "1",
        "-printf",
        "%P\n",
    ]));
    let mut found: Vec<String> = found.good().lines().map(str::to_string).collect();
    found.sort();
    assert_eq!(found, ["b", "b/c", "d", "g", "g/d", "g/d/h", "lost+found", "lost+found/kept"]);
}

#[test]
fn what_can_not_be_extracted_is_named() {
    let fixture = Fixture::new();
    fixture.fill(&["a", "d/b"]);
    fixture.put("taken/d", "a file");
    fixture.put("file", "");
    for (line, code, message) in [
        ("extract disk.img", 2, "--to"),
        ("extract no.img --to out", 1, "no.img: "),
        ("extract disk.img:/nope --to out", 1, "disk.img:/nope: no such file"),
        ("extract disk.img --to no/such", 1, "no/such: No such file"),
        ("extract disk.img --to file", 1, "file is no directory; an archive ends in .tar"),
        ("extract disk.img --to taken", 1, "taken/d: Not a directory"),
        ("extract disk.img --to out --manifest-out no/such", 1, "no/such: No such file"),
    ] {
        let done = fixture.line(line);
        assert_eq!(done.code, Some(code), "{line}: {done:?}");
        assert!(done.stderr.contains(message), "{line}: {}", done.stderr);
    }
    assert_eq!(fs::read_to_string(fixture.path("taken/a")).unwrap(), "a");
}

/// Lets another user, who has the folder `mine`, call the command; none where that can't be.
fn user_of(fixture: &Fixture) -> impl Fn(&str) -> Option<(Option<i32>, String, String)> + '_ {
    fs::set_permissions(fixture.path("."), PermissionsExt::from_mode(0o755)).unwrap();
    fs::create_dir(fixture.path("mine")).unwrap();
    chown(fixture.path("mine"), Some(65534), Some(65534)).unwrap();
    |arguments: &str| {
        let mut command = fixture.command(&arguments.split(' ').collect::<Vec<_>>());
        match command.uid(65534).gid(65534).output() {
            Ok(output) => Some((
                output.status.code(),
                String::from_utf8_lossy(&output.stdout).into_owned(),
                String::from_utf8_lossy(&output.stderr).into_owned(),
            )),
            Err(error) => {
                skip(Prerequisite::Host("another user reaches the command".into()), error);
                None
            }
        }
    }
}

/// What is in the way of a device that can't be made stays.
#[test]
fn what_can_not_be_made_replaces_nothing() {
    if !skip::is_root("being another user") {
        return;
    }
    let fixture = Fixture::new();
    fixture.put("source/file", "from the image");
    let kind = FileType::CharacterDevice;
    let path = fixture.path("source/console");
    rustix::fs::mknodat(CWD, path, kind, Mode::RWXU, makedev(5, 1)).unwrap();
    fixture.line("cp source/. disk.img:/").good();
    let run = user_of(&fixture);
    fixture.put("mine/out/console", "a user's");
    fixture.put("mine/out/file", "a user's");
    chown(fixture.path("mine/out"), Some(65534), Some(65534)).unwrap();
    for (line, code) in [
        ("extract disk.img --to mine/out", 1),
        ("extract disk.img --to mine/out --manifest-out mine/manifest", 0),
        ("cp disk.img:/console mine/out", 1),
    ] {
        let Some((ended, _, message)) = run(line) else { return };
        assert_eq!(ended, Some(code), "{line}: {message}");
        let kept = fs::read_to_string(fixture.path("mine/out/console")).unwrap();
        assert_eq!(kept, "a user's", "{line}");
    }
    assert_eq!(fs::read_to_string(fixture.path("mine/out/file")).unwrap(), "from the image");
    assert_eq!(fs::read_dir(fixture.path("mine/out")).unwrap().count(), 2);
}

/// A manifest has its name when it is whole, and is not written over what it must not be.
#[test]
fn a_manifest_replaces_nothing_too_early() {
    let fixture = Fixture::new();
    fixture.fill(&["u", "d/b"]);
    fixture.put("manifest", "an earlier one");
    fixture.put("taken", "");
    fs::create_dir(fixture.path("t")).unwrap();
    std::os::unix::fs::symlink("disk.img", fixture.path("link.img")).unwrap();
    fs::copy(fixture.path("disk.img"), fixture.path("disk.tar")).unwrap();
    for (line, code, message) in [
        ("extract disk.img --to t --manifest-out disk.img", 2, "the image itself"),
        ("extract disk.img --to t --manifest-out link.img", 2, "the image itself"),
        ("extract disk.tar --to disk.tar", 2, "the image itself"),
        ("extract disk.img --to t --manifest-out t/u", 2, "can't be in t"),
        ("extract disk.img --to new --manifest-out new/u", 2, "can't be in new"),
        ("extract disk.img --to taken --manifest-out manifest", 1, "taken is no directory"),
    ] {
        let told = fixture.line(line).bad(code);
        assert!(told.contains(message), "{line}: {told}");
    }
    assert_eq!(fs::read_to_string(fixture.path("manifest")).unwrap(), "an earlier one");
    assert!(!fixture.path("new").exists());
    fixture.expect_sound();
    fixture.line("extract disk.img --to t --manifest-out manifest -q").good();
    assert_eq!(fs::read_to_string(fixture.path("manifest")).unwrap(), "");
    let names = fs::read_dir(fixture.path("")).unwrap().map(|entry| entry.unwrap().file_name());
    let left: Vec<_> = names.filter(|name| name.as_encoded_bytes().ends_with(b".part")).collect();
    assert!(left.is_empty(), "{left:?}");
}

/// Nobody wants a directory of such a name.
#[test]
fn a_compressed_archive_is_for_another_program() {
    let fixture = Fixture::new();
    for name in ["new.tar.gz", "new.tgz", "new.tar.zst"] {
        let told = fixture.line(&format!("extract disk.img --to {name}")).bad(2);
        assert!(told.contains("--to - | zstd"), "{told}");
        assert!(!fixture.path(name).exists());
    }
    fs::create_dir(fixture.path("there.tgz")).unwrap();
    fixture.line("extract disk.img --to there.tgz -q").good();
}

/// When the host is full the copy stops, and says so: what was never tried is not counted.
#[test]
fn a_full_host_is_told() {
    if !skip::is_root("a mount of what fills up") {
        return;
    }
    let fixture = Fixture::new();
    for file in 0..40 {
        fixture.put(&format!("source/d/{file}"), vec![7; 20_000]);
    }
    fixture.line("cp source/. disk.img:/").good();
    let small = fixture.path("small");
    fs::create_dir(&small).unwrap();
    let on_small = |program: &str, words: &[&str]| {
        std::process::Command::new(program).args(words).arg(&small).status().unwrap().success()
    };
    if !on_small("mount", &["-t", "tmpfs", "-o", "size=100k", "tmpfs"]) {
        return skip(Prerequisite::Host("a mount of tmpfs".into()), "a mount of what fills up");
    }
    let done = ["", " --json", " --manifest-out manifest"].map(|more| {
        let done = fixture.line(&format!("extract disk.img --to small -j 1{more}"));
        fs::remove_dir_all(small.join("d")).unwrap();
        done
    });
    let copied = fixture.line("cp disk.img:/d small");
    assert!(on_small("umount", &[]));
    let [told, json, manifest] = done;
    let summary: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!((json.code, &summary["stopped"]), (Some(1), &true.into()));
    assert!(manifest.bad(1).contains("no manifest"));
    assert!(!fixture.path("manifest").exists());
    for message in [told.bad(1), copied.bad(1)] {
        assert!(message.contains("No space left on device"), "{message}");
        assert!(message.contains("the copy stopped there"), "{message}");
        assert!(!message.contains("1 entry is missing"), "{message}");
    }
}

/// Whoever isn't the superuser gets the content, one line for each kind of loss, and a manifest.
#[test]
fn a_user_is_told_what_is_lost() {
    if !skip::is_root("being another user") {
        return;
    }
    let fixture = full();
    let run = user_of(&fixture);
    let Some((code, _, message)) = run("extract disk.img --to mine/without") else { return };
    assert_eq!(code, Some(1), "{message}");
    assert!(message.contains("can't keep the owner of mine/without"), "{message}");
    assert!(message.contains("more; -v names them)"), "{message}");
    assert!(message.contains("can't make the device"), "{message}");
    assert!(message.lines().count() < 8, "{message}");
    let line = "extract disk.img --to mine/out --manifest-out mine/manifest";
    let Some((code, _, message)) = run(line) else { return };
    assert_eq!(code, Some(0), "{message}");
    let manifest = fs::read_to_string(fixture.path("mine/manifest")).unwrap();
    let line = |start: &str| manifest.lines().find(|line| line.starts_with(start)).unwrap();
    assert!(line("/mode-4711 ").starts_with("/mode-4711 mode=4711 uid=0 gid=0"), "{manifest}");
    assert!(manifest.contains(" type=character device="), "{manifest}");
    let paths = manifest.lines().map(|line| line.split(' ').next());
    let names = paths.map(|path| path.unwrap().split('/').collect::<Vec<_>>());
    assert!(names.is_sorted(), "{manifest}");
    let mode = |name: &str| fs::metadata(fixture.path(name)).unwrap().mode();
    assert_eq!(mode("mine/out/mode-4711") & 0o7777, 0o711);
    assert_eq!(mode("mine/out/mode-400") & 0o7777, 0o400);
    let content = fs::read(fixture.path("mine/out/d/of-70001")).unwrap();
    assert_eq!(content, fs::read(fixture.path("source/d/of-70001")).unwrap());
    // With the manifest nothing is lost on the way to another image.
    let line = "build mine/again.img --from mine/out --manifest mine/manifest -q";
    let Some((code, _, message)) = run(line) else { return };
    assert_eq!((code, message.as_str()), (Some(0), ""));
    assert_eq!(fixture.line("diff disk.img mine/again.img").good(), "");
}

/// Replaces all of `name` in the image by bytes of the same length.
fn patch(fixture: &Fixture, name: &[u8], with: &[u8]) {
    assert_eq!(name.len(), with.len());
    let mut bytes = fs::read(fixture.path("disk.img")).unwrap();
    let mut places = 0;
    for at in 0..bytes.len() - name.len() {
        if &bytes[at..at + name.len()] == name {
            bytes[at..at + name.len()].copy_from_slice(with);
            places += 1;
        }
    }
    assert!(places > 0, "{}", name.escape_ascii());
    fs::write(fixture.path("disk.img"), bytes).unwrap();
}

/// Everything in the folder of a fixture but the target and what was there before.
fn outside(fixture: &Fixture) -> Vec<String> {
    let find = finish(std::process::Command::new("find").arg(fixture.path("")).args([
        "-not",
        "-path",
        "*/out/*",
        "-printf",
        "%P %y %s %T@ %l\n",
    ]));
    let lines = find.good();
    let mut lines: Vec<String> = lines
        .lines()
        .filter(|line| !line.starts_with(' ') && !line.starts_with("out"))
        .map(str::to_string)
        .collect();
    lines.sort();
    lines
}

/// Names that lead elsewhere, names twice, links that lead out: nothing is made outside.
#[test]
fn a_hostile_image_reaches_nothing_outside() {
    for name in ["../escape", "sub/inner", "/absolute", "with\0null", "..", "directory"] {
        // Without checksums, whoever makes an image may write what he likes into it.
        let fixture =
            Fixture::with(&["--size", "8M", "-O", "^metadata_csum,^metadata_csum_seed,^dir_index"]);
        fixture.fill(&["evilname1", "qz", "directory/inside", "sub/other", "zlast"]);
        fixture.put("victim/precious", "precious");
        let link = fixture.path("victim");
        let link = link.to_str().unwrap();
        fixture.run(&["ln", "-s", link, "disk.img:/linkname1"]).good();
        fixture.run(&["ln", "-s", "..", "disk.img:/up"]).good();
        match name {
            // The directory has the name of a link that leads out, and the link comes first.
            "directory" => patch(&fixture, b"linkname1", b"directory"),
            // A file of this name: what goes before it says its length and its type.
            ".." => patch(&fixture, b"\x02\x01qz", b"\x02\x01.."),
            name => patch(&fixture, b"evilname1", name.as_bytes()),
        }
        let before = outside(&fixture);
        for target in ["out", "out.tar"] {
            let done = fixture.line(&format!("extract disk.img --to {target} -j 3"));
            if !["directory", ".."].contains(&name) {
                assert_eq!(done.code, Some(1), "{name}: {}", done.stdout);
                assert!(done.stderr.contains("name"), "{name}: {}", done.stderr);
            }
            let _ = fs::remove_file(fixture.path("out.tar"));
            assert_eq!(outside(&fixture), before, "{name} to {target}");
        }
        // Once more over what is there now: links that were made must not be followed either.
        fixture.line("extract disk.img --to out");
        fixture.line("cp disk.img:/ out");
        assert_eq!(outside(&fixture), before, "{name}, again");
    }
}

/// What the host refuses of some files keeps none from coming out: attributes for which its file system
/// has no room, which it says as if it were full, and attributes of which it knows none.
#[test]
fn attributes_that_the_host_refuses_end_nothing() {
    if !skip::is_root("mounts of the kernel's") {
        return;
    }
    let fixture = Fixture::with(&["--size", "8M", "-b", "4K"]);
    let names = ["a", "b", "c", "d", "e"];
    fixture.fill(&names);
    for name in names {
        // Those of two files fit into a block of 4 KiB and not into one of 1 KiB.
        let value = "v".repeat(if ["b", "d"].contains(&name) { 3000 } else { 10 });
        let path = format!("disk.img:/{name}");
        fixture.run(&["setfattr", "-n", "user.x", "--value", &value, &path]).good();
    }
    let extract = |directory: &str| {
        let done = fixture.line(&format!("extract disk.img --to {directory}/out"));
        for name in names {
            let content = fs::read_to_string(fixture.path(format!("{directory}/out/{name}")));
            assert_eq!(content.unwrap(), name, "{}", done.stderr);
        }
        done
    };
    let has_attribute = |name: &str| {
        let mut value = [0; 16];
        let path = fixture.path(format!("small/out/{name}"));
        rustix::fs::getxattr(path, "user.x", &mut value[..]).is_ok()
    };
    fixture.line("mkfs small.img --size 8M -b 1K -q").good();
    let image = fixture.path("small.img");
    let Some(small) = kernel_mount(&image, &fixture.path("small"), "").unwrap() else { return };
    let done = extract("small");
    assert_eq!(done.code, Some(1), "{}", done.stderr);
    for name in ["b", "d"] {
        let told = format!("can't keep an extended attribute of small/out/{name}: No space left");
        assert!(done.stderr.contains(&told), "{}", done.stderr);
    }
    assert_eq!(names.map(has_attribute), [true, false, true, false, true]);
    small.unmount().unwrap();

    fs::create_dir(fixture.path("plain")).unwrap();
    let plain = fixture.path("plain");
    run("mount", ["-t", "ramfs", "ramfs", plain.to_str().unwrap()]).unwrap().expect_clean("mount");
    let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| extract("plain")));
    run("umount", [&plain]).unwrap().expect_clean("umount");
    let done = done.unwrap();
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert!(done.stderr.contains("can't keep an extended attribute of plain/out/"), "{done:?}");
}
