//! Images with a journal that must be replayed: copies of what the kernel has mounted.

use crate::images;
use drystone_blockdev::{FileDevice, OpenMode};
use drystone_ext4_format::superblock::{SUPERBLOCK_OFFSET_BYTES, Superblock};
use drystone_fsck::{CheckOptions, Issue, JournalIssue, check};
use drystone_jbd2_format as jbd2;
use drystone_testkit::judges::{
    FeatureSet, Scratch, crashed_image, e2fsck_check, e2fsck_repair, have, kernel_mount, run,
};
use std::fs::{self, File};

#[test]
fn a_copy_of_a_mounted_image_is_clean_once_replayed() {
    if !have("e2fsck") {
        return;
    }
    let _alone = images::alone();
    let scratch = Scratch::new("fsck-journal").unwrap();
    for name in ["default", "modern-1k", "ext3-1k", "inline-data-1k"] {
        let image = scratch.join(name);
        images::make(&image, FeatureSet::by_name(name).unwrap(), None).expect_clean(name);
        let mount = scratch.join("mount");
        let Some(mounted) = kernel_mount(&image, &mount, "").unwrap() else { return };
        images::fill(&mount, 200);
        // An orphan, and metadata blocks that are revoked.
        let open = File::create(mount.join("open and removed")).unwrap();
        open.set_len(100_000).unwrap();
        fs::remove_file(mount.join("open and removed")).unwrap();
        fs::remove_dir_all(mount.join("directory/below")).unwrap();
        for number in 0..200 {
            fs::remove_file(
                mount.join(format!("directory/a name of some length, number {number}")),
            )
            .unwrap();
        }
        run("sync", ["-f", mount.to_str().unwrap()]).unwrap();
        let copy = scratch.join("copy");
        fs::write(&copy, crashed_image(&image).unwrap()).unwrap();
        drop(open);
        mounted.unmount().unwrap();

        let report = images::check_file(&copy);
        assert!(report.is_clean(), "{name}\n{}", images::problems(&report));
        assert!(report.summary.transactions_replayed > 0, "{name}");
        assert_eq!(report.summary.orphans, 1, "{name}");

        let device = FileDevice::open(&copy, OpenMode::ReadOnly).unwrap();
        let as_is = CheckOptions::default().replay(false);
        let report = check(&device, &as_is, &mut |_| {}).unwrap();
        let needed = Issue::Journal(JournalIssue::NeedsReplay);
        assert!(report.problems.iter().any(|problem| problem.issue == needed), "{name}");

        e2fsck_repair(&copy).unwrap();
        let report = images::check_file(&copy);
        assert!(report.is_clean(), "{name}\n{}", images::problems(&report));
        e2fsck_check(&copy).unwrap().expect_clean(name);
    }
}

/// The header of a block of the journal's own.
fn header(kind: u32, sequence: u32) -> Vec<u8> {
    [0xc03b_3998, kind, sequence].into_iter().flat_map(u32::to_be_bytes).collect()
}

/// A descriptor, then a commit block, of a transaction that others follow: older copies must not go
/// over what is at home.
#[test]
fn a_log_that_is_damaged_in_the_middle_is_not_replayed() {
    let _alone = images::alone();
    let scratch = Scratch::new("fsck-journal-damage").unwrap();
    let (image, copy) = (scratch.join("image"), scratch.join("copy"));
    if !have("e2fsck") {
        return;
    }
    images::make(&image, FeatureSet::by_name("default").unwrap(), None).expect_clean("mke2fs");
    let mount = scratch.join("mount");
    let Some(mounted) = kernel_mount(&image, &mount, "").unwrap() else { return };
    for number in 0..5 {
        fs::create_dir(mount.join(format!("directory {number}"))).unwrap();
        run("sync", ["-f", mount.to_str().unwrap()]).unwrap();
    }
    fs::write(&copy, crashed_image(&image).unwrap()).unwrap();
    mounted.unmount().unwrap();
    let bytes = fs::read(&copy).unwrap();
    let find = |kind, sequence| {
        let header = header(kind, sequence);
        (0..bytes.len()).step_by(1024).find(|&at| bytes[at..].starts_with(&header))
    };
    let committed: Vec<u32> = (0..50).filter(|sequence| find(2, *sequence).is_some()).collect();
    assert!(committed.len() >= 4, "{committed:?}");
    for kind in [1, 2] {
        let mut damaged = bytes.clone();
        damaged[find(kind, committed[1]).unwrap() + 20] ^= 1;
        fs::write(&copy, &damaged).unwrap();
        let report = images::check_file(&copy);
        let is_found = |issue: &Issue| matches!(issue, Issue::Journal(JournalIssue::Corrupt(_)));
        assert!(report.problems.iter().any(|problem| is_found(&problem.issue)), "kind {kind}");
        assert_eq!(report.summary.transactions_replayed, 0, "kind {kind}");
        let repaired = e2fsck_repair(&copy).unwrap();
        assert!(repaired.output.contains("journal"), "kind {kind}: {}", repaired.output);
    }
}

/// A file system that was growing when the power went has copies of blocks that it doesn't have yet.
#[test]
fn a_copy_of_a_block_behind_the_end_is_replayed() {
    if !have("e2fsck") {
        return;
    }
    let scratch = Scratch::new("fsck-journal-behind").unwrap();
    let image = scratch.join("image");
    File::create(&image).unwrap().set_len(32 << 20).unwrap();
    let name = image.to_str().unwrap();
    let arguments = ["-q", "-F", "-t", "ext4", "-b", "1024", name, "16384"];
    run("mke2fs", arguments).unwrap().expect_clean("mke2fs");
    let mut bytes = fs::read(&image).unwrap();
    // A superblock of version 2. The journal is in one piece.
    let journal = (0..bytes.len()).step_by(1024).find(|&at| bytes[at..].starts_with(&header(4, 0)));
    let journal = journal.unwrap();
    let mut superblock = jbd2::Superblock::check(&bytes[journal..]).unwrap();
    let (sequence, target) = (superblock.sequence(), 20_000);
    let (format, copy) = (superblock.format(), [7; 1024]);
    let mut descriptor = jbd2::DescriptorBuilder::new(&format, sequence);
    descriptor.push(target, false, format.copy_checksum(sequence, &copy));
    let commit = jbd2::Commit { seconds: u64::from(u32::MAX), nanoseconds: 0 };
    let checksum = jbd2::TransactionChecksum::new();
    let commit = jbd2::encode_commit(&format, sequence, commit, &checksum);
    let log = [&descriptor.finish()[..], &copy, &commit].concat();
    bytes[journal + 1024..][..log.len()].copy_from_slice(&log);
    superblock.set_log(Some(1), sequence);
    bytes[journal..][..1024].copy_from_slice(&superblock.to_bytes());
    let place = SUPERBLOCK_OFFSET_BYTES as usize..SUPERBLOCK_OFFSET_BYTES as usize + 1024;
    let mut superblock = Superblock::check(&bytes[place.clone()]).unwrap();
    superblock.set_needs_recovery(true);
    bytes[place].copy_from_slice(&superblock.encode());
    fs::write(&image, &bytes).unwrap();

    let report = images::check_file(&image);
    assert!(report.is_clean(), "{}", images::problems(&report));
    assert_eq!(report.summary.transactions_replayed, 1);
    e2fsck_repair(&image).unwrap();
    assert_eq!(fs::read(&image).unwrap()[target as usize * 1024..][..1024], copy);
    e2fsck_check(&image).unwrap().expect_clean("replayed by e2fsck");
}
