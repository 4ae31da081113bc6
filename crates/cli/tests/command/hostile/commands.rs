//! Commands on a hostile image, which may take little memory and time, and what they took.

use crate::support::Fixture;
use drystone_sync::thread;
use drystone_testkit::skip;
use std::fs::File;
use std::process::{Child, Stdio};
use std::time::Duration;

/// What a command may take because of what an image claims.
const PEAK_KIB_MAX: u64 = 256 << 10;
/// Time of a processor: the machine may be busy.
const CPU_SECONDS_MAX: f64 = 10.0;
const TICKS_PER_SECOND: f64 = 100.0;
const NAP: Duration = Duration::from_millis(2);
/// Naps until a command counts as hung, however busy the machine is.
const NAPS_MAX: u32 = 150_000;

/// Commands that read an image. `OUT` is something new each time.
pub const READING: [&str; 47] = [
    "info disk.img",
    "info --fragmentation disk.img",
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
    "getfacl -R disk.img",
    "du -a disk.img",
    "du --json disk.img:/ disk.img:/a",
    "df disk.img",
    "lsattr -R disk.img",
    "quota disk.img",
    "quota disk.img --user 0",
    "label disk.img",
    "uuid disk.img",
    "checkpoints disk.img",
    "history disk.img:/a",
    "inspect disk.img superblock",
    "inspect disk.img group 0",
    "inspect disk.img inode 12",
    "inspect --json disk.img inode 2",
    "inspect disk.img block 40",
    "inspect disk.img journal",
    "inspect disk.img htree /d",
    "inspect disk.img extents /a",
    "which-inode disk.img 0 1 40 500",
    "which-name disk.img 2 11 12",
    "metadata disk.img OUT",
    "undelete disk.img",
    "undelete --json disk.img",
    "undelete disk.img --all --partial --to OUT",
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
const CHANGING: [&str; 37] = [
    "chown -R 5:5 OUT.img:/",
    "chmod -R 700 OUT.img:/",
    "rm -rf OUT.img:/a OUT.img:/d",
    "rm OUT.img:/a",
    "mv OUT.img:/a OUT.img:/moved",
    "ln OUT.img:/a OUT.img:/linked",
    "truncate --size 100 OUT.img:/a",
    "setfattr -n user.x -v y OUT.img:/a",
    "setfacl -R -m u:5:rwX,d:g:5:r OUT.img:/",
    "setfacl -Rb OUT.img:/",
    "chattr -R +A OUT.img:/",
    "mkdir -p OUT.img:/d/new OUT.img:/new",
    "cp source OUT.img:/",
    "cp disk.img:/ OUT.img:/copy",
    "check -p OUT.img",
    "check -y OUT.img",
    "check -y --json OUT.img",
    "resize OUT.img +16M",
    "resize OUT.img --minimum",
    "compact OUT.img",
    "defragment OUT.img",
    "trim OUT.img",
    "zero-free OUT.img",
    "label OUT.img new",
    "uuid OUT.img random",
    "tune OUT.img --features ^has_journal",
    "tune OUT.img --features quota --journal-size 2M --reserved-percent 1",
    "quota OUT.img --user 0 --space-soft 1M",
    "set OUT.img superblock mnt_count=5 --i-know",
    "set OUT.img group 0 free_inodes_count=5 inode_table=5 --i-know",
    "set OUT.img inode 2 size_lo=100 --i-know",
    "set OUT.img inode 12 entries=0 --i-know",
    "set OUT.img block 40 bytes[0]=00 --i-know",
    "set OUT.img block 1 magic=0 --keep-checksum --i-know",
    "set OUT.img journal s_start=5 --i-know",
    "checkpoints OUT.img --make --keep 1",
    "undo OUT.img",
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

/// Runs a command and measures it. One that takes too much or hangs is killed.
fn measure(fixture: &Fixture, line: &str) -> Taken {
    let words: Vec<&str> = line.split(' ').collect();
    let messages = fixture.path("stderr");
    let mut command = fixture.command(&words);
    command.stdout(Stdio::null()).stderr(File::create(&messages).unwrap());
    let mut child = command.spawn().unwrap();
    let (mut peak_kib, mut cpu_seconds, mut naps) = (0, 0.0, 0);
    let status = loop {
        if let Some((peak, seconds)) = used(&child) {
            (peak_kib, cpu_seconds) = (peak, seconds);
        }
        let is_too_much = cpu_seconds > 2.0 * CPU_SECONDS_MAX || peak_kib > 4 * PEAK_KIB_MAX;
        if is_too_much || naps > NAPS_MAX {
            child.kill().unwrap();
        }
        naps += 1;
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None => thread::sleep(NAP),
        }
    };
    let stderr = String::from_utf8_lossy(&std::fs::read(messages).unwrap()).into_owned();
    Taken { code: status.code().unwrap_or(-1), stderr, peak_kib, cpu_seconds }
}

/// Runs a command that must not do harm. Returns its messages.
#[track_caller]
pub fn harmless(fixture: &Fixture, line: &str) -> String {
    let taken = measure(fixture, line);
    expect_harmless(&taken, line);
    taken.stderr
}

#[track_caller]
fn expect_harmless(taken: &Taken, line: &str) {
    let Taken { code, stderr, peak_kib, cpu_seconds } = taken;
    let start: String = stderr.chars().take(2000).collect();
    assert!(
        *peak_kib <= PEAK_KIB_MAX && *cpu_seconds <= CPU_SECONDS_MAX,
        "{line}: {peak_kib} KiB, {cpu_seconds} s of a processor\n{start}"
    );
    // Only a check has a code above 4: the image couldn't be checked. A hung command has none.
    let is_known = (0..=4).contains(code) || (*code == 8 && line.starts_with("check"));
    assert!(is_known, "{line}: ended with {code}\n{start}");
    assert!(!stderr.contains("panicked"), "{line}: {start}");
    assert!(!stderr.contains("Usage:"), "{line} is no command: {start}");
    let steers = |c: &char| c.is_control() && *c != '\n';
    assert_eq!(stderr.chars().find(steers), None, "{line}: {start:?}");
}

/// Runs every command on the image.
pub fn every_command(fixture: &Fixture) {
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
    let line = "mount mounted.img mnt";
    let mounted = measure(fixture, line);
    expect_harmless(&mounted, line);
    if mounted.code != 0 {
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
