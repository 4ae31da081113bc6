//! `top` on real mounts: what it counts, on a terminal and without one.

use crate::mounting::Mounting;
use drystone_sync::thread;
use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};
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

#[test]
fn a_terminal_shows_a_screen_until_a_key_ends_it() {
    let Some(mounting) = Mounting::new() else { return };
    mounting.line("mount disk.img mnt").good();
    let program = assert_cmd::cargo::cargo_bin("drystone");
    let line = format!("stty rows 24 cols 100; '{}' top mnt -i 0.2", program.display());
    let mut terminal = Command::new("script");
    terminal.args(["-q", "-e", "-c", &line, "/dev/null"]).current_dir(mounting.fixture.path(""));
    terminal.env("TERM", "xterm-256color").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut terminal = terminal.spawn().unwrap();
    let mut keys = terminal.stdin.take().unwrap();
    for (pause, key) in [(1_000, "+"), (100, "p"), (600, "q")] {
        thread::sleep(Duration::from_millis(pause));
        keys.write_all(key.as_bytes()).unwrap();
    }
    let done = terminal.wait_with_output().unwrap();
    let shown = String::from_utf8_lossy(&done.stdout);
    assert_eq!(done.status.code(), Some(0), "{shown}");
    for text in ["drystone top: every 0.2 s", "DIRECTORY", "COMMIT/s", "/mnt", "q ends", "paused"] {
        assert!(shown.contains(text), "no {text:?} in {shown:?}");
    }
    let (entered, left) = ("\u{1b}[?1049h", "\u{1b}[?1049l");
    assert!(shown.find(entered) < shown.find(left) && shown.contains(left), "{shown:?}");
    mounting.unmount().good();
}
