//! Eight threads of random operations on one image, in directories of their own and in a shared one, on
//! many kinds of images.
//!
//! In its own directory each thread knows every outcome. In the shared one it knows which outcomes are
//! impossible. After each round everything is deleted, and the free counts must be as before. The counts
//! that a mount shows must be those that `e2fsck` finds. The lock order is checked all the time, and a
//! watchdog ends a run that hangs.
//!
//! `DRYSTONE_STRESS_SECONDS` is the duration of a run, `DRYSTONE_SEED` its seed.
#![allow(clippy::unwrap_used)]

use drystone_blockdev::{BlockDevice, MemoryDevice};
use drystone_ext4::{Ext4, MountOptions, Policy};
use drystone_sync::Arc;
use drystone_sync::atomic::{AtomicU64, Ordering};
use drystone_sync::{clock, thread};
use drystone_testkit::comparison::Tolerance;
use drystone_testkit::concurrent::{self, ConcurrentSettings};
use drystone_testkit::environment::number;
use drystone_testkit::judges::{
    FEATURE_SETS, FeatureSet, Judgement, Scratch, debugfs, e2fsck_check, have, mke2fs, write_image,
};
use drystone_testkit::operations::Profile;
use drystone_vfs::{Errno, FileSystem, FileType, InodeNumber, RequestContext};
use std::time::Duration;

const THREADS: usize = 8;
/// Every image has at least this size, so that the threads' work fits.
const IMAGE_MIB_MIN: u64 = 96;
/// The kinds of images of a short run: those that differ most.
const SHORT_SETS: [&str; 10] = [
    "modern",
    "modern-1k",
    "bigalloc",
    "inline-data-1k",
    "ext3-1k",
    "no-journal",
    "quota-project",
    "small-journal",
    "ea-inode",
    "meta-bg-1k",
];
/// A memory budget with room for one inode, which threads load, change, evict and free all the time.
const ONE_INODE_BYTES: usize = 8 << 10;
/// A round that takes longer is taken to hang.
const ROUND_MAX: Duration = Duration::from_secs(240);

/// Ends the process when no round has ended for too long.
fn start_watchdog() -> Arc<AtomicU64> {
    let rounds = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&rounds);
    let watch = move || {
        let (mut last, mut since) = (0, clock::now());
        loop {
            thread::sleep(Duration::from_secs(1));
            let now = seen.load(Ordering::Relaxed);
            if now != last {
                (last, since) = (now, clock::now());
            } else if since.elapsed() > ROUND_MAX {
                eprintln!("round {now} hangs: a deadlock, or threads that wait for each other");
                std::process::abort();
            }
        }
    };
    thread::spawn("watchdog", watch).unwrap();
    rounds
}

#[test]
fn threads_on_one_image() {
    if !have("mke2fs") || !have("e2fsck") {
        return;
    }
    let rounds_done = start_watchdog();
    let seed = number("DRYSTONE_SEED").unwrap_or(1);
    let seconds = number("DRYSTONE_STRESS_SECONDS");
    let start = clock::now();
    let short = SHORT_SETS.map(|name| FeatureSet::by_name(name).unwrap());
    let sets: Vec<&FeatureSet> = match seconds {
        None => short.to_vec(),
        Some(_) => short.into_iter().chain(FEATURE_SETS).collect(),
    };
    let policies = Policy::presets_and_flips();
    let rounds = sets.len().max(policies.len());
    for (round, (set, policy)) in (0..).zip(sets.iter().cycle().zip(policies.iter().cycle())) {
        match seconds {
            None if round as usize == rounds => break,
            Some(seconds) if start.elapsed() >= Duration::from_secs(seconds) => break,
            _ => {}
        }
        let (mounts, operations) = if seconds.is_some() { (3, 600) } else { (1, 60) };
        stress(set, *policy, seed + round, mounts, operations);
        rounds_done.fetch_add(1, Ordering::Relaxed);
        eprintln!("{}, {policy}, seed {}: {:.0?} so far", set.name, seed + round, start.elapsed());
    }
}

/// Some mounts of one image. After each, everything is deleted.
fn stress(set: &FeatureSet, policy: Policy, seed: u64, mounts: u64, operations: usize) {
    // Each operation may take a cluster, and none is to find the image full.
    let clusters = (THREADS * 2 * operations) as u64;
    let needed_mib = (clusters * u64::from(set.cluster_size)) >> 20;
    let size_mib = set.size_mib_min.max(IMAGE_MIB_MIN).max(needed_mib);
    let mut image = Image::new(set, size_mib, policy);
    // A third of the rounds runs without it. Another third, with and without, has room for one inode.
    image.delayed_allocation = !seed.is_multiple_of(3);
    if (seed / 3).is_multiple_of(3) {
        image.memory_budget_bytes = ONE_INODE_BYTES;
    }
    let empty = image.open().statistics().unwrap();
    let fitted = |profile: Profile| Profile {
        offset_max: profile.offset_max.min(400_000),
        alignment: u64::from(set.cluster_size),
        ..set.with_fitting_xattrs(profile)
    };
    for mount in 0..mounts {
        let seed = seed * 100 + mount;
        let shared = [Profile::RENAMES, Profile::METADATA, Profile::DATA, Profile::MIXED];
        let private = &Profile::ALL[seed as usize % Profile::ALL.len()];
        let settings = ConcurrentSettings {
            threads: THREADS,
            private_operations: operations,
            shared_operations: operations,
            seed,
            private_profile: fitted(private.clone()),
            shared_profile: Profile {
                users_percent: 0,
                ..fitted(shared[seed as usize % shared.len()].clone())
            },
            // Data in an inode has no holes.
            tolerance: Tolerance { seek: set.mentions("inline_data"), full: false },
            configuration: set.configuration(),
        };
        let engine = image.open();
        let problems = concurrent::run(&engine, &settings);
        let problems = problems.join("\n");
        assert!(problems.is_empty(), "{}, {policy}, seed {seed}:\n{problems}", set.name);
        image.close_and_judge(engine, &format!("seed {seed}"));
        let engine = image.open();
        remove_all(&engine);
        let left = image.close_and_judge(engine, &format!("seed {seed}, everything deleted"));
        assert_eq!(left.inodes_free, empty.inodes_free, "{}, seed {seed}", set.name);
        // Quota files don't shrink.
        if !set.mentions("quota") {
            assert_eq!(left.blocks_free, empty.blocks_free, "{}, seed {seed}", set.name);
        }
    }
}

/// A disk that becomes full while all threads work: they get errors, and the image stays sound.
#[test]
fn threads_on_a_full_disk() {
    if !have("mke2fs") || !have("e2fsck") {
        return;
    }
    let seed = number("DRYSTONE_SEED").unwrap_or(1);
    for name in ["modern-1k", "ext2", "bigalloc-1k"] {
        let set = FeatureSet::by_name(name).unwrap();
        let image = Image::new(set, 16, Policy::SCALABLE);
        let empty = image.open().statistics().unwrap();
        let big = |profile: Profile| Profile {
            write: 80,
            write_max: 150_000,
            offset_max: 900_000,
            alignment: u64::from(set.cluster_size),
            xattr_value_max: 50,
            ..profile
        };
        let settings = ConcurrentSettings {
            threads: THREADS,
            private_operations: 80,
            shared_operations: 80,
            seed,
            private_profile: big(Profile::DATA),
            shared_profile: big(Profile { users_percent: 0, ..Profile::MIXED }),
            tolerance: Tolerance { seek: false, full: true },
            configuration: set.configuration(),
        };
        let engine = image.open();
        let problems = concurrent::run(&engine, &settings);
        assert!(problems.is_empty(), "{name}, seed {seed}:\n{}", problems.join("\n"));
        image.close_and_judge(engine, "full");
        let engine = image.open();
        remove_all(&engine);
        let left = image.close_and_judge(engine, "empty again");
        assert_eq!(left.blocks_free, empty.blocks_free, "{name}");
        assert_eq!(left.inodes_free, empty.inodes_free, "{name}");
    }
}

/// An image in memory.
struct Image {
    scratch: Scratch,
    device: Arc<MemoryDevice>,
    policy: Policy,
    /// Small writes wait for their blocks.
    delayed_allocation: bool,
    memory_budget_bytes: usize,
}

impl Image {
    /// If the image has no orphan file, the policy leaves it open where orphans are recorded.
    fn new(set: &FeatureSet, size_mib: u64, policy: Policy) -> Image {
        let policy = match set.mentions("orphan_file") {
            true => policy,
            false => Policy { orphans: None, ..policy },
        };
        let scratch = Scratch::new("stress").unwrap();
        let path = scratch.join("image");
        mke2fs(&path, set, size_mib << 20).unwrap().expect_clean("mke2fs");
        let device = Arc::new(MemoryDevice::from_bytes(&std::fs::read(path).unwrap()));
        let memory_budget_bytes = MountOptions::default().memory_budget_bytes;
        let delayed_allocation = true;
        let image = Image { scratch, device, policy, delayed_allocation, memory_budget_bytes };
        // The free counts in the superblock of a new image include blocks that a mount doesn't allocate.
        image.open().close().unwrap();
        image
    }

    fn open(&self) -> Ext4 {
        let device: Arc<dyn BlockDevice> = Arc::<MemoryDevice>::clone(&self.device);
        // Commits happen often, as in a longer run.
        let options = MountOptions::default()
            .commit_interval(Duration::from_millis(50))
            .policy(self.policy)
            .delayed_allocation(self.delayed_allocation)
            .memory_budget_bytes(self.memory_budget_bytes);
        Ext4::open(device, options).unwrap()
    }

    /// Closes the mount. Fails unless `e2fsck` finds nothing wrong and the free counts are the mount's.
    fn close_and_judge(&self, engine: Ext4, what: &str) -> drystone_vfs::FileSystemStatistics {
        engine.sync().unwrap();
        let shown = engine.statistics().unwrap();
        engine.close().unwrap();
        let path = self.scratch.join("image");
        write_image(&*self.device, &path).unwrap();
        e2fsck_check(&path).unwrap().expect_clean(what);
        let counted = debugfs(&path, "stats -h").unwrap();
        assert_eq!(number_in(&counted, "Free blocks:"), shown.blocks_free, "{what}");
        assert_eq!(number_in(&counted, "Free inodes:"), shown.inodes_free, "{what}");
        shown
    }
}

/// The number after a word in the output of `debugfs`.
fn number_in(judgement: &Judgement, word: &str) -> u64 {
    let line = judgement.output.lines().find(|line| line.starts_with(word));
    let number = line.and_then(|line| line.split_whitespace().last());
    number.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("{}", judgement.output))
}

/// Deletes everything but `lost+found`, with a thread for each name in the root.
fn remove_all(engine: &Ext4) {
    let root = engine.root();
    let names: Vec<_> =
        list(engine, root).into_iter().filter(|(name, _)| name != b"lost+found").collect();
    thread::scope(|scope| {
        for (name, inode) in &names {
            scope.spawn(move || remove(engine, root, name, *inode));
        }
    });
}

fn list(engine: &Ext4, directory: InodeNumber) -> Vec<(Vec<u8>, InodeNumber)> {
    let mut names = Vec::new();
    let context = RequestContext::superuser();
    let listed = engine.read_directory(&context, directory, 0, &mut |entry| {
        if entry.name != b"." && entry.name != b".." {
            names.push((entry.name.to_vec(), entry.inode));
        }
        true
    });
    listed.unwrap();
    names
}

fn remove(engine: &Ext4, parent: InodeNumber, name: &[u8], inode: InodeNumber) {
    let context = RequestContext::superuser();
    let entry = engine.lookup(&context, parent, name).unwrap();
    assert_eq!(entry.inode, inode);
    if entry.file_type == FileType::Directory {
        for (name, inode) in list(engine, entry.inode) {
            remove(engine, entry.inode, &name, inode);
        }
    }
    let attempt = || match entry.file_type {
        FileType::Directory => engine.remove_directory(&context, parent, name),
        _ => engine.unlink(&context, parent, name),
    };
    let result = attempt().or_else(|error| match error.errno {
        // The file or its directory is immutable or append-only.
        Errno::EPERM => {
            clear_flags(engine, parent);
            clear_flags(engine, entry.inode);
            attempt()
        }
        _ => Err(error),
    });
    result.unwrap_or_else(|error| panic!("{}: {error}", name.escape_ascii()));
    engine.forget(entry.inode, 1);
}

fn clear_flags(engine: &Ext4, inode: InodeNumber) {
    use drystone_vfs::{FileFlags, SetAttributes};
    let flags = engine.attributes(inode).unwrap().flags;
    let flags = flags - (FileFlags::IMMUTABLE | FileFlags::APPEND);
    let changes = SetAttributes { flags: Some(flags), ..SetAttributes::default() };
    engine.set_attributes(&RequestContext::superuser(), inode, &changes).unwrap();
}
