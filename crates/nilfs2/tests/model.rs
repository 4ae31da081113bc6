//! Random operations against the in-memory model, with remounts.
#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use drystone_nilfs2::{InodeSearch, MountOptions, Nilfs2};
use drystone_testkit::comparison::{Tolerance, check_seeds};
use drystone_testkit::conformance::run_all;
use drystone_testkit::environment::number;
use drystone_testkit::model::{Configuration, MemoryFileSystem};
use drystone_testkit::operations::{Executor, Profile, generate};
use drystone_testkit::tree::{TreeOptions, TreeSnapshot, diff};
use drystone_vfs::FileSystem;
use support::{image, judge, mount};

/// Sizes of blocks and segments that differ in how trees and logs are split.
const SHAPES: [(u32, u32); 4] = [(4096, 256), (1024, 16), (1024, 2048), (4096, 16)];

#[test]
fn random_operations_end_as_in_the_model() {
    let count = number("DRYSTONE_OPERATIONS").unwrap_or(400) as usize;
    let first = number("DRYSTONE_SEED").unwrap_or(0);
    for (seed, profile) in (first..).zip(Profile::ALL) {
        for (block_bytes, blocks_per_segment) in SHAPES {
            check_seeds(seed..seed + 1, profile, count, Tolerance::default(), |run| {
                let device = image(96, block_bytes, blocks_per_segment);
                let search = InodeSearch::ALL[(seed % 3) as usize];
                let options = MountOptions::default().inode_search(search);
                let fs = mount(&device, &options);
                run(&fs, &MemoryFileSystem::new(Configuration::nilfs2(block_bytes)));
                fs.unmount().unwrap();
                judge(&device, &format!("seed {seed}, profile {}", profile.name));
            });
        }
    }
}

#[test]
fn what_was_synced_is_there_after_a_remount() {
    let count = number("DRYSTONE_OPERATIONS").unwrap_or(300) as usize;
    let first = number("DRYSTONE_SEED").unwrap_or(0);
    for (seed, (block_bytes, blocks_per_segment)) in (first..).zip(SHAPES) {
        let device = image(96, block_bytes, blocks_per_segment);
        let tree = |fs: &Nilfs2| TreeSnapshot::read(fs, "/", &TreeOptions::default()).unwrap();
        let mut before = None;
        for round in 0..6 {
            let fs = mount(&device, &MountOptions::default());
            if let Some(before) = &before {
                let found = diff(before, &tree(&fs));
                assert_eq!(found, [""; 0], "seed {seed}, round {round}");
            }
            let profile = &Profile::ALL[(seed + round) as usize % Profile::ALL.len()];
            let operations = generate(seed * 100 + round, profile, "/", count);
            {
                let mut executor = Executor::new(&fs);
                for operation in &operations {
                    executor.apply(operation);
                }
            }
            before = Some(tree(&fs));
            if round % 2 == 0 {
                fs.unmount().unwrap();
            } else {
                // As with the power: what was synced has to be there.
                fs.sync().unwrap();
                drop(fs);
            }
            judge(&device, &format!("seed {seed}, round {round}"));
        }
    }
}

/// A promise about creation times, which the model has and the format hasn't.
const CREATION_TIMES: &str = "tools_may_set_creation_and_change_times";

/// What the format can't do breaks some promises; the model says which.
#[test]
fn promises_that_the_format_can_keep_are_kept() {
    for (block_bytes, blocks_per_segment) in SHAPES {
        let device = image(96, block_bytes, blocks_per_segment);
        let fs = mount(&device, &MountOptions::default());
        let of = Configuration::nilfs2(block_bytes);
        let model = MemoryFileSystem::new(of.clone());
        let broken = |fs: &dyn FileSystem| -> Vec<&str> {
            run_all(fs, &of).into_iter().map(|failure| failure.name).collect()
        };
        let expected = broken(&model);
        assert!(expected.len() < 60, "{expected:?}");
        let mut found = broken(&fs);
        found.retain(|name| *name != CREATION_TIMES);
        assert_eq!(found, expected, "blocks of {block_bytes}");
        fs.unmount().unwrap();
        judge(&device, &format!("blocks of {block_bytes}"));
    }
}
