//! Mounts, as a shell sees them. Skipped, and noted so, where FUSE isn't there.

mod servers;

use crate::support::Fixture;
use drystone_sync::thread;
use drystone_testkit::skip::{self, Prerequisite, skip};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::os::unix::fs::symlink;
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
        self.fixture.put("script", script);
        fs::create_dir(self.fixture.path("sbin")).unwrap();
        self.fixture.put_program(&format!("sbin/{name}"), self.fixture.path("script"));
    }

    /// Runs a script in a mount namespace of its own; `$0` is the command. The mounts of other tests are
    /// taken out of it, since they could not end meanwhile.
    pub fn run_apart(&self, script: &str) -> crate::support::Done {
        let script = format!("umount -nil -a -t fuse.drystone\n{script}");
        let mut shell = Command::new("unshare");
        shell.args(["-m", "--propagation", "private", "sh", "-c", &script]);
        shell.arg(assert_cmd::cargo::cargo_bin("drystone"));
        crate::support::finish(shell.current_dir(self.fixture.path("")))
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
    let directory = mounting.path("").canonicalize().unwrap();
    let told = format!("'drystone umount {}' ends that\n", directory.display());
    assert!(again.stderr.contains("in use by another process, "), "{}", again.stderr);
    assert!(again.stderr.ends_with(&told), "{}", again.stderr);
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

/// The kernel, which may gather writes for half a minute, has sent them, and they are durable.
#[test]
fn what_a_signal_leaves_in_use_is_synced() {
    let Some(mounting) = Mounting::new() else { return };
    mounting.line("mount disk.img mnt").good();
    let file = fs::File::create(mounting.path("open")).unwrap();
    let written = vec![b'x'; 16 << 20];
    std::io::Write::write_all(&mut &file, &written).unwrap();
    let server = mounting.server();
    kill_process(server, Signal::TERM).unwrap();
    for _ in 0..1000 {
        if !mounting.path("open").exists() {
            break;
        }
        thread::sleep(Duration::from_millis(10));
    }
    kill_process(server, Signal::KILL).unwrap();
    mounting.wait_closed();
    assert_eq!(mounting.line("cat disk.img:/open").bytes, written);
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

/// Another mount of the same, as in another mount namespace, keeps the server.
#[test]
fn umount_says_what_it_waits_for() {
    let Some(mounting) = Mounting::new() else { return };
    if !skip::is_root("a bind mount") {
        return;
    }
    mounting.line("mount disk.img mnt").good();
    let server = mounting.server();
    fs::create_dir(mounting.fixture.path("other")).unwrap();
    let on_other = |program: &str, words: &[&str]| {
        let mut command = Command::new(program);
        command.args(words).arg("other").current_dir(mounting.fixture.path("")).status().unwrap()
    };
    assert!(on_other("mount", &["--bind", "mnt"]).success());
    let done = thread::scope(|scope| {
        let unmounting = scope.spawn(|| mounting.line("umount mnt"));
        thread::sleep(Duration::from_secs(7));
        assert!(on_other("umount", &["-l"]).success());
        unmounting.join().unwrap()
    });
    let told = format!(
        "still mounted elsewhere, perhaps in another mount namespace; waiting for the end of its \
         server (process {})",
        server.as_raw_pid()
    );
    assert!(done.code == Some(0) && done.stderr.contains(&told), "{}", done.stderr);
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
    let done = mounting.run_apart(script);
    if done.code == Some(99) {
        skip(Prerequisite::Kernel("overlay mounts".into()), done.stderr);
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
