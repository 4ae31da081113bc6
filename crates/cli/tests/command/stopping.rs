//! A command that is stopped: from the keyboard, by the system or by force.

use crate::support::Fixture;
use drystone_sync::thread;
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsStr;
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

/// A tree whose copy names more files than fit into a pipe.
fn large() -> Fixture {
    let fixture = Fixture::with(&["--size", "512M", "--inodes", "20000"]);
    for directory in 0..20 {
        for file in 0..150 {
            fixture.put(&format!("source/{directory}/{file}"), vec![file as u8; 5000 + file * 50]);
        }
    }
    fixture
}

/// A copy that says what it copies into a pipe, and stands still when that is full.
fn copy(fixture: &Fixture) -> Command {
    let arguments =
        ["cp", "-v", "--threads", "4", "--commit-interval", "0.05", "source", "disk.img:/copy"];
    let mut command = fixture.command(&arguments);
    command.stderr(Stdio::piped());
    command
}

/// Starts a copy; returns when some of the tree is in the image. It can't come to its end before
/// what it says is read.
fn start(mut command: Command, fixture: &Fixture) -> Child {
    let used = || std::fs::metadata(fixture.path("disk.img")).unwrap().blocks();
    let empty = used();
    let mut child = command.spawn().unwrap();
    // By then it has taken the signals over.
    child.stderr.as_mut().unwrap().read_exact(&mut [0; 200]).unwrap();
    while used() <= empty {
        assert!(child.try_wait().unwrap().is_none(), "the copy ended early");
        thread::sleep(Duration::from_millis(5));
    }
    child
}

fn kill(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

fn stop(command: Command, fixture: &Fixture, signal: Signal) -> Output {
    let child = start(command, fixture);
    kill(&child, signal);
    child.wait_with_output().unwrap()
}

/// The copy ends between two entries and the image is closed as it should be; the exit code is what
/// shells give for the signal.
#[test]
fn an_interrupted_copy_closes_the_image() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let fixture = large();
        let output = stop(copy(&fixture), &fixture, signal);
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{message}");
        assert!(message.contains("drystone: interrupted;"), "{message}");
        let information = fixture.line("info --json disk.img").json();
        assert_eq!(information["needs_recovery"], false);
        fixture.expect_sound();
        let files = fixture.paths().len();
        assert!((2..3020).contains(&files), "{files}");
    }
}

/// So does whatever else goes through a tree that it changes.
#[test]
fn an_interrupted_change_closes_the_image() {
    let fixture = large();
    fixture.line("cp source disk.img:/copy").good();
    for line in ["chmod -R 700 disk.img:/", "chown -R 5:5 disk.img:/", "rm -r disk.img:/copy"] {
        // Told of each entry, it stands still when the pipe is full.
        let mut command = fixture.command(&format!("-vv {line}").split(' ').collect::<Vec<_>>());
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        child.stderr.as_mut().unwrap().read_exact(&mut [0; 2000]).unwrap();
        kill(&child, Signal::INT);
        let output = child.wait_with_output().unwrap();
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(130), "{line}: {message}");
        assert!(message.contains("drystone: interrupted;"), "{line}: {message}");
        let information = fixture.line("info --json disk.img").json();
        assert_eq!(information["needs_recovery"], false, "{line}");
        fixture.expect_sound();
    }
    let files = fixture.paths().len();
    assert!((2..3020).contains(&files), "{files}");
}

/// The command with these arguments, started by a shell that ran `script` before.
fn after<'a>(
    fixture: &Fixture,
    script: &str,
    arguments: impl IntoIterator<Item = &'a OsStr>,
) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{script}; exec \"$@\""), "sh"]);
    command.arg(assert_cmd::cargo::cargo_bin("drystone")).args(arguments);
    command.current_dir(fixture.path("")).stderr(Stdio::piped());
    command
}

/// A signal that was ignored when the command started, as by `nohup`, doesn't stop it.
#[test]
fn an_ignored_signal_stays_ignored() {
    let fixture = large();
    let command = after(&fixture, "trap '' HUP", copy(&fixture).get_args());
    let output = stop(command, &fixture, Signal::HUP);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(fixture.paths().len(), 3000 + 20 + 1);
}

/// Nor does it break off a change of the whole image.
#[test]
fn ignored_signals_do_not_break_off_a_change() {
    let fixture = Fixture::with(&["--size", "160M"]);
    fixture.put("gone", vec![1; 60 << 20]);
    fixture.line("cp gone disk.img:/").good();
    // Beyond the end that the image will have.
    for number in 0..300 {
        fixture.put(&format!("source/{number}"), vec![number as u8; 50_000]);
    }
    fixture.line("cp source disk.img:/").good();
    let wrong = (0..300).map(|number| format!("sif /source/{number} links_count 7\n"));
    fixture.put("wrong", wrong.collect::<String>());
    let words = ["-w", "-f", "wrong", "disk.img"].map(OsStr::new);
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let mut damage = Command::new("debugfs");
    damage.args(words).env("PATH", path).current_dir(fixture.path(""));
    assert_eq!(crate::support::finish(&mut damage).code, Some(0));
    let log = fixture.path("disk.img.undo");
    for (line, code) in [("check -y disk.img", 1), ("resize -M disk.img", 0)] {
        let script = "trap '' INT TERM; echo; exec >/dev/null";
        let mut command = after(&fixture, script, line.split(' ').map(OsStr::new));
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let output = child.stdout.as_mut().unwrap();
        output.read_exact(&mut [0]).unwrap();
        while child.try_wait().unwrap().is_none() {
            for signal in [Signal::INT, Signal::TERM] {
                kill(&child, signal);
            }
        }
        let output = child.wait_with_output().unwrap();
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{line}: {message}");
        assert!(!log.exists(), "{line}");
        fixture.expect_sound();
        let _ = fixture.line("rm disk.img:/gone");
    }
    assert!(std::fs::metadata(fixture.path("disk.img")).unwrap().len() < 60 << 20);
    assert_eq!(fixture.line("diff disk.img:/source source").good(), "");
}

/// Starts a command and interrupts it as soon as it has made a file; again with a fresh copy of the folder if it was
/// too fast. Returns the folder and what it said.
fn interrupt_once_there(fixture: &Fixture, line: &str, made: &str) -> (Fixture, String) {
    for _ in 0..50 {
        let fixture = fixture.copy();
        let mut command = fixture.command(&line.split(' ').collect::<Vec<_>>());
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        while !fixture.path(made).exists() && child.try_wait().unwrap().is_none() {
            thread::yield_now();
        }
        if child.try_wait().unwrap().is_none() {
            kill(&child, Signal::INT);
        }
        let output = child.wait_with_output().unwrap();
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.code() == Some(130) {
            return (fixture, message);
        }
        assert_eq!(output.status.code(), Some(0), "{line}: {message}");
    }
    panic!("{line} is always faster than the signal");
}

/// A change of the whole image is taken back, and nothing is left for 'drystone undo'.
#[test]
fn an_interrupted_change_of_the_whole_image_is_taken_back() {
    let fixture = Fixture::with(&["--size", "64M"]);
    fixture.put("gone", vec![1; 20 << 20]);
    fixture.line("cp gone disk.img:/").good();
    for number in 0..300 {
        // Zeros would become holes.
        fixture.put(&format!("source/{number}"), vec![number as u8 | 1; 50_000]);
    }
    fixture.line("cp source disk.img:/").good();
    fixture.line("rm disk.img:/gone").good();
    let before = fixture.line("df --json disk.img").good();
    for line in ["resize -M disk.img", "compact disk.img", "tune disk.img --inode-size 512"] {
        let (stopped, message) = interrupt_once_there(&fixture, line, "disk.img.undo");
        let expected = "drystone: disk.img: interrupted; nothing has changed\n";
        assert_eq!(message, expected, "{line}");
        assert!(!stopped.path("disk.img.undo").exists(), "{line}");
        // Free blocks and the time in the superblock may be others.
        assert_eq!(stopped.line("df --json disk.img").good(), before, "{line}");
        assert_eq!(stopped.line("diff disk.img:/source source").good(), "", "{line}");
        stopped.expect_sound();
    }
}

/// What a command has made and can't complete goes away.
#[test]
fn an_interrupted_command_takes_its_file_away() {
    let fixture = Fixture::with(&["--size", "256M", "--inodes", "60000"]);
    for number in 0..3000 {
        fixture.put(&format!("source/{number}"), "");
    }
    fixture.line("cp source disk.img:/").good();
    let line = "metadata disk.img copy.img";
    let (stopped, message) = interrupt_once_there(&fixture, line, "copy.img");
    assert_eq!(message, "drystone: disk.img: interrupted; there is no copy\n");
    assert!(!stopped.path("copy.img").exists());
    let fixture = Fixture::empty();
    let line = "mkfs new.img --size 512G";
    let (stopped, message) = interrupt_once_there(&fixture, line, "new.img");
    assert_eq!(message, "drystone: new.img: interrupted; nothing was made\n");
    assert!(!stopped.path("new.img").exists());
}

/// The other commands block on input or output when the signal comes; by then they handle signals.
#[test]
fn interrupted_commands_end_with_the_code_of_the_signal() {
    let fixture = Fixture::with(&["--size", "32M", "--inodes", "4000"]);
    // More names than fit into a pipe, also where one line names a file.
    for number in 0..2000 {
        fixture.put(&format!("source/{number:0200}"), "content");
    }
    fixture.line("cp source/. disk.img:/").good();
    fixture.line("mkfs empty.img --size 8M -q").good();
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        for (line, is_on_stdout, told) in [
            ("extract disk.img --to -", true, "the archive is incomplete"),
            ("extract -v disk.img --to tree", false, "tree is incomplete"),
            ("extract -v disk.img --to new.tar", false, "new.tar was not made"),
            ("diff disk.img empty.img", true, "not everything was compared"),
        ] {
            let mut command = fixture.command(&line.split(' ').collect::<Vec<_>>());
            let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
            let [stdout, stderr]: [&mut dyn Read; 2] =
                [child.stdout.as_mut().unwrap(), child.stderr.as_mut().unwrap()];
            let printed = if is_on_stdout { stdout } else { stderr };
            printed.read_exact(&mut [0; 1000]).unwrap();
            kill(&child, signal);
            let output = child.wait_with_output().unwrap();
            let message = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(code), "{line}: {message}");
            assert!(message.contains(told), "{line}: {message}");
        }
        std::fs::remove_dir_all(fixture.path("tree")).unwrap();
        assert!(!fixture.path("new.tar").exists());
        interrupt_build(&fixture, signal, code);
    }
}

/// A build reads an archive whose end doesn't come.
fn interrupt_build(fixture: &Fixture, signal: Signal, code: i32) {
    let mut command = fixture.command(&["build", "new.img", "--from", "-"]);
    let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let piece = vec![0; 1 << 20];
    stdin.write_all(&piece).unwrap();
    kill(&child, signal);
    // It looks whether it is to end between two pieces.
    assert!((0..100).any(|_| stdin.write_all(&piece).is_err()), "it goes on");
    let output = child.wait_with_output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{message}");
    assert!(!fixture.path("new.img").exists());
}

/// A second signal doesn't wait.
#[test]
fn a_second_signal_ends_it_at_once() {
    let fixture = large();
    let mut child = start(copy(&fixture), &fixture);
    // Nothing reads its output, so it blocks after the first signal.
    let status = loop {
        kill(&child, Signal::TERM);
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        thread::sleep(Duration::from_millis(5));
    };
    assert_eq!(status.code(), Some(143));
}

/// An image that is on its way to standard output.
#[test]
fn an_interrupted_stream_ends() {
    let fixture = Fixture::empty();
    fixture.put("source/file", vec![7; 24 << 20]);
    let mut command = fixture.command(&["build", "-", "--from", "source"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdout.as_mut().unwrap().read_exact(&mut [0; 1000]).unwrap();
    kill(&child, Signal::INT);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stdout.len() < 8 << 20, "{}", output.stdout.len());
}

/// SIGKILL: the next command replays the journal.
#[test]
fn a_killed_copy_is_recovered() {
    let fixture = large();
    let output = stop(copy(&fixture), &fixture, Signal::KILL);
    assert_eq!(output.status.signal(), Some(9));
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
