//! Trees that the kernel has written read the same through the engine.

use crate::script;
use crate::support::{
    Image, assert_same, checked_image, load, open, open_read_only, tree, tree_options,
};
use drystone_sync::Arc;
use drystone_testkit::judges::{FeatureSet, kernel_mount};
use drystone_testkit::tree::TreeSnapshot;
use std::path::Path;

/// Names in the largest directory.
const NAMES: usize = 5_000;

for_sets! { const IDENTIFIERS; check:
    default default_1k default_2k modern modern_1k bigalloc bigalloc_1k inline_data inline_data_1k
    large_inodes medium_inodes large_inodes_1k meta_bg meta_bg_1k large_dir ea_inode mmp mmp_1k
    no_journal small_inodes small_inodes_1k ext2 ext2_1k ext3 ext3_1k block_maps no_checksums
    group_checksums group_checksums_64bit _32bit no_flex_bg no_flex_bg_4k sparse_super2
    sparse_super2_1k no_sparse_super verity_encrypt no_huge_file no_huge_file_1k no_filetype
    no_filetype_ext2 no_dir_index no_resize_inode hash_tea hash_tea_4k hash_legacy hash_legacy_4k
    flex_bg_wide small_journal fast_commit
}

#[test]
fn no_set_that_the_kernel_writes_is_left_out() {
    use drystone_testkit::judges::{FEATURE_SETS, KernelSupport};
    let left_out = crate::support::sets_without_test(IDENTIFIERS);
    let written = FEATURE_SETS.iter().filter(|set| set.kernel == KernelSupport::Writes);
    let left_out: Vec<_> = written.filter(|set| left_out.contains(&set.name)).collect();
    // The same as `no-journal` to the kernel.
    assert_eq!(left_out.iter().map(|set| set.name).collect::<Vec<_>>(), ["no-journal-orphan-file"]);
}

fn check(set: &'static FeatureSet) {
    let Some(image) = Image::new(set) else { return };
    let mount = image.scratch.join("mount");
    let Some(mounted) = kernel_mount(&image.path, &mount, "").unwrap() else { return };
    script::everything(mounted.path(), set, NAMES).unwrap();
    mounted.unmount().unwrap();
    let Some(expected) = kernel_tree(&image.path, &mount) else { return };
    let device = Arc::new(load(&image.path));
    let engine = open_read_only(&device);
    assert_same(&tree(&engine), &expected, "the engine (left) and the kernel (right)");
    engine.close().unwrap();
    drop(engine);
    // Mounted for writing, and given back to the kernel.
    let engine = open(&device);
    assert_same(&tree(&engine), &expected, "the engine, writing (left) and the kernel (right)");
    engine.close().unwrap();
    drop(engine);
    let given_back = checked_image(&image.scratch, &device, "given-back");
    let Some(found) = kernel_tree(&given_back, &mount) else { return };
    assert_same(&found, &expected, "the kernel after the engine (left) and before (right)");
}

/// The tree as the kernel shows it. Access times don't change.
pub fn kernel_tree(image: &Path, mount: &Path) -> Option<TreeSnapshot> {
    let mounted = kernel_mount(image, mount, "noatime,nodiratime").unwrap()?;
    let seen = TreeSnapshot::from_host(mounted.path(), &tree_options()).unwrap();
    mounted.unmount().unwrap();
    Some(seen)
}
