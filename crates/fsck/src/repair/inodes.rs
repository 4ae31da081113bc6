//! Inodes: fields, counts and checksums.

use super::fields::{
    FLAGS, MODE, SIZE_HIGH, SIZE_LOW, clear_flags, set, set_deletion_time, set_size, set_type,
};
use super::maps;
use super::repairer::{Done, Repairer};
use super::salvage;
use super::superblock::change_features;
use crate::image::Error;
use crate::inode_content::{HOLDS_TARGET, is_reserved, text_length};
use crate::issue::InodeIssue;
use crate::mapping;
use drystone_ext4_format::dir::EntryType;
use drystone_ext4_format::error::InodeProblem;
use drystone_ext4_format::extent::Extent;
use drystone_ext4_format::features::{Incompat, ReadOnlyCompat};
use drystone_ext4_format::inode::{InodeFlags, ModeFileType};
use drystone_ext4_format::xattr::{
    self, AttributeName, AttributePlace, AttributesBlock, InodeValueFields, XattrView,
};
use drystone_ext4_format::{InodeNumber, LogicalBlock, PhysicalBlock};
use std::ops::Range;

/// Where fields lie in an inode.
const USER_LOW: Range<usize> = 2..4;
const ACCESS_TIME: Range<usize> = 8..12;
const CHANGE_TIME: Range<usize> = 12..16;
const GROUP_LOW: Range<usize> = 24..26;
const LINKS: Range<usize> = 26..28;
const VERSION_LOW: Range<usize> = 36..40;
const ATTRIBUTE_BLOCK_LOW: Range<usize> = 104..108;
const FRAGMENT: Range<usize> = 112..116;
const BLOCKS_HIGH: Range<usize> = 116..118;
const ATTRIBUTE_BLOCK_HIGH: Range<usize> = 118..120;
const USER_HIGH: Range<usize> = 120..122;
const GROUP_HIGH: Range<usize> = 122..124;
const EXTRA_SIZE: Range<usize> = 128..130;

pub(super) fn repair(
    repairer: &mut Repairer<'_, '_>,
    inode: InodeNumber,
    issue: &InodeIssue,
) -> Result<Done, Error> {
    let is_of_map = matches!(
        issue,
        InodeIssue::Size { .. }
            | InodeIssue::Sectors { .. }
            | InodeIssue::Symlink { .. }
            | InodeIssue::TooLarge { .. }
            | InodeIssue::Field { field: "i_size_high", .. }
    );
    if is_of_map && repairer.rebuilt_maps.contains(&inode.get()) {
        // What was counted is of the map before.
        return Ok(Some("the inode's map was corrected"));
    }
    let is_of_fast_link = matches!(
        issue,
        InodeIssue::Sectors { .. }
            | InodeIssue::Symlink { .. }
            | InodeIssue::Flag { flag: "extents", what: HOLDS_TARGET }
    );
    if is_of_fast_link && let Some(done) = salvage::restore_link_size(repairer, inode)? {
        repairer.rebuilt_maps.insert(inode.get());
        return Ok(Some(done));
    }
    match *issue {
        InodeIssue::DeletionTime { .. } => {
            let is_used = repairer.checker.states.stored_links(inode) > 0
                || inode < repairer.checker.image.layout.first_inode();
            let time = if is_used { 0 } else { repairer.now };
            set_deletion_time(repairer, inode, time)
        }
        InodeIssue::NotDeleted => set_deletion_time(repairer, inode, repairer.now),
        InodeIssue::Flag { flag: "extents", what: "an inode of another kind" }
        | InodeIssue::Field { field: "i_size", .. } => {
            match salvage::restore_type(repairer, inode)? {
                Some(done) => Ok(Some(done)),
                None => {
                    clear_flags(repairer, inode, InodeFlags::EXTENTS)?;
                    repair_zero(repairer, inode, "i_size")
                }
            }
        }
        InodeIssue::Flag { flag, what } => repair_flag(repairer, inode, flag, what),
        InodeIssue::NeedsExtents => maps::use_extents(repairer, inode),
        InodeIssue::FixedSpecial => {
            clear_flags(repairer, inode, InodeFlags::IMMUTABLE | InodeFlags::APPEND)
        }
        // A reserved inode that has a type is used for something else than it is for.
        InodeIssue::Field { field: "i_mode", .. } if inode != InodeNumber::BAD_BLOCKS => {
            repairer.clear_inode(inode)
        }
        InodeIssue::Field { field, .. } => repair_zero(repairer, inode, field),
        InodeIssue::Size { expected, .. } => set_size(repairer, inode, expected),
        InodeIssue::Sectors { stored, counted } => {
            let found = repairer.checker.image.inode(inode)?;
            let is_file = found.is_some_and(|(inode, _)| inode.mode != 0);
            if is_reserved(inode, &repairer.checker.image.layout)
                && inode != InodeNumber::BAD_BLOCKS
                && !is_file
            {
                // It is used for nothing, and should map nothing.
                return repairer.clear_inode(inode);
            }
            let layout = repairer.checker.image.layout;
            let per_cluster = layout.sectors_per_block() << layout.log_cluster_ratio();
            let missing = stored.saturating_sub(counted);
            if missing > 0
                && missing.is_multiple_of(per_cluster)
                && let Some(done) =
                    salvage::uncover_entries(repairer, inode, missing / per_cluster)?
            {
                return Ok(Some(done));
            }
            repairer.edit_fields(inode, |inode| inode.sectors = counted)
        }
        InodeIssue::Symlink { found, .. } => {
            let is_inline = repairer
                .checker
                .image
                .inode(inode)?
                .is_some_and(|(inode, _)| inode.flags.contains(InodeFlags::INLINE_DATA));
            if pointers_behind_target(repairer, inode)? {
                return maps::rebuild(repairer, inode, |extent| extent.overlap(0, 1));
            }
            // A link without its whole target leads nowhere, or elsewhere.
            if found == 0 || is_inline {
                return repairer.clear_inode(inode);
            }
            set_size(repairer, inode, found)
        }
        InodeIssue::ReservedInUse => repairer.clear_inode(inode),
        InodeIssue::Links { counted, .. } => {
            let is_directory = repairer.checker.states.kind(inode) == EntryType::Directory;
            match u16::try_from(counted) {
                Ok(counted) if counted <= drystone_ext4_format::layout::LINKS_MAX => {
                    set(repairer, inode, LINKS, u64::from(counted))
                }
                // A directory's count stops where it would overflow.
                _ if is_directory => set(repairer, inode, LINKS, 1),
                _ => Ok(None),
            }
        }
        InodeIssue::ValueReferences { counted, .. } => {
            let fields = InodeValueFields { reference_count: counted, hash: 0 };
            let (change_time, version_low, _) = fields.to_inode();
            repairer.edit_inode(inode, |bytes| {
                bytes[CHANGE_TIME].copy_from_slice(&change_time.to_le_bytes());
                bytes[VERSION_LOW].copy_from_slice(&version_low.to_le_bytes());
            })
        }
        InodeIssue::TooLarge { .. } => {
            let Some(pieces) = maps::take_apart(repairer, inode)? else { return Ok(None) };
            let end = pieces.extents.last().map_or(0, Extent::logical_end);
            set_size(repairer, inode, end << repairer.checker.image.layout.log_block_size())
        }
        InodeIssue::SharedNode { .. } => maps::rebuild(repairer, inode, Some),
        InodeIssue::Misaligned { .. } => {
            let layout = repairer.checker.image.layout;
            let ratio = u64::from(layout.blocks_per_cluster());
            let first = u64::from(layout.first_data_block());
            let is_aligned = |extent: &Extent| {
                let place = extent.physical.get().saturating_sub(first);
                extent.logical.as_u64() % ratio == place % ratio
            };
            maps::rebuild(repairer, inode, |extent| Some(extent).filter(is_aligned))
        }
        _ => Ok(None),
    }
}

/// Whether an inode is a directory whose blocks end where none may.
pub(super) fn is_too_large(repairer: &Repairer<'_, '_>, inode: InodeNumber, size: u64) -> bool {
    let features = repairer.checker.image.layout.features();
    repairer.checker.states.kind(inode) == EntryType::Directory
        && u32::try_from(size).is_err()
        && !features.incompat.contains(Incompat::LARGE_DIR)
}

/// Whether a link maps more than the block with its target, which is sound.
fn pointers_behind_target(repairer: &Repairer<'_, '_>, number: InodeNumber) -> Result<bool, Error> {
    let Some((inode, _)) = repairer.checker.image.inode(number)? else { return Ok(false) };
    if !inode.has_block_mapping() {
        return Ok(false);
    }
    let extents = mapping::extents_of(&repairer.checker.image, &inode)?;
    let Some(block) = mapping::find_written(&extents, LogicalBlock::FIRST) else {
        return Ok(false);
    };
    let bytes = repairer.checker.image.read_block(block)?;
    let target = text_length(&bytes);
    let has_more = if inode.flags.contains(InodeFlags::EXTENTS) {
        extents.last().is_some_and(|last| last.logical_end() > 1)
    } else {
        inode.block_area[4..].iter().any(|&byte| byte != 0)
    };
    Ok(has_more && target == inode.size_bytes)
}

/// Repairs a field that has an impossible value.
pub(super) fn repair_field(
    repairer: &mut Repairer<'_, '_>,
    inode: InodeNumber,
    problem: InodeProblem,
) -> Result<Done, Error> {
    match problem {
        InodeProblem::FileType { .. } => {
            // What maps blocks may hold somebody's data; the rest is nothing.
            let pieces = maps::take_apart(repairer, inode)?;
            if pieces.is_none_or(|pieces| pieces.extents.is_empty()) {
                return repairer.clear_inode(inode);
            }
            match salvage::restore_directory(repairer, inode)? {
                Some(done) => Ok(Some(done)),
                None => set_type(repairer, inode, ModeFileType::Regular),
            }
        }
        InodeProblem::ExtraSize { .. } => {
            let size = repairer.checker.image.layout.extra_inode_size();
            set(repairer, inode, EXTRA_SIZE, u64::from(size))
        }
        _ => Ok(None),
    }
}

/// Clears a flag, or turns the feature on that it shows to be there.
fn repair_flag(
    repairer: &Repairer<'_, '_>,
    inode: InodeNumber,
    flag: &str,
    what: &str,
) -> Result<Done, Error> {
    let is_featureless = what == "without its feature";
    match flag {
        "extents" if is_featureless && has_extent_root(repairer, inode)? => {
            change_features(repairer, |features| features.incompat.insert(Incompat::EXTENTS))
        }
        "extents"
            if what == "an inode with inline data"
                && has_extent_root(repairer, inode)?
                && !has_inline_data(repairer, inode)? =>
        {
            clear_flags(repairer, inode, InodeFlags::INLINE_DATA)
        }
        // One damaged inode is no sign of a feature.
        "verity" | "encrypt" | "ea_inode" | "inline_data"
            if is_featureless && repairer.is_garbled(inode) =>
        {
            repair_flag(repairer, inode, flag, "an inode of another kind")
        }
        "verity" if is_featureless => {
            let verity = ReadOnlyCompat::VERITY;
            change_features(repairer, |features| features.read_only_compat.insert(verity))
        }
        "encrypt" if is_featureless => {
            change_features(repairer, |features| features.incompat.insert(Incompat::ENCRYPT))
        }
        "ea_inode" if is_featureless => {
            change_features(repairer, |features| features.incompat.insert(Incompat::EA_INODE))
        }
        "inline_data" if is_featureless && has_inline_data(repairer, inode)? => {
            change_features(repairer, |features| features.incompat.insert(Incompat::INLINE_DATA))
        }
        "extents" => clear_flags(repairer, inode, InodeFlags::EXTENTS),
        "inline_data" => clear_flags(repairer, inode, InodeFlags::INLINE_DATA),
        "index" => clear_flags(repairer, inode, InodeFlags::INDEX),
        "ea_inode" => clear_flags(repairer, inode, InodeFlags::EA_INODE),
        "casefold" => clear_flags(repairer, inode, InodeFlags::CASEFOLD),
        "encrypt" => clear_flags(repairer, inode, InodeFlags::ENCRYPT),
        "verity" => clear_flags(repairer, inode, InodeFlags::VERITY),
        "imagic" => clear_flags(repairer, inode, InodeFlags::IMAGIC),
        _ => Ok(None),
    }
}

/// Whether what an inode has in place of pointers is the root of an extent tree.
fn has_extent_root(repairer: &Repairer<'_, '_>, number: InodeNumber) -> Result<bool, Error> {
    use drystone_ext4_format::extent::{ExtentNode, NodePlace};
    let Some((inode, _)) = repairer.checker.image.inode(number)? else { return Ok(false) };
    Ok(ExtentNode::reopen(&inode.block_area, NodePlace::root(number)).is_ok())
}

/// Whether an inode has the attribute that inline data need.
fn has_inline_data(repairer: &Repairer<'_, '_>, number: InodeNumber) -> Result<bool, Error> {
    let Some((inode, bytes)) = repairer.checker.image.inode(number)? else { return Ok(false) };
    let area = bytes.get(inode.attribute_area(&repairer.checker.image.layout)).unwrap_or(&[]);
    let place = AttributePlace { inode: number, block: None };
    let name = AttributeName::inline_data();
    let attributes = XattrView::check_in_inode(area, place);
    Ok(attributes.is_ok_and(|found| found.find(name.index, &name.suffix).is_some()))
}

/// Zeroes a field that has to be zero.
fn repair_zero(
    repairer: &Repairer<'_, '_>,
    inode: InodeNumber,
    field: &str,
) -> Result<Done, Error> {
    let zeroed: &[Range<usize>] = match field {
        "i_faddr" => &[FRAGMENT],
        "i_blocks_hi" => &[BLOCKS_HIGH],
        "i_file_acl_hi" => &[ATTRIBUTE_BLOCK_HIGH],
        "i_size_high" => &[SIZE_HIGH],
        "i_size" => &[SIZE_LOW, SIZE_HIGH],
        "i_file_acl" => &[ATTRIBUTE_BLOCK_LOW, ATTRIBUTE_BLOCK_HIGH],
        "i_mode" => &[MODE],
        "i_flags" => &[FLAGS],
        "i_uid" => &[USER_LOW, USER_HIGH],
        "i_gid" => &[GROUP_LOW, GROUP_HIGH],
        "i_links_count" => &[LINKS],
        _ => return Ok(None),
    };
    repairer.edit_inode(inode, |bytes| {
        for range in zeroed {
            bytes[range.clone()].fill(0);
        }
    })
}

/// Stores how many inodes share a block of attributes.
pub(super) fn set_references(
    repairer: &Repairer<'_, '_>,
    inode: InodeNumber,
    block: PhysicalBlock,
    counted: u32,
) -> Result<Done, Error> {
    let layout = repairer.checker.image.layout;
    let mut bytes = repairer.checker.image.read_block(block)?;
    if AttributesBlock::check(&bytes, AttributePlace { inode, block: Some(block) }).is_err() {
        return Ok(None);
    }
    xattr::set_reference_count(&mut bytes, counted);
    xattr::seal_block(&mut bytes, layout.checksum_seed(), block);
    repairer.write_block(block, &bytes)?;
    Ok(Some("the block's count was corrected"))
}

/// The hash of a value, as its inode stores it.
pub(super) fn set_value_hash(
    repairer: &Repairer<'_, '_>,
    value: InodeNumber,
    hash: u32,
) -> Result<Done, Error> {
    repairer.edit_inode(value, |bytes| bytes[ACCESS_TIME].copy_from_slice(&hash.to_le_bytes()))
}
