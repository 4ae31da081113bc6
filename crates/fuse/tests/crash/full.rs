//! The image fills up under a mount: data that was reported as durable is there, also after a power cut,
//! and every other write got an error.

use super::{
    Device, IMAGE_BYTES, SUPERBLOCK, TABLE, expect_clean, insertion, judge_database, mark, reached,
    read, recover, sqlite, try_sqlite, work,
};
use drystone_blockdev::{MemoryDevice, Recording};
use drystone_ext4::MountOptions;
use drystone_fuse::{ServingOptions, Transport};
use drystone_sync::Arc;
use drystone_testkit::crash::CrashImages;
use drystone_testkit::environment::number;
use drystone_testkit::judges::{FeatureSet, Scratch, have, mke2fs};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

/// Images in the ordinary test run.
const IMAGES_DEFAULT: u64 = 60;
/// One of so many is judged by e2fsck.
const JUDGED_EACH: u64 = 6;
/// Bytes of the first files: not a multiple of a request, so that space runs out in the middle of
/// one.
const LENGTH_FIRST: usize = 91 * 4096;
/// Those of the smallest.
const LENGTH_MIN: usize = 4096;
/// Rows of a commit of SQLite: more than its cache holds, so that it writes pages before the
/// commit.
const ROWS: u64 = 2000;
/// Bytes of a file that a program writes through its memory.
const MAPPED_BYTES: usize = 200_000;
const DATABASE: &str = "full.db";
/// A file that takes up space while a program that needs some fills the rest.
const BALLAST: &str = "ballast";
const BALLAST_BYTES: usize = 6 << 20;

/// A file of which a sync said that it is durable.
struct Synced {
    name: String,
    content: Vec<u8>,
    moment: u64,
}

/// What was durable at which moment.
struct Promises {
    synced: Vec<Synced>,
    /// The moment of each commit of SQLite.
    commits: Vec<u64>,
}

#[test]
fn a_full_image_keeps_what_was_synced_and_tells_of_the_rest() {
    let seed = number("DRYSTONE_SEED").unwrap_or(0xf011);
    let images = number("DRYSTONE_CRASH_IMAGES").unwrap_or(IMAGES_DEFAULT);
    let cases = [
        (Transport::Device, true, true),
        (Transport::Device, false, true),
        (Transport::Best, true, false),
        (Transport::Fuser, true, true),
    ];
    for (transport, delayed_allocation, writeback_cache) in cases {
        let case = format!("{transport:?}, {delayed_allocation}, {writeback_cache}");
        let scratch = Scratch::new("full").unwrap();
        let image = scratch.join("disk.img");
        let set = FeatureSet::by_name("small-journal").unwrap();
        mke2fs(&image, set, IMAGE_BYTES).unwrap().expect_clean("mke2fs");
        let base = MemoryDevice::from_bytes(&fs::read(&image).unwrap());
        let device = Arc::new(Recording::new(base.snapshot()));
        let options = MountOptions::default().delayed_allocation(delayed_allocation);
        let mounted = ServingOptions::default().writeback_cache(writeback_cache);
        let body = |directory: &Path| {
            let mut synced = fill(&device, directory);
            assert!(synced.len() > 50, "{case}: only {} files were synced", synced.len());
            programs_are_told(directory);
            synced.append(&mut fill_mapped(&device, directory));
            Promises { synced, commits: fill_database(&device, directory) }
        };
        let Some(promises) = work(&device, options, mounted, transport, &scratch, body) else {
            return;
        };
        let events = device.take_events();
        let mut cuts = CrashImages::new(&base, events, seed).unwrap().keeping_whole(SUPERBLOCK);
        for number in 0..images / cases.len() as u64 {
            let cut = cuts.next().unwrap().unwrap();
            let what = format!("{case}: {}", cut.description);
            let moment = cut.events_before as u64;
            let (recovered, fs) = recover(cut).unwrap_or_else(|why| panic!("{what}: {why}"));
            for file in promises.synced.iter().filter(|file| file.moment <= moment) {
                let content = read(&fs, &format!("/{}", file.name)).unwrap();
                assert!(content.as_ref() == Some(&file.content), "{what}: {}", file.name);
            }
            let copy = number.is_multiple_of(JUDGED_EACH).then_some(&scratch);
            if copy.is_some() {
                judge_database(&fs, DATABASE, ROWS, reached(&promises.commits, moment), &scratch)
                    .unwrap_or_else(|why| panic!("{what}: {why}"));
            }
            expect_clean(&*recovered, fs, copy).unwrap_or_else(|why| panic!("{what}: {why}"));
        }
    }
}

/// Writes and syncs files until not even small ones fit. Every byte of those that were synced is there.
fn fill(device: &Device, directory: &Path) -> Vec<Synced> {
    let mut synced = Vec::new();
    let mut length = LENGTH_FIRST;
    fs::write(directory.join(BALLAST), vec![1; BALLAST_BYTES]).unwrap();
    for number in 0.. {
        let name = format!("f{number}");
        let path = directory.join(&name);
        let content = vec![number as u8; length];
        match write_synced(&path, &content) {
            Ok(()) => synced.push(Synced { name, content, moment: mark(device) }),
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::StorageFull, "{error}");
                // There may be no room for its name.
                let _ = fs::remove_file(&path);
                if length == LENGTH_MIN {
                    break;
                }
                length = LENGTH_MIN.max(length / 3);
            }
        }
    }
    for file in &synced {
        let path = directory.join(&file.name);
        leave_page_cache(&path);
        assert!(fs::read(path).unwrap() == file.content, "{}", file.name);
    }
    synced
}

/// Lets the next read of a file come from the image.
fn leave_page_cache(path: &Path) {
    let opened = File::open(path).unwrap();
    rustix::fs::fadvise(&opened, 0, None, rustix::fs::Advice::DontNeed).unwrap();
}

fn write_synced(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(content)?;
    file.sync_all()
}

/// Programs fail when their writes don't fit; each has some space first.
fn programs_are_told(directory: &Path) {
    let large = format!("bs=64k count={}", 2 * BALLAST_BYTES / (64 << 10));
    let mapped = format!(
        "import mmap; f = open('mapped', 'w+b'); f.truncate({0}); m = mmap.mmap(f.fileno(), {0})\n\
         for at in range(0, {0}, 4096): m[at] = 1\n\
         m.flush()",
        2 * BALLAST_BYTES
    );
    let unpack =
        format!("head -c {} /dev/zero > ../big; tar -C .. -c big | tar -x", 2 * BALLAST_BYTES);
    for (program, script) in [
        ("dd", format!("dd if=/dev/zero of=zeros {large} conv=fsync")),
        ("tar", unpack),
        ("python3", format!("python3 -c \"{mapped}\"")),
    ] {
        if !have(program) {
            continue;
        }
        with_some_space(directory, || {
            let mut shell = Command::new("sh");
            let output = shell.args(["-c", &script]).current_dir(directory).output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(!output.status.success(), "{program} was not told");
            // `tar` doesn't report more after a short write.
            let is_told = said.contains("No space left") || said.contains("Wrote only");
            assert!(is_told, "{program}: {said}");
            for left in ["zeros", "big", "mapped"] {
                let _ = fs::remove_file(directory.join(left));
            }
        });
    }
}

/// Does some work while the ballast file is removed.
fn with_some_space(directory: &Path, work: impl FnOnce()) {
    remove_ballast(directory);
    work();
    fs::write(directory.join(BALLAST), vec![1; BALLAST_BYTES / 2]).unwrap();
}

fn remove_ballast(directory: &Path) {
    fs::remove_file(directory.join(BALLAST)).unwrap();
    // The space is free when the removal is durable.
    File::open(directory).unwrap().sync_all().unwrap();
}

/// A program fills the space with files that it writes through its memory, each of which it has flushed
/// before it says so. Whatever was flushed is there.
fn fill_mapped(device: &Device, directory: &Path) -> Vec<Synced> {
    if !have("python3") {
        return Vec::new();
    }
    let script = format!(
        "import mmap, os, sys\n\
         for number in range(250):\n\
        \x20f = open('m%d' % number, 'w+b'); f.truncate({MAPPED_BYTES})\n\
        \x20m = mmap.mmap(f.fileno(), {MAPPED_BYTES}); m[:] = bytes([number + 1]) * {MAPPED_BYTES}\n\
        \x20try: m.flush()\n\
        \x20except OSError as e: os.remove('m%d' % number); print(e); break\n\
        \x20print('flushed', flush=True); sys.stdin.readline()"
    );
    let mut program = Command::new("python3")
        .args(["-c", &script])
        .current_dir(directory)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = program.stdin.take().unwrap();
    let mut said = BufReader::new(program.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut synced = Vec::new();
    let refused = loop {
        let line = said.next().unwrap();
        if line != "flushed" {
            break line;
        }
        let (name, content) = (format!("m{}", synced.len()), synced.len() as u8 + 1);
        let content = vec![content; MAPPED_BYTES];
        synced.push(Synced { name, content, moment: mark(device) });
        writeln!(input).unwrap();
    };
    assert!(program.wait().unwrap().success());
    assert!(refused.contains("No space left"), "{refused}");
    assert!(synced.len() > 4, "only {} files were flushed", synced.len());
    synced
}

/// SQLite fills what the ballast file leaves: each reported commit is there, and the database is sound.
/// Returns the moments of the commits.
fn fill_database(device: &Device, directory: &Path) -> Vec<u64> {
    if !have("sqlite3") {
        return Vec::new();
    }
    remove_ballast(directory);
    let path = directory.join(DATABASE);
    sqlite(&path, TABLE);
    let mut commits = vec![mark(device)];
    let refused = loop {
        match try_sqlite(&path, &insertion(ROWS)) {
            Ok(_) => commits.push(mark(device)),
            Err(why) => break why,
        }
    };
    // It reports a failed sync as a disk error.
    assert!(refused.contains("full") || refused.contains("disk I/O error"), "{refused}");
    assert!(commits.len() > 3, "only {} commits", commits.len());
    leave_page_cache(&path);
    let said = sqlite(&path, "pragma integrity_check; select count(*) from t");
    assert_eq!(said, format!("ok\n{}\n", ROWS * (commits.len() as u64 - 1)));
    commits
}
