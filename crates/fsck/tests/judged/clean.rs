//! Images that e2fsck finds clean are clean.

use crate::images;
use drystone_testkit::judges::{
    FEATURE_SETS, FeatureSet, KernelSupport, Scratch, e2fsck_check, have, run,
};
use std::ffi::OsStr;
use std::fs;

#[test]
fn images_of_mke2fs_and_the_kernel_are_clean() {
    if !have("mke2fs") {
        return;
    }
    let _alone = images::alone();
    let scratch = Scratch::new("fsck-clean").unwrap();
    let tree = scratch.join("tree");
    fs::create_dir(&tree).unwrap();
    images::fill(&tree, 150);
    let mut disagreements = String::new();
    for set in FEATURE_SETS {
        let image = scratch.join(set.name);
        for (kind, filled) in [("empty", false), ("mke2fs -d", true), ("kernel", false)] {
            // What the kernel fills was empty before.
            if kind == "empty" && set.kernel == KernelSupport::Writes {
                continue;
            }
            let made = images::make(&image, set, filled.then_some(&*tree));
            if !made.is_clean() {
                eprintln!("{}: {kind}: not made: {}", set.name, made.output);
                continue;
            }
            let by_kernel = kind == "kernel";
            if by_kernel
                && (set.kernel != KernelSupport::Writes
                    || !images::fill_by_kernel(&image, &scratch.join("mount")))
            {
                continue;
            }
            let report = images::check_file(&image);
            let judgement = e2fsck_check(&image).unwrap();
            if judgement.is_clean() != report.is_clean() || report.warnings > 0 {
                let ours = images::problems(&report);
                let theirs = judgement.output;
                disagreements += &format!("{}: {kind}\n{ours}{theirs}\n", set.name);
            }
        }
        fs::remove_file(&image).unwrap();
    }
    assert!(disagreements.is_empty(), "{disagreements}");
}

#[test]
fn the_orphan_file_is_not_charged() {
    if !have("mke2fs") {
        return;
    }
    let scratch = Scratch::new("fsck-quota").unwrap();
    let image = scratch.join("image");
    let quota = FEATURE_SETS.iter().find(|set| set.arguments.contains("quota")).unwrap();
    let arguments = "-t ext4 -b 1024 -O quota,orphan_file";
    images::make(&image, &FeatureSet { arguments, ..*quota }, None).expect_clean("mke2fs");
    e2fsck_check(&image).unwrap().expect_clean("e2fsck");
    let report = images::check_file(&image);
    assert!(report.is_clean(), "{}", images::problems(&report));
}

/// As the kernel leaves an image in the background, when it has the time.
#[test]
fn tables_may_be_zeroed_without_group_checksums() {
    if !have("mke2fs") || !have("debugfs") {
        return;
    }
    let scratch = Scratch::new("fsck-zeroed").unwrap();
    let image = scratch.join("image");
    let set = FeatureSet::by_name("no-checksums").unwrap();
    images::make(&image, set, None).expect_clean("mke2fs");
    for (flags, is_clean) in [("0x4", true), ("0x1", false)] {
        let request = format!("set_bg 0 flags {flags}");
        run(
            "debugfs",
            ["-w", "-R", &request].map(OsStr::new).into_iter().chain([image.as_os_str()]),
        )
        .unwrap();
        assert_eq!(e2fsck_check(&image).unwrap().is_clean(), is_clean, "e2fsck, {flags}");
        assert_eq!(images::check_file(&image).is_clean(), is_clean, "{flags}");
    }
}

/// As Android makes images: files with the same content have the same blocks.
#[test]
fn files_may_share_blocks_with_the_feature() {
    if !have("mke2fs") || !have("debugfs") {
        return;
    }
    let scratch = Scratch::new("fsck-shared").unwrap();
    let (tree, image) = (scratch.join("tree"), scratch.join("image"));
    fs::create_dir(&tree).unwrap();
    images::fill(&tree, 3);
    let set = FeatureSet::by_name("default-1k").unwrap();
    images::make(&image, set, Some(&tree)).expect_clean("mke2fs");
    let debugfs = |request: &str| {
        let arguments = ["-w", "-R", request].map(OsStr::new);
        run("debugfs", arguments.into_iter().chain([image.as_os_str()])).unwrap().output
    };
    let mapped = debugfs("bmap /large 0");
    let block = mapped.split_whitespace().last().unwrap();
    let block: u64 = block.parse().unwrap_or_else(|_| panic!("bmap says {mapped}"));
    debugfs(&format!("sif /small block[5] {block}"));
    assert!(!images::check_file(&image).is_clean());
    debugfs("feature shared_blocks");
    // Frees what the file had before.
    run("e2fsck", [OsStr::new("-fy"), image.as_os_str()]).unwrap();
    e2fsck_check(&image).unwrap().expect_clean("shared blocks");
    let report = images::check_file(&image);
    assert!(report.is_clean(), "{}", images::problems(&report));
    assert_eq!(debugfs("bmap /small 0").split_whitespace().last(), Some(&*block.to_string()));
}
