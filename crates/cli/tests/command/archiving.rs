//! `extract` to archives, judged by the programs that read them.

use crate::copying::{assert_same, seen};
use crate::extracting::full;
use crate::support::{Fixture, finish};
use drystone_testkit::judges::have;
use drystone_testkit::skip;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::Read;
use std::process::Stdio;

/// An archive, read back by GNU tar and bsdtar where they are.
#[test]
fn an_archive_is_read_back_by_others() {
    let fixture = full();
    let long = format!("source/{}/{}", "l".repeat(150), "m".repeat(200));
    fixture.put(&long, "a long name");
    fs::hard_link(fixture.path(&long), fixture.path(format!("source/d/{}", "n".repeat(120))))
        .unwrap();
    fixture.line("cp source/. disk.img:/").good();
    assert_eq!(fixture.line("extract disk.img --to out.tar").code, Some(0));
    let streamed = fixture.line("extract disk.img --to -");
    assert_eq!((streamed.code, streamed.stderr.contains("no sockets")), (Some(0), true));
    assert!(streamed.bytes == fs::read(fixture.path("out.tar")).unwrap());
    let mut expected = seen(&fixture.path("source"), true);
    // Archives have no sockets.
    expected.entries.retain(|_, facts| facts.get("type").is_none_or(|kind| kind != "Socket"));
    for (program, options) in
        [("tar", &["--xattrs", "--xattrs-include=*", "--acls"][..]), ("bsdtar", &["-p"])]
    {
        if !have(program) || !skip::is_root("an archive's owners") {
            continue;
        }
        let back = fixture.path(program);
        fs::create_dir(&back).unwrap();
        let mut command = std::process::Command::new(program);
        command.args(["-x", "--numeric-owner", "-f"]).arg(fixture.path("out.tar"));
        // It finds some of the times odd.
        let done = finish(command.args(options).arg("-C").arg(&back));
        assert_eq!(done.code, Some(0), "{}", done.stderr);
        let mut found = seen(&back, true);
        if program == "bsdtar" {
            // It sets no times of the top, and misreads fractions before 1970.
            for tree in [&mut expected, &mut found] {
                for (path, facts) in &mut tree.entries {
                    if ["/", "/empty"].contains(&path.to_string().as_str()) {
                        facts.remove("modified");
                    }
                }
            }
        }
        assert_same(&expected, &found);
    }
}

/// The pipe is full when the signal comes: what has been written isn't an archive, and that is said.
#[test]
fn an_interrupted_stream_says_that_it_is_incomplete() {
    let fixture = Fixture::new();
    fixture.put("source/large", vec![7; 16 << 20]);
    fixture.line("cp source/large disk.img:/").good();
    let mut command = fixture.command(&["extract", "disk.img", "--to", "-"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut start = [0; 1000];
    child.stdout.as_mut().unwrap().read_exact(&mut start).unwrap();
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{message}");
    assert!(message.contains("the archive is incomplete"), "{message}");
    assert!(output.stdout.len() < 16 << 20);
}
