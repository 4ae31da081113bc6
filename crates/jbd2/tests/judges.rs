//! Logs that we write are replayed by e2fsck and by the kernel; logs that the kernel writes are
//! replayed by us, to the same bytes as e2fsck's replay.
//!
//! Skipped, with a note, where the tools or the right to mount are missing.

#![allow(clippy::unwrap_used)]

use drystone_blockdev::{BlockDevice, MemoryDevice};
use drystone_cache::Cache;
use drystone_jbd2::{
    Journal, JournalArea, JournalExtent, JournalOptions, needs_recovery, recover,
    replace_fast_commits,
};
use drystone_jbd2_format::MAGIC;
use drystone_sync::{Arc, LazyLock, LockClass, Mutex};
use drystone_testkit::judges::{crashed_image, have, kernel_mount};
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

const BLOCK: usize = 1024;
/// In the superblock, at byte 1024.
const INCOMPAT_OFFSET: u64 = 1024 + 0x60;
const NEEDS_RECOVERY: u8 = 0x4;

static ALONE_CLASS: LockClass = LockClass::new("tests that mount", 1);
/// One test at a time: a process that another starts has this one's open directories until it runs
/// its program, so that one of them that is removed may still be an orphan in a copy of the mount.
static ALONE: LazyLock<Mutex<()>> = LazyLock::new(|| Mutex::new(&ALONE_CLASS, ()));

fn try_run(program: &str, arguments: &[&str]) -> Option<Output> {
    have(program).then(|| Command::new(program).args(arguments).output().unwrap())
}

/// A fresh image, or `None` without mke2fs.
fn make_image(path: &Path, features: &str) -> Option<()> {
    fs::File::create(path).unwrap().set_len(24 << 20).unwrap();
    let name = path.to_str().unwrap();
    let output = try_run("mke2fs", &["-q", "-t", "ext4", "-b", "1024", "-O", features, name])?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(())
}

fn debugfs(path: &Path, request: &str) -> String {
    let output = try_run("debugfs", &["-R", request, path.to_str().unwrap()]).unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The journal's extents as debugfs prints them: `(0-1023):8322-9345, (1024-..`.
fn area(path: &Path) -> JournalArea {
    let text = debugfs(path, "stat <8>");
    let (_, extents) = text.split_once("EXTENTS:").unwrap();
    let extents = extents.split(',').filter_map(|extent| {
        let (logical, physical) = extent.trim().split_once("):")?;
        if logical.starts_with("(ETB") {
            return None;
        }
        let (first, last) = physical.split_once('-').unwrap_or((physical, physical));
        let first: u64 = first.parse().unwrap();
        let last: u64 = last.parse().unwrap();
        Some(JournalExtent { physical_start: first, length_blocks: (last - first + 1) as u32 })
    });
    JournalArea::internal(extents)
}

fn load(path: &Path) -> Arc<dyn BlockDevice> {
    Arc::new(MemoryDevice::from_bytes(&fs::read(path).unwrap()))
}

fn store(device: &dyn BlockDevice, path: &Path) {
    let mut bytes = vec![0; device.size_bytes() as usize];
    device.read_at(0, &mut bytes).unwrap();
    fs::write(path, bytes).unwrap();
}

fn e2fsck(path: &Path, mode: &str) -> (i32, String) {
    let output = try_run("e2fsck", &[mode, path.to_str().unwrap()]).unwrap();
    (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Leaves a log with revokes and an escaped copy over blocks that the file system doesn't use.
fn write_log(device: &Arc<dyn BlockDevice>, area: JournalArea, options: JournalOptions, free: u64) {
    let cache = Arc::new(Cache::new(device.clone(), BLOCK, 1024 * BLOCK));
    let journal = Journal::open(cache.clone(), area, options).unwrap();
    for round in 1..=3 {
        let mut handle = journal.start(200).unwrap();
        for block in free..free + 150 {
            handle.write(&cache.read(block).unwrap(), None).unwrap().fill(round);
        }
        let buffer = cache.read(free + 1).unwrap();
        handle.write(&buffer, None).unwrap()[..4].copy_from_slice(&MAGIC.to_be_bytes());
        if round == 3 {
            handle.forget(free).unwrap();
        }
        handle.stop().unwrap();
        journal.commit_and_wait().unwrap();
    }
    // Never committed.
    let mut handle = journal.start(1).unwrap();
    handle.write(&cache.read(free + 2).unwrap(), None).unwrap().fill(9);
    handle.stop().unwrap();
    drop(journal);
}

fn set_needs_recovery(device: &dyn BlockDevice, is_needed: bool) {
    let mut byte = [0];
    device.read_at(INCOMPAT_OFFSET, &mut byte).unwrap();
    byte[0] = if is_needed { byte[0] | NEEDS_RECOVERY } else { byte[0] & !NEEDS_RECOVERY };
    device.write_at(INCOMPAT_OFFSET, &byte).unwrap();
}

#[test]
fn e2fsck_and_the_kernel_replay_our_log() {
    let _alone = ALONE.lock();
    let folder = tempfile::tempdir().unwrap();
    let [path, mounted, point] = ["image", "mounted", "point"].map(|name| folder.path().join(name));
    fs::create_dir(&point).unwrap();
    let free = 20_000_u64;
    for (checksums, wide) in [(true, true), (true, false), (false, true), (false, false)] {
        // Without metadata checksums the superblock can be changed by hand.
        if make_image(&path, "^metadata_csum").is_none() {
            return;
        }
        let device = load(&path);
        let options = JournalOptions::default().checksums(checksums).wide_block_numbers(wide);
        write_log(&device, area(&path), options, free);
        set_needs_recovery(&*device, true);
        store(&*device, &path);
        fs::copy(&path, &mounted).unwrap();
        let dump = debugfs(&path, "logdump");
        let commits = dump.matches("type 2 (commit block)").count();
        let what = format!("checksums {checksums}, wide {wide}:\n{dump}");
        assert_eq!(commits, 3, "{what}");
        assert!(dump.contains("type 5 (revoke table)"), "{what}");
        assert!(!dump.contains("CHECKSUM"), "{what}");
        let (code, text) = e2fsck(&path, "-fy");
        assert!(code <= 1 && text.contains("recovering journal"), "{code}: {text}");
        let replayed = load(&path);
        let mut bytes = [0; BLOCK];
        for (block, expected) in [(free, 0), (free + 2, 3), (free + 149, 3)] {
            replayed.read_at(block * BLOCK as u64, &mut bytes).unwrap();
            assert_eq!(bytes, [expected; BLOCK], "block {block}");
        }
        replayed.read_at((free + 1) * BLOCK as u64, &mut bytes).unwrap();
        assert_eq!(bytes[..4], MAGIC.to_be_bytes());
        // And by us and the kernel, to the same blocks.
        recover(&device, &area(&path), BLOCK as u32, 0).unwrap();
        let mut others = vec![device];
        if let Some(kernel) = kernel_mount(&mounted, &point, "").unwrap() {
            kernel.unmount().unwrap();
            others.push(load(&mounted));
        }
        let mut found = [0; BLOCK];
        for block in free..free + 150 {
            replayed.read_at(block * BLOCK as u64, &mut bytes).unwrap();
            for other in &others {
                other.read_at(block * BLOCK as u64, &mut found).unwrap();
                assert_eq!(found, bytes, "block {block}");
            }
        }
    }
}

#[test]
fn we_replay_the_kernels_log() {
    let _alone = ALONE.lock();
    let folder = tempfile::tempdir().unwrap();
    let [image, ours, theirs] = ["image", "ours", "theirs"].map(|name| folder.path().join(name));
    let point = folder.path().join("mount");
    fs::create_dir(&point).unwrap();
    // Checksums of version 1, none, and version 3; with asynchronous commits too.
    let variants = [
        ("^metadata_csum,^64bit", ""),
        ("^metadata_csum,^64bit", "journal_checksum"),
        ("^metadata_csum", "journal_checksum"),
        ("^metadata_csum", "journal_async_commit,data=writeback"),
        ("metadata_csum,64bit", ""),
        ("metadata_csum,64bit", "journal_async_commit,data=writeback"),
    ];
    for (features, options) in variants {
        if make_image(&image, features).is_none() {
            return;
        }
        // Asked while the image is clean: debugfs refuses bitmaps that only the journal makes right.
        let area = area(&image);
        {
            let Some(kernel) = kernel_mount(&image, &point, options).unwrap() else { return };
            for number in 0..200 {
                let path = point.join(format!("folder{number}"));
                fs::create_dir(&path).unwrap();
                fs::write(path.join("file"), [number as u8; 3000]).unwrap();
                if number % 3 == 0 {
                    // Freed folder blocks are revoked.
                    fs::remove_dir_all(&path).unwrap();
                }
                if number % 50 == 0 {
                    fs::File::open(&point).unwrap().sync_all().unwrap();
                }
            }
            fs::File::open(&point).unwrap().sync_all().unwrap();
            fs::write(&theirs, crashed_image(&image).unwrap()).unwrap();
            kernel.unmount().unwrap();
        }
        let device = load(&theirs);
        assert!(needs_recovery(&device, &area, BLOCK as u32).unwrap());
        let report = recover(&device, &area, BLOCK as u32, 0).unwrap().report;
        assert!(report.transactions > 1 && report.replayed_blocks > 10, "{report:?}");
        assert!(!needs_recovery(&device, &area, BLOCK as u32).unwrap());
        store(&*device, &ours);
        let cleared = Command::new("debugfs")
            .args(["-w", "-R", "feature -needs_recovery"])
            .arg(&ours)
            .output()
            .unwrap();
        assert!(cleared.status.success());
        let (code, text) = e2fsck(&ours, "-fn");
        assert_eq!(code, 0, "{features}{options}: {text}");
        let output = try_run("e2fsck", &["-E", "journal_only", "-y", theirs.to_str().unwrap()]);
        assert!(output.unwrap().status.code().unwrap_or(-1) <= 1);
        compare(&load(&ours), &load(&theirs), &area, features);
    }
}

/// All blocks but the superblock, which e2fsck stamps, and the journal.
fn compare(ours: &dyn BlockDevice, theirs: &dyn BlockDevice, area: &JournalArea, what: &str) {
    let mut bytes = [[0; BLOCK]; 2];
    for block in 2..ours.size_bytes() / BLOCK as u64 {
        if !area.contains(block) {
            ours.read_at(block * BLOCK as u64, &mut bytes[0]).unwrap();
            theirs.read_at(block * BLOCK as u64, &mut bytes[1]).unwrap();
            assert!(bytes[0] == bytes[1], "{what}: block {block} differs");
        }
    }
}

#[test]
fn fast_commits_of_the_kernel_are_found_and_replaced() {
    let _alone = ALONE.lock();
    let folder = tempfile::tempdir().unwrap();
    let [image, dirty] = ["image", "dirty"].map(|name| folder.path().join(name));
    let point = folder.path().join("mount");
    fs::create_dir(&point).unwrap();
    if make_image(&image, "fast_commit").is_none() {
        return;
    }
    let area = area(&image);
    {
        let Some(kernel) = kernel_mount(&image, &point, "").unwrap() else { return };
        let path = point.join("file");
        fs::write(&path, [1; 3000]).unwrap();
        fs::File::open(&point).unwrap().sync_all().unwrap();
        // A full commit of this file system, then one small change to an old file.
        Command::new("sync").arg("-f").arg(&path).status().unwrap();
        let mut file = fs::File::options().append(true).open(&path).unwrap();
        for _ in 0..4 {
            std::io::Write::write_all(&mut file, &[2; 5000]).unwrap();
            file.sync_all().unwrap();
        }
        fs::write(&dirty, crashed_image(&image).unwrap()).unwrap();
        drop(file);
        kernel.unmount().unwrap();
    }
    let device = load(&dirty);
    let find = || recover(&device, &area, BLOCK as u32, 0).unwrap().fast_commits;
    let found = find().unwrap();
    assert!(found.commits.len() >= 4, "{found:?}");
    // A crash before they are replayed: they are there again.
    let again = find().unwrap();
    assert_eq!(again.commits, found.commits);
    assert!(needs_recovery(&device, &area, BLOCK as u32).unwrap());
    // So does the kernel, which replays them.
    store(&*device, &image);
    let kernel = kernel_mount(&image, &point, "").unwrap().unwrap();
    assert_eq!(fs::metadata(point.join("file")).unwrap().len(), 3000 + 4 * 5000);
    kernel.unmount().unwrap();
    // The first block isn't used by the file system; it stands for what the fast commits change.
    let blocks = [(0, Arc::new(vec![7; BLOCK].into_boxed_slice()))];
    replace_fast_commits(&device, &area, BLOCK as u32, &found, &blocks).unwrap();
    assert!(find().is_none());
    assert!(!needs_recovery(&device, &area, BLOCK as u32).unwrap());
    let mut bytes = [0; BLOCK];
    device.read_at(0, &mut bytes).unwrap();
    assert_eq!(bytes, [7; BLOCK]);
    // Linux and e2fsck don't find them afterwards either.
    store(&*device, &dirty);
    let (_, text) = e2fsck(&dirty, "-fn");
    assert!(!text.contains("fast commit"), "{text}");
}
