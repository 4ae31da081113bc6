//! All policies give the same results, and the counts show what each is for.
#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use drystone_blockdev::{BlockDevice, MemoryDevice};
use drystone_ext4::{Ext4, InodeSearch, MountOptions, Policy};
use drystone_sync::{Arc, thread};
use drystone_testkit::comparison::{Tolerance, check_seeds};
use drystone_testkit::environment::number;
use drystone_testkit::judges::FeatureSet;
use drystone_testkit::model::MemoryFileSystem;
use drystone_testkit::operations::Profile;
use drystone_vfs::{Entry, FileSystem, NewNode, RequestContext};
use support::{image, judge};

fn open(device: &Arc<MemoryDevice>, policy: Policy) -> Ext4 {
    open_with(device, policy, true)
}

fn open_with(device: &Arc<MemoryDevice>, policy: Policy, delayed_allocation: bool) -> Ext4 {
    let device: Arc<dyn BlockDevice> = Arc::clone(device) as Arc<dyn BlockDevice>;
    // So few that extents are dropped all the time.
    let extent_status_bytes = Some(32 * 64);
    let options = MountOptions::default()
        .policy(policy)
        .extent_status_bytes(extent_status_bytes)
        .delayed_allocation(delayed_allocation);
    Ext4::open(device, options).unwrap()
}

#[test]
fn random_operations_end_as_in_the_model() {
    let set = FeatureSet::by_name("modern-1k").unwrap();
    let fresh = image(64);
    let count = number("DRYSTONE_OPERATIONS").unwrap_or(500) as usize;
    for (number, policy) in (0..).zip(Policy::presets_and_flips()) {
        for (seed, profile) in (0..).zip(Profile::ALL) {
            let profile = set.with_fitting_xattrs(profile.clone());
            check_seeds(seed..seed + 1, &profile, count, Tolerance::default(), |run| {
                let device = Arc::new(fresh.snapshot());
                // With and without delayed allocation in turn.
                let fs = open_with(&device, policy, (seed + number) % 2 == 0);
                run(&fs, &MemoryFileSystem::new(set.configuration()));
                fs.close().unwrap();
                judge(&device, &format!("{policy}, profile {}", profile.name));
            });
        }
    }
}

fn new_file(fs: &Ext4, name: &str) -> Entry {
    let context = RequestContext::superuser();
    fs.create(&context, fs.root(), name.as_bytes(), NewNode::Regular, 0o644).unwrap()
}

#[test]
fn creations_take_few_group_locks() {
    const FILES: u64 = 500;
    let creations = |policy: Policy| {
        let device = Arc::new(image(64));
        let fs = Arc::new(open(&device, policy));
        let before = fs.allocation_statistics();
        let workers: Vec<_> = (0..4)
            .map(|worker| {
                let fs = Arc::clone(&fs);
                let create = move || {
                    for number in 0..FILES / 4 {
                        new_file(&fs, &format!("file-{worker}-{number}"));
                    }
                };
                thread::spawn("creator", create).unwrap()
            })
            .collect();
        for worker in workers {
            worker.join().unwrap();
        }
        let after = fs.allocation_statistics();
        assert_eq!(after.inodes - before.inodes, FILES);
        fs.close().unwrap();
        judge(&device, &policy.to_string());
        after.inode_lock_takes - before.inode_lock_takes
    };
    let relock = Policy { inode_search: InodeSearch::NextHint, ..Policy::SCALABLE };
    // One lock to take the inode, one for its descriptor, and one more when a group is loaded.
    assert!((2 * FILES..2 * FILES + 10).contains(&creations(relock)));
    assert!(creations(Policy::BASELINE) >= 3 * FILES);
    assert!(creations(Policy::SCALABLE) <= FILES / 8);
}

#[test]
fn files_that_grow_side_by_side_stay_in_one_piece() {
    const FILES: usize = 16;
    const APPENDS: usize = 256;
    for policy in Policy::presets_and_flips() {
        let device = Arc::new(image(128));
        let fs = open(&device, policy);
        let context = RequestContext::superuser();
        let free = fs.statistics().unwrap();
        let files: Vec<Entry> =
            (0..FILES).map(|number| new_file(&fs, &format!("file{number}"))).collect();
        for step in 0..APPENDS {
            for file in &files {
                let offset = step as u64 * 4096;
                assert_eq!(fs.write(&context, file.inode, offset, &[1; 4096]).unwrap(), 4096);
            }
        }
        let extents: usize = files
            .iter()
            .map(|file| fs.extents(file.inode, 0, u64::MAX, 10_000).unwrap().len())
            .sum();
        // Up to 64 KiB the files lie among each other.
        assert!(extents <= FILES * 24, "{policy}: {extents} extents");
        for (number, file) in files.iter().enumerate() {
            fs.unlink(&context, fs.root(), format!("file{number}").as_bytes()).unwrap();
            fs.forget(file.inode, 1);
        }
        fs.sync().unwrap();
        assert_eq!(fs.statistics().unwrap(), free, "{policy}");
        fs.close().unwrap();
        judge(&device, &policy.to_string());
    }
}
