//! Servers that are killed, hang or get signals, and their clients.

use super::Mounting;
use crate::unread::SINKS;
use drystone_sync::thread;
use drystone_testkit::skip::{self, Prerequisite, skip};
use rustix::process::{Signal, kill_process};
use std::fs;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::Duration;

#[test]
fn a_killed_server_is_recovered_from() {
    let Some(mounting) = Mounting::new() else { return };
    mounting.line("mount disk.img mnt").good();
    fs::write(mounting.path("synced"), "synced").unwrap();
    fs::File::open(mounting.path("synced")).unwrap().sync_all().unwrap();
    fs::File::open(mounting.path("")).unwrap().sync_all().unwrap();
    mounting.crash();
    // Looking without the journal, and with it in memory, changes nothing.
    let before = fs::read(mounting.fixture.path("disk.img")).unwrap();
    for options in ["ro,noload", "ro"] {
        mounting.line(&format!("mount disk.img mnt -o {options}")).good();
        let seen = fs::read(mounting.path("synced"));
        assert!(options != "ro" || seen.unwrap() == b"synced");
        assert!(fs::write(mounting.path("new"), "").is_err());
        mounting.unmount().good();
        assert!(before == fs::read(mounting.fixture.path("disk.img")).unwrap(), "{options}");
    }
    mounting.line("mount disk.img mnt").good();
    assert_eq!(fs::read(mounting.path("synced")).unwrap(), b"synced");
    mounting.unmount().good();
    mounting.fixture.expect_sound();
}

/// The request that asks whether anybody serves the mount is aborted.
#[test]
fn a_server_that_is_killed_during_umount_counts_as_killed() {
    let Some(mounting) = Mounting::new() else { return };
    mounting.line("mount disk.img mnt").good();
    let server = mounting.stop_unknown_server();
    thread::scope(|scope| {
        let umount = scope.spawn(|| mounting.unmount());
        thread::sleep(Duration::from_millis(300));
        assert!(!umount.is_finished());
        kill_process(server, Signal::KILL).unwrap();
        let done = umount.join().unwrap();
        assert_eq!(done.code, Some(0), "{}", done.stderr);
        assert!(done.stderr.contains("its server was killed"), "{}", done.stderr);
    });
}

#[test]
fn a_lazy_umount_does_not_ask_a_server_that_hangs() {
    let Some(mounting) = Mounting::new() else { return };
    mounting.line("mount disk.img mnt").good();
    let server = mounting.stop_unknown_server();
    // What the kernel knows of the root is too old to be used.
    thread::sleep(Duration::from_millis(1100));
    mounting.line("umount --lazy mnt").good();
    kill_process(server, Signal::KILL).unwrap();
    mounting.wait_closed();
}

/// As a user does whose server was killed: without a look whether it has let go of the image.
#[test]
fn an_image_is_mounted_again_as_soon_as_its_server_was_killed() {
    let Some(mounting) = Mounting::new() else { return };
    for round in 0..3 {
        mounting.line("mount disk.img mnt").good();
        fs::write(mounting.path("file"), vec![round; 3 << 20]).unwrap();
        kill_process(mounting.server(), Signal::KILL).unwrap();
        mounting.line("umount --lazy mnt");
    }
    mounting.line("mount disk.img mnt").good();
    mounting.unmount().good();
    mounting.fixture.expect_sound();
}

/// A server that takes calls and says nothing can't be waited for: that is told, and the mount stays.
#[test]
fn a_server_that_hangs_fails_umount() {
    let Some(mounting) = Mounting::new() else { return };
    if !skip::is_root("a folder of sockets of its own") {
        return;
    }
    // The commands of other tests would wait for it too.
    let script = "mount -t tmpfs tmpfs /run || exit 99
        $0 mount disk.img mnt && echo written > mnt/new || exit 1
        server=$(basename /run/drystone/*.sock .sock)
        kill -STOP $server
        timeout 60 $0 umount mnt; echo $?
        kill -CONT $server
        cat mnt/new
        $0 umount mnt; echo $?";
    let done = mounting.run_apart(script);
    if done.code == Some(99) {
        skip(Prerequisite::Kernel("a mount of tmpfs".into()), done.stderr);
        return;
    }
    assert_eq!(done.stdout, "1\nwritten\n0\n", "{}", done.stderr);
    let told = "drystone: mnt: not unmounted, since it could not be waited for";
    assert!(done.stderr.starts_with(told), "{}", done.stderr);
    assert_eq!(done.stderr.lines().count(), 1, "{}", done.stderr);
    mounting.fixture.expect_sound();
}

/// Clients that connect and say nothing don't keep a server from the others.
#[test]
fn silent_clients_are_nobodys_business() {
    let Some(mounting) = Mounting::new() else { return };
    if !skip::is_root("the socket of a mount of root") {
        return;
    }
    mounting.line("mount disk.img mnt").good();
    let process = mounting.server().as_raw_nonzero();
    let socket = format!("/run/drystone/{process}.sock");
    let silent: Vec<_> = (0..5).map(|_| UnixStream::connect(&socket).unwrap()).collect();
    assert!(mounting.status().is_some());
    mounting.unmount().good();
    mounting.fixture.expect_sound();
    drop(silent);
}

/// `nohup` and the like: a signal that was ignored when the server started stays so.
#[test]
fn ignored_signals_stay_ignored() {
    let Some(mounting) = Mounting::new() else { return };
    let program = assert_cmd::cargo::cargo_bin("drystone");
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap '' HUP; exec $0 mount disk.img mnt"]).arg(program);
    crate::support::finish(shell.current_dir(mounting.fixture.path(""))).good();
    let process = mounting.server();
    let status = fs::read_to_string(format!("/proc/{}/status", process.as_raw_nonzero())).unwrap();
    let signals = |name: &str| {
        let word = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        u64::from_str_radix(word.trim(), 16).unwrap()
    };
    let bit = |signal: Signal| 1 << (signal.as_raw() - 1);
    assert!(signals("SigIgn:") & bit(Signal::HUP) != 0);
    assert_eq!(signals("SigCgt:") & (bit(Signal::HUP) | bit(Signal::TERM)), bit(Signal::TERM));
    mounting.unmount().good();
}

/// Nor does a mount end because nobody reads what it prints.
#[test]
fn a_mount_needs_no_reader() {
    let Some(mounting) = Mounting::new() else { return };
    for [out, err] in SINKS {
        for line in ["mount none.img mnt", "mount -v disk.img mnt"] {
            let mut command = mounting.fixture.command(&line.split(' ').collect::<Vec<_>>());
            let output = command.stdout(out()).stderr(err()).output().unwrap();
            let message = String::from_utf8_lossy(&output.stderr);
            let code = i32::from(line.contains("none"));
            assert_eq!(output.status.code(), Some(code), "{line}: {message}");
        }
        assert_eq!(fs::read(mounting.path("etc/hosts")).unwrap(), b"etc/hosts");
        mounting.unmount().good();
    }
    mounting.fixture.expect_sound();
}
