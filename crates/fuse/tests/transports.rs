//! Programs see the same over every transport.
//!
//! The file system behind it is the model in memory. Takes root and `/dev/fuse`; rings take a kernel
//! that has them, and are turned on for the moment of the mount.
#![allow(clippy::unwrap_used, reason = "a test may fail so")]

use drystone_fuse::attach::{self, Unmount};
use drystone_fuse::session::SessionError;
use drystone_fuse::{Mount, MountError, Operations, ServingOptions, Transport};
use drystone_sync::{Arc, thread};
use drystone_testkit::model::MemoryFileSystem;
use drystone_testkit::rings;
use drystone_testkit::skip::{self, Prerequisite, skip};
use rustix::fs::{AtFlags, Mode, OFlags, XattrFlags};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The transports to test.
const EACH: [Transport; 3] = [Transport::Device, Transport::Rings, Transport::Fuser];

/// Set in a child that serves a mount until it is killed.
const CHILD: &str = "DRYSTONE_TEST_SERVE";

/// Mounts the model; `None`, after a note of the skip, where that isn't possible.
fn mount(target: &Path, transport: Transport) -> Option<Mount> {
    let what = "a mount of the model";
    if !skip::is_root(what) || !skip::can_mount(what) {
        return None;
    }
    let mount = || {
        let model = Arc::new(MemoryFileSystem::default());
        let operations = Operations::new(model, ServingOptions::default());
        Mount::new(Arc::new(operations), target, transport)
    };
    if transport != Transport::Rings {
        return Some(mount().unwrap());
    }
    // Without this the machine may have rings turned on.
    let _offer = rings::offer().ok();
    match mount() {
        Ok(mount) => Some(mount),
        Err(MountError::Session(error @ (SessionError::NotOffered | SessionError::Rings(_)))) => {
            skip(Prerequisite::Rings, error);
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// A mount that is served by threads of this process.
struct Mounted {
    directory: tempfile::TempDir,
    transport: Transport,
    server: Option<thread::JoinHandle<Result<(), MountError>>>,
}

impl Mounted {
    fn new(transport: Transport) -> Option<Mounted> {
        let directory = tempfile::tempdir().unwrap();
        let mount = mount(directory.path(), transport)?;
        assert_eq!(mount.transport(), transport);
        let server = Some(thread::spawn("server", move || mount.run()).unwrap());
        Some(Mounted { directory, transport, server })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Unmounts, and waits until all threads have ended.
    fn end(mut self) {
        unmount(self.directory.path());
        self.server.take().unwrap().join().unwrap().unwrap();
        assert!(!attach::is_mounted(self.directory.path()));
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.server.is_some() {
            let _ = attach::unmount(self.directory.path(), Unmount::Lazily);
        }
    }
}

/// Unmounts an unused mount. A child that another thread forks has this process's files until it
/// runs its program, so this waits for that.
fn unmount(target: &Path) {
    for _ in 0..100 {
        if attach::unmount(target, Unmount::WhenIdle).is_ok() {
            return;
        }
        thread::sleep(Duration::from_millis(20));
    }
    panic!("{} stays busy", target.display());
}

/// Runs a test over each transport.
fn over_each(test: impl Fn(&Mounted)) {
    for transport in EACH {
        if let Some(mounted) = Mounted::new(transport) {
            test(&mounted);
            mounted.end();
        }
    }
}

/// Bytes that differ from place to place.
fn pattern(length: usize) -> Vec<u8> {
    (0..length as u32).map(|index| (index.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

#[test]
fn content_of_any_length_survives() {
    over_each(|mounted| {
        for length in [0, 1, 4095, 4096, 4097, 1 << 20, (3 << 20) + 77] {
            let (path, data) = (mounted.path("file"), pattern(length));
            fs::write(&path, &data).unwrap();
            assert_eq!(fs::metadata(&path).unwrap().len(), length as u64);
            rustix::fs::sync();
            drop_caches();
            assert!(fs::read(&path).unwrap() == data, "{length} bytes");
            fs::remove_file(&path).unwrap();
        }
    });
}

/// What was read before comes from the server again.
fn drop_caches() {
    let _ = fs::write("/proc/sys/vm/drop_caches", "1");
}

#[test]
fn direct_and_shared_writes_meet() {
    over_each(|mounted| {
        let path = mounted.path("file");
        let data = pattern(1 << 20);
        let mut open = File::options();
        open.read(true).write(true).create(true);
        let direct = open.clone().custom_flags(OFlags::DIRECT.bits() as i32).open(&path).unwrap();
        // A vector of this length begins at a page, as direct I/O may want it.
        direct.write_all_at(&data, 8192).unwrap();
        let mut plain = open.open(&path).unwrap();
        plain.seek(SeekFrom::Start(8192)).unwrap();
        let mut read = vec![0; data.len()];
        plain.read_exact(&mut read).unwrap();
        assert!(read == data);
        plain.set_len(10_000).unwrap();
        plain.write_all(b"tail").unwrap();
        plain.sync_all().unwrap();
        assert_eq!(plain.metadata().unwrap().len(), 8192 + (1 << 20) + 4);
    });
}

#[test]
fn names_are_made_moved_and_removed() {
    over_each(|mounted| {
        let path = |name: &str| mounted.path(name);
        fs::create_dir_all(path("a/b")).unwrap();
        fs::write(path("a/file"), "1").unwrap();
        fs::hard_link(path("a/file"), path("a/link")).unwrap();
        assert_eq!(fs::metadata(path("a/link")).unwrap().nlink(), 2);
        symlink("file", path("a/symlink")).unwrap();
        assert_eq!(fs::read_to_string(path("a/symlink")).unwrap(), "1");
        assert_eq!(fs::read_link(path("a/symlink")).unwrap(), Path::new("file"));
        fs::rename(path("a/file"), path("a/b/moved")).unwrap();
        let (one, other) = (path("a/b/moved"), path("a/symlink"));
        let exchange = rustix::fs::RenameFlags::EXCHANGE;
        let here = rustix::fs::CWD;
        rustix::fs::renameat_with(here, &one, here, &other, exchange).unwrap();
        assert!(fs::symlink_metadata(&one).unwrap().is_symlink());
        assert_eq!(fs::remove_dir(path("a/b")).unwrap_err().raw_os_error(), Some(39));
        let long = path(&"n".repeat(256));
        assert_eq!(fs::write(long, "").unwrap_err().raw_os_error(), Some(36));
        assert_eq!(fs::metadata(path("none")).unwrap_err().raw_os_error(), Some(2));
        fs::remove_dir_all(path("a")).unwrap();
        assert_eq!(fs::read_dir(mounted.directory.path()).unwrap().count(), 0);
    });
}

#[test]
fn a_long_listing_is_complete() {
    over_each(|mounted| {
        let mut expected: Vec<String> = (0..1500).map(|n| format!("name {n:0200}")).collect();
        for name in &expected {
            File::create(mounted.path(name)).unwrap();
        }
        let entries = || fs::read_dir(mounted.directory.path()).unwrap().map(Result::unwrap);
        let name = |entry: fs::DirEntry| entry.file_name().into_string().unwrap();
        let mut listed: Vec<String> = entries().map(name).collect();
        listed.sort();
        expected.sort();
        assert_eq!(listed, expected);
        assert!(entries().all(|entry| entry.metadata().unwrap().is_file()));
    });
}

#[test]
fn attributes_are_kept() {
    over_each(|mounted| {
        let path = mounted.path("file");
        fs::write(&path, "content").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o6711)).unwrap();
        std::os::unix::fs::chown(&path, Some(12), Some(34)).unwrap();
        let metadata = fs::metadata(&path).unwrap();
        assert_eq!((metadata.uid(), metadata.gid(), metadata.len()), (12, 34, 7));
        // A time before 1970 with a fraction: both parts count forwards.
        let times = rustix::fs::Timestamps {
            last_access: rustix::fs::Timespec { tv_sec: -10, tv_nsec: 250_000_000 },
            last_modification: rustix::fs::Timespec { tv_sec: 1_700_000_000, tv_nsec: 123_000_000 },
        };
        rustix::fs::utimensat(rustix::fs::CWD, &path, &times, AtFlags::empty()).unwrap();
        let metadata = fs::metadata(&path).unwrap();
        assert_eq!((metadata.atime(), metadata.atime_nsec()), (-10, 250_000_000));
        assert_eq!((metadata.mtime(), metadata.mtime_nsec()), (1_700_000_000, 123_000_000));
        let mut value = [0; 64];
        let set = |value: &[u8], flags| rustix::fs::setxattr(&path, "user.key", value, flags);
        set(b"value", XattrFlags::CREATE).unwrap();
        assert_eq!(set(b"", XattrFlags::CREATE), Err(Errno::EXIST));
        let length = rustix::fs::getxattr(&path, "user.key", &mut value).unwrap();
        assert_eq!(&value[..length], b"value");
        assert_eq!(rustix::fs::getxattr(&path, "user.key", &mut [0; 2]), Err(Errno::RANGE));
        let length = rustix::fs::listxattr(&path, &mut value).unwrap();
        assert_eq!(&value[..length], b"user.key\0");
        rustix::fs::removexattr(&path, "user.key").unwrap();
        assert_eq!(rustix::fs::getxattr(&path, "user.key", &mut value), Err(Errno::NODATA));
    });
}

#[test]
fn files_without_a_name_live_while_they_are_open() {
    over_each(|mounted| {
        let path = mounted.path("file");
        fs::write(&path, "before").unwrap();
        let mut open = File::options().read(true).write(true).open(&path).unwrap();
        fs::remove_file(&path).unwrap();
        open.write_all(b"behind").unwrap();
        open.seek(SeekFrom::Start(0)).unwrap();
        let mut content = String::new();
        open.read_to_string(&mut content).unwrap();
        assert_eq!((content.as_str(), open.metadata().unwrap().nlink()), ("behind", 0));
        if mounted.transport == Transport::Fuser {
            // The library doesn't know the request.
            return;
        }
        let directory = mounted.directory.path();
        let flags = OFlags::TMPFILE | OFlags::RDWR;
        let unnamed = rustix::fs::open(directory, flags, Mode::RUSR | Mode::WUSR).unwrap();
        rustix::io::write(&unnamed, b"unnamed").unwrap();
        let named = mounted.path("named");
        let here = rustix::fs::CWD;
        rustix::fs::linkat(&unnamed, "", here, &named, AtFlags::EMPTY_PATH).unwrap();
        assert_eq!(fs::read_to_string(named).unwrap(), "unnamed");
    });
}

#[test]
fn many_threads_are_served_at_once() {
    over_each(|mounted| {
        thread::scope(|scope| {
            for worker in 0..8 {
                scope.spawn(move || {
                    let directory = mounted.path(&format!("worker {worker}"));
                    fs::create_dir(&directory).unwrap();
                    for round in 0..60 {
                        let path = directory.join(format!("{round}"));
                        let data = pattern(round * 997);
                        fs::write(&path, &data).unwrap();
                        assert!(fs::read(&path).unwrap() == data);
                        if round.is_multiple_of(3) {
                            fs::remove_file(&path).unwrap();
                        }
                    }
                    assert_eq!(fs::read_dir(&directory).unwrap().count(), 40);
                });
            }
        });
    });
}

#[test]
fn a_busy_mount_stays() {
    over_each(|mounted| {
        let file = File::create(mounted.path("file")).unwrap();
        let busy = attach::unmount(mounted.directory.path(), Unmount::WhenIdle);
        assert!(busy.is_err_and(|error| error.to_string().contains("busy")));
        drop(file);
    });
}

/// The mount table has other paths than the caller's.
#[test]
fn a_mount_is_found_by_whatever_path_it_was_made() {
    let directory = tempfile::tempdir().unwrap();
    let full = fs::canonicalize(directory.path()).unwrap().join("mount");
    fs::create_dir(&full).unwrap();
    let link = directory.path().join("link");
    symlink("mount", &link).unwrap();
    let depth = std::env::current_dir().unwrap().components().count();
    let relative = PathBuf::from("../".repeat(depth)).join(full.strip_prefix("/").unwrap());
    for path in [&link, &relative, &full.join("../mount")] {
        let Some(mount) = mount(path, Transport::Device) else { return };
        assert!(attach::is_mounted(&full), "{}", path.display());
        assert_eq!(mount.device_number(), attach::device_on(&full), "{}", path.display());
        assert!(mount.device_number().is_some(), "{}", path.display());
        drop(mount);
        assert!(!attach::is_mounted(&full), "{} stays mounted", path.display());
    }
}

/// Not a test: what a child does until it is killed.
#[test]
fn serve_until_killed() {
    let Some(target) = std::env::var_os(CHILD) else { return };
    let transport = std::env::var("DRYSTONE_TEST_TRANSPORT").unwrap().parse().unwrap();
    let Some(mount) = mount(Path::new(&target), transport) else { return };
    fs::write(Path::new(&target).with_extension("ready"), "").unwrap();
    mount.run().unwrap();
}

/// The kernel takes rings apart after their process has ended; until it is done, requests fail with
/// another error.
fn wait_until_disconnected(target: &Path) {
    for _ in 0..500 {
        let error = fs::metadata(target.join("name")).unwrap_err();
        if error.raw_os_error() == Some(Errno::NOTCONN.raw_os_error()) {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("the connection doesn't end");
}

/// A server in a process of its own and its mount; both end with this.
struct Server(Child, PathBuf);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
        let _ = attach::unmount(&self.1, Unmount::Lazily);
    }
}

#[test]
fn a_killed_server_leaves_nothing_that_hangs() {
    for transport in EACH {
        let directory = tempfile::tempdir().unwrap();
        let target = directory.path().join("mount");
        fs::create_dir(&target).unwrap();
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "serve_until_killed"])
            .env(CHILD, &target)
            .env("DRYSTONE_TEST_TRANSPORT", transport.name())
            .stdout(Stdio::null())
            .spawn();
        let mut child = Server(child.unwrap(), target.clone());
        let ready = target.with_extension("ready");
        while !ready.exists() && child.0.try_wait().unwrap().is_none() {
            thread::sleep(Duration::from_millis(5));
        }
        if !ready.exists() {
            // The child has noted the skip.
            continue;
        }
        let busy = {
            let target = target.clone();
            // Requests are under way when it happens.
            thread::spawn("busy", move || {
                for number in 0_u64.. {
                    if File::create(target.join(format!("{number}"))).is_err() {
                        break;
                    }
                }
            })
            .unwrap()
        };
        thread::sleep(Duration::from_millis(100));
        let file = File::create(target.join("open")).unwrap();
        child.0.kill().unwrap();
        child.0.wait().unwrap();
        busy.join().unwrap();
        wait_until_disconnected(&target);
        drop(file);
        unmount(&target);
        assert!(fs::metadata(&target).unwrap().is_dir());
    }
}
