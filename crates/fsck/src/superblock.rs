//! The superblock: finding one that can be used, and what it says.

use crate::checker::Checker;
use crate::image::{Error, Image};
use crate::issue::{BackupIssue, Issue, SuperblockIssue};
use crate::report::Reporter;
use drystone_blockdev::BlockDevice;
use drystone_ext4_format::casefold::Encoding;
use drystone_ext4_format::features::{Compat, Features, Incompat, ReadOnlyCompat};
use drystone_ext4_format::group::GroupDescriptor;
use drystone_ext4_format::superblock::{
    SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET_BYTES, StateFlags, Superblock,
};
use drystone_ext4_format::{Corrupt, FormatError, GroupNumber, InodeNumber, PhysicalBlock};

/// Features whose rules are checked, or that have none. What may not be used at all was refused.
const KNOWN_FEATURES: Features = Features {
    compat: Compat::DIR_PREALLOC
        .union(Compat::IMAGIC_INODES)
        .union(Compat::HAS_JOURNAL)
        .union(Compat::EXT_ATTR)
        .union(Compat::RESIZE_INODE)
        .union(Compat::DIR_INDEX)
        .union(Compat::SPARSE_SUPER2)
        .union(Compat::FAST_COMMIT)
        .union(Compat::STABLE_INODES)
        .union(Compat::ORPHAN_FILE),
    incompat: Incompat::all(),
    read_only_compat: ReadOnlyCompat::WRITABLE
        .union(ReadOnlyCompat::READONLY)
        .union(ReadOnlyCompat::SHARED_BLOCKS),
};

/// Where the fields lie that say how many inodes there are.
const INODES_COUNT: usize = 0;
const BLOCKS_COUNT: usize = 4;
const FIRST_DATA_BLOCK: usize = 0x14;
const BLOCKS_PER_GROUP: usize = 0x20;
const INODES_PER_GROUP: usize = 0x28;

/// The largest group ends here; a smaller one has its copy before.
const ODD_BACKUP_BYTES_MAX: u64 = 129 << 20;
/// Copies are looked for in pieces of this size.
const SEARCH_BYTES: usize = 1 << 20;
/// Where a superblock has its magic number.
const MAGIC_OFFSET: usize = 56;
const MAGIC: [u8; 2] = [0x53, 0xef];

/// Without the 64bit feature descriptors have 32 bytes, whatever is stored; but no tool takes it as
/// sound if the number could never be a size.
const DESCRIPTOR_BYTES_MAX: u16 = 1024;

/// Reads a superblock; a wrong checksum is an issue, anything else an error.
fn read_at(
    device: &dyn BlockDevice,
    offset: u64,
) -> Result<Result<Superblock, FormatError>, Error> {
    let mut bytes = [0; SUPERBLOCK_BYTES];
    if device.size_bytes() < offset + SUPERBLOCK_BYTES as u64 {
        let found = device.size_bytes().saturating_sub(offset) as usize;
        let needed = SUPERBLOCK_BYTES;
        return Ok(Err(Corrupt::Truncated { structure: "superblock", needed, found }.into()));
    }
    device.read_at(offset, &mut bytes)?;
    Ok(Superblock::check_unsealed(&bytes))
}

/// Finds a superblock: the primary one, or the first backup that is one. Nothing if the primary one
/// is damaged beyond use, which is reported, and there is no backup.
pub(crate) fn find(
    device: &dyn BlockDevice,
    reporter: &mut Reporter<'_>,
) -> Result<Option<Superblock>, Error> {
    let problem = match read_at(device, SUPERBLOCK_OFFSET_BYTES)? {
        Ok(superblock) => {
            check_checksum(device, reporter)?;
            let unknown = superblock.features().difference(KNOWN_FEATURES);
            if unknown != Features::NONE {
                return Err(Error::UnknownFeatures { features: unknown.to_string() });
            }
            return Ok(Some(superblock));
        }
        Err(FormatError::Unsupported(unsupported)) => {
            // Damage may look like a feature; a backup tells.
            match find_backup(device)? {
                Some((superblock, backup)) => {
                    let problem = unsupported.into();
                    reporter.report(SuperblockIssue::Unusable { problem, backup });
                    return Ok(Some(superblock));
                }
                None => return Err(unsupported.into()),
            }
        }
        Err(problem) => problem,
    };
    let is_none = |problem: &FormatError| {
        let FormatError::Corrupt(corrupt) = problem else { return true };
        matches!(corrupt, Corrupt::Truncated { .. } | Corrupt::SuperblockMagic { .. })
    };
    match find_backup(device)? {
        Some((superblock, backup)) => {
            reporter.report(SuperblockIssue::Unusable { problem, backup });
            Ok(Some(superblock))
        }
        None if is_none(&problem) => Err(Error::NotExt(problem)),
        None => {
            let found = with_inodes_of_groups(device)?;
            reporter.report(match &found {
                Some((_, value)) => {
                    SuperblockIssue::Field { field: "s_inodes_count", value: *value }
                }
                None => SuperblockIssue::Damaged { problem },
            });
            Ok(found.map(|(superblock, _)| superblock))
        }
    }
}

/// The primary superblock with as many inodes as its groups have, if it can be used then, and what it says
/// that there were.
fn with_inodes_of_groups(device: &dyn BlockDevice) -> Result<Option<(Superblock, u64)>, Error> {
    let mut bytes = [0; SUPERBLOCK_BYTES];
    device.read_at(SUPERBLOCK_OFFSET_BYTES, &mut bytes)?;
    let word =
        |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let [inodes, blocks, first, blocks_per_group, inodes_per_group] =
        [INODES_COUNT, BLOCKS_COUNT, FIRST_DATA_BLOCK, BLOCKS_PER_GROUP, INODES_PER_GROUP]
            .map(word);
    if blocks_per_group == 0 {
        return Ok(None);
    }
    // An image with more blocks has copies.
    let groups = blocks.saturating_sub(first).div_ceil(blocks_per_group);
    let Some(counted) = groups.checked_mul(inodes_per_group) else { return Ok(None) };
    bytes[INODES_COUNT..INODES_COUNT + 4].copy_from_slice(&counted.to_le_bytes());
    Ok(Superblock::check_unsealed(&bytes).ok().map(|superblock| (superblock, u64::from(inodes))))
}

fn check_checksum(device: &dyn BlockDevice, reporter: &mut Reporter<'_>) -> Result<(), Error> {
    let mut bytes = [0; SUPERBLOCK_BYTES];
    device.read_at(SUPERBLOCK_OFFSET_BYTES, &mut bytes)?;
    if let Err(FormatError::Corrupt(corrupt)) = Superblock::check(&bytes) {
        reporter.report(corrupt);
    }
    Ok(())
}

/// Looks where the first backups of each block size lie in full groups.
fn find_backup(device: &dyn BlockDevice) -> Result<Option<(Superblock, PhysicalBlock)>, Error> {
    for log_block_size in 10..=16 {
        let blocks_per_group = 8u64 << log_block_size;
        for group in [1, 3] {
            let block = group * blocks_per_group + u64::from(log_block_size == 10);
            if let Ok(superblock) = read_at(device, block << log_block_size)? {
                let layout = superblock.layout();
                let is_own = layout.log_block_size() == log_block_size
                    && layout.group_of_block(PhysicalBlock::new(block))
                        == Some(GroupNumber::new(group as u32));
                if is_own {
                    return Ok(Some((superblock, PhysicalBlock::new(block))));
                }
            }
        }
    }
    find_odd_backup(device)
}

/// Looks for a copy in groups of any size.
fn find_odd_backup(device: &dyn BlockDevice) -> Result<Option<(Superblock, PhysicalBlock)>, Error> {
    let end = device.size_bytes().min(ODD_BACKUP_BYTES_MAX);
    let mut piece = vec![0; SEARCH_BYTES];
    for start in (0..end).step_by(SEARCH_BYTES) {
        let bytes = &mut piece[..SEARCH_BYTES.min((end - start) as usize)];
        device.read_at(start, bytes)?;
        for at in (0..bytes.len()).step_by(SUPERBLOCK_BYTES) {
            let magic = bytes.get(at + MAGIC_OFFSET..at + MAGIC_OFFSET + 2);
            let offset = start + at as u64;
            if magic != Some(&MAGIC[..]) || offset == SUPERBLOCK_OFFSET_BYTES {
                continue;
            }
            let Ok(superblock) = read_at(device, offset)? else { continue };
            // A copy of another image, in a file of this one, is in no place of a copy.
            let layout = superblock.layout();
            let place = layout.superblock_groups().skip(1).find_map(|group| {
                let (block, within) = layout.superblock_location(group)?;
                let place = (block.get() << layout.log_block_size()) + within as u64;
                (place == offset).then_some(block)
            });
            if let Some(block) = place {
                return Ok(Some((superblock, block)));
            }
        }
    }
    Ok(None)
}

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
    if checker.has_large_file && !features.read_only_compat.contains(ReadOnlyCompat::LARGE_FILE) {
        let (feature, needed) = ("a file of 2 GiB or more", "large_file");
        checker.reporter.report(SuperblockIssue::FeatureNeeds { feature, needed });
    }
}

/// Flags that change while an image is in use, and that copies don't follow.
fn settled(features: Features) -> Features {
    Features {
        compat: features.compat,
        incompat: features.incompat.difference(Incompat::RECOVER),
        read_only_compat: features
            .read_only_compat
            .difference(ReadOnlyCompat::ORPHAN_PRESENT | ReadOnlyCompat::LARGE_FILE),
    }
}

/// Checks the copies of the superblock and of the descriptors.
pub(crate) fn check_backups(checker: &mut Checker<'_>) -> Result<(), Error> {
    let layout = checker.image.layout;
    for group in layout.superblock_groups().skip(1) {
        let Some((block, offset)) = layout.superblock_location(group) else { continue };
        let bytes = checker.image.read_block(block)?;
        let primary = &checker.image.superblock;
        let issue = match Superblock::check(&bytes[offset..]) {
            Err(error) => Some(BackupIssue::Unusable(error)),
            Ok(copy) => compare(primary, &copy),
        };
        if let Some(issue) = issue {
            checker.reporter.report(Issue::Backup { group, block, issue });
        }
    }
    check_descriptor_backups(checker)
}

/// Compares copies of whole descriptor tables; meta block groups have none.
fn check_descriptor_backups(checker: &mut Checker<'_>) -> Result<(), Error> {
    let layout = checker.image.layout;
    if layout.features().incompat.contains(Incompat::META_BG) {
        return Ok(());
    }
    let per_block = layout.descriptors_per_block();
    for group in layout.superblock_groups().skip(1) {
        let base = layout.group_base(group);
        let Some(first) = base.descriptors else { continue };
        for index in 0..base.descriptor_blocks {
            let block = PhysicalBlock::new(first.get() + u64::from(index));
            if !layout.contains_blocks(block, 1) {
                break;
            }
            let bytes = checker.image.read_block(block)?;
            let copies = bytes.chunks_exact(layout.descriptor_size());
            let numbers = index * per_block..layout.group_count();
            let different = numbers.zip(copies).find(|(number, copy)| {
                let own = &checker.groups[*number as usize].descriptor;
                GroupDescriptor::read(copy, &layout).is_ok_and(|copy| {
                    copy.block_bitmap != own.block_bitmap
                        || copy.inode_bitmap != own.inode_bitmap
                        || copy.inode_table != own.inode_table
                })
            });
            if let Some((descriptor, _)) = different {
                let issue = BackupIssue::Descriptor { descriptor };
                checker.reporter.report(Issue::Backup { group, block, issue });
            }
        }
    }
    Ok(())
}

fn compare(primary: &Superblock, copy: &Superblock) -> Option<BackupIssue> {
    let (ours, theirs) = (primary.layout(), copy.layout());
    let different = [
        ("s_uuid", primary.uuid() == copy.uuid()),
        ("s_blocks_count", ours.blocks_count() == theirs.blocks_count()),
        ("s_inodes_count", ours.inodes_count() == theirs.inodes_count()),
        ("s_log_block_size", ours.log_block_size() == theirs.log_block_size()),
        ("s_log_cluster_size", ours.log_cluster_ratio() == theirs.log_cluster_ratio()),
        ("s_blocks_per_group", ours.blocks_per_group() == theirs.blocks_per_group()),
        ("s_inodes_per_group", ours.inodes_per_group() == theirs.inodes_per_group()),
        ("s_inode_size", ours.inode_size() == theirs.inode_size()),
        ("s_desc_size", ours.descriptor_size() == theirs.descriptor_size()),
    ];
    if let Some((field, _)) = different.into_iter().find(|(_, is_same)| !is_same) {
        return Some(BackupIssue::Differs { field });
    }
    let found = settled(copy.features());
    (found != settled(primary.features()))
        .then(|| BackupIssue::Features { found: found.to_string() })
}
