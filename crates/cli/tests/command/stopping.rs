//! A command that is stopped: from the keyboard, or by force.

use crate::support::Fixture;
use drystone_sync::thread;
use rustix::process::{Pid, Signal, kill_process};
use std::process::{Child, Stdio};
use std::time::Duration;

/// A tree whose copy takes long enough to be stopped.
fn large() -> Fixture {
    let fixture = Fixture::with(&["--size", "512M", "--inodes", "20000"]);
    for directory in 0..20 {
        for file in 0..150 {
            fixture.put(&format!("source/{directory}/{file}"), vec![file as u8; 5000 + file * 500]);
        }
    }
    fixture
}

fn start(fixture: &Fixture) -> Child {
    let arguments = ["cp", "--threads", "4", "source", "disk.img:/copy"];
    fixture.command(&arguments).stderr(Stdio::piped()).spawn().unwrap()
}

/// Sends a signal when some of the tree is in the image.
fn stop(child: &mut Child, fixture: &Fixture, signal: Signal) {
    use std::os::unix::fs::MetadataExt;
    let used = || std::fs::metadata(fixture.path("disk.img")).unwrap().blocks();
    let empty = used();
    while used() < empty + 4096 && child.try_wait().unwrap().is_none() {
        thread::sleep(Duration::from_millis(5));
    }
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// Control-C: the copy ends between two entries and the image is closed as it should be.
#[test]
fn an_interrupted_copy_closes_the_image() {
    let fixture = large();
    let mut child = start(&fixture);
    stop(&mut child, &fixture, Signal::INT);
    let output = child.wait_with_output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(130), "{message}");
    assert!(message.contains("interrupted"), "{message}");
    let information = fixture.line("info --json disk.img").json();
    assert_eq!(information["needs_recovery"], false);
    fixture.expect_sound();
    assert!(fixture.paths().len() > 1);
}

/// SIGKILL: the next command replays the journal.
#[test]
fn a_killed_copy_is_recovered() {
    let fixture = large();
    let mut child = start(&fixture);
    stop(&mut child, &fixture, Signal::KILL);
    child.wait().unwrap();
    let information = fixture.line("info --json disk.img").json();
    assert_eq!(information["needs_recovery"], true);
    // Looking replays into memory.
    fixture.line("ls -R disk.img:/").good();
    fixture.line("check disk.img").good();
    fixture.line("mkdir disk.img:/after").good();
    fixture.expect_sound();
    fixture.line("rm -rf disk.img:/copy").good();
    assert_eq!(fixture.paths(), ["/after"]);
    fixture.expect_sound();
}
