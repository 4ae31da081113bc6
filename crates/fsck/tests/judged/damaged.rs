//! Images damaged with debugfs are reported by e2fsck and by the checker, with the right place.

use crate::images;
use drystone_blockdev::{BlockDevice, DeviceResult, FileDevice, MemoryDevice, OpenMode};
use drystone_ext4_format::features::{Features, Incompat};
use drystone_ext4_format::layout::Geometry;
use drystone_ext4_format::superblock::Superblock;
use drystone_fsck::{CheckOptions, Error, check};
use drystone_sync::atomic::{AtomicU64, Ordering};
use drystone_testkit::judges::{FeatureSet, Scratch, e2fsck_check, have, run};
use std::ffi::OsStr;
use std::fs;

/// What debugfs does, one request after the other, and a kind of problem that must be found.
const DAMAGE: &[(&str, &str, &str)] = &[
    ("default-1k", "clri <12>", "directory_unused"),
    ("default-1k", "clri /directory", "inode_unattached"),
    ("default-1k", "unlink /small", "inode_unattached"),
    ("default-1k", "unlink /directory/again", "inode_links"),
    ("default-1k", "ln /small /other", "inode_links"),
    ("default-1k", "ln /directory /loop", "inode_second_parent"),
    ("default-1k", "sif /small links_count 5", "inode_links"),
    ("default-1k", "sif /small mode 0170644", "corrupt_inode"),
    ("default-1k", "sif /small size 99999", ""),
    ("default-1k", "sif /large size 10", "inode_size"),
    ("default-1k", "sif /directory size 0", "inode_size"),
    ("default-1k", "sif /small blocks 99", "inode_sectors"),
    ("default-1k", "sif /small dtime 1234567", "inode_deletion_time"),
    ("default-1k", "sif /small flags 0x10080000", "inode_flag"),
    ("default-1k", "sif /small flags 0", ""),
    ("default-1k", "sif /small file_acl 1", "corrupt_block_out_of_range"),
    ("default-1k", "sif /small file_acl 5000000", "corrupt_block_out_of_range"),
    ("default-1k", "sif /small file_acl 200", "blocks_claimed_twice"),
    ("default-1k", "sif /small block[0] 0", "corrupt_extent_header"),
    ("default-1k", "sif /small block[3] 4", ""),
    ("default-1k", "sif /small block[5] 1", "corrupt_extent_entry"),
    ("default-1k", "sif /small block[5] 8000000", "corrupt_extent_entry"),
    ("default-1k", "sif /fifo size 10", "inode_field"),
    ("default-1k", "feature -ext_attr", "inode_field"),
    ("default-1k", "sif \"/short link\" flags 0x80000", "inode_flag"),
    ("default-1k", "sif <2> mode 0100644", "inode_root_not_directory"),
    ("default-1k", "sif <7> block[DIND] 0", "inode_purpose"),
    ("default-1k", "sif <8> mode 0", "inode_purpose"),
    ("default-1k", "sif <8> size 1048575", "journal_length"),
    ("default-1k", "sif <8> block[5] 0", ""),
    ("default-1k", "sif /tiny generation 77", ""),
    ("default-1k", "freeb 1500 20", ""),
    ("default-1k", "setb 15000 7", "group_blocks_not_used"),
    ("default-1k", "freei /small", "group_inodes_not_marked"),
    ("default-1k", "seti <500>", "group_inodes_not_used"),
    ("default-1k", "set_bg 0 free_blocks_count 1", "group_free_clusters"),
    ("default-1k", "set_bg 0 free_inodes_count 1", "group_free_inodes"),
    ("default-1k", "set_bg 0 used_dirs_count 9", "group_directories"),
    ("default-1k", "set_bg 0 itable_unused 2040", "group_inode_among_unused"),
    ("default-1k", "set_bg 0 flags 0x7", "group_inode_in_uninitialised"),
    ("default-1k", "set_bg 0 inode_table 5", ""),
    ("default-1k", "set_bg 0 block_bitmap 0", "corrupt_group_location"),
    ("default-1k", "ssv last_orphan 12", ""),
    ("default-1k", "ssv feature_incompat 0x42", ""),
    ("default-1k", "ssv reserved_gdt_blocks 3", ""),
    ("default-1k", "ssv journal_inum 0", ""),
    ("default-1k", "sif <1> block[0] 1500", "blocks_claimed_twice"),
    ("default-1k", "sif <1> uid 5", "inode_field"),
    ("default-1k", "sif <3> links_count 1", "inode_reserved_in_use"),
    ("default-1k", "sif <5> blocks 8", "inode_sectors"),
    ("default-1k", "sif <6> size 0x4000000000000", "inode_too_large"),
    ("default-1k", "sif <9> dtime 12", "inode_deletion_time"),
    ("default-1k", "sif <10> mode 040755", "inode_field"),
    ("ext3-1k", "sif <400> dtime 12", "inode_deletion_time"),
    ("default-1k", "sif <8> size 99999999", "journal_size"),
    ("default-1k", "sif /directory/below links_count 1", "inode_links"),
    ("default-1k", "sif /large size 698000", "inode_size"),
    (
        "default-1k",
        "ssv journal_uuid 6f0f2ef4-6b3c-4b02-9a53-111111111111",
        "superblock_field_without_feature",
    ),
    ("default-1k", "ssv usr_quota_inum 12", "superblock_field_without_feature"),
    ("default-1k", "sif /sparse size 5000000000; feature -large_file", "superblock_feature_needs"),
    ("default-1k", "set_bg 1 flags 0x6", "group_flags"),
    ("default-1k", "feature imagic_inodes; sif /small flags 0x82000; unlink /small", ""),
    ("modern-1k", "feature orphan_present", "orphans_announced"),
    ("large-inodes", "sif /large flags 0x80800", "attributes_no_encryption_context"),
    ("ext3-1k", "ssv desc_size 33", "superblock_field"),
    ("ext3-1k", "sif /large block[IND] 40", "blocks_claimed_twice"),
    ("ext3-1k", "sif /large block[0] 4000000", "corrupt_block_pointer"),
    ("ext3-1k", "sif /large block[3] 0", "inode_sectors"),
    ("ext3-1k", "sif /large block[DIND] 8300", ""),
    ("ext3-1k", "clri /directory/below", "directory_unused"),
    ("inline-data-1k", "sif /directory/below size 17", "inode_size"),
    ("inline-data-1k", "sif /directory/below block[0] 11", "inode_parent"),
    ("inline-data-1k", "sif /directory/below block[1] 4000", ""),
    ("modern-1k", "ssv orphan_file_inum 5", "orphans_file"),
    ("quota", "sif <3> size 1024", ""),
    ("quota", "sif <3> size 2147483649", "quota_size"),
    ("quota", "ssv usr_quota_inum 12", ""),
    ("bigalloc-1k", "sif /large block[5] 3001", ""),
];

#[test]
fn damage_by_debugfs_is_found() {
    if !have("debugfs") {
        return;
    }
    let _alone = images::alone();
    let scratch = Scratch::new("fsck-damaged").unwrap();
    let tree = scratch.join("tree");
    fs::create_dir(&tree).unwrap();
    images::fill(&tree, 60);
    let image = scratch.join("image");
    let mut failures = String::new();
    for (name, command, expected) in DAMAGE {
        let original = scratch.join(name);
        if !original.exists() {
            let set = FeatureSet::by_name(name).unwrap();
            images::make(&original, set, Some(&tree)).expect_clean(name);
            run("e2fsck", [OsStr::new("-fy"), original.as_os_str()]).unwrap();
        }
        fs::copy(&original, &image).unwrap();
        for request in command.split("; ") {
            let arguments = ["-w", "-R", request].map(OsStr::new);
            run("debugfs", arguments.into_iter().chain([image.as_os_str()])).unwrap();
        }
        if fs::read(&original).unwrap() == fs::read(&image).unwrap() {
            failures += &format!("{name}: {command}: changes nothing\n");
            continue;
        }
        let report = images::check_file(&image);
        let judgement = e2fsck_check(&image).unwrap();
        let is_named = report.problems.iter().any(|problem| problem.issue.code() == *expected);
        if report.is_clean() != judgement.is_clean() || !(is_named || expected.is_empty()) {
            let codes: Vec<_> =
                report.problems.iter().map(|problem| problem.issue.code()).collect();
            failures += &format!(
                "{name}: {command}: {codes:?}\n{}{}\n",
                images::problems(&report),
                judgement.output
            );
        }
    }
    assert!(failures.is_empty(), "{failures}");
}

#[test]
fn a_backup_stands_in_for_the_superblock() {
    if !have("mke2fs") {
        return;
    }
    let _alone = images::alone();
    let scratch = Scratch::new("fsck-backup").unwrap();
    let image = scratch.join("image");
    images::make(&image, FeatureSet::by_name("default-1k").unwrap(), None).expect_clean("mke2fs");
    let mut bytes = fs::read(&image).unwrap();
    bytes[1024..2048].fill(0);
    fs::write(&image, &bytes).unwrap();
    let report = images::check_file(&image);
    let codes: Vec<_> = report.problems.iter().map(|problem| problem.issue.code()).collect();
    assert_eq!(codes, ["superblock_unusable"]);

    bytes.fill(0);
    let device = MemoryDevice::from_bytes(&bytes);
    let nothing = check(&device, &CheckOptions::default(), &mut |_| {});
    assert!(matches!(nothing, Err(Error::NotExt(_))));
}

/// A file whose first two extents are one block: its second extent starts where the first one ends.
#[test]
fn a_block_that_a_file_has_twice_is_found() {
    if !have("debugfs") {
        return;
    }
    let scratch = Scratch::new("fsck-twice").unwrap();
    let (tree, image) = (scratch.join("tree"), scratch.join("image"));
    fs::create_dir(&tree).unwrap();
    images::fill(&tree, 3);
    images::make(&image, FeatureSet::by_name("default-1k").unwrap(), Some(&tree))
        .expect_clean("mke2fs");
    let debugfs = |request: &str| {
        let arguments = ["-w", "-R", request].map(OsStr::new);
        run("debugfs", arguments.into_iter().chain([image.as_os_str()])).unwrap().output
    };
    let mapped = debugfs("bmap /small 0");
    let block = mapped.split_whitespace().last().unwrap().to_owned();
    for field in [
        // Two entries; the second one maps logical block 1.
        "block[0] 0x0002f30a",
        "block[6] 1",
        "block[7] 1",
        &format!("block[8] {block}"),
        "blocks 4",
        "size 2048",
    ] {
        debugfs(&format!("sif /small {field}"));
    }
    assert!(!e2fsck_check(&image).unwrap().is_clean());
    let report = images::check_file(&image);
    let codes: Vec<_> = report.problems.iter().map(|problem| problem.issue.code()).collect();
    assert_eq!(codes, ["blocks_claimed_twice"]);
}

/// What a mount may ignore may still have rules that a checker must know.
#[test]
fn unknown_features_are_not_judged() {
    if !have("debugfs") {
        return;
    }
    let scratch = Scratch::new("fsck-features").unwrap();
    let image = scratch.join("image");
    for feature in ["FEATURE_C20", "FEATURE_R20"] {
        images::make(&image, FeatureSet::by_name("default-1k").unwrap(), None)
            .expect_clean("mke2fs");
        let request = format!("feature {feature}");
        let arguments = ["-w", "-R", &request].map(OsStr::new);
        run("debugfs", arguments.into_iter().chain([image.as_os_str()])).unwrap();
        assert!(e2fsck_check(&image).unwrap().code >= 8);
        let device = FileDevice::open(&image, OpenMode::ReadOnly).unwrap();
        let checked = check(&device, &CheckOptions::default(), &mut |_| {});
        assert!(matches!(checked, Err(Error::UnknownFeatures { .. })), "{checked:?}");
    }
}

/// A copy that is used instead of the primary superblock must not hide features that nobody knows.
#[test]
fn unknown_features_of_a_copy_are_not_judged() {
    if !have("debugfs") {
        return;
    }
    let scratch = Scratch::new("fsck-copied-features").unwrap();
    let image = scratch.join("image");
    images::make(&image, FeatureSet::by_name("default-1k").unwrap(), None).expect_clean("mke2fs");
    let arguments = ["-w", "-R", "feature FEATURE_R20"].map(OsStr::new);
    run("debugfs", arguments.into_iter().chain([image.as_os_str()])).unwrap();
    let mut bytes = fs::read(&image).unwrap();
    let superblock = Superblock::check(&bytes[1024..2048]).unwrap();
    for group in superblock.layout().superblock_groups().skip(1) {
        let (block, _) = superblock.layout().superblock_location(group).unwrap();
        let start = block.get() as usize * superblock.layout().block_size();
        bytes[start..start + 1024].copy_from_slice(&superblock.encode_for_group(group));
    }
    bytes[1024..2048].fill(0);
    fs::write(&image, &bytes).unwrap();
    assert!(e2fsck_check(&image).unwrap().code >= 8);
    let device = MemoryDevice::from_bytes(&bytes);
    let checked = check(&device, &CheckOptions::default(), &mut |_| {});
    assert!(matches!(checked, Err(Error::UnknownFeatures { .. })), "{checked:?}");
}

/// Without the other device nobody can tell what the image holds.
#[test]
fn a_journal_elsewhere_that_must_be_replayed_is_not_judged() {
    if !have("debugfs") {
        return;
    }
    let scratch = Scratch::new("fsck-external").unwrap();
    let image = scratch.join("image");
    images::make(&image, FeatureSet::by_name("no-journal").unwrap(), None).expect_clean("mke2fs");
    for request in ["feature has_journal needs_recovery", "ssv journal_dev 0x801"] {
        let arguments = ["-w", "-R", request].map(OsStr::new);
        run("debugfs", arguments.into_iter().chain([image.as_os_str()])).unwrap();
    }
    assert!(e2fsck_check(&image).unwrap().code >= 8);
    let device = FileDevice::open(&image, OpenMode::ReadOnly).unwrap();
    let checked = check(&device, &CheckOptions::default(), &mut |_| {});
    assert!(matches!(checked, Err(Error::ExternalJournal { .. })), "{checked:?}");
    let as_is = CheckOptions::default().replay(false);
    let report = check(&device, &as_is, &mut |_| {}).unwrap();
    let codes: Vec<_> = report.problems.iter().map(|problem| problem.issue.code()).collect();
    assert!(codes.contains(&"journal_needs_replay".to_owned()), "{codes:?}");
}

/// A device of which only the start holds something; it counts what is read.
#[derive(Debug)]
struct Hollow {
    start: Vec<u8>,
    size_bytes: u64,
    read_bytes: AtomicU64,
}

impl BlockDevice for Hollow {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> DeviceResult {
        self.read_bytes.fetch_add(buffer.len() as u64, Ordering::Relaxed);
        buffer.fill(0);
        let rest = self.start.get(offset as usize..).unwrap_or_default();
        let length = rest.len().min(buffer.len());
        buffer[..length].copy_from_slice(&rest[..length]);
        Ok(())
    }

    fn write_at(&self, _offset: u64, _data: &[u8]) -> DeviceResult {
        unreachable!("a checker writes nothing")
    }

    fn flush(&self) -> DeviceResult {
        Ok(())
    }
}

/// Neither memory nor time follows what a superblock claims.
#[test]
fn claimed_groups_cost_nothing() {
    let geometry = Geometry {
        features: Features {
            // Descriptors lie in their groups: one group alone can't hold those of millions.
            incompat: Incompat::SIXTY_FOUR_BIT | Incompat::META_BG,
            ..Features::NONE
        },
        uuid: [7; 16],
        checksum_seed: 0,
        log_block_size: 0,
        log_cluster_size: 0,
        blocks_count: 1 << 37,
        clusters_per_group: 8192,
        inodes_per_group: 8,
        inode_size: 128,
        first_inode: 11,
        descriptor_size: 64,
        reserved_descriptor_blocks: 0,
        first_meta_group: 0,
        log_groups_per_flex: 0,
        backup_groups: [0; 2],
        extra_inode_size: 0,
    };
    let superblock = Superblock::create(&geometry).unwrap();
    let mut start = vec![0; 2048];
    start[1024..].copy_from_slice(&superblock.encode());
    let size_bytes = geometry.blocks_count << superblock.layout().log_block_size();
    assert!(superblock.layout().group_count() >= 16_000_000);
    let device = Hollow { start, size_bytes, read_bytes: AtomicU64::new(0) };
    let report = check(&device, &CheckOptions::default(), &mut |_| {}).unwrap();
    let codes: Vec<_> = report.problems.iter().map(|problem| problem.issue.code()).collect();
    assert_eq!(codes.last().map(String::as_str), Some("corrupt_groups_damaged"));
    assert!(device.read_bytes.load(Ordering::Relaxed) < 16 << 20);
}
