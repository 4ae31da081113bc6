//! Quota files: what a repair makes anew, and what it leaves alone.

use crate::edited::{make, repaired_contents};
use crate::repairing::{repair_all, told};
use drystone_blockdev::{BlockDevice, MemoryDevice};
use drystone_ext4_format::InodeNumber;
use drystone_ext4_format::quota::{
    BLOCK_LENGTH, MemoryQuotaBlocks, QuotaEntry, QuotaFile, QuotaKind, build,
};
use drystone_ext4_format::superblock::{SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET_BYTES, Superblock};
use drystone_fsck::{CheckOptions, Issue, Problem, QuotaIssue, RepairOutcome, check};
use drystone_testkit::contents::ImageContents;
use drystone_testkit::judges::{Scratch, have, run};
use std::ffi::OsStr;
use std::fs;

/// A superblock that names a user's file, or the file of another kind, for a quota file costs neither.
#[test]
fn no_file_is_overwritten_by_quota() {
    if !have("debugfs") {
        return;
    }
    let scratch = Scratch::new("fsck-quota-file").unwrap();
    for (requests, left) in [
        ("write SMALL /a\nssv usr_quota_inum 12", (None, Some(InodeNumber::GROUP_QUOTA))),
        ("write SMALL /a\nssv usr_quota_inum 4", (None, Some(InodeNumber::GROUP_QUOTA))),
        ("write SMALL /a\nssv grp_quota_inum 3", (Some(InodeNumber::USER_QUOTA), None)),
    ] {
        let damaged = fs::read(make(&scratch, "-t ext4 -O quota", requests)).unwrap();
        let before = ImageContents::of(MemoryDevice::from_bytes(&damaged)).unwrap();
        let after = repaired_contents(&scratch, &damaged);
        let number = before.names[&b"/a"[..]];
        assert_eq!(after.names.get(&b"/a"[..]), Some(&number), "{requests}");
        assert!(after.files[&number] == before.files[&number], "{requests}");
        let device = MemoryDevice::from_bytes(&damaged);
        repair_all(&device).unwrap();
        let mut bytes = [0; SUPERBLOCK_BYTES];
        device.read_at(SUPERBLOCK_OFFSET_BYTES, &mut bytes).unwrap();
        let superblock = Superblock::check(&bytes).unwrap();
        let files = (superblock.user_quota_inode(), superblock.group_quota_inode());
        assert_eq!(files, left, "{requests}");
    }
}

/// The same for projects, whose file may be in any inode: one with a name, one without that is somebody's, and one that
/// is only damaged.
#[test]
fn no_file_is_overwritten_by_quota_of_projects() {
    if !have("debugfs") {
        return;
    }
    let scratch = Scratch::new("fsck-project-quota-file").unwrap();
    let options = "-t ext4 -I 256 -O quota,project";
    let quota = |device: &MemoryDevice| {
        let mut bytes = [0; SUPERBLOCK_BYTES];
        device.read_at(SUPERBLOCK_OFFSET_BYTES, &mut bytes).unwrap();
        Superblock::check(&bytes).unwrap().project_quota_inode()
    };
    let sound = fs::read(make(&scratch, options, "write SMALL /a")).unwrap();
    let sound = ImageContents::of(MemoryDevice::from_bytes(&sound)).unwrap();
    let number = sound.names[&b"/a"[..]];
    let named = format!("write SMALL /a\nssv prj_quota_inum {number}");
    let lost = format!("{named}\nsif /a mode 0100644\nunlink /a");
    let name_lost = format!("/lost+found/#{number}");
    for (requests, name) in [(named, "/a"), (lost, &name_lost)] {
        let damaged = fs::read(make(&scratch, options, &requests)).unwrap();
        let device = MemoryDevice::from_bytes(&damaged);
        assert_eq!(quota(&device), Some(InodeNumber::new(number)));
        let after = repaired_contents(&scratch, &damaged);
        repair_all(&device).unwrap();
        assert_eq!(quota(&device), None, "{requests}");
        assert_eq!(after.names.get(name.as_bytes()), Some(&number), "{requests}");
        assert!(after.files[&number].blocks == sound.files[&number].blocks, "{requests}");
    }
    // Its first block is lost.
    let image = make(&scratch, options, "zap_block -f <12> 0");
    let device = MemoryDevice::from_bytes(&fs::read(&image).unwrap());
    assert_eq!(quota(&device), Some(InodeNumber::new(12)));
    let report = repair_all(&device).unwrap();
    assert!(report.is_clean() && report.repaired > 0, "{}", told(&Ok(report)));
    assert_eq!(quota(&device), Some(InodeNumber::new(12)), "{}", told(&Ok(report)));
}

/// An image with quota, and the blocks of its file for users: as many as limits of 14 users take.
fn with_quota(scratch: &Scratch) -> (Vec<u8>, Vec<u64>) {
    let path = make(scratch, "-t ext4 -O quota", "write SMALL /a");
    let arguments = ["-R", "blocks <3>"].map(OsStr::new).into_iter().chain([path.as_os_str()]);
    let listed = run("debugfs", arguments).unwrap().output;
    let places: Vec<u64> = listed.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    assert_eq!(places.len() * BLOCK_LENGTH, limits_of(QuotaKind::User).len(), "{listed}");
    (fs::read(path).unwrap(), places)
}

/// A quota file with limits of 14 owners.
fn limits_of(kind: QuotaKind) -> Vec<u8> {
    let limited = (0..14).map(|id| QuotaEntry { id, space_hard_limit: 500, ..Default::default() });
    build(kind, limited)
}

/// The limits that a repair leaves of the quota file with this content.
fn limits_after_repair(image: &[u8], places: &[u64], content: &[u8]) -> Vec<u64> {
    let device = MemoryDevice::from_bytes(image);
    for (place, block) in places.iter().zip(content.chunks(BLOCK_LENGTH)) {
        device.write_at(place * BLOCK_LENGTH as u64, block).unwrap();
    }
    let report = repair_all(&device).unwrap();
    assert!(report.is_clean(), "{}", told(&Ok(report)));
    let mut file = vec![0; content.len()];
    for (place, block) in places.iter().zip(file.chunks_mut(BLOCK_LENGTH)) {
        device.read_at(place * BLOCK_LENGTH as u64, block).unwrap();
    }
    let blocks = MemoryQuotaBlocks::from_bytes(&file);
    let found = QuotaFile::open(QuotaKind::User, blocks).unwrap().entries().unwrap();
    found.iter().map(|entry| entry.space_hard_limit).collect()
}

/// The first blocks of a quota file are lost: the limits are not.
#[test]
fn limits_outlive_the_head_of_their_file() {
    if !have("debugfs") {
        return;
    }
    let scratch = Scratch::new("fsck-quota-head").unwrap();
    let (image, places) = with_quota(&scratch);
    for lost in [1, 2] {
        let mut damaged = limits_of(QuotaKind::User);
        damaged[..lost * BLOCK_LENGTH].fill(0);
        assert_eq!(limits_after_repair(&image, &places, &damaged), [500; 14], "{lost}");
    }
}

#[test]
fn limits_of_groups_are_not_taken_for_those_of_users() {
    if !have("debugfs") {
        return;
    }
    let scratch = Scratch::new("fsck-quota-kind").unwrap();
    let (image, places) = with_quota(&scratch);
    assert_eq!(limits_after_repair(&image, &places, &limits_of(QuotaKind::Group)), [0]);
}

/// A file that the superblock names by mistake isn't searched for limits: it may be large, and has none.
#[test]
fn no_limits_are_lost_in_a_file_that_is_no_quota_file() {
    if !have("debugfs") {
        return;
    }
    let scratch = Scratch::new("fsck-quota-search").unwrap();
    let mut looks_like_entries = limits_of(QuotaKind::User);
    let entries_at = looks_like_entries.len() - BLOCK_LENGTH;
    looks_like_entries[..entries_at].fill(0xff);
    let file = scratch.join("file");
    fs::write(&file, looks_like_entries).unwrap();
    let requests = format!("write {} /a\nssv usr_quota_inum 12", file.display());
    let image = fs::read(make(&scratch, "-t ext4 -O quota", &requests)).unwrap();
    let device = MemoryDevice::from_bytes(&image);
    let found = check(&device, &CheckOptions::default(), &mut |_| {}).unwrap();
    let is_lost = |problem: &Problem| {
        matches!(problem.issue, Issue::Quota { issue: QuotaIssue::Lost { .. }, .. })
    };
    assert!(!found.is_clean() && !found.problems.iter().any(is_lost), "{:?}", found.problems);
}

/// A quota file that needs another block, where there is none, stays as it is, and the report is that of a check.
#[test]
fn a_quota_file_without_room_stays_as_it_is() {
    if !have("debugfs") {
        return;
    }
    let scratch = Scratch::new("fsck-edited-quota").unwrap();
    let owned: String = (0..20)
        .map(|number| format!("write SMALL /f{number}\nsif /f{number} uid {}\n", 1000 + number))
        .collect();
    let image = make(&scratch, "-t ext4 -O quota -N 64", &(owned + "write LARGE /filler"));
    let device = MemoryDevice::from_bytes(&fs::read(&image).unwrap());
    let report = repair_all(&device).unwrap();
    let left: Vec<&Problem> = report
        .problems
        .iter()
        .filter(|problem| problem.repair != RepairOutcome::Repaired)
        .map(|problem| &problem.problem)
        .collect();
    let found = check(&device, &CheckOptions::default(), &mut |_| {}).unwrap();
    assert!(found.errors > 0 && left.iter().copied().eq(&found.problems), "{left:?}");
    let wrong_usage = |problem: &Problem| {
        matches!(problem.issue, Issue::Quota { issue: QuotaIssue::Usage { .. }, .. })
    };
    assert!(found.problems.iter().all(wrong_usage), "{:?}", found.problems);
}
