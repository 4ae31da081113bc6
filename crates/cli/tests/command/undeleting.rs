//! `undelete`: files that this command, debugfs and Linux have deleted come back with all of their bytes.

use crate::support::{Fixture, tool};
use drystone_testkit::judges::{crashed_image, kernel_mount};
use drystone_testkit::skip;
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

/// Files by their paths below `d`.
type Files = BTreeMap<&'static str, Vec<u8>>;

/// Files of different sizes, one of them in many pieces.
fn files() -> Files {
    let mut random = fastrand::Rng::with_seed(15);
    let mut bytes = |length: usize| (0..length).map(|_| random.u8(..)).collect::<Vec<u8>>();
    let mut scattered = vec![0; 120 * 8192];
    for piece in scattered.chunks_mut(8192) {
        // Holes are at least as large as the largest blocks.
        piece[..4096].copy_from_slice(&bytes(4096));
    }
    BTreeMap::from([
        ("small", b"a few bytes\n".to_vec()),
        ("e/large", bytes(300_001)),
        ("e/f/larger", bytes(3_000_000)),
        ("scattered", scattered),
    ])
}

/// Puts the files into `source/d` on the host.
fn put(fixture: &Fixture, files: &Files) {
    for (name, content) in files {
        fixture.put(&format!("source/d/{name}"), content);
    }
}

fn debugfs(fixture: &Fixture, request: &str) {
    let image = fixture.path("disk.img");
    let arguments = ["-w".as_ref(), "-R".as_ref(), OsStr::new(request), image.as_os_str()];
    assert_eq!(tool("debugfs", &arguments).code, Some(0), "{request}");
}

/// Runs a script in the folder.
fn in_the_folder(fixture: &Fixture, script: &str) {
    let folder = fixture.path("");
    let script = format!("cd '{}'; {script}", folder.display());
    let done = tool("sh", &["-ec".as_ref(), OsStr::new(&script)]);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
}

/// An image that mke2fs makes, with the files.
fn made_by_others(kind: &str, options: &[&str], files: &Files) -> Fixture {
    let fixture = Fixture::empty();
    let image = fixture.path("disk.img");
    std::fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
    let mut arguments = vec!["-q", "-F", "-t", kind];
    arguments.extend(options);
    let mut arguments: Vec<&OsStr> = arguments.iter().map(OsStr::new).collect();
    arguments.push(image.as_os_str());
    assert_eq!(tool("mke2fs", &arguments).code, Some(0));
    put(&fixture, files);
    for directory in ["d", "d/e", "d/e/f"].into_iter().filter(|_| !files.is_empty()) {
        debugfs(&fixture, &format!("mkdir {directory}"));
    }
    for name in files.keys() {
        let source = fixture.path(format!("source/d/{name}"));
        debugfs(&fixture, &format!("write {} d/{name}", source.display()));
    }
    fixture
}

/// Lists the deleted files by path.
fn listed(fixture: &Fixture) -> BTreeMap<String, Value> {
    let lines = fixture.line("undelete --json disk.img").json_lines();
    let named = lines.into_iter().filter(|line| line["name"].is_string());
    named.map(|line| (line["name"].as_str().unwrap().to_string(), line)).collect()
}

/// All files come back, and the image stays as it is.
#[track_caller]
fn expect_all_back(fixture: &Fixture, files: &Files, source: &str) {
    let before = std::fs::read(fixture.path("disk.img")).unwrap();
    let list = listed(fixture);
    for (name, content) in files {
        let line = list.get(&format!("/d/{name}")).unwrap_or_else(|| panic!("{name}: {list:#?}"));
        assert_eq!(line["recoverable"], "whole", "{line}");
        assert_eq!(line["size"], content.len(), "{line}");
        assert_eq!(line["source"], source, "{line}");
        assert!(line["deleted"].as_str().is_some_and(|time| time > "2020"), "{line}");
    }
    assert_eq!(fixture.line("undelete disk.img --all --to back").code, Some(0));
    for (name, content) in files {
        let back = std::fs::read(fixture.path(format!("back/d/{name}"))).unwrap();
        assert!(back == *content, "{name}: {} bytes", back.len());
    }
    assert!(before == std::fs::read(fixture.path("disk.img")).unwrap());
    std::fs::remove_dir_all(fixture.path("back")).unwrap();
}

#[test]
fn what_was_removed_in_a_mount_comes_back_from_the_journal() {
    let what = "deleting files in a mount";
    if !skip::is_root(what) || !skip::can_mount(what) {
        return;
    }
    for options in [&[][..], &["--block-size", "4096"], &["-O", "inline_data"]] {
        let fixture = Fixture::with(&[&["--size", "64M"], options].concat());
        let files = files();
        put(&fixture, &files);
        std::fs::create_dir(fixture.path("mnt")).unwrap();
        fixture.line("mount disk.img mnt").good();
        in_the_folder(
            &fixture,
            "cp -r source/d mnt/d; ln -s some/where mnt/d/link; sync mnt/d/small",
        );
        in_the_folder(&fixture, "rm -r mnt/d");
        fixture.line("umount mnt").good();
        expect_all_back(&fixture, &files, "journal");
        fixture.line("undelete disk.img --all --to back -q").good();
        let target = std::fs::read_link(fixture.path("back/d/link")).unwrap();
        assert_eq!(target, Path::new("some/where"));
    }
}

#[test]
fn what_rm_removed_comes_back_as_far_as_the_log_is_not_overwritten() {
    let fixture = Fixture::with(&["--size", "64M"]);
    let files = files();
    put(&fixture, &files);
    for number in 0..600 {
        fixture.put(&format!("many/{number}"), "x");
    }
    fixture.line("cp -r many disk.img:/").good();
    fixture.line("cp -r source/d disk.img:/").good();
    assert_eq!(listed(&fixture).len(), 0);
    // Every command starts the log at its front. This one logs all inodes, of which the next overwrites the first.
    fixture.line("chmod -R 700 disk.img:/").good();
    fixture.line("rm -r disk.img:/d").good();
    let done = fixture.line("undelete disk.img --all --to back --json");
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    // Where inodes are placed is chance, and so is which of them the rest of the log has.
    for line in done.stdout.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        if line["type"] == "regular" {
            let back = std::fs::read(fixture.path(line["written"].as_str().unwrap())).unwrap();
            assert!(files.values().any(|content| *content == back), "{line}");
        }
    }
}

#[test]
fn without_a_journal_a_cleared_map_is_lost() {
    let fixture = Fixture::with(&["--size", "32M", "-O", "^has_journal"]);
    fixture.fill(&["file"]);
    let inode = fixture.line("stat --json disk.img:/file").json()["inode"].to_string();
    fixture.line("rm disk.img:/file").good();
    let list = fixture.line("undelete --json disk.img").json_lines();
    assert_eq!((list.len(), &list[0]["recoverable"]), (1, &Value::from("nothing")));
    let told = fixture.line(&format!("undelete disk.img {inode} --to back")).bad(1);
    assert!(told.contains("nothing leads to its content any more"), "{told}");
    let all = fixture.line("undelete disk.img --all --to back");
    assert_eq!((all.code, all.stdout.as_str()), (Some(0), ""));
    assert!(all.stderr.contains("any more: 1 file"), "{}", all.stderr);
}

#[test]
fn what_debugfs_removed_comes_back_from_the_inode_table() {
    let files = files();
    for kind in ["ext2", "ext3", "ext4"] {
        for options in [&["-b", "1024"][..], &["-b", "4096"]] {
            let fixture = made_by_others(kind, options, &files);
            for name in files.keys() {
                debugfs(&fixture, &format!("rm d/{name}"));
            }
            expect_all_back(&fixture, &files, "inode_table");
            // Now names that no inode has a link for.
            let fixture = made_by_others(kind, options, &files);
            for name in files.keys() {
                debugfs(&fixture, &format!("kill_file d/{name}"));
            }
            expect_all_back(&fixture, &files, "inode_table");
        }
    }
}

#[test]
fn what_linux_removed_comes_back_from_the_journal() {
    let what = "deleting files with Linux";
    if !skip::is_root(what) {
        return;
    }
    let files = files();
    for kind in ["ext3", "ext4"] {
        let fixture = made_by_others(kind, &["-b", "1024"], &BTreeMap::new());
        put(&fixture, &files);
        let (image, mount) = (fixture.path("disk.img"), fixture.path("mnt"));
        let Some(mounted) = kernel_mount(&image, &mount, "").unwrap() else { return };
        in_the_folder(&fixture, "cp -r source/d mnt/d && sync -f mnt");
        in_the_folder(&fixture, "rm -r mnt/d && sync -f mnt");
        let crashed = crashed_image(&image).unwrap();
        mounted.unmount().unwrap();
        expect_all_back(&fixture, &files, "journal");
        // The same before the journal was replayed.
        std::fs::write(&image, crashed).unwrap();
        expect_all_back(&fixture, &files, "journal");
    }
}

#[test]
fn overwritten_blocks_are_told_and_left_out() {
    let mut files = files();
    // The lowest inode that will be free.
    files.insert("0", Vec::new());
    let fixture = made_by_others("ext2", &["-b", "1024"], &files);
    debugfs(&fixture, "rm d/e/large");
    debugfs(&fixture, "rm d/0");
    fixture.put("new", vec![0xaa; 20 << 10]);
    debugfs(&fixture, &format!("write {} new", fixture.path("new").display()));
    let list = listed(&fixture);
    let line = &list["/d/e/large"];
    assert_eq!(line["recoverable"], "part", "{line}");
    let (blocks, free) = (line["blocks"].as_u64().unwrap(), line["free_blocks"].as_u64().unwrap());
    assert_eq!(blocks, 293);
    assert!(free < blocks, "{line}");
    let inode = &line["inode"];
    let told = fixture.line(&format!("undelete disk.img {inode} --to back")).bad(1);
    assert!(told.contains(&format!("only {free} of 293 blocks are left")), "{told}");
    assert!(!fixture.path("back/d").exists());
    let done = fixture.line(&format!("undelete disk.img {inode} --partial --to back"));
    assert!(done.stderr.contains("of 293 blocks are zeros"), "{}", done.stderr);
    let back = std::fs::read(fixture.path("back/d/e/large")).unwrap();
    let content = &files["e/large"];
    assert_eq!(back.len(), content.len());
    let mut left = 0;
    for (back, old) in back.chunks(1024).zip(content.chunks(1024)) {
        left += u64::from(back == old);
        assert!(back == old || back.iter().all(|&byte| byte == 0));
    }
    assert_eq!(left, free);
}

#[test]
fn an_inode_that_was_used_again_has_versions() {
    let what = "using an inode again in a mount";
    if !skip::is_root(what) || !skip::can_mount(what) {
        return;
    }
    let fixture = Fixture::with(&["--size", "32M"]);
    std::fs::create_dir(fixture.path("mnt")).unwrap();
    fixture.line("mount disk.img mnt").good();
    for round in ["first", "second", "third"] {
        fixture.put(round, format!("the {round}").repeat(2000));
        in_the_folder(&fixture, &format!("cp {round} mnt/; sync mnt/{round}"));
        if round != "third" {
            in_the_folder(
                &fixture,
                &format!("rm mnt/{round}; touch mnt/other; sync mnt/other; rm mnt/other"),
            );
        }
    }
    fixture.line("umount mnt").good();
    let list = listed(&fixture);
    let names: Vec<_> = list.keys().filter(|name| *name != "/other").collect();
    assert_eq!(names, ["/first", "/second"]);
    let (first, second) = (&list["/first"], &list["/second"]);
    if first["inode"] == second["inode"] {
        assert!(first["version"].as_u64() < second["version"].as_u64(), "{list:?}");
    }
    // Each file's blocks go to the next.
    for (line, name) in [(first, "first"), (second, "second")] {
        if line["recoverable"] == "whole" {
            fixture.line(&format!("undelete disk.img {} --to {name}.d", line["inode"]));
            let back = std::fs::read(fixture.path(format!("{name}.d/{name}"))).unwrap();
            assert!(back == std::fs::read(fixture.path(name)).unwrap());
        }
    }
}

#[test]
fn nothing_of_the_host_is_overwritten_and_no_name_leads_out() {
    let fixture = made_by_others("ext2", &["-b", "1024"], &BTreeMap::new());
    fixture.put("source/x", "content");
    for name in ["UNIQUENAME", "ANOTHERONE"] {
        debugfs(&fixture, &format!("write {} {name}", fixture.path("source/x").display()));
    }
    debugfs(&fixture, "rm UNIQUENAME");
    debugfs(&fixture, "rm ANOTHERONE");
    let mut bytes = std::fs::read(fixture.path("disk.img")).unwrap();
    let at = bytes.windows(10).position(|window| window == b"UNIQUENAME").unwrap();
    bytes[at..at + 4].copy_from_slice(b"\x1b[2J");
    std::fs::write(fixture.path("disk.img"), bytes).unwrap();
    fixture.put("full/file", "x");
    assert_eq!(fixture.line("undelete disk.img 12 --to private").code, Some(0));
    assert_eq!(fixture.path("private").metadata().unwrap().mode() & 0o777, 0o700);
    let told = fixture.line("undelete disk.img --all --to full").bad(1);
    assert!(told.contains("full"), "{told}");
    fixture.line("undelete disk.img 5000 --to back").bad(1);
    fixture.line("undelete disk.img --to back").bad(2);
    assert_eq!(fixture.line("undelete disk.img --partial").code, Some(2));
    assert_eq!(fixture.line("undelete disk.img 12").code, Some(2));
    let done = fixture.line("undelete disk.img --all --to back");
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    let names = std::fs::read_dir(fixture.path("back")).unwrap();
    let mut names: Vec<String> =
        names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert_eq!(names, ["ANOTHERONE", "inode-12"]);
}

/// What is written there would take the blocks of what isn't brought back yet.
#[test]
fn the_image_itself_is_no_place_for_what_comes_back() {
    let files = files();
    let fixture = made_by_others("ext2", &[], &files);
    let mount = fixture.path("mnt");
    std::fs::create_dir_all(&mount).unwrap();
    let Some(mounted) = kernel_mount(&fixture.path("disk.img"), &mount, "").unwrap() else {
        return;
    };
    std::fs::create_dir(mount.join("there")).unwrap();
    for target in ["mnt/back", "mnt/there"] {
        let told = fixture.line(&format!("undelete disk.img --all --to {target}")).bad(1);
        assert!(told.contains("it lies in the image itself"), "{told}");
    }
    assert!(!mount.join("back").exists());
    fixture.line("undelete disk.img --all --to elsewhere").good();
    mounted.unmount().unwrap();
}

/// Sectors count whole clusters, so they don't tell how many blocks of a file are missing.
#[test]
fn a_file_whose_map_is_lost_is_not_whole_with_clusters() {
    let fixture =
        made_by_others("ext4", &["-b", "4096", "-O", "bigalloc", "-C", "16384"], &Files::new());
    let mut random = fastrand::Rng::with_seed(3);
    // In more pieces than the inode has room for.
    let content: Vec<u8> =
        (0..40 * 65_536).map(|at| if at / 65_536 % 2 == 0 { random.u8(..) } else { 0 }).collect();
    fixture.put("source/x", &content);
    in_the_folder(&fixture, "cp --sparse=always source/x source/sparse");
    debugfs(&fixture, &format!("write {} x", fixture.path("source/sparse").display()));
    let extents =
        tool("debugfs", &["-R".as_ref(), "ex x".as_ref(), fixture.path("disk.img").as_os_str()]);
    let node = extents.stdout.lines().find(|line| line.trim_start().starts_with("0/ 1"));
    // After the blocks of the file that are under it.
    let node = node
        .and_then(|line| line.split_once('-')?.1.split_whitespace().nth(1)?.parse::<u64>().ok());
    debugfs(&fixture, "rm x");
    let whole = fixture.line("undelete --json disk.img").json_lines();
    assert_eq!(whole[0]["recoverable"], "whole", "{whole:?}");
    let image = std::fs::File::options().write(true).open(fixture.path("disk.img")).unwrap();
    image.write_all_at(&[0; 4096], node.expect("a node") * 4096).unwrap();
    let lost = fixture.line("undelete --json disk.img").json_lines();
    assert_ne!(lost[0]["recoverable"], "whole", "{lost:?}");
}
