//! The examples that `--help` shows do what they say.

use crate::support::{Fixture, call, finish};
use drystone_sync::thread;
use drystone_testkit::skip;
use std::process::Command;
use std::time::Duration;

/// What the examples find, beside `disk.img`: `share` stands for `/usr/share`.
fn prepared() -> Fixture {
    let fixture = Fixture::new();
    fixture.fill(&[
        "etc/fstab",
        "etc/hosts",
        "etc/motd",
        "etc/shadow",
        "etc/link.conf",
        "a",
        "bin/tool",
        "b",
        "current",
        "next",
        "directory/x",
        "file",
        "home/user/x",
        "srv/x",
        "tmp/old/x",
        "usr/bin/ping",
        "var/cache/x",
        "var/lib/database",
        "var/log/dmesg",
        "var/log/syslog",
        "var/www/x",
        "link",
        "usr/share/x",
    ]);
    fixture.put("share/x", "x");
    fixture.put("rootfs/y", "y");
    fixture.put("root/etc/x", "x");
    fixture.put("passwd", "root:x:0:0::/root:/bin/sh\n");
    fixture.put("group", "root:x:0:\n");
    fixture.line("cp passwd group disk.img:/etc/").good();
    // A program, which tells the machine.
    fixture.put("root/bin/sh", b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x3e\0");
    fixture.put("esp/EFI/BOOT/BOOTX64.EFI", "x");
    fixture.put("overlay/etc/x", "another");
    std::fs::create_dir_all(fixture.path("mnt/ext4")).unwrap();
    fixture.put("devices", "/dev/console type=character device=5:1 mode=600\n");
    let mut tar = Command::new("tar");
    tar.args(["-czf", "root.tar.gz", "-C", "root", "."]).current_dir(fixture.path(""));
    assert!(tar.status().unwrap().success());
    for image in ["old.img", "new.img"] {
        fixture.line(&format!("mkfs {image} --size 8M -q")).good();
    }
    fixture.line("mkfs quota.img --size 8M -q -O quota,project").good();
    fixture.partition("whole.img", "label: gpt\nsize=16M, name=root\nsize=16M, name=home\n");
    fixture.line("mkfs whole.img#root -q").good();
    fixture.line("mkfs indexed.img --size 16M -q").good();
    for number in 0..150 {
        fixture.put(&format!("many/{number:0>60}"), "");
    }
    fixture.line("cp -r many indexed.img:/").good();
    fixture.line("mkfs log.img --type nilfs2 --size 64M -B 64 -q").good();
    fixture.put("etc/hosts", "::1 localhost");
    fixture.line("cp -r etc log.img:/").good();
    fixture.line("mv log.img:/etc log.img:/other").good();
    fixture.line("mv log.img:/other log.img:/etc").good();
    fixture.line("mkdir old.img:/home").good();
    fixture.line("setfattr -n security.capability --value 0x0100000200200000000000000000000000000000 disk.img:/usr/bin/ping").good();
    fixture.line("setfattr -n user.origin disk.img:/file").good();
    fixture.line("mkdir disk.img:/dev disk.img:/run").good();
    fixture
}

/// The examples of a help text, without what they are piped into: that may not be installed.
fn examples(help: &str) -> Vec<String> {
    let lines = help.lines().skip_while(|line| *line != "Examples:").skip(1);
    let lines = lines.map(|line| line.trim().split(" | ").next().unwrap().to_string());
    lines.filter(|line| line.starts_with("drystone ")).collect()
}

#[test]
fn the_examples_of_every_command_work() {
    let commands = "mkfs build info ls tree stat cat find cp extract import diff mkdir mknod touch mv rm ln chmod chown chattr lsattr truncate setfattr \
                    getfattr du df edit shell setfacl getfacl quota check inspect which-inode \
                    which-name metadata set undelete label uuid tune resize compact defragment trim zero-free undo checkpoints history bench mounts completions";
    run_examples(commands.split_whitespace().chain(["--help"]));
}

#[test]
fn the_examples_of_mounts_work() {
    if skip::can_mount("the examples of mount, umount and top") {
        run_examples(["mount", "umount", "top"]);
    }
}

/// The examples of snapshot need a cluster; `./dev ceph test` makes some.
#[test]
fn files_have_no_snapshots() {
    let fixture = Fixture::empty();
    let message = fixture.line("snapshot disk.img@monday").bad(1);
    assert!(message.contains("only images of Ceph have snapshots"), "{message}");
}

/// Nothing is left out.
#[test]
fn every_command_is_tried() {
    let source = include_str!("examples.rs");
    let help = call(&["--help"]).good();
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let commands = commands.take_while(|line| line.starts_with("  "));
    let names: Vec<_> = commands.filter_map(|line| line.split_whitespace().next()).collect();
    assert!(names.len() > 20, "{help}");
    for name in names {
        let is_there = |word: &str| word.trim_matches(['"', '\\', ';', ',', '[', ']', ')']) == name;
        assert!(name == "help" || source.split_whitespace().any(is_there), "{name}");
    }
}

/// An example as it can be run in the folder, and in a moment.
fn in_the_folder(example: &str) -> String {
    let line = example
        .replace("/usr/share ", "share ")
        .replace("/mnt", "mnt")
        .replace("/var/log/disk.log", "disk.log")
        .replace("~/.zfunc/", "")
        .replace("/etc/bash_completion.d/", "");
    if line.starts_with("drystone top") {
        return line.replace("--count 10", "") + " --count 1";
    }
    if !line.starts_with("drystone bench ") {
        return line;
    }
    let small = "--rounds 1 --procs 1 --ops 20 --files 5 --dirs 2 --roots 1 --size 1M --memory 64M";
    let small: Vec<&str> = small.split(' ').collect();
    let mut words: Vec<&str> = line.split(' ').collect();
    for option in small.chunks(2) {
        match words.iter().position(|word| *word == option[0]) {
            Some(at) => words[at + 1] = option[1],
            None => words.extend(option),
        }
    }
    // Without -q it says that a debug build's figures mean nothing.
    words.join(" ") + " -q"
}

fn run_examples<'n>(commands: impl IntoIterator<Item = &'n str>) {
    let bin = assert_cmd::cargo::cargo_bin("drystone");
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{path}", bin.parent().unwrap().display());
    let prepared = prepared();
    for name in commands {
        let help = match name {
            "--help" => call(&["--help"]).good(),
            name => call(&[name, "--help"]).good(),
        };
        let fixture = prepared.copy();
        let examples = examples(&help);
        assert!(!examples.is_empty(), "{name} has no examples");
        for example in examples {
            // /etc/fuse.conf may not let users do it.
            if example.contains("allow_other") && !skip::is_root(&example) {
                continue;
            }
            let grows_mount = name == "resize" && example.contains("/mnt");
            if grows_mount && !skip::can_mount(&example) {
                continue;
            }
            let is_made = ["drystone mkfs ", "drystone build disk.img "];
            if is_made.iter().any(|start| example.starts_with(start)) {
                let _ = std::fs::remove_file(fixture.path("disk.img"));
            }
            let line = in_the_folder(&example);
            if grows_mount || matches!(name, "umount" | "top") {
                fixture.line("mount disk.img mnt").good();
            }
            let mut shell = Command::new("sh");
            shell.args(["-c", &line]).current_dir(fixture.path("")).env("PATH", &path);
            shell.env_remove("VISUAL").env("EDITOR", "echo x >>");
            let done = finish(&mut shell).without_losses();
            // There are differences.
            let code = i32::from(example.starts_with("drystone diff "));
            // Nothing was deleted.
            let idle = "drystone: disk.img: nothing is known of deleted files\n";
            let stderr = done.stderr.replace(idle, "");
            assert_eq!((done.code, stderr.as_str()), (Some(code), ""), "{example}");
            match name {
                "mount" | "top" => drop(fixture.line("umount mnt").good()),
                "resize" if grows_mount => drop(fixture.line("umount mnt").good()),
                // The server of a lazy one closes the image a moment later.
                "umount" => {
                    while fixture.line("ls disk.img:/").code != Some(0) {
                        thread::sleep(Duration::from_millis(10));
                    }
                }
                _ => {}
            }
        }
        if !["mkfs", "build", "--help"].contains(&name) {
            fixture.expect_sound();
        }
    }
}
