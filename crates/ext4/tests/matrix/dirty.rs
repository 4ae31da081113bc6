//! An image copied while the kernel has it mounted: much of its metadata is only in the journal. The
//! engine recovers the same tree as the kernel, mounted read-only and writable.

use crate::foreign::kernel_tree;
use crate::script;
use crate::support::{Image, assert_same, checked_image, load, open, open_read_only, tree};
use drystone_sync::Arc;
use drystone_testkit::judges::{FeatureSet, crashed_image, kernel_mount};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Names in the largest directory.
const NAMES: usize = 600;
/// In the lowest byte of `s_feature_incompat`.
const NEEDS_RECOVERY: u8 = 4;

for_sets! { check:
    default default_1k default_2k modern modern_1k bigalloc bigalloc_1k inline_data inline_data_1k
    large_inodes_1k meta_bg large_dir ea_inode mmp small_inodes_1k ext3 ext3_1k block_maps
    no_checksums group_checksums group_checksums_64bit _32bit no_flex_bg no_filetype hash_legacy
    small_journal
}

fn check(set: &'static FeatureSet) {
    let Some(image) = Image::new(set) else { return };
    let mount = image.scratch.join("mount");
    // No commit of the timer happens between the work and the copy.
    let mounted = kernel_mount(&image.path, &mount, "commit=1000").unwrap();
    let Some(mounted) = mounted else { return };
    script::everything(mounted.path(), set, NAMES).unwrap();
    let [copy, second] = ["copy", "second"].map(|name| image.scratch.join(name));
    let open_files = work_on(mounted.path());
    fs::write(&copy, crashed_image(&image.path).unwrap()).unwrap();
    drop(open_files);
    mounted.unmount().unwrap();
    // Not asked of debugfs, which refuses bitmaps that only the journal makes right.
    let mut superblock = [0; 1024];
    File::open(&copy).unwrap().read_exact_at(&mut superblock, 1024).unwrap();
    assert_ne!(superblock[0x60] & NEEDS_RECOVERY, 0, "the copy's journal is empty");

    fs::copy(&copy, &second).unwrap();
    let Some(expected) = kernel_tree(&second, &mount) else { return };
    let device = Arc::new(load(&copy));
    let before = device.to_vec();
    let engine = open_read_only(&device);
    assert_same(&tree(&engine), &expected, "the engine, reading (left) and the kernel (right)");
    engine.close().unwrap();
    drop(engine);
    assert!(device.to_vec() == before, "reading has changed the image");
    let engine = open(&device);
    assert_same(&tree(&engine), &expected, "the engine (left) and the kernel (right)");
    engine.close().unwrap();
    drop(engine);
    let recovered = checked_image(&image.scratch, &device, "recovered");
    let Some(found) = kernel_tree(&recovered, &mount) else { return };
    assert_same(&found, &expected, "the kernel after the engine (left) and instead of it (right)");
}

/// Makes changes that are in the journal, changes that aren't yet, and files without names.
fn work_on(root: &Path) -> Vec<File> {
    let directory = root.join("synced");
    fs::create_dir(&directory).unwrap();
    for index in 0..100_u32 {
        fs::write(directory.join(format!("file-{index}")), index.to_string().repeat(500)).unwrap();
    }
    fs::remove_dir_all(root.join("comings")).unwrap();
    let open_files: Vec<File> = (0..10)
        .map(|index| {
            let path = directory.join(format!("unlinked-{index}"));
            let mut file = File::create(&path).unwrap();
            file.write_all(&vec![index; 30_000]).unwrap();
            fs::remove_file(path).unwrap();
            file
        })
        .collect();
    // The space of deleted files is used again.
    fs::write(root.join("again"), vec![7; 400_000]).unwrap();
    rustix::fs::syncfs(File::open(root).unwrap()).unwrap();
    for index in 0..50 {
        fs::write(directory.join(format!("late-{index}")), "late").unwrap();
        fs::remove_file(directory.join(format!("file-{index}"))).unwrap();
    }
    open_files
}
