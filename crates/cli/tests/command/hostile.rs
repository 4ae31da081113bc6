//! Images that somebody made to harm: every command ends, with a message and not with a panic, in
//! bounded time and memory, and writes nothing that the image doesn't hold.

use crate::support::Fixture;
use drystone_sync::thread;
use drystone_testkit::skip;
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use std::collections::HashSet;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirEntryExt, FileExt, MetadataExt};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

/// What a command may take because of what an image claims.
const PEAK_KIB_MAX: u64 = 256 << 10;
/// Time of a processor: the machine may be busy.
const CPU_SECONDS_MAX: f64 = 10.0;
const TICKS_PER_SECOND: f64 = 100.0;

/// Commands that read an image. `OUT` is something new each time.
const READING: [&str; 22] = [
    "info disk.img",
    "check disk.img",
    "check --json disk.img",
    "ls disk.img",
    "ls -lRai disk.img",
    "ls -RSr --json disk.img",
    "tree -a disk.img",
    "tree --json disk.img",
    "find disk.img",
    "find --json disk.img",
    "stat disk.img:/ disk.img:/a",
    "cat disk.img:/a",
    "getfattr disk.img:/a",
    "quota show disk.img",
    "diff disk.img:/ disk.img:/",
    "diff disk.img:/ source",
    "cp disk.img:/ OUT",
    "extract disk.img --to OUT",
    "extract disk.img --to OUT.tar",
    "find -vv disk.img",
    "extract -v disk.img --to OUT",
    "cp -v disk.img:/ OUT",
];

/// Commands that change an image, each a copy of its own.
const CHANGING: [&str; 11] = [
    "chown -R 5:5 OUT.img:/",
    "chmod -R 700 OUT.img:/",
    "rm -rf OUT.img:/a OUT.img:/d",
    "rm OUT.img:/a",
    "mv OUT.img:/a OUT.img:/moved",
    "ln OUT.img:/a OUT.img:/linked",
    "truncate --size 100 OUT.img:/a",
    "setfattr -n user.x -v y OUT.img:/a",
    "mkdir -p OUT.img:/d/new OUT.img:/new",
    "cp source OUT.img:/",
    "cp disk.img:/ OUT.img:/copy",
];

/// How a command ended, and what it took.
struct Taken {
    code: i32,
    stderr: String,
    peak_kib: u64,
    cpu_seconds: f64,
}

/// The most that a process has had in memory, and the time of a processor that it has used; nothing
/// once it has ended.
fn used(child: &Child) -> Option<(u64, f64)> {
    let read = |name| std::fs::read_to_string(format!("/proc/{}/{name}", child.id())).ok();
    let (status, stat) = (read("status")?, read("stat")?);
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let peak = peak.trim().trim_end_matches(" kB").parse().ok()?;
    let fields: Vec<&str> = stat.rsplit(')').next()?.split_whitespace().collect();
    let ticks: f64 = fields.get(11..13)?.iter().map(|field| field.parse::<f64>().unwrap()).sum();
    Some((peak, ticks / TICKS_PER_SECOND))
}

/// Runs a command and measures it. One that takes too long is killed.
fn measure(fixture: &Fixture, line: &str) -> Taken {
    let words: Vec<&str> = line.split(' ').collect();
    let messages = fixture.path("stderr");
    let mut command = fixture.command(&words);
    command.stdout(Stdio::null()).stderr(File::create(&messages).unwrap());
    let mut child = command.spawn().unwrap();
    let (mut peak_kib, mut cpu_seconds) = (0, 0.0);
    let status = loop {
        if let Some((peak, seconds)) = used(&child) {
            (peak_kib, cpu_seconds) = (peak, seconds);
        }
        if cpu_seconds > 2.0 * CPU_SECONDS_MAX || peak_kib > 4 * PEAK_KIB_MAX {
            child.kill().unwrap();
        }
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None => thread::sleep(Duration::from_millis(2)),
        }
    };
    let stderr = String::from_utf8_lossy(&std::fs::read(messages).unwrap()).into_owned();
    Taken { code: status.code().unwrap_or(-1), stderr, peak_kib, cpu_seconds }
}

/// Runs a command that must not do harm. Returns its messages.
#[track_caller]
fn harmless(fixture: &Fixture, line: &str) -> String {
    let taken = measure(fixture, line);
    let Taken { code, stderr, peak_kib, cpu_seconds } = taken;
    let start: String = stderr.chars().take(2000).collect();
    assert!(
        peak_kib <= PEAK_KIB_MAX && cpu_seconds <= CPU_SECONDS_MAX,
        "{line}: {peak_kib} KiB, {cpu_seconds} s of a processor\n{start}"
    );
    assert!((0..=4).contains(&code), "{line}: ended with {code}\n{start}");
    assert!(!stderr.contains("panicked"), "{line}: {start}");
    let steers = |c: &char| c.is_control() && *c != '\n';
    assert_eq!(stderr.chars().find(steers), None, "{line}: {start:?}");
    stderr
}

/// Runs every command on the image.
fn every_command(fixture: &Fixture) {
    fixture.put("source/file", "content");
    for (number, line) in READING.iter().enumerate() {
        let out = format!("out{number}");
        if line.ends_with("OUT") {
            std::fs::create_dir(fixture.path(&out)).unwrap();
        }
        harmless(fixture, &line.replace("OUT", &out));
        let _ = std::fs::remove_dir_all(fixture.path(&out));
    }
    for (number, line) in CHANGING.iter().enumerate() {
        let out = format!("changed{number}");
        std::fs::copy(fixture.path("disk.img"), fixture.path(format!("{out}.img"))).unwrap();
        harmless(fixture, &line.replace("OUT", &out));
        harmless(fixture, &format!("check {out}.img"));
        std::fs::remove_file(fixture.path(format!("{out}.img"))).unwrap();
    }
    through_a_mount(fixture);
}

/// Lets a mount serve a look around and a few changes, where there is FUSE.
fn through_a_mount(fixture: &Fixture) {
    let what = "a mount of a crafted image";
    if !skip::is_root(what) || !skip::can_mount(what) {
        return;
    }
    let directory = fixture.path("mnt");
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::copy(fixture.path("disk.img"), fixture.path("mounted.img")).unwrap();
    if measure(fixture, "mount mounted.img mnt").code != 0 {
        return;
    }
    let script = "cd mnt && ls -la . >&2; find . -maxdepth 6 | head -n 2000; cat a; echo more >> a; \
                  rm -f a; rmdir d; mkdir new; cp ../source/file new; sync -f .; true";
    let mut shell = std::process::Command::new("timeout");
    let folder = directory.parent().unwrap();
    shell.args(["60", "sh", "-c", script]).current_dir(folder);
    let done = crate::support::finish(&mut shell);
    assert_ne!(done.code, Some(124), "the mount hangs: {}", done.stderr);
    let mounts = fixture.line("mounts --json").json_lines();
    let path = directory.canonicalize().unwrap();
    let mount = mounts.iter().find(|mount| mount["directory"] == path.to_str().unwrap());
    let process = mount.expect("the server has died")["process"].to_string();
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(peak <= PEAK_KIB_MAX, "the mount takes {peak} KiB");
    // The journal may have stopped, which the end tells.
    let _ = fixture.line("umount mnt");
    let _ = fixture.line("umount --lazy mnt");
}

/// An image without checksums, whose bytes are changed.
struct Bent {
    fixture: Fixture,
    file: File,
}

impl Bent {
    /// An image with a file `a` and a directory `d`, and these.
    fn new(names: &[&str]) -> Bent {
        let features = "^metadata_csum,^metadata_csum_seed,^dir_index,^64bit,^inline_data";
        let fixture = Fixture::with(&["--size", "16M", "-b", "1K", "-O", features]);
        fixture.fill(&[names, &["a", "d/b", "d/c"]].concat());
        std::fs::remove_dir_all(fixture.path("source")).unwrap();
        let file = File::options().read(true).write(true).open(fixture.path("disk.img")).unwrap();
        Bent { fixture, file }
    }

    fn bytes(&self, offset: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, offset).unwrap();
        bytes
    }

    fn word(&self, offset: u64) -> u64 {
        u64::from(u32::from_le_bytes(self.bytes(offset, 4).try_into().unwrap()))
    }

    fn put(&self, offset: u64, bytes: &[u8]) {
        self.file.write_all_at(bytes, offset).unwrap();
    }

    fn put_word(&self, offset: u64, word: u64) {
        self.put(offset, &u32::try_from(word).unwrap().to_le_bytes());
    }

    fn block_size(&self) -> u64 {
        1024 << self.word(1024 + 24)
    }

    /// Where the descriptor of a group is.
    fn descriptor(&self, group: u64) -> u64 {
        (self.word(1024 + 20) + 1) * self.block_size() + group * 32
    }

    /// Where an inode is.
    fn inode(&self, number: u64) -> u64 {
        let per_group = self.word(1024 + 40);
        let size = self.word(1024 + 88) & 0xffff;
        let table = self.word(self.descriptor((number - 1) / per_group) + 8);
        table * self.block_size() + (number - 1) % per_group * size
    }

    fn number(&self, path: &str) -> u64 {
        let stat = self.fixture.line(&format!("stat --json disk.img:{path}")).json();
        stat["inode"].as_u64().unwrap()
    }

    /// Where the first extent of an inode starts.
    fn first_block(&self, number: u64) -> u64 {
        self.word(self.inode(number) + 40 + 12 + 8)
    }

    /// Where the record of a name is, in the first block of its directory.
    fn record(&self, directory: u64, name: &[u8]) -> u64 {
        let start = self.first_block(directory) * self.block_size();
        let bytes = self.bytes(start, self.block_size() as usize);
        let is_it =
            |at: &usize| bytes[*at..].starts_with(name) && usize::from(bytes[at - 2]) == name.len();
        let at = (8..bytes.len() - name.len()).find(is_it).unwrap();
        start + at as u64 - 8
    }

    /// Lets a name stand for another inode of a type: 1 for files, 2 for directories.
    fn point(&self, directory: u64, name: &[u8], number: u64, file_type: u8) {
        let record = self.record(directory, name);
        self.put_word(record, number);
        self.put(record + 7, &[file_type]);
    }
}

#[test]
fn names_of_reserved_inodes() {
    for number in [1, 3, 5, 7, 8, 10] {
        let bent = Bent::new(&[]);
        bent.point(2, b"a", number, 1);
        let journal = bent.bytes(bent.first_block(8) * 1024, 1024);
        let message = harmless(&bent.fixture, "cat disk.img:/a");
        assert!(message.contains("is reserved"), "inode {number}: {message}");
        let message = harmless(&bent.fixture, "cp source disk.img:/a");
        assert!(!message.is_empty(), "inode {number}");
        assert_eq!(bent.bytes(bent.first_block(8) * 1024, 4), journal[..4]);
        if number == 8 {
            every_command(&bent.fixture);
        }
    }
}

#[test]
fn groups_that_share_their_bitmaps() {
    for offset in [0, 4, 8] {
        let bent = Bent::new(&[]);
        let shared = bent.word(bent.descriptor(0) + offset);
        bent.put_word(bent.descriptor(1) + offset, shared);
        every_command(&bent.fixture);
    }
}

#[test]
fn files_over_metadata() {
    let bent = Bent::new(&[]);
    let place = bent.inode(bent.number("/a"));
    for block in [2, bent.word(bent.descriptor(0) + 4), bent.word(bent.descriptor(0) + 8)] {
        bent.put_word(place + 40 + 12 + 8, block);
        let before = bent.bytes(0, 16 << 20);
        let message = harmless(&bent.fixture, "cat disk.img:/a");
        assert!(message.contains("metadata"), "block {block}: {message}");
        harmless(&bent.fixture, "truncate --size 0 disk.img:/a");
        assert_eq!(bent.bytes(block * 1024, 1024)[64..], before[block as usize * 1024..][64..1024]);
        bent.put(0, &before);
        every_command(&bent.fixture);
    }
}

/// Each directory has two names for the next, and the last leads back: so many paths that nobody sees
/// their end.
#[test]
fn directories_with_many_paths() {
    let mut path = "d".to_owned();
    let mut names = Vec::new();
    for _ in 0..40 {
        path += "/x";
        names.extend([format!("{path}/y"), format!("{path}/z")]);
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let bent = Bent::new(&names);
    let mut path = "/d/x".to_owned();
    let top = bent.number(&path);
    let mut here = top;
    for _ in 1..40 {
        path += "/x";
        let next = bent.number(&path);
        bent.point(here, b"y", next, 2);
        here = next;
    }
    bent.point(here, b"y", top, 2);
    every_command(&bent.fixture);
    for line in ["find disk.img", "tree disk.img", "ls -R disk.img", "extract disk.img --to OUT"] {
        let message = harmless(&bent.fixture, line);
        assert!(message.contains("another place in the tree"), "{line}: {message}");
    }
}

/// Groups, inodes and blocks by the million, in a file that is a hole.
#[test]
fn huge_counts() {
    for has_meta_groups in [false, true] {
        let bent = Bent::new(&[]);
        let groups: u64 = 1 << 24;
        bent.file.set_len((groups * 16) << 10).unwrap();
        bent.put_word(1024, groups * 8);
        bent.put_word(1024 + 4, groups * 16);
        bent.put_word(1024 + 32, 16);
        bent.put_word(1024 + 36, 16);
        bent.put_word(1024 + 40, 8);
        if has_meta_groups {
            bent.put_word(1024 + 0x60, bent.word(1024 + 0x60) | 0x10);
        }
        for line in READING.iter().filter(|line| !line.contains("OUT")) {
            harmless(&bent.fixture, line);
        }
        harmless(&bent.fixture, "mkdir disk.img:/new");
    }
}

/// The space that a tree takes.
fn kib_below(path: &Path) -> u64 {
    let metadata = std::fs::symlink_metadata(path).unwrap();
    let below = metadata.is_dir().then(|| std::fs::read_dir(path).unwrap());
    let below = below.into_iter().flatten().map(|entry| kib_below(&entry.unwrap().path()));
    metadata.blocks() / 2 + below.sum::<u64>()
}

/// A file that claims to be dense and has one block, and many that have the same blocks.
#[test]
fn what_comes_out_is_no_more_than_what_is_in() {
    let names: Vec<String> = (0..200).map(|number| format!("many/{number}")).collect();
    let bent = Bent::new(&names.iter().map(String::as_str).collect::<Vec<_>>());
    let hollow = bent.inode(bent.number("/a"));
    bent.put_word(hollow + 4, 600 << 20);
    bent.put_word(hollow + 28, 600 << 11);
    // 2 MiB each, all at one place: from a block that is free to the end of its group.
    let start = bent.first_block(bent.number("/many/7"));
    for name in &names {
        let place = bent.inode(bent.number(&format!("/{name}")));
        bent.put_word(place + 4, 2 << 20);
        bent.put_word(place + 28, 2 << 11);
        bent.put(place + 40 + 12 + 4, &2048_u16.to_le_bytes());
        bent.put_word(place + 40 + 12 + 8, start);
    }
    bent.fixture.put("tree/many/5", "a user's");
    let message = harmless(&bent.fixture, "extract -j 1 disk.img --to tree");
    assert!(message.contains("those of another file"), "{message}");
    // What is refused is not even begun: there is the first one, and what was there before.
    assert_eq!(std::fs::read_dir(bent.fixture.path("tree/many")).unwrap().count(), 2);
    assert_eq!(std::fs::read(bent.fixture.path("tree/many/5")).unwrap(), b"a user's");
    harmless(&bent.fixture, "extract disk.img --to archive.tar");
    std::fs::create_dir(bent.fixture.path("copy")).unwrap();
    harmless(&bent.fixture, "cp disk.img:/ copy");
    let kib = |path: &str| kib_below(&bent.fixture.path(path));
    for place in ["tree", "archive.tar", "copy"] {
        assert!(kib(place) <= 17 << 10, "{place} takes {} KiB", kib(place));
    }
    assert_eq!(std::fs::metadata(bent.fixture.path("tree/a")).unwrap().size(), 600 << 20);
    every_command(&bent.fixture);
}

/// An empty file with many names, of which the image counts one or two.
#[test]
fn uncounted_names_are_no_copies() {
    let names: Vec<String> = (0..40).map(|number| format!("many/{number:02}")).collect();
    for counted in [1_u16, 2] {
        let bent = Bent::new(&names.iter().map(String::as_str).collect::<Vec<_>>());
        let (file, directory) = (bent.number("/many/00"), bent.number("/many"));
        // Without content and blocks.
        bent.put(bent.inode(file) + 26, &counted.to_le_bytes());
        bent.put_word(bent.inode(file) + 4, 0);
        bent.put_word(bent.inode(file) + 28, 0);
        bent.put(bent.inode(file) + 40 + 2, &[0; 2]);
        for number in 1..40 {
            bent.point(directory, format!("{number:02}").as_bytes(), file, 1);
        }
        for line in
            ["extract disk.img --to tree", "cp disk.img:/ copy", "extract disk.img --to a.tar"]
        {
            let message = harmless(&bent.fixture, line);
            assert!(message.contains("copied under another name"), "{line}: {message}");
        }
        for copy in ["tree/many", "copy/many"] {
            let made = std::fs::read_dir(bent.fixture.path(copy)).unwrap();
            let made: HashSet<u64> = made.map(|entry| entry.unwrap().ino()).collect();
            assert_eq!(made.len(), 1, "{copy}");
        }
    }
}

/// Directories that are one on the disk.
#[test]
fn directories_that_share_their_names() {
    let bent = Bent::new(&["many/0/x", "many/1/x", "many/2/x", "many/3/x"]);
    let shared = bent.first_block(bent.number("/many/0"));
    for number in 1..4 {
        let place = bent.inode(bent.number(&format!("/many/{number}")));
        bent.put_word(place + 40 + 12 + 8, shared);
    }
    for line in ["extract disk.img --to tree", "extract disk.img --to tree.tar"] {
        let message = harmless(&bent.fixture, line);
        assert_eq!(message.matches("those of another file").count(), 3, "{line}: {message}");
    }
    assert_eq!(std::fs::read_dir(bent.fixture.path("tree/many")).unwrap().count(), 1);
    every_command(&bent.fixture);
}

/// One that can't be read hides no other.
#[test]
fn what_can_not_be_read_is_left_out() {
    let bent = Bent::new(&["b/x", "c/y"]);
    let long = "t".repeat(100);
    bent.fixture.line(&format!("ln -s {long} disk.img:/bad")).good();
    for path in ["/b", "/bad"] {
        // Into the descriptors of groups.
        bent.put_word(bent.inode(bent.number(path)) + 40 + 12 + 8, 2);
    }
    for (line, expected) in [
        ("ls -R disk.img", "/c:\ny\n"),
        ("ls -lR disk.img", " y\n"),
        ("find disk.img", "/c/y\n"),
        ("find --json disk.img", "\"/c/y\""),
        ("tree disk.img", "y\n"),
    ] {
        let done = bent.fixture.line(line);
        assert_eq!(done.code, Some(1), "{line}: {}", done.stderr);
        assert!(done.stdout.contains(expected), "{line}: {}", done.stdout);
        assert!(done.stderr.contains("disk.img:/b: "), "{line}: {}", done.stderr);
    }
    let done = bent.fixture.line("find --json disk.img");
    assert!(done.stderr.contains("disk.img:/bad: "), "{}", done.stderr);
}

#[test]
fn impossible_names() {
    for (at, name) in
        [("first", &b".."[..]), ("firs", b".."), ("firs", b"x/yz"), ("firs", b"x\0yz")]
    {
        let bent = Bent::new(&["many/1", &format!("many/{at}")]);
        let record = bent.record(bent.number("/many"), at.as_bytes());
        bent.put(record + 8, name);
        bent.put(record + 6, &[name.len() as u8]);
        std::fs::create_dir(bent.fixture.path("tree")).unwrap();
        for line in
            ["extract disk.img --to tree", "extract disk.img --to tree.tar", "ls disk.img:/many"]
        {
            let message = harmless(&bent.fixture, line);
            let told = ["impossible name", "name holds the byte"];
            assert!(told.iter().any(|told| message.contains(told)), "{line}: {message}");
        }
        every_command(&bent.fixture);
    }
}

#[test]
fn names_that_steer_a_terminal() {
    let bent = Bent::new(&["many/\u{1b}]0;x\u{7}", "many/\u{1b}[2J"]);
    // Each has something wrong, which is told by its name.
    let directory = bent.number("/many");
    bent.point(directory, "\u{1b}[2J".as_bytes(), 8, 1);
    every_command(&bent.fixture);
    let message = harmless(&bent.fixture, "find disk.img");
    assert!(message.contains("\\u{1b}[2J"), "{message}");
}

/// Directories in directories, and in each of them two files that have another name elsewhere: neither a
/// walk nor a copy keeps a path for each.
#[test]
fn deep_trees() {
    let fixture = Fixture::with(&["--size", "64M", "-b", "1K", "-N", "16384"]);
    let name = "n".repeat(200);
    let flags = OFlags::DIRECTORY | OFlags::RDONLY;
    let make = |directory: &OwnedFd, name: &str| {
        rustix::fs::mkdirat(directory, name, Mode::RWXU).unwrap();
        rustix::fs::openat(directory, name, flags, Mode::empty()).unwrap()
    };
    std::fs::create_dir(fixture.path("source")).unwrap();
    let mut here = rustix::fs::openat(CWD, fixture.path("source"), flags, Mode::empty()).unwrap();
    // One is come to before the deep ones, one after them.
    let flat = [make(&here, "a"), make(&here, "z")];
    for depth in 0..2000 {
        here = make(&here, &name);
        for (file, flat) in ["f", "g"].iter().zip(&flat) {
            let flags = OFlags::CREATE | OFlags::WRONLY;
            rustix::fs::openat(&here, *file, flags, Mode::RWXU).unwrap();
            let other = format!("{depth:04}");
            rustix::fs::linkat(&here, *file, flat, other, AtFlags::empty()).unwrap();
        }
    }
    let remove = |tree: &str| {
        let mut remove = std::process::Command::new("rm");
        crate::support::finish(remove.arg("-r").arg(fixture.path(tree))).good();
    };
    fixture.line("cp source disk.img:/d").good();
    remove("source");
    // A caller that isn't root can't give the files that come out to anybody else.
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    let chown = format!("chown -R {}:{} disk.img:/", user.as_raw(), group.as_raw());
    for line in [
        "ls -R disk.img",
        "find disk.img",
        "tree disk.img",
        "chmod -R 700 disk.img:/",
        &chown,
        "diff disk.img:/ disk.img:/",
        "extract -j 1 disk.img --to out",
        "diff disk.img:/ out",
        "extract disk.img --to -",
        "check disk.img",
        "rm -r disk.img:/d",
    ] {
        let message = harmless(&fixture, line);
        assert_eq!(message, "", "{line}");
    }
    remove("out");
    fixture.expect_sound();
}
