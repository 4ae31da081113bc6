//! Random operations through the engine, judged by the model, by `e2fsck` and by the kernel.

use crate::support::{
    Image, assert_same, checked_image, load, open, open_read_only, sets_without_test, tree,
    tree_options,
};
use drystone_blockdev::MemoryDevice;
use drystone_sync::Arc;
use drystone_testkit::comparison::{Tolerance, compare, shrink};
use drystone_testkit::environment::number;
use drystone_testkit::judges::{FeatureSet, KernelSupport, Scratch, kernel_mount};
use drystone_testkit::model::{Configuration, MemoryFileSystem};
use drystone_testkit::operations::{Action, Actor, Operation, Profile, Word, generate};
use drystone_testkit::tree::TreeSnapshot;

/// Operations of each profile in a short run.
const OPERATIONS: u64 = 400;

for_sets! { const IDENTIFIERS; check:
    default default_1k default_2k default_64k modern modern_1k modern_64k bigalloc bigalloc_1k
    inline_data inline_data_1k large_inodes medium_inodes large_inodes_1k meta_bg meta_bg_1k
    large_dir ea_inode quota quota_project project casefold casefold_strict mmp mmp_1k no_journal
    no_journal_orphan_file small_inodes small_inodes_1k ext2 ext2_1k ext3 ext3_1k block_maps
    no_checksums group_checksums group_checksums_64bit _32bit no_flex_bg no_flex_bg_4k
    sparse_super2 sparse_super2_1k no_sparse_super verity_encrypt no_huge_file no_huge_file_1k
    no_filetype no_filetype_ext2 no_dir_index no_resize_inode hash_tea hash_tea_4k hash_legacy
    hash_legacy_4k flex_bg_wide small_journal fast_commit
}

#[test]
fn no_set_is_left_out() {
    assert_eq!(sets_without_test(IDENTIFIERS), [""; 0]);
}

/// Operations of all profiles, each below a directory of its own, with sizes that the set has room for.
fn operations(set: &FeatureSet, seed: u64, count: usize) -> Vec<Operation> {
    let mut all = Vec::new();
    for profile in Profile::ALL {
        let profile = Profile {
            offset_max: profile.offset_max.min(1_200_000),
            alignment: u64::from(set.cluster_size),
            ..set.with_fitting_xattrs(profile.clone())
        };
        let base = format!("/{}", profile.name);
        let action = Action::MakeDirectory { path: Word::from(&base[..]), mode: 0o777 };
        all.push(Operation { actor: Actor(0), action });
        all.extend(generate(seed, &profile, &base, count));
    }
    all
}

fn check(set: &'static FeatureSet) {
    // A file takes a cluster at least.
    let size_mib_min = if set.cluster_size > set.block_size { 512 } else { 64 };
    let Some(image) = Image::with_size(set, size_mib_min) else { return };
    let fresh = Fresh {
        set,
        configuration: set.configuration(),
        device: load(&image.path),
        scratch: image.scratch,
    };
    judge_seeds(&fresh);
}

/// A new image, to be copied, and the configuration of the model that equals it.
pub struct Fresh {
    pub set: &'static FeatureSet,
    pub configuration: Configuration,
    pub device: MemoryDevice,
    pub scratch: Scratch,
}

impl Fresh {
    fn device(&self) -> Arc<MemoryDevice> {
        Arc::new(self.device.snapshot())
    }

    fn model(&self) -> MemoryFileSystem {
        MemoryFileSystem::new(self.configuration.clone())
    }
}

/// Runs and judges all operations, for as many seeds as asked for.
pub fn judge_seeds(fresh: &Fresh) {
    let count = number("DRYSTONE_OPERATIONS").unwrap_or(OPERATIONS) as usize;
    let seed_first = number("DRYSTONE_SEED").unwrap_or(1);
    for seed in seed_first..seed_first + number("DRYSTONE_SEEDS").unwrap_or(1) {
        check_seed(fresh, seed, count);
    }
}

fn check_seed(fresh: &Fresh, seed: u64, count: usize) {
    let set = fresh.set;
    // Data in an inode has no holes; clusters are larger than the model's blocks.
    let tolerance = Tolerance { seek: set.mentions("inline_data"), full: false };
    let operations = operations(set, seed, count);
    let device = fresh.device();
    let engine = open(&device);
    let model = fresh.model();
    if let Err(difference) = compare(&engine, &model, &operations, tolerance) {
        drop(engine);
        let failing = difference.index.map_or(&operations[..], |index| &operations[..=index]);
        let again = |operations: &[Operation]| {
            let model = fresh.model();
            compare(&open(&fresh.device()), &model, operations, tolerance)
        };
        let shortest = shrink(failing, 300, |operations| again(operations).is_err());
        let difference = again(&shortest).err().unwrap_or(difference);
        let lines: Vec<String> = shortest.iter().map(Operation::to_string).collect();
        panic!(
            "{}, seed {seed}: engine (left) and model (right) differ: {difference}\n{}",
            set.name,
            lines.join("\n")
        );
    }
    assert_same(&without_times(&tree(&engine)), &without_times(&tree(&model)), "engine and model");
    let open_tree = tree(&engine);
    engine.close().unwrap();
    drop(engine);
    judge(fresh, &device, &open_tree, &format!("seed-{seed}"));
}

/// After the engine has closed `device`, checks that all judges find the expected tree.
fn judge(fresh: &Fresh, device: &MemoryDevice, expected: &TreeSnapshot, name: &str) {
    let image = checked_image(&fresh.scratch, device, name);
    let again = open_read_only(&Arc::new(device.snapshot()));
    assert_same(&tree(&again), expected, "opened again (left) and before closing (right)");
    again.close().unwrap();
    if fresh.set.kernel >= KernelSupport::Reads
        && let Some(mounted) =
            kernel_mount(&image, &fresh.scratch.join("mount"), "ro,noload").unwrap()
    {
        let seen = TreeSnapshot::from_host(mounted.path(), &tree_options()).unwrap();
        mounted.unmount().unwrap();
        assert_same(&seen, expected, "the kernel (left) and the engine (right)");
    }
    std::fs::remove_file(image).unwrap();
}

fn without_times(tree: &TreeSnapshot) -> TreeSnapshot {
    let mut tree = tree.clone();
    for facts in tree.entries.values_mut() {
        facts.retain(|name, _| name != "accessed" && name != "modified");
    }
    tree
}
