//! Many threads at once, logs and cleaning among them; devices that fail; images that are damaged.
//!
//! `DRYSTONE_STRESS_SECONDS` is the duration of a run of threads, `DRYSTONE_SEED` its first seed.
#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use drystone_blockdev::{
    BlockDevice, DeviceOperation, Effect, Fault, Faulty, MemoryDevice, Trigger,
};
use drystone_nilfs2::{InodeSearch, MountOptions, Nilfs2};
use drystone_sync::atomic::{AtomicBool, Ordering};
use drystone_sync::{Arc, clock, thread};
use drystone_testkit::comparison::Tolerance;
use drystone_testkit::concurrent::{self, ConcurrentSettings, check_links};
use drystone_testkit::environment::number;
use drystone_testkit::model::Configuration;
use drystone_testkit::operations::{Executor, Profile, generate};
use drystone_testkit::tree::{TreeOptions, TreeSnapshot};
use drystone_vfs::{FileSystem, InodeNumber, SeekFrom};
use std::time::Duration;
use support::churn::churn;
use support::{image, judge, mount, tree};

/// Runs threads while logs are written all the time and segments are cleaned.
fn run_threads(mebibytes: u64, blocks_per_segment: u32, seed: u64, tolerance: Tolerance) {
    let device = image(mebibytes, 1024, blocks_per_segment);
    let options = MountOptions::default()
        .commit_interval(Duration::from_millis(15))
        .inode_search(InodeSearch::ALL[(seed % 3) as usize]);
    let fs = mount(&device, &options);
    let settings = ConcurrentSettings {
        threads: 8,
        private_operations: 1000,
        shared_operations: 1000,
        seed,
        tolerance,
        configuration: Configuration::nilfs2(1024),
        ..ConcurrentSettings::default()
    };
    let is_done = AtomicBool::new(false);
    let problems = thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                fs.clean(0).unwrap();
                thread::sleep(Duration::from_millis(5));
            }
        });
        let problems = concurrent::run(&fs, &settings);
        is_done.store(true, Ordering::Relaxed);
        problems
    });
    assert!(problems.is_empty(), "seed {seed}:\n{}", problems.join("\n"));
    let before = tree(&fs);
    assert_eq!(check_links(&before), [""; 0], "seed {seed}");
    fs.unmount().unwrap();
    judge(&device, &format!("seed {seed}"));
}

/// So many seeds, or as many as fit into `DRYSTONE_STRESS_SECONDS`.
fn with_seeds(count: u64, mut run: impl FnMut(u64)) {
    let first = number("DRYSTONE_SEED").unwrap_or(0);
    let Some(seconds) = number("DRYSTONE_STRESS_SECONDS") else {
        return (first..first + count).for_each(run);
    };
    let (start, mut seed) = (clock::now(), first);
    while start.elapsed() < Duration::from_secs(seconds) {
        run(seed);
        seed += 1;
    }
    eprintln!("seeds {first} to {}", seed - 1);
}

#[test]
fn threads_do_what_one_would() {
    with_seeds(3, |seed| run_threads(96, 64, seed, Tolerance::default()));
}

#[test]
fn threads_on_a_full_volume() {
    let tolerance = Tolerance { full: true, ..Tolerance::default() };
    with_seeds(12, |seed| run_threads(3, 32, seed, tolerance));
}

#[test]
fn a_device_that_fails_leaves_the_last_checkpoint() {
    for seed in 0..40 {
        let mut random = fastrand::Rng::with_seed(seed);
        let device = image(16, 1024, 64);
        let faulty = Arc::new(Faulty::new(Arc::clone(&device)));
        let held: Arc<dyn BlockDevice> = Arc::clone(&faulty) as Arc<dyn BlockDevice>;
        let fs = Nilfs2::mount(held, &MountOptions::default()).unwrap();
        let operation = DeviceOperation::ALL[random.usize(0..3)];
        let first = faulty.operations(operation) + random.u64(0..40);
        let fault = Fault::of(operation, Effect::Short { bytes: random.u64(0..5000) });
        faulty.inject(fault.when(Trigger::From(first)));
        let operations = generate(seed, &Profile::MIXED, "/", 300);
        let mut executor = Executor::new(&fs);
        for (index, operation) in operations.iter().enumerate() {
            executor.apply(operation);
            if index % 40 == 0 {
                // Fails from some point on.
                let _ = fs.sync();
            }
        }
        drop(executor);
        drop(fs);
        judge(&device, &format!("seed {seed}"));
        let fs = mount(&device, &MountOptions::default());
        tree(&fs);
        fs.unmount().unwrap();
        judge(&device, &format!("seed {seed}, after a remount"));
    }
}

#[test]
fn damage_is_an_error() {
    let device = image(8, 1024, 64);
    let fs = mount(&device, &MountOptions::default());
    {
        let mut executor = Executor::new(&fs);
        for operation in &generate(5, &Profile::MIXED, "/", 300) {
            executor.apply(operation);
        }
    }
    fs.unmount().unwrap();
    let used = device.allocated_bytes().min(1 << 20);
    for seed in 0..300 {
        let mut random = fastrand::Rng::with_seed(seed);
        let damaged = MemoryDevice::from_bytes(&device.to_vec());
        for _ in 0..random.usize(1..12) {
            let mut bytes = vec![0; random.usize(1..64)];
            random.fill(&mut bytes);
            damaged.write_at(random.u64(1024..used), &bytes).unwrap();
        }
        let held: Arc<dyn BlockDevice> = Arc::new(damaged);
        // Damage in data is found by no sum of a clean volume; all that counts is to end.
        let Ok(fs) = Nilfs2::mount(held, &MountOptions::default()) else { continue };
        let _ = TreeSnapshot::read(&fs, "/", &TreeOptions::default());
        let _ = fs.statistics();
        for number in (0..200).map(InodeNumber) {
            if fs.find_inode(number).is_ok() {
                let _ = fs.attributes(number);
                let _ = fs.seek(number, SeekFrom::Data(1));
                let _ = fs.seek(number, SeekFrom::Hole(1));
                let _ = fs.extents(number, 1, u64::MAX, 100);
                fs.forget(number, 1);
            }
        }
        {
            let mut executor = Executor::new(&fs);
            for operation in &generate(seed, &Profile::METADATA, "/", 60) {
                executor.apply(operation);
            }
        }
        let _ = fs.clean(0);
        let _ = fs.unmount();
    }
}

/// A hundred times the volume's size is written, to a volume that is full nearly all the time.
#[test]
#[ignore = "long: ./dev stress runs it"]
fn a_full_volume_is_churned_a_hundred_times() {
    churn(4096, 16, 5, 120, 100);
    churn(1024, 64, 6, 120, 100);
}
