//! The examples that `--help` shows do what they say.

use crate::support::{Fixture, call, finish};
use std::process::Command;

/// What the examples find, beside `disk.img`: `share` stands for `/usr/share`.
fn prepared() -> Fixture {
    let fixture = Fixture::new();
    fixture.fill(&[
        "etc/fstab",
        "etc/hosts",
        "etc/motd",
        "etc/passwd",
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
    fixture.put("overlay/etc/x", "another");
    fixture.put("devices", "/dev/console type=character device=5:1 mode=600\n");
    let mut tar = Command::new("tar");
    tar.args(["-czf", "root.tar.gz", "-C", "root", "."]).current_dir(fixture.path(""));
    assert!(tar.status().unwrap().success());
    for image in ["old.img", "new.img"] {
        fixture.line(&format!("mkfs {image} --size 8M -q")).good();
    }
    fixture.line("mkfs quota.img --size 8M -q -O quota,project").good();
    fixture.line("mkdir old.img:/home").good();
    fixture.line("setfattr -n security.capability --value 0x0100000200200000000000000000000000000000 disk.img:/usr/bin/ping").good();
    fixture.line("setfattr -n user.origin disk.img:/file").good();
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
    let commands = "mkfs build info ls tree stat cat find cp extract diff mkdir mv rm ln chmod chown truncate setfattr \
                    getfattr quota check completions";
    let bin = assert_cmd::cargo::cargo_bin("drystone");
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{path}", bin.parent().unwrap().display());
    for name in commands.split_whitespace().chain(["--help"]) {
        let help = match name {
            "--help" => call(&["--help"]).good(),
            name => call(&[name, "--help"]).good(),
        };
        let fixture = prepared();
        let examples = examples(&help);
        assert!(!examples.is_empty(), "{name} has no examples");
        for example in examples {
            let is_made = ["drystone mkfs ", "drystone build disk.img "];
            if is_made.iter().any(|start| example.starts_with(start)) {
                let _ = std::fs::remove_file(fixture.path("disk.img"));
            }
            let line = example
                .replace("/usr/share ", "share ")
                .replace("~/.zfunc/", "")
                .replace("/etc/bash_completion.d/", "");
            let mut shell = Command::new("sh");
            shell.args(["-c", &line]).current_dir(fixture.path("")).env("PATH", &path);
            let done = finish(&mut shell);
            // There are differences.
            let code = i32::from(example.starts_with("drystone diff "));
            assert_eq!((done.code, done.stderr.as_str()), (Some(code), ""), "{example}");
        }
        if !["mkfs", "build", "--help"].contains(&name) {
            fixture.expect_sound();
        }
    }
}
