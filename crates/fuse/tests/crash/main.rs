//! Power is cut under a mount: everything that programs were told is durable is there.
//!
//! The device under a real mount records its writes and flushes while SQLite commits and two witnesses
//! write and sync files. Each time a sync or a commit returns, the program's side marks that moment in the
//! record. Afterwards the record is cut at flushes and anywhere else, losing any part of what wasn't
//! flushed. Each resulting image is recovered, must be clean for both checkers, and must hold what was
//! marked before the cut. A run can't be repeated exactly, since programs ran in it; but the cuts of a
//! record follow from the seed.
//!
//! - `DRYSTONE_CRASH_IMAGES=n` makes n images; `./dev crash --images n` sets it.
//! - `DRYSTONE_SEED=n` makes different images.
//!
//! Takes `/dev/fuse`, and root or `fusermount3`.
#![allow(clippy::unwrap_used, reason = "a test may fail so")]

mod full;

use drystone_blockdev::{BlockDevice, Event, EventKind, MemoryDevice, Recording};
use drystone_ext4::{Ext4, MountOptions};
use drystone_fuse::attach::{self, AttachError, Unmount};
use drystone_fuse::{Mount, MountError, Operations, ServingOptions, Transport};
use drystone_sync::{Arc, thread};
use drystone_testkit::crash::{CrashImage, CrashImages};
use drystone_testkit::environment::number;
use drystone_testkit::judges::{FeatureSet, Scratch, e2fsck_check, have, mke2fs, write_image};
use drystone_testkit::skip::{self, Prerequisite, skip};
use drystone_testkit::witness::Witness;
use drystone_vfs::{Errno, FileSystem, RequestContext, find_path};
use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const IMAGE_BYTES: u64 = 48 << 20;
/// The superblock is taken to be written at once: its checksum covers two sectors.
const SUPERBLOCK: std::ops::Range<u64> = 1024..2048;
const COMMIT_INTERVAL: Duration = Duration::from_millis(100);
/// Images in the ordinary test run.
const IMAGES_DEFAULT: u64 = 150;
/// One of so many images is judged by e2fsck, and one by SQLite.
const JUDGED_EACH: u64 = 6;
/// Syncs of a witness, and commits of SQLite.
const STEPS: u64 = 120;
const COMMITS: u64 = 12;
/// Rows that each commit adds.
const ROWS: u64 = 40;
/// With less than "extra" a transaction ends with an unlink that isn't synced.
const TABLE: &str = "pragma synchronous=extra; create table t(a integer primary key, b text)";

type Device = Recording<MemoryDevice>;

/// Marks in the record that something has returned. Events with smaller numbers came before.
fn mark(device: &Device) -> u64 {
    device.mark(0) + 1
}

/// What was durable at which moment.
struct Promises {
    witnesses: Vec<Witness>,
    /// The moment of each commit of SQLite.
    commits: Vec<u64>,
}

#[test]
fn what_was_synced_survives_a_power_cut() {
    let seed = number("DRYSTONE_SEED").unwrap_or(0x5eed);
    let images = number("DRYSTONE_CRASH_IMAGES").unwrap_or(IMAGES_DEFAULT);
    for (transport, delayed_allocation) in
        [(Transport::Device, false), (Transport::Device, true), (Transport::Best, false)]
    {
        let scratch = Scratch::new("power-cut").unwrap();
        let image = scratch.join("disk.img");
        let set = FeatureSet::by_name("small-journal").unwrap();
        mke2fs(&image, set, IMAGE_BYTES).unwrap().expect_clean("mke2fs");
        let base = MemoryDevice::from_bytes(&fs::read(&image).unwrap());
        let device = Arc::new(Recording::new(base.snapshot()));
        let options = MountOptions::default()
            .delayed_allocation(delayed_allocation)
            .commit_interval(COMMIT_INTERVAL);
        let mounted = ServingOptions::default();
        let body = |directory: &Path| promises(&device, directory, seed);
        let Some(promises) = work(&device, options, mounted, transport, &scratch, body) else {
            return;
        };
        let events = device.take_events();
        let case = format!("{transport:?}, delayed allocation {delayed_allocation}");
        println!("{case}: {} events, {} commits", events.len(), promises.commits.len());
        assert!(notices_lost_flushes(&base, &events, &promises, &scratch), "{case}: a liar passed");
        let mut cuts = CrashImages::new(&base, events, seed).unwrap().keeping_whole(SUPERBLOCK);
        let mut synced = 0;
        for number in 0..images / 3 {
            let cut = cuts.next().unwrap().unwrap();
            let what = format!("{case}: {}", cut.description);
            let judged = judge(cut, &promises, &scratch, number % JUDGED_EACH == 0);
            synced += judged.unwrap_or_else(|problem| panic!("{what}: {problem}"));
        }
        assert!(synced > images as usize / 3, "{case}: only {synced} synced files were compared");
        println!("{case}: {synced} synced files were compared");
    }
}

/// Checks that the promises fail on a device that only pretends to flush.
fn notices_lost_flushes(
    base: &MemoryDevice,
    events: &[Event],
    promises: &Promises,
    scratch: &Scratch,
) -> bool {
    let lying = events.iter().map(|event| {
        let kind = match &event.kind {
            EventKind::Flush => EventKind::Mark(0),
            EventKind::WriteDurable { offset, data } => {
                EventKind::Write { offset: *offset, data: Arc::clone(data) }
            }
            other => other.clone(),
        };
        Event { kind, ..*event }
    });
    let cuts = CrashImages::new(base, lying.collect(), 1).unwrap().keeping_whole(SUPERBLOCK);
    cuts.take(20).any(|cut| judge(cut.unwrap(), promises, scratch, false).is_err())
}

/// Mounts, lets programs work, and unmounts. `None`, after a note of the skip, where that isn't
/// possible.
fn work<T>(
    device: &Arc<Device>,
    options: MountOptions,
    mounted: ServingOptions,
    transport: Transport,
    scratch: &Scratch,
    body: impl FnOnce(&Path) -> T,
) -> Option<T> {
    // Only root may write to the root of the image.
    if !skip::is_root("a mount that is written to") {
        return None;
    }
    let directory = scratch.join("mnt");
    fs::create_dir(&directory).unwrap();
    let fs = Arc::new(Ext4::open(Arc::clone(device) as Arc<dyn BlockDevice>, options).unwrap());
    let operations = Operations::new(Arc::clone(&fs) as Arc<dyn FileSystem>, mounted);
    let mount = match Mount::new(Arc::new(operations), &directory, transport) {
        Ok(mount) => mount,
        Err(MountError::Attach(error @ (AttachError::Device(_) | AttachError::Helper { .. }))) => {
            skip(Prerequisite::Fuse, error);
            fs.close().unwrap();
            return None;
        }
        Err(error) => panic!("{error}"),
    };
    let server = thread::spawn("server", move || mount.run().unwrap()).unwrap();
    let mounted = Unmounted(&directory);
    let done = body(mounted.0);
    drop(mounted);
    server.join().unwrap();
    fs.close().unwrap();
    Some(done)
}

/// A mount that ends with this, also when a test fails.
struct Unmounted<'a>(&'a Path);

impl Drop for Unmounted<'_> {
    fn drop(&mut self) {
        for _ in 0..100 {
            if attach::unmount(self.0, Unmount::WhenIdle).is_ok() {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
        let _ = attach::unmount(self.0, Unmount::Lazily);
    }
}

fn promises(device: &Device, directory: &Path, seed: u64) -> Promises {
    thread::scope(|scope| {
        let witnesses: Vec<_> = (0..2)
            .map(|number| {
                let directory = directory.join(format!("w{number}"));
                fs::create_dir(&directory).unwrap();
                scope.spawn(move || {
                    let mut witness = Witness::new(&directory, seed.wrapping_add(number));
                    for _ in 0..STEPS {
                        witness.step(|| mark(device)).unwrap();
                    }
                    witness
                })
            })
            .collect();
        let commits = scope.spawn(|| sqlite_commits(device, &directory.join("data.db")));
        Promises {
            witnesses: witnesses.into_iter().map(|witness| witness.join().unwrap()).collect(),
            commits: commits.join().unwrap(),
        }
    })
}

fn sqlite_commits(device: &Device, path: &Path) -> Vec<u64> {
    if !have("sqlite3") {
        return Vec::new();
    }
    let insert = insertion(ROWS);
    sqlite(path, TABLE);
    let mut moments = vec![mark(device)];
    for _ in 0..COMMITS {
        sqlite(path, &insert);
        moments.push(mark(device));
    }
    moments
}

/// One transaction that adds rows.
fn insertion(rows: u64) -> String {
    format!(
        "pragma synchronous=extra; begin; with recursive n(i) as \
         (select 1 union all select i+1 from n where i < {rows}) \
         insert into t(b) select hex(randomblob(40)) from n; commit"
    )
}

fn sqlite(path: &Path, statements: &str) -> String {
    try_sqlite(path, statements).unwrap()
}

/// What SQLite says; an error if it fails.
fn try_sqlite(path: &Path, statements: &str) -> Result<String, String> {
    let output = Command::new("sqlite3").arg("-bail").arg(path).arg(statements).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
}

/// Recovers an image and checks the promises. Returns how many synced files there were.
fn judge(
    cut: CrashImage,
    promises: &Promises,
    scratch: &Scratch,
    by_others: bool,
) -> Result<usize, String> {
    let moment = cut.events_before as u64;
    let (device, fs) = recover(cut)?;
    let mut synced = 0;
    for (number, witness) in promises.witnesses.iter().enumerate() {
        let checked = witness.check(moment, |name| read(&fs, &format!("/w{number}/{name}")));
        synced += checked.map_err(|problem| format!("witness {number}: {problem}"))?;
    }
    if by_others {
        judge_database(&fs, "data.db", ROWS, reached(&promises.commits, moment), scratch)?;
    }
    expect_clean(&*device, fs, by_others.then_some(scratch))?;
    Ok(synced)
}

/// Opens an image that a power cut left.
fn recover(cut: CrashImage) -> Result<(Arc<dyn BlockDevice>, Ext4), String> {
    let device: Arc<dyn BlockDevice> = Arc::new(cut.device);
    let fs = Ext4::open(Arc::clone(&device), MountOptions::default())
        .map_err(|error| format!("can't be opened: {error}"))?;
    Ok((device, fs))
}

/// Closes an image, which must be clean, also for e2fsck if there is a place for a copy.
fn expect_clean(device: &dyn BlockDevice, fs: Ext4, copy: Option<&Scratch>) -> Result<(), String> {
    fs.close().map_err(|error| format!("can't be closed: {error}"))?;
    let report = drystone_fsck::check(device, &drystone_fsck::CheckOptions::default(), &mut |_| ())
        .map_err(|error| format!("can't be checked: {error}"))?;
    if let Some(problem) = report.problems.first() {
        return Err(format!("{} problems: {problem}", report.problems.len()));
    }
    if let Some(scratch) = copy {
        let path = scratch.join("checked");
        write_image(device, &path).unwrap();
        let judgement = e2fsck_check(&path).unwrap();
        if !judgement.is_clean() {
            return Err(format!("e2fsck: {}", judgement.output));
        }
    }
    Ok(())
}

/// How many of these moments came before a cut.
fn reached(moments: &[u64], cut: u64) -> u64 {
    moments.iter().filter(|moment| **moment <= cut).count() as u64
}

/// SQLite finds its database sound, with everything that was committed and at most the commit in
/// progress. The first commit makes the table, and each of the others adds as many rows.
fn judge_database(
    fs: &Ext4,
    name: &str,
    rows_each: u64,
    commits: u64,
    scratch: &Scratch,
) -> Result<(), String> {
    if commits == 0 {
        return Ok(());
    }
    for suffix in ["", "-journal"] {
        let copy = scratch.join(format!("copy.db{suffix}"));
        match read(fs, &format!("/{name}{suffix}")).map_err(|error| error.to_string())? {
            Some(content) => fs::write(&copy, content).unwrap(),
            None => drop(fs::remove_file(&copy)),
        }
    }
    let said = sqlite(&scratch.join("copy.db"), "pragma integrity_check; select count(*) from t");
    let rows = rows_each * (commits - 1);
    let possible = [format!("ok\n{rows}\n"), format!("ok\n{}\n", rows + rows_each)];
    if possible.contains(&said) { Ok(()) } else { Err(format!("{said:?}, not {possible:?}")) }
}

/// The content of a file, if it is there.
fn read(fs: &Ext4, path: &str) -> io::Result<Option<Vec<u8>>> {
    let context = RequestContext::superuser();
    let found = match find_path(fs, &context, path.as_bytes(), false) {
        Ok(found) => found,
        Err(error) if error.errno == Errno::ENOENT => return Ok(None),
        Err(error) => return Err(io::Error::other(error.to_string())),
    };
    let mut content = vec![0; found.attributes().size as usize];
    let read = fs.read(found.inode(), 0, &mut content);
    content.truncate(read.map_err(|error| io::Error::other(error.to_string()))?);
    Ok(Some(content))
}
