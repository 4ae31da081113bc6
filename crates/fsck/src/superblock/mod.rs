//! The superblock: finding one that can be used, what it says, and its copies.

mod backups;
mod copies;
mod find;
mod root;

use crate::checker::Checker;
use crate::image::Image;
use crate::issue::SuperblockIssue;
use crate::report::Reporter;
pub(crate) use backups::check_backups;
use drystone_ext4_format::InodeNumber;
use drystone_ext4_format::casefold::Encoding;
use drystone_ext4_format::features::{Compat, Features, Incompat, ReadOnlyCompat};
use drystone_ext4_format::superblock::{StateFlags, Superblock};
pub(crate) use find::find;

/// Without the 64bit feature descriptors have 32 bytes, whatever is stored; but no tool takes it as
/// sound if the number could never be a size.
const DESCRIPTOR_BYTES_MAX: u16 = 1024;

/// Whether all blocks of the image are on the device.
pub(crate) fn check_size(image: &Image<'_>, reporter: &mut Reporter<'_>) -> bool {
    let blocks = image.layout.blocks_count();
    let device_blocks = image.device.size_bytes() >> image.layout.log_block_size();
    if blocks > device_blocks {
        reporter.report(SuperblockIssue::DeviceTooSmall { blocks, device_blocks });
    }
    blocks <= device_blocks
}

/// Checks what the superblock says about itself.
pub(crate) fn check(checker: &mut Checker<'_>) {
    let superblock = &checker.image.superblock;
    let layout = checker.image.layout;
    let features = superblock.features();
    let mut issues = Vec::new();
    check_features(superblock, features, &mut issues);
    let mut field = |field, value: u64| issues.push(SuperblockIssue::Field { field, value });
    if superblock.reserved_blocks_count() > layout.blocks_count() / 2 {
        field("s_r_blocks_count", superblock.reserved_blocks_count());
    }
    let size = superblock.stored_descriptor_size();
    if size != 0 && (!size.is_power_of_two() || size > DESCRIPTOR_BYTES_MAX) {
        field("s_desc_size", u64::from(size));
    }
    // Inodes of 128 bytes have no room for more, and nobody reads what is said of it.
    let room = layout.inode_size() as u64 - 128;
    for (name, value) in [
        ("s_min_extra_isize", superblock.min_extra_inode_size()),
        ("s_want_extra_isize", superblock.wanted_extra_inode_size()),
    ] {
        if room > 0 && (u64::from(value) > room || !value.is_multiple_of(4)) {
            field(name, u64::from(value));
        }
    }
    if superblock.error_count() > 0 || superblock.state().contains(StateFlags::ERRORS) {
        let count = superblock.error_count();
        issues.push(SuperblockIssue::ErrorsRecorded { count });
    }
    let times = [
        ("s_mtime", superblock.mount_time_seconds()),
        ("s_wtime", superblock.write_time_seconds()),
    ];
    for (field, seconds) in times {
        if checker.reporter.now_seconds.is_some_and(|now| seconds > now) {
            issues.push(SuperblockIssue::Future { field, seconds });
        }
    }
    for issue in issues {
        checker.reporter.report(issue);
    }
}

fn check_features(superblock: &Superblock, features: Features, issues: &mut Vec<SuperblockIssue>) {
    let Features { compat, incompat, read_only_compat } = features;
    let conflicts = [
        (
            read_only_compat.contains(ReadOnlyCompat::GDT_CSUM | ReadOnlyCompat::METADATA_CSUM),
            ("uninit_bg", "metadata_csum"),
        ),
        (
            compat.contains(Compat::RESIZE_INODE) && incompat.contains(Incompat::META_BG),
            ("resize_inode", "meta_bg"),
        ),
    ];
    for (applies, (first, second)) in conflicts {
        if applies {
            issues.push(SuperblockIssue::FeatureConflict { first, second });
        }
    }
    if superblock.revision() == 0 && features != Features::NONE {
        issues.push(SuperblockIssue::OldRevision);
    }
    let has_extents = incompat.contains(Incompat::EXTENTS);
    let has_journal = compat.contains(Compat::HAS_JOURNAL);
    let has_quota = read_only_compat.contains(ReadOnlyCompat::QUOTA);
    let checksums = read_only_compat.contains(ReadOnlyCompat::METADATA_CSUM);
    let is_large = superblock.layout().blocks_count() >> 32 != 0;
    let encoding = Encoding::from_raw(superblock.encoding());
    let names_journal = superblock.journal_inode().is_some() || superblock.journal_device() != 0;
    let needs = [
        (
            incompat.contains(Incompat::CSUM_SEED) && !checksums,
            "metadata_csum_seed",
            "metadata_csum",
        ),
        (read_only_compat.contains(ReadOnlyCompat::BIGALLOC) && !has_extents, "bigalloc", "extent"),
        (is_large && !has_extents, "64bit", "extent"),
        (incompat.contains(Incompat::RECOVER) && !has_journal, "needs_recovery", "has_journal"),
        (has_journal && !names_journal, "has_journal", "a journal"),
        (
            read_only_compat.contains(ReadOnlyCompat::ORPHAN_PRESENT)
                && !compat.contains(Compat::ORPHAN_FILE),
            "orphan_present",
            "orphan_file",
        ),
        (
            compat.contains(Compat::ORPHAN_FILE) && superblock.orphan_file_inode().is_none(),
            "orphan_file",
            "an orphan file",
        ),
        (compat.contains(Compat::ORPHAN_FILE) && !has_journal, "orphan_file", "has_journal"),
        (
            incompat.contains(Incompat::CASEFOLD) && encoding.is_none(),
            "casefold",
            "a known encoding",
        ),
        (
            has_quota
                && superblock.user_quota_inode().is_none()
                && superblock.group_quota_inode().is_none()
                && superblock.project_quota_inode().is_none(),
            "quota",
            "a quota file",
        ),
        (incompat.contains(Incompat::MMP) && superblock.mmp_block().is_none(), "mmp", "a block"),
        (
            compat.contains(Compat::DIR_INDEX) && superblock.hash_version().is_none(),
            "dir_index",
            "a known hash function",
        ),
    ];
    for (applies, feature, needed) in needs {
        if applies {
            issues.push(SuperblockIssue::FeatureNeeds { feature, needed });
        }
    }
    let reserved = u64::from(superblock.layout().reserved_descriptor_blocks());
    let journal = superblock.journal_inode().map_or(0, |inode| u64::from(inode.get()));
    let number = |inode: Option<InodeNumber>| inode.map_or(0, |inode| u64::from(inode.get()));
    let is_outside = has_journal && superblock.journal_inode().is_none();
    let journal_uuid = u128::from_le_bytes(superblock.journal_uuid()) as u64;
    let has_uuid = superblock.journal_uuid() != [0; 16];
    let fields = [
        (!is_outside && has_uuid, "s_journal_uuid", journal_uuid.max(1), "an external journal"),
        (!has_quota, "s_usr_quota_inum", number(superblock.user_quota_inode()), "quota"),
        (!has_quota, "s_grp_quota_inum", number(superblock.group_quota_inode()), "quota"),
        (!has_quota, "s_prj_quota_inum", number(superblock.project_quota_inode()), "quota"),
        (!compat.contains(Compat::RESIZE_INODE), "s_reserved_gdt_blocks", reserved, "resize_inode"),
        (!has_journal, "s_journal_inum", journal, "has_journal"),
    ];
    for (applies, field, value, feature) in fields {
        if applies && value != 0 {
            issues.push(SuperblockIssue::FieldWithoutFeature { field, value, feature });
        }
    }
}

/// Checks that readers are told of files that not all of them can read.
pub(crate) fn check_large_files(checker: &mut Checker<'_>) {
    let features = checker.image.superblock.features();
    if checker.found.has_large_file
        && !features.read_only_compat.contains(ReadOnlyCompat::LARGE_FILE)
    {
        let (feature, needed) = ("a file of 2 GiB or more", "large_file");
        checker.reporter.report(SuperblockIssue::FeatureNeeds { feature, needed });
    }
}
