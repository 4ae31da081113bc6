//! Finds a superblock that can be used: the primary one, a copy, or what can be made of the primary one.

use super::copies::{
    backup_of_second_group, backup_with_root, better_backup, copies_name_linux, find_backup,
    read_at, with_seed_of_copy,
};
use crate::image::Error;
use crate::issue::SuperblockIssue;
use crate::report::Reporter;
use drystone_blockdev::BlockDevice;
use drystone_ext4_format::features::{Compat, Features, Incompat, ReadOnlyCompat};
use drystone_ext4_format::group::GroupDescriptor;
use drystone_ext4_format::superblock::{
    CREATOR_HURD, CREATOR_LINUX, SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET_BYTES, Superblock,
    without_half_changed_mark,
};
use drystone_ext4_format::{Corrupt, FormatError, GroupNumber, PhysicalBlock};
use drystone_ondisk::bitmap;

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
const FIRST_META_GROUP: usize = 0x104;
const REVISION: usize = 0x4c;

/// Finds a superblock: the primary one, or the first backup that is one. Nothing if the primary one
/// is damaged beyond use, which is reported, and there is no backup. Whichever it is must have known
/// features only, and the inodes of Linux.
pub(crate) fn find(
    device: &dyn BlockDevice,
    reporter: &mut Reporter<'_>,
) -> Result<Option<Superblock>, Error> {
    let mut found = find_usable(device, reporter)?;
    let features = found.as_ref().map_or(Features::NONE, Superblock::features);
    let unknown = features.difference(KNOWN_FEATURES);
    if unknown != Features::NONE {
        return Err(Error::UnknownFeatures { features: unknown.to_string() });
    }
    if let Some(superblock) = found.as_mut().filter(|found| found.creator_os() == CREATOR_HURD) {
        expect_linux(device, superblock, reporter)?;
    }
    Ok(found)
}

/// Refuses an image of GNU Hurd, and corrects a superblock that was damaged to name it: Hurd has no checksums, and all
/// copies of the superblock name the system that the image was made for.
fn expect_linux(
    device: &dyn BlockDevice,
    superblock: &mut Superblock,
    reporter: &mut Reporter<'_>,
) -> Result<(), Error> {
    let has_checksums = superblock.features().has_metadata_checksums();
    if !has_checksums && !copies_name_linux(device, superblock)? {
        return Err(Error::Hurd);
    }
    // With the right checksum somebody has set it so.
    if !has_checksums || checksum_problem(device)?.is_some() {
        let value = CREATOR_HURD.into();
        reporter.report(SuperblockIssue::Field { field: "s_creator_os", value });
        superblock.set_creator_os(CREATOR_LINUX);
    }
    Ok(())
}

fn find_usable(
    device: &dyn BlockDevice,
    reporter: &mut Reporter<'_>,
) -> Result<Option<Superblock>, Error> {
    let problem = match read_at(device, SUPERBLOCK_OFFSET_BYTES)? {
        Ok(superblock) => {
            if let Some(newer) = with_newer_revision(device, &superblock)? {
                reporter.report(SuperblockIssue::Field { field: "s_rev_level", value: 0 });
                return Ok(Some(newer));
            }
            let Some(corrupt) = checksum_problem(device)? else {
                let mut better = backup_of_second_group(device, &superblock)?;
                if better.is_none() {
                    better = with_seed_of_copy(device, &superblock)?;
                }
                if better.is_none() {
                    better = backup_with_root(device, &superblock)?;
                }
                return Ok(Some(match better {
                    Some((copy, backup)) => {
                        reporter.report(SuperblockIssue::Misleading { backup });
                        copy
                    }
                    None => superblock,
                }));
            };
            if let Some((copy, backup)) = better_backup(device, &superblock)? {
                let problem = corrupt.into();
                reporter.report(SuperblockIssue::Unusable { problem, backup });
                return Ok(Some(copy));
            }
            reporter.report(corrupt);
            return Ok(Some(superblock));
        }
        Err(FormatError::Unsupported(unsupported)) => {
            // A change was interrupted, and its undo log is lost.
            if let Some(superblock) = marked(device)? {
                reporter.report(SuperblockIssue::HalfChanged);
                return Ok(Some(superblock));
            }
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
            let found = with_another_field(device)?;
            reporter.report(match &found {
                Some((_, field, value)) => SuperblockIssue::Field { field, value: (*value).into() },
                None => SuperblockIssue::Damaged { problem },
            });
            Ok(found.map(|(superblock, ..)| superblock))
        }
    }
}

/// A superblock of revision 0 with the newer revision, if a field that revision 0 hasn't says that it had that:
/// otherwise its inodes would be taken for others.
fn with_newer_revision(
    device: &dyn BlockDevice,
    superblock: &Superblock,
) -> Result<Option<Superblock>, Error> {
    if superblock.revision() != 0 {
        return Ok(None);
    }
    let mut bytes = [0; SUPERBLOCK_BYTES];
    device.read_at(SUPERBLOCK_OFFSET_BYTES, &mut bytes)?;
    bytes[REVISION] = 1;
    let Ok(newer) = Superblock::check_unsealed(&bytes) else { return Ok(None) };
    let is_sealed = newer.features().has_metadata_checksums() && Superblock::check(&bytes).is_ok();
    let is_other = newer.layout().inode_size() != superblock.layout().inode_size();
    Ok((is_sealed || is_other).then_some(newer))
}

/// The primary superblock with as many inodes as its groups have, with a part of its inodes in each group, or
/// with all groups in meta groups, if it can be used then; and which field was wrong, with what it said.
fn with_another_field(
    device: &dyn BlockDevice,
) -> Result<Option<(Superblock, &'static str, u32)>, Error> {
    let mut bytes = [0; SUPERBLOCK_BYTES];
    device.read_at(SUPERBLOCK_OFFSET_BYTES, &mut bytes)?;
    let word =
        |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let [inodes, blocks, first, blocks_per_group, inodes_per_group, meta_group] = [
        INODES_COUNT,
        BLOCKS_COUNT,
        FIRST_DATA_BLOCK,
        BLOCKS_PER_GROUP,
        INODES_PER_GROUP,
        FIRST_META_GROUP,
    ]
    .map(word);
    if blocks_per_group == 0 {
        return Ok(None);
    }
    // An image with more blocks has copies.
    let groups = blocks.saturating_sub(first).div_ceil(blocks_per_group);
    let of_groups = groups.checked_mul(inodes_per_group);
    let in_each = inodes.checked_div(groups).filter(|in_each| in_each * groups == inodes);
    let mut possible = Vec::new();
    for (field, at, new, old) in [
        ("s_inodes_per_group", INODES_PER_GROUP, in_each, inodes_per_group),
        ("s_inodes_count", INODES_COUNT, of_groups, inodes),
        ("s_first_meta_bg", FIRST_META_GROUP, Some(0), meta_group),
    ] {
        let Some(new) = new else { continue };
        let mut changed = bytes;
        changed[at..at + 4].copy_from_slice(&new.to_le_bytes());
        if let Ok(superblock) = Superblock::check_unsealed(&changed) {
            // The checksum was made when the number was right.
            if superblock.features().has_metadata_checksums() && Superblock::check(&changed).is_ok()
            {
                return Ok(Some((superblock, field, old)));
            }
            // The descriptors would be looked for elsewhere, unless all are in one block.
            let is_guess = at == FIRST_META_GROUP && superblock.layout().descriptor_blocks() > 1;
            if is_guess {
                continue;
            }
            possible.push((superblock, field, old));
        }
    }
    // More inodes than there are would be blocks of files; fewer would lose files.
    possible.sort_by_key(|(superblock, ..)| superblock.layout().inodes_per_group());
    let fitting = possible.iter().position(|(superblock, ..)| is_padded(device, superblock));
    Ok(possible.into_iter().nth(fitting.unwrap_or(0)))
}

/// Whether the first inode bitmap has only ones after as many bits as a group has inodes.
fn is_padded(device: &dyn BlockDevice, superblock: &Superblock) -> bool {
    let layout = superblock.layout();
    let read = |block: PhysicalBlock| {
        let mut bytes = vec![0; layout.block_size()];
        let offset = block.get().checked_mul(layout.block_size() as u64)?;
        device.read_at(offset, &mut bytes).ok().map(|()| bytes)
    };
    let bitmap = || {
        let (block, offset) = layout.descriptor_location(GroupNumber::FIRST)?;
        let bytes = read(block)?;
        let bytes = bytes.get(offset..offset + layout.descriptor_size())?;
        let descriptor = GroupDescriptor::read(bytes, layout).ok()?;
        read(descriptor.inode_bitmap)
    };
    let first = layout.inodes_per_group() as usize;
    bitmap().is_some_and(|bits| bitmap::find_zero(&bits, first..bits.len() * 8).is_none())
}

fn marked(device: &dyn BlockDevice) -> Result<Option<Superblock>, Error> {
    let mut bytes = [0; SUPERBLOCK_BYTES];
    device.read_at(SUPERBLOCK_OFFSET_BYTES, &mut bytes)?;
    let superblock = without_half_changed_mark(&bytes);
    Ok(superblock.filter(|found| found.features().difference(KNOWN_FEATURES) == Features::NONE))
}

/// What is wrong with the checksum of the primary superblock.
fn checksum_problem(device: &dyn BlockDevice) -> Result<Option<Corrupt>, Error> {
    let mut bytes = [0; SUPERBLOCK_BYTES];
    device.read_at(SUPERBLOCK_OFFSET_BYTES, &mut bytes)?;
    match Superblock::check(&bytes) {
        Err(FormatError::Corrupt(corrupt)) => Ok(Some(corrupt)),
        _ => Ok(None),
    }
}
