//! Attributes: times, owners, modes, flags, space.

use crate::support::{IMAGE_BYTES, Mounted, errno, have, run};
use drystone_fuse::{CountedOperation, Transport};
use drystone_sync::thread;
use drystone_testkit::skip::{self, Prerequisite, skip};
use rustix::fs::{
    Advice, AtFlags, CWD, IFlags, Mode, OFlags, StatxFlags, Timespec, Timestamps, statx,
};
use rustix::io::Errno;
use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A user without rights.
const NOBODY: u32 = 65534;

pub fn times_are_exact(mounted: &Mounted) {
    let path = mounted.path("f");
    fs::write(&path, "x").unwrap();
    let times = [
        (0, 0),
        (1_700_000_000, 123_456_789),
        (-1, 500_000_000),
        (-1_000_000_000, 1),
        (4_000_000_000, 999_999_999),
    ];
    for (seconds, nanoseconds) in times {
        let time = Timespec { tv_sec: seconds, tv_nsec: nanoseconds };
        let both = Timestamps { last_access: time, last_modification: time };
        rustix::fs::utimensat(CWD, &path, &both, AtFlags::empty()).unwrap();
        let found = fs::metadata(&path).unwrap();
        assert_eq!((found.mtime(), found.mtime_nsec()), (seconds, nanoseconds));
        assert_eq!((found.atime(), found.atime_nsec()), (seconds, nanoseconds));
    }
    // A write counts at once, and still after the kernel has forgotten the inode.
    let before = fs::metadata(&path).unwrap();
    let file = File::options().write(true).open(&path).unwrap();
    file.write_all_at(b"y", 0).unwrap();
    let after = file.metadata().unwrap();
    assert!(after.mtime() < 3_000_000_000 && after.mtime() > 1_600_000_000);
    assert!((after.ctime(), after.ctime_nsec()) >= (before.ctime(), before.ctime_nsec()));
    file.sync_all().unwrap();
    let stored = file.metadata().unwrap();
    assert_eq!((stored.mtime(), stored.mtime_nsec()), (after.mtime(), after.mtime_nsec()));
}

/// Of a regular file the kernel shows the modification time that it was given, but not the access time.
#[test]
fn times_beyond_the_range_are_shown_as_stored() {
    for transport in [Transport::Device, Transport::Rings, Transport::Fuser] {
        for (inode_bytes, last) in [("256", 15_032_385_535), ("128", i64::from(i32::MAX))] {
            let arguments = ["-I", inode_bytes];
            let Some(mounted) = Mounted::made_with(transport, &arguments) else { continue };
            let (directory, file) = (mounted.path("d"), mounted.path("f"));
            fs::create_dir(&directory).unwrap();
            fs::write(&file, "").unwrap();
            for (given, stored) in [(1 << 40, last), (-(1 << 40), i64::from(i32::MIN))] {
                let time = Timespec { tv_sec: given, tv_nsec: 5 };
                let both = Timestamps { last_access: time, last_modification: time };
                for path in [&directory, &file] {
                    rustix::fs::utimensat(CWD, path, &both, AtFlags::empty()).unwrap();
                }
                let found = fs::metadata(&directory).unwrap();
                assert_eq!((found.atime(), found.mtime()), (stored, stored), "{transport:?}");
                assert_eq!(fs::metadata(&file).unwrap().atime(), stored, "{transport:?}");
            }
            mounted.finish();
        }
    }
}

/// What the kernel shows before it has written a time is what the image can store.
#[test]
fn times_of_small_inodes_are_whole_seconds() {
    for transport in [Transport::Device, Transport::Rings, Transport::Fuser] {
        let Some(mounted) = Mounted::made_with(transport, &["-I", "128"]) else { continue };
        let path = mounted.path("file");
        for content in ["a", "b", "c"] {
            fs::write(&path, content).unwrap();
            let found = fs::metadata(&path).unwrap();
            assert_eq!((found.mtime_nsec(), found.ctime_nsec()), (0, 0), "{transport:?}");
            thread::sleep(Duration::from_millis(7));
        }
        mounted.finish();
    }
}

pub fn accesses_are_recorded(mounted: &Mounted) {
    let (file, directory, link) = (mounted.path("f"), mounted.path("d"), mounted.path("l"));
    fs::write(&file, "content").unwrap();
    fs::create_dir(&directory).unwrap();
    std::os::unix::fs::symlink("f", &link).unwrap();
    let hour = Timespec { tv_sec: 3600, tv_nsec: 0 };
    let both = Timestamps { last_access: hour, last_modification: hour };
    let accessed = |path: &Path| fs::symlink_metadata(path).unwrap().atime();
    // The kernel reads cached content without a request.
    let read = |flags| {
        let flags = flags | OFlags::RDONLY;
        let opened = File::from(rustix::fs::open(&file, flags, Mode::empty()).unwrap());
        opened.sync_all().unwrap();
        rustix::fs::fadvise(&opened, 0, None, Advice::DontNeed).unwrap();
        opened.read_at(&mut [0], 0).unwrap();
    };
    for path in [&file, &directory, &link] {
        rustix::fs::utimensat(CWD, path, &both, AtFlags::SYMLINK_NOFOLLOW).unwrap();
    }
    read(OFlags::NOATIME);
    assert_eq!(accessed(&file), 3600);
    read(OFlags::empty());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64;
    assert!((now - 10..=now).contains(&accessed(&file)));
    // Reading to complete a page for a write isn't an access.
    rustix::fs::utimensat(CWD, &file, &both, AtFlags::empty()).unwrap();
    let writer = File::options().write(true).open(&file).unwrap();
    rustix::fs::fadvise(&writer, 0, None, Advice::DontNeed).unwrap();
    writer.write_all_at(b"c", 0).unwrap();
    drop(writer);
    assert_eq!(accessed(&file), 3600);
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 0);
    assert!((now - 10..=now + 10).contains(&accessed(&directory)));
    assert_eq!(fs::read_link(&link).unwrap(), Path::new("f"));
    assert!((now - 10..=now + 10).contains(&accessed(&link)));
}

pub fn creation_times_are_shown(mounted: &Mounted) {
    let path = mounted.path("f");
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64;
    let before = now();
    fs::write(&path, "x").unwrap();
    let after = now();
    // The clock of file systems is a little behind.
    let created = || {
        let mask = StatxFlags::BTIME | StatxFlags::BASIC_STATS;
        let found = rustix::fs::statx(CWD, &path, AtFlags::empty(), mask).unwrap();
        assert_eq!((found.stx_size, found.stx_nlink), (1, 1));
        let is_known = StatxFlags::from_bits_retain(found.stx_mask).contains(StatxFlags::BTIME);
        is_known.then_some(found.stx_btime)
    };
    let Some(first) = created() else {
        // fuser doesn't know the request, nor does Linux before 6.6.
        let is_asked = rustix::system::uname().release().to_str().is_ok_and(|release| {
            let mut numbers = release.split('.').map_while(|word| word.parse::<u32>().ok());
            (numbers.next(), numbers.next()) >= (Some(6), Some(6))
        });
        assert!(mounted.transport == Transport::Fuser || !is_asked);
        if !is_asked {
            skip(
                Prerequisite::Kernel("FUSE that asks for creation times".into()),
                "creation times",
            );
        }
        return;
    };
    assert!((before - 1..=after).contains(&first.tv_sec), "{before} to {after}: {first:?}");
    // Other times change but this one doesn't, not even when the kernel has to ask again.
    let time = Timespec { tv_sec: 1_000_000, tv_nsec: 5 };
    let both = Timestamps { last_access: time, last_modification: time };
    rustix::fs::utimensat(CWD, &path, &both, AtFlags::empty()).unwrap();
    fs::rename(&path, mounted.path("g")).unwrap();
    fs::rename(mounted.path("g"), &path).unwrap();
    let _ = fs::write("/proc/sys/vm/drop_caches", "2");
    let again = created().unwrap();
    assert_eq!((again.tv_sec, again.tv_nsec), (first.tv_sec, first.tv_nsec));
    if have("stat") {
        let shown = run("stat", &["-c", "%W %Y", "f"], &mounted.root());
        assert_eq!(shown.trim(), format!("{} 1000000", first.tv_sec));
    }
}

pub fn owners_and_modes(mounted: &Mounted) {
    let path = mounted.path("f");
    fs::write(&path, "x").unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o640);
    if !skip::is_root("giving files away") {
        return;
    }
    chown(&path, Some(1000), Some(2000)).unwrap();
    let found = fs::metadata(&path).unwrap();
    assert_eq!((found.uid(), found.gid()), (1000, 2000));
    fs::set_permissions(mounted.root(), Permissions::from_mode(0o755)).unwrap();
    reachable(mounted);
    assert!(!as_nobody(mounted, "cat f"));
    assert!(!as_nobody(mounted, "touch g"));
    fs::create_dir(mounted.path("sticky")).unwrap();
    fs::set_permissions(mounted.path("sticky"), Permissions::from_mode(0o1777)).unwrap();
    fs::write(mounted.path("sticky/mine"), "").unwrap();
    assert!(as_nobody(mounted, "echo theirs > sticky/theirs && cat sticky/theirs"));
    assert!(!as_nobody(mounted, "rm -f sticky/mine"));
    assert_eq!(fs::metadata(mounted.path("sticky/theirs")).unwrap().uid(), NOBODY);
    // A group that new entries inherit from their directory.
    fs::create_dir(mounted.path("shared")).unwrap();
    chown(mounted.path("shared"), Some(NOBODY), Some(2000)).unwrap();
    fs::set_permissions(mounted.path("shared"), Permissions::from_mode(0o2775)).unwrap();
    assert!(as_nobody(mounted, "umask 027; mkdir shared/d && echo > shared/f"));
    let (directory, file) = (mounted.path("shared/d"), mounted.path("shared/f"));
    assert_eq!(fs::metadata(&directory).unwrap().gid(), 2000);
    assert_eq!(fs::metadata(&directory).unwrap().mode() & 0o7777, 0o2750);
    assert_eq!(fs::metadata(&file).unwrap().gid(), 2000);
    assert_eq!(fs::metadata(&file).unwrap().mode() & 0o7777, 0o640);
}

/// Lets other users reach the mount through its parent directory.
pub fn reachable(mounted: &Mounted) {
    let folder = mounted.root();
    let folder = folder.parent().unwrap();
    fs::set_permissions(folder, Permissions::from_mode(0o755)).unwrap();
}

/// Runs a shell command as a user without rights; true if it succeeds.
pub fn as_nobody(mounted: &Mounted, line: &str) -> bool {
    let mut shell = Command::new("sh");
    shell.args(["-c", line]).current_dir(mounted.root()).uid(NOBODY).gid(NOBODY);
    shell.output().unwrap().status.success()
}

/// Changes of the file `f`.
const SET_ID_CLEARED_BY: [&str; 5] = [
    "echo more >> f",
    "dd if=/dev/zero of=f bs=4096 count=1 oflag=direct conv=notrunc",
    "fallocate -l 9000 f",
    "truncate -s 1 f",
    ": > f",
];

pub fn set_id_bits_are_cleared(mounted: &Mounted) {
    // `stat -c %a` and running a file: both need only the mode, which the kernel may have cached.
    let mode = |path: &Path| {
        let found = statx(CWD, path, AtFlags::empty(), StatxFlags::MODE).unwrap();
        found.stx_mode & 0o7777
    };
    let path = mounted.path("f");
    let armed = || {
        fs::write(&path, "x").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o6777)).unwrap();
        assert_eq!(mode(&path), 0o6777);
    };
    armed();
    // Root's own writes leave them.
    if !skip::is_root("writes by another user") {
        return;
    }
    File::options().write(true).open(&path).unwrap().write_all_at(b"y", 0).unwrap();
    assert_eq!(mode(&path), 0o6777);
    fs::set_permissions(mounted.root(), Permissions::from_mode(0o777)).unwrap();
    reachable(mounted);
    for change in SET_ID_CLEARED_BY {
        armed();
        assert!(as_nobody(mounted, change), "{change}");
        assert_eq!(mode(&path), 0o777, "{change}");
    }
    armed();
    chown(&path, Some(1), None).unwrap();
    assert_eq!(mode(&path), 0o777);
    // The `fuser` library leaves the next to the kernel, which doesn't treat it as ext4 does.
    if mounted.transport != Transport::Fuser {
        for change in SET_ID_CLEARED_BY {
            // Without the group's execute bit, who is in the group keeps its set-id bit.
            for (groups, kept) in [("--clear-groups", 0o766), ("--groups=2000", 0o2766)] {
                armed();
                chown(&path, None, Some(2000)).unwrap();
                fs::set_permissions(&path, Permissions::from_mode(0o6766)).unwrap();
                let mut shell = Command::new("setpriv");
                shell.args(["--reuid=65534", "--regid=65534", groups, "sh", "-c", change]);
                assert!(shell.current_dir(mounted.root()).output().unwrap().status.success());
                assert_eq!(mode(&path), kept, "{groups}: {change}");
            }
        }
    }
}

/// Without the page cache each would be a request of its own.
pub fn appends_are_gathered(mounted: &Mounted) {
    const APPENDS: u64 = 200;
    let path = mounted.path("f");
    let mut file = File::options().append(true).create(true).open(&path).unwrap();
    rustix::fs::ioctl_setflags(&file, rustix::fs::ioctl_getflags(&file).unwrap() | APPEND).unwrap();
    let before = mounted.counters.requests(CountedOperation::Write);
    for _ in 0..APPENDS {
        file.write_all(b"line\n").unwrap();
    }
    file.sync_all().unwrap();
    let requests = mounted.counters.requests(CountedOperation::Write) - before;
    assert!(requests < APPENDS / 4, "{requests} requests");
    assert_eq!(fs::read(&path).unwrap(), b"line\n".repeat(APPENDS as usize));
    rustix::fs::ioctl_setflags(&file, rustix::fs::ioctl_getflags(&file).unwrap() - APPEND).unwrap();
}

pub fn flags_are_obeyed(mounted: &Mounted) {
    let path = mounted.path("f");
    fs::write(&path, "x").unwrap();
    let flags = |file: &File| rustix::fs::ioctl_getflags(file).unwrap();
    let file = File::open(&path).unwrap();
    assert!(flags(&file).contains(IFlags::from_bits_retain(0x8_0000)), "extents");
    rustix::fs::ioctl_setflags(&file, flags(&file) | IFlags::NODUMP | IFlags::NOATIME).unwrap();
    assert!(flags(&file).contains(IFlags::NODUMP | IFlags::NOATIME));
    let root = File::open(mounted.root()).unwrap();
    let changed = || {
        let found = root.metadata().unwrap();
        (found.ctime(), found.ctime_nsec())
    };
    let before = changed();
    // Until the clock that stamps changes has moved on.
    thread::sleep(Duration::from_millis(30));
    rustix::fs::ioctl_setflags(&root, flags(&root) | IFlags::NODUMP).unwrap();
    assert!(changed() > before, "the kernel shows an old time of change");
    assert!(flags(&root).contains(IFlags::NODUMP));
    drop(root);
    if have("lsattr") {
        let listed = run("lsattr", &["f"], &mounted.root());
        assert!(listed.starts_with("------dA------e"), "{listed}");
        run("chattr", &["-p", "42", "f"], &mounted.root());
        let listed = run("lsattr", &["-p", "f"], &mounted.root());
        assert!(listed.trim_start().starts_with("42 "), "{listed}");
        run("lsattr", &["-v", "f"], &mounted.root());
    }
    if !skip::is_root("the immutable flag") {
        return;
    }
    let set = |flag| rustix::fs::ioctl_setflags(&file, (flags(&file) - IMMUTABLE - APPEND) | flag);
    let written = File::options().append(true).open(&path).unwrap();
    (&written).write_all(b"y").unwrap();
    set(IMMUTABLE).unwrap();
    // What the kernel has gathered before is still written.
    written.sync_all().unwrap();
    assert_eq!(errno(File::options().write(true).open(&path)), Errno::PERM);
    assert_eq!(errno(fs::remove_file(&path)), Errno::PERM);
    assert_eq!(errno(fs::rename(&path, mounted.path("g"))), Errno::PERM);
    assert_eq!(errno(fs::hard_link(&path, mounted.path("g"))), Errno::PERM);
    assert_eq!(errno(fs::set_permissions(&path, Permissions::from_mode(0o600))), Errno::PERM);
    set(IFlags::empty()).unwrap();
    written.set_modified(UNIX_EPOCH).unwrap();
    set(APPEND).unwrap();
    assert_eq!(errno(File::options().write(true).open(&path)), Errno::PERM);
    assert_eq!(errno(fs::write(&path, "cut")), Errno::PERM);
    let appended = File::options().append(true).open(&path).unwrap();
    (&appended).write_all(b" and").unwrap();
    appended.sync_all().unwrap();
    (&appended).write_all(b" more").unwrap();
    appended.sync_all().unwrap();
    drop((written, appended));
    assert_eq!(fs::read(&path).unwrap(), b"xy and more");
    assert!(fs::metadata(&path).unwrap().modified().unwrap() > UNIX_EPOCH);
    assert_eq!(errno(fs::remove_file(&path)), Errno::PERM);
    let times = |nanoseconds| {
        let time = Timespec { tv_sec: 0, tv_nsec: nanoseconds };
        Timestamps { last_access: time, last_modification: time }
    };
    let set_times = |times| rustix::fs::futimens(&file, &times);
    set_times(times(rustix::fs::UTIME_NOW)).unwrap();
    assert_eq!(set_times(times(1)), Err(Errno::PERM));
    set(IMMUTABLE).unwrap();
    assert_eq!(set_times(times(rustix::fs::UTIME_NOW)), Err(Errno::PERM));
    set(IFlags::empty()).unwrap();
    fs::remove_file(&path).unwrap();
}

const IMMUTABLE: IFlags = IFlags::IMMUTABLE;
const APPEND: IFlags = IFlags::APPEND;

pub fn space_is_counted(mounted: &Mounted) {
    let space = || rustix::fs::statvfs(mounted.root()).unwrap();
    let before = space();
    assert_eq!(before.f_namemax, 255);
    assert!(before.f_blocks * before.f_frsize > IMAGE_BYTES / 2);
    fs::write(mounted.path("f"), vec![1; 1 << 20]).unwrap();
    File::open(mounted.path("f")).unwrap().sync_all().unwrap();
    let after = space();
    assert_eq!((before.f_bfree - after.f_bfree) * before.f_frsize, 1 << 20);
    assert_eq!(before.f_ffree - after.f_ffree, 1);
    assert_eq!(fs::metadata(mounted.path("f")).unwrap().blocks() * 512, 1 << 20);
}
