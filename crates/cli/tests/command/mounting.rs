//! Mounts, as a shell sees them. Skipped, and noted so, where FUSE isn't there.

use crate::support::Fixture;
use drystone_sync::thread;
use drystone_testkit::skip::{self, Lack, skip};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// A folder with an image and a directory to mount it on, which is unmounted at the end.
pub struct Mounting {
    pub fixture: Fixture,
}

impl Mounting {
    pub fn new() -> Option<Mounting> {
        if !skip::can_mount("a mount by the command") {
            return None;
        }
        let fixture = Fixture::new();
        fixture.fill(&["etc/hosts"]);
        fs::create_dir(fixture.path("mnt")).unwrap();
        Some(Mounting { fixture })
    }

    pub fn line(&self, line: &str) -> crate::support::Done {
        self.fixture.line(line)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.fixture.path("mnt").join(name)
    }

    /// What `mounts --json` says of the mount.
    pub fn status(&self) -> Option<serde_json::Value> {
        let directory = self.fixture.path("mnt").canonicalize().ok()?;
        let mounts = self.line("mounts --json").json_lines();
        mounts.into_iter().find(|mount| mount["directory"] == directory.to_str().unwrap())
    }

    /// Stops the server and removes its socket, so that the command doesn't know whose mount it is.
    fn stop_unknown_server(&self) -> Pid {
        let server = self.server();
        let name = format!("/{}.sock", server.as_raw_pid());
        let sockets = fs::read_to_string("/proc/net/unix").unwrap();
        let mut paths = sockets.lines().filter_map(|line| line.rsplit(' ').next());
        fs::remove_file(paths.find(|path| path.ends_with(&name)).unwrap()).unwrap();
        kill_process(server, Signal::STOP).unwrap();
        server
    }

    fn server(&self) -> Pid {
        let process = self.status().unwrap()["process"].as_i64().unwrap();
        Pid::from_raw(i32::try_from(process).unwrap()).unwrap()
    }

    /// Kills the server, as a crash would.
    pub fn crash(&self) {
        kill_process(self.server(), Signal::KILL).unwrap();
        let gone = self.unmount();
        assert_eq!(gone.code, Some(0), "{}", gone.stderr);
    }

    /// Unmounts. A child of another test may hold a file of the mount for a moment: what this process
    /// had open when it was forked.
    pub fn unmount(&self) -> crate::support::Done {
        for _ in 0..100 {
            let done = self.line("umount mnt");
            if !done.stderr.contains("in use") {
                return done;
            }
            thread::sleep(Duration::from_millis(20));
        }
        panic!("the mount stays in use");
    }

    /// A folder that a test lays over /sbin, with the program that mount(8) and umount(8) find there. Only
    /// the test sees it.
    pub fn put_in_sbin(&self, name: &str, script: &str) {
        let folder = self.fixture.path("sbin");
        fs::create_dir(&folder).unwrap();
        let program = folder.join(name);
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Waits until the image may be opened by others.
    fn wait_closed(&self) {
        for _ in 0..200 {
            if self.line("ls disk.img:/").code == Some(0) {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
        panic!("the image stays in use");
    }
}

impl Drop for Mounting {
    fn drop(&mut self) {
        // A test that failed half way leaves it mounted.
        let _ = self.line("umount --lazy mnt");
        let small = self.fixture.path("small");
        if small.exists() {
            let _ = Command::new("umount").args(["-q", "-l"]).arg(small).status();
        }
    }
}

#[test]
fn an_image_is_mounted_used_and_unmounted() {
    let Some(mounting) = Mounting::new() else { return };
    assert_eq!(mounting.line("mount disk.img mnt").good(), "");
    assert_eq!(fs::read(mounting.path("etc/hosts")).unwrap(), b"etc/hosts");
    fs::write(mounting.path("new"), "written").unwrap();
    let status = mounting.status().unwrap();
    assert_eq!(status["mode"], "rw");
    assert!(status["requests"]["write"].as_u64() >= Some(1));
    assert!(mounting.line("mounts").good().contains("disk.img on "));
    // Nobody else may have it meanwhile.
    assert!(mounting.line("ls disk.img:/").bad(1).contains("in use"));
    let again = mounting.line("mount disk.img mnt");
    assert!(again.stderr.contains("in use by another process"), "{}", again.stderr);
    assert_eq!(again.code, Some(1));
    mounting.unmount().good();
    // Everything is there when the command returns.
    mounting.fixture.expect_sound();
    assert_eq!(mounting.line("cat disk.img:/new").good(), "written");
    assert!(mounting.status().is_none());
    assert!(mounting.line("umount mnt").bad(1).contains("no image is mounted there"));
}

#[test]
fn a_mount_in_use_stays() {
    let Some(mounting) = Mounting::new() else { return };
    mounting.line("mount disk.img mnt").good();
    let file = fs::File::create(mounting.path("open")).unwrap();
    assert!(mounting.line("umount mnt").bad(1).contains("in use"));
    assert!(mounting.path("open").exists());
    // A signal makes it disappear; it ends with its last user.
    let server = mounting.server();
    kill_process(server, Signal::TERM).unwrap();
    for _ in 0..200 {
        if !mounting.path("open").exists() {
            break;
        }
        thread::sleep(Duration::from_millis(10));
    }
    assert!(!mounting.path("open").exists());
    std::io::Write::write_all(&mut &file, b"still there").unwrap();
    drop(file);
    mounting.wait_closed();
    mounting.fixture.expect_sound();
    assert_eq!(mounting.line("cat disk.img:/open").good(), "still there");
}

#[test]
fn signals_unmount() {
    let Some(mounting) = Mounting::new() else { return };
    for signal in [Signal::TERM, Signal::INT] {
        mounting.line("mount disk.img mnt").good();
        fs::write(mounting.path("file"), signal.as_raw().to_string()).unwrap();
        kill_process(mounting.server(), signal).unwrap();
        mounting.wait_closed();
        assert_eq!(mounting.line("cat disk.img:/file").good(), signal.as_raw().to_string());
        mounting.fixture.expect_sound();
    }
}

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

#[test]
fn mount_and_umount_may_call_it() {
    let Some(mounting) = Mounting::new() else { return };
    let program = assert_cmd::cargo::cargo_bin("drystone");
    for name in ["mount.fuse.drystone", "umount.fuse.drystone"] {
        symlink(&program, mounting.fixture.path(name)).unwrap();
    }
    let call = |name: &str, words: &[&str]| {
        let path = mounting.fixture.path(name);
        let mut command = Command::new(path);
        command.args(words).current_dir(mounting.fixture.path(""));
        crate::support::finish(&mut command)
    };
    let words = ["disk.img", "mnt", "-o", "rw,noatime,nofail", "-t", "fuse.drystone"];
    call("mount.fuse.drystone", &words).good();
    assert!(mounting.path("etc/hosts").exists());
    call("umount.fuse.drystone", &["mnt", "-t", "fuse.drystone"]).good();
    mounting.fixture.expect_sound();
}

/// umount(8) finds the program by our entry in its table, and waits for it.
#[test]
fn umount_waits() {
    let Some(mounting) = Mounting::new() else { return };
    if !skip::is_root("the entry of a mount in the table of umount(8)") {
        return;
    }
    let program = assert_cmd::cargo::cargo_bin("drystone");
    let script = format!(
        "#!/bin/sh\ntouch '{}'\nexec '{}' umount -- \"$1\"\n",
        mounting.fixture.path("called").display(),
        program.display()
    );
    mounting.put_in_sbin("umount.fuse.drystone", &script);
    let script = "mount -t overlay overlay -o lowerdir=$PWD/sbin:/usr/sbin /usr/sbin || exit 99
        $0 mount disk.img mnt && echo written > mnt/new && umount $PWD/mnt";
    let mut shell = Command::new("unshare");
    shell.args(["-m", "--propagation", "private", "sh", "-c", script]).arg(&program);
    let done = crate::support::finish(shell.current_dir(mounting.fixture.path("")));
    if done.code == Some(99) {
        skip(Lack::Kernel("overlay mounts".into()), done.stderr);
        return;
    }
    done.good();
    assert!(mounting.fixture.path("called").exists());
    mounting.fixture.expect_sound();
    assert_eq!(mounting.line("cat disk.img:/new").good(), "written\n");
    let image = mounting.fixture.path("disk.img").canonicalize().unwrap();
    let table = fs::read_to_string("/run/mount/utab").unwrap();
    assert!(!table.contains(image.to_str().unwrap()), "{table}");
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
    let mut shell = Command::new("unshare");
    shell.args(["-m", "--propagation", "private", "sh", "-c", script]);
    shell.arg(assert_cmd::cargo::cargo_bin("drystone"));
    let done = crate::support::finish(shell.current_dir(mounting.fixture.path("")));
    if done.code == Some(99) {
        skip(Lack::Kernel("a mount of tmpfs".into()), done.stderr);
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

#[test]
fn what_is_wrong_is_said() {
    let Some(mounting) = Mounting::new() else { return };
    assert!(mounting.line("mount disk.img mnt -o colour").bad(2).contains("colour"));
    assert!(mounting.line("mount disk.img mnt -o noload").bad(2).contains("ro"));
    assert!(mounting.line("mount disk.img nowhere").bad(1).contains("nowhere"));
    assert!(mounting.line("mount nothing.img mnt").bad(1).contains("nothing.img"));
    mounting.fixture.put("zeros.img", vec![0; 1 << 20]);
    assert!(mounting.line("mount zeros.img mnt").bad(1).contains("zeros.img"));
    let mut logged = mounting.fixture.command(&["mount", "disk.img", "mnt", "--log", "log"]);
    crate::support::finish(&mut logged).good();
    mounting.unmount().good();
    let log = fs::read_to_string(mounting.fixture.path("log")).unwrap();
    assert!(log.contains("mounted") && log.contains("unmounted"), "{log}");
}

/// Without a cache that writes back each write is a request of its own, and hears itself that the image
/// is full; with it they are gathered, and the sync hears it.
#[test]
fn writes_are_gathered_or_not() {
    const WRITES: u64 = 200;
    for (options, is_gathered) in [("defaults", true), ("nowriteback", false)] {
        let Some(mounting) = Mounting::new() else { return };
        mounting.line(&format!("mount disk.img mnt -o {options}")).good();
        let mut file = fs::File::create(mounting.path("lines")).unwrap();
        for number in 0..WRITES {
            std::io::Write::write_all(&mut file, format!("{number:09}\n").as_bytes()).unwrap();
        }
        assert_eq!(file.metadata().unwrap().len(), WRITES * 10);
        if !is_gathered {
            // Nothing is kept back, so that data and holes are known while the file is open.
            let hole = rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(0)).unwrap();
            assert!((WRITES * 10..=4096).contains(&hole), "{hole}");
        }
        file.sync_all().unwrap();
        let requests = mounting.status().unwrap()["requests"]["write"].as_u64().unwrap();
        match is_gathered {
            true => assert!(requests < WRITES / 4, "{requests}"),
            false => assert_eq!(requests, WRITES),
        }
        // Larger than the image.
        let mut big = fs::File::create(mounting.path("big")).unwrap();
        let chunk = vec![7; 1 << 20];
        let written = (0..40).find_map(|_| std::io::Write::write_all(&mut big, &chunk).err());
        // The kernel begins to write what it gathered when it likes, sooner for an ordinary user's mount:
        // a refusal reaches a later write or the sync. What isn't gathered is refused by the write itself.
        assert!(written.is_some() || is_gathered);
        let heard = written.or_else(|| big.sync_all().err()).unwrap();
        assert_eq!(heard.kind(), std::io::ErrorKind::StorageFull);
        drop((file, big));
        fs::remove_file(mounting.path("big")).unwrap();
        assert_eq!(fs::read_to_string(mounting.path("lines")).unwrap().lines().count(), 200);
        mounting.unmount().good();
        mounting.fixture.expect_sound();
    }
}
