//! A system that starts fewer threads than requested, or none.

use crate::support::{Done, Fixture, finish};
use drystone_testkit::skip;
use std::os::unix::fs::{PermissionsExt, chown};
use std::process::Command;

/// A stack larger than all addresses that a process has, so that no thread gets one.
const TOO_LARGE_A_STACK: &str = "140737488355328";

/// A folder with a tree, and a tar of it.
fn prepared() -> Fixture {
    let fixture = Fixture::empty();
    for number in 0..50 {
        fixture.put(&format!("root/d{}/{number}", number % 7), vec![number as u8; number * 1000]);
    }
    let mut tar = Command::new("tar");
    tar.args(["-cf", "root.tar", "--format=pax", "-C", "root", "."]);
    assert!(tar.current_dir(fixture.path("")).status().unwrap().success());
    fixture
}

/// A line that is ended after a while if it hangs.
fn without_threads(fixture: &Fixture, line: &str) -> Done {
    let mut command = Command::new("timeout");
    command.args(["--signal=KILL", "60"]).arg(fixture.command::<&str>(&[]).get_program());
    command.args(line.split(' ')).current_dir(fixture.path(""));
    finish(command.env("RUST_MIN_STACK", TOO_LARGE_A_STACK))
}

#[test]
fn one_thread_is_enough_for_an_archive() {
    let fixture = prepared();
    let built = fixture.line("build a.img --from root.tar --verity-hash --threads 4 -q").good();
    let line = "build b.img --from root.tar --verity-hash --threads 4 -q";
    assert_eq!(without_threads(&fixture, line).good(), built);
    let [left, right] = ["a.img", "b.img"].map(|name| std::fs::read(fixture.path(name)).unwrap());
    assert!(left == right);
}

#[test]
fn a_walk_without_threads_says_so() {
    let fixture = prepared();
    let text = without_threads(&fixture, "build a.img --from root --threads 4").bad(1);
    assert!(text.contains("root: can't start a thread"), "{text}");
    assert!(!fixture.path("a.img").exists());
}

/// However few there are, nothing hangs, and images are closed.
#[test]
fn what_needs_an_image_works_with_the_threads_that_there_are() {
    const USER: u32 = 47_113;
    if !skip::is_root("being another user") {
        return;
    }
    let fixture = prepared();
    std::fs::set_permissions(fixture.path(""), PermissionsExt::from_mode(0o777)).unwrap();
    // Users need not reach the folder that it was built in.
    let program = fixture.put_program("drystone", crate::support::command().get_program());
    let with_threads = |count: u32, line: &str| {
        let mut command = Command::new("timeout");
        command.args(["--signal=KILL", "60", "setpriv", "--clear-groups"]);
        command.args([format!("--reuid={USER}"), format!("--regid={USER}")]);
        command.args(["prlimit", &format!("--nproc={count}")]).arg(&program);
        let done = finish(command.args(line.split(' ')).current_dir(fixture.path("")));
        assert!(!done.stderr.contains("panicked"), "{count}: {}", done.stderr);
        let is_good = done.code == Some(0);
        let says_why = || done.stderr.contains("Resource temporarily unavailable");
        assert!(is_good || matches!(done.code, Some(1 | 2)) && says_why(), "{count}: {done:?}");
        // An image that can't be opened for want of threads may be left to be recovered.
        let is_closed = is_good || !done.stderr.starts_with("drystone: disk.img: ");
        let information = fixture.line("info --json disk.img").json();
        assert!(!is_closed || information["needs_recovery"] == false, "{count}: {done:?}");
        is_good
    };
    for (line, begins_anew) in [
        ("cp -q --no-owners -j 8 root disk.img:/", true),
        ("diff --ignore owner,times -j 8 disk.img:/root root", false),
        ("extract disk.img --to out.tar", false),
    ] {
        let mut worked = 0;
        for count in 1..10 {
            if begins_anew {
                fixture.line("mkfs -f disk.img --size 32M -q").good();
                chown(fixture.path("disk.img"), Some(USER), Some(USER)).unwrap();
            }
            worked += u32::from(with_threads(count, line));
        }
        assert!((1..9).contains(&worked), "{line}: {worked}");
    }
    assert_eq!(fixture.paths().len(), 50 + 7 + 1);
}

#[test]
fn a_number_of_threads_has_bounds() {
    let fixture = Fixture::empty();
    for line in [
        "build a.img --from root --threads",
        "cp a b.img:/ -j",
        "extract a.img --to b -j",
        "diff a.img b.img -j",
    ] {
        for number in ["0", "1025", "1000000000"] {
            let done = fixture.line(&format!("{line} {number}"));
            assert_eq!(done.code, Some(2), "{line} {number}");
            assert!(done.stderr.contains("is not in 1..=1024"), "{}", done.stderr);
        }
    }
}
