//! `top` on real mounts: what it counts, on a terminal and without one.

use crate::mounting::Mounting;
use drystone_sync::{clock, thread};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

#[test]
fn intervals_are_objects_with_what_happened_in_them() {
    let Some(mounting) = Mounting::new() else { return };
    mounting.line("mount disk.img mnt").good();
    fs::write(mounting.path("before"), [1; 100_000]).unwrap();
    // Both intervals see some of these. The kernel remembers which names there aren't.
    let reader = thread::spawn("reader", {
        let directory = mounting.path("etc");
        move || {
            for number in 0..300 {
                assert!(fs::metadata(directory.join(format!("none{number}"))).is_err());
                thread::sleep(Duration::from_millis(2));
            }
        }
    });
    let intervals = mounting.line("top mnt --json --count 2 --interval 0.2").json_lines();
    reader.unwrap().join().unwrap();
    assert_eq!(intervals.len(), 2);
    let directory = mounting.fixture.path("mnt").canonicalize().unwrap();
    for interval in &intervals {
        let seconds = interval["seconds"].as_f64().unwrap();
        assert!((0.19..10.0).contains(&seconds), "{interval}");
        assert!(interval["time"].as_str().unwrap().ends_with("+00:00"));
        let [mount] = &interval["mounts"].as_array().unwrap()[..] else { panic!("{interval}") };
        let (counts, status) = (&mount["interval"], &mount["mount"]);
        assert_eq!(status["directory"], directory.to_str().unwrap());
        let lookups = counts["requests"]["lookup"].as_u64().unwrap();
        assert!((1..=300).contains(&lookups), "{interval}");
        assert!(status["requests"]["lookup"].as_u64().unwrap() >= lookups, "{interval}");
        // Written before the first look.
        assert_eq!(counts["requests"]["write"], serde_json::Value::Null, "{interval}");
        assert_eq!((&counts["bytes_written"], &counts["io_errors"]), (&0.into(), &0.into()));
        assert!(
            counts["commits"].as_u64().unwrap() <= status["commits"]["count"].as_u64().unwrap()
        );
        assert!(status["resident_bytes"].as_u64().unwrap() > 1 << 20, "{interval}");
        let space =
            ["bytes", "free_bytes", "available_bytes"].map(|name| status["space"][name].as_u64());
        assert!(space.is_sorted_by(|more, less| more >= less) && space[2] > Some(0), "{interval}");
    }
    mounting.unmount().good();
}

#[test]
fn without_a_terminal_there_are_lines_of_text() {
    let Some(mounting) = Mounting::new() else { return };
    mounting.line("mount disk.img mnt").good();
    let text = mounting.line("top mnt -n 2 -i 0.1").good();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 3, "{text}");
    assert!(lines[0].trim_start().starts_with("MODE") && lines[0].ends_with("DIRECTORY"));
    assert!(lines[1].trim_start().starts_with("rw ") && lines[2].ends_with("/mnt"), "{text}");
    mounting.unmount().good();
    assert!(mounting.line("top mnt -n 1").bad(1).contains("mnt: no mount of yours is there"));
}

#[test]
fn the_end_of_the_mount_ends_it() {
    let Some(mounting) = Mounting::new() else { return };
    mounting.line("mount disk.img mnt").good();
    let mut top = mounting.fixture.command(&["top", "mnt", "-i", "0.1", "--json"]);
    let mut top = top.stdout(Stdio::null()).spawn().unwrap();
    thread::sleep(Duration::from_millis(300));
    assert!(top.try_wait().unwrap().is_none());
    mounting.unmount().good();
    assert_eq!(top.wait().unwrap().code(), Some(0));
}

/// `top` of the mount on a terminal of its own, which ends when `script` is killed.
fn on_a_terminal(mounting: &Mounting) -> Child {
    let program = assert_cmd::cargo::cargo_bin("drystone");
    let line = format!(
        "stty rows 24 cols 100; echo $$ > top.pid; exec '{}' top mnt -i 0.2",
        program.display()
    );
    let mut terminal = Command::new("script");
    terminal.args(["-q", "-e", "-c", &line, "/dev/null"]).current_dir(mounting.fixture.path(""));
    terminal.env("TERM", "xterm-256color").stdin(Stdio::piped()).stdout(Stdio::piped());
    terminal.spawn().unwrap()
}

/// Reads what the terminal shows until each of the texts was there.
fn read_until(screen: &mut ChildStdout, shown: &mut String, texts: &[&str]) {
    while let Some(missing) = texts.iter().find(|text| !shown.contains(**text)) {
        let mut part = [0; 4096];
        let soon = Timespec { tv_sec: 20, tv_nsec: 0 };
        let ready = poll(&mut [PollFd::new(screen, PollFlags::IN)], Some(&soon)).unwrap();
        let read = if ready == 0 { 0 } else { screen.read(&mut part).unwrap() };
        assert_ne!(read, 0, "no {missing:?} in {shown:?}");
        *shown += &String::from_utf8_lossy(&part[..read]);
    }
}

#[test]
fn a_terminal_shows_a_screen_until_a_key_ends_it() {
    let Some(mounting) = Mounting::new() else { return };
    mounting.line("mount disk.img mnt").good();
    let mut terminal = on_a_terminal(&mounting);
    let mut keys = terminal.stdin.take().unwrap();
    let (mut screen, mut shown) = (terminal.stdout.take().unwrap(), String::new());
    let first = ["drystone top: every 0.2 s", "DIRECTORY", "COMMIT/s", "/mnt", "q ends"];
    read_until(&mut screen, &mut shown, &first);
    keys.write_all(b"+p").unwrap();
    read_until(&mut screen, &mut shown, &["paused"]);
    keys.write_all(b"q").unwrap();
    let (entered, left) = ("\u{1b}[?1049h", "\u{1b}[?1049l");
    read_until(&mut screen, &mut shown, &[left]);
    assert_eq!(terminal.wait().unwrap().code(), Some(0), "{shown}");
    assert!(shown.find(entered) < shown.find(left), "{shown:?}");
    mounting.unmount().good();
}

#[test]
fn the_end_of_the_terminal_ends_it() {
    let Some(mounting) = Mounting::new() else { return };
    mounting.line("mount disk.img mnt").good();
    let mut terminal = on_a_terminal(&mounting);
    let mut screen = terminal.stdout.take().unwrap();
    read_until(&mut screen, &mut String::new(), &["q ends"]);
    let process = fs::read_to_string(mounting.fixture.path("top.pid")).unwrap();
    let command_line = Path::new("/proc").join(process.trim()).join("cmdline");
    assert!(fs::read_to_string(&command_line).unwrap().contains("top"));
    terminal.kill().unwrap();
    terminal.wait().unwrap();
    // That of a process that ended is empty until its parent has asked for it.
    let soon = clock::now() + Duration::from_secs(20);
    while fs::read(&command_line).is_ok_and(|line| !line.is_empty()) {
        assert!(clock::now() < soon, "top goes on without its terminal");
        thread::sleep(Duration::from_millis(20));
    }
    mounting.unmount().good();
}
