//! Superblocks as they are read, and their copies: where they are looked for, and when one counts more than a primary
//! superblock that can be read.

use super::backups::compare;
use super::root::leads_to_root;
use crate::image::Error;
use crate::issue::BackupIssue;
use drystone_blockdev::BlockDevice;
use drystone_ext4_format::features::Incompat;
use drystone_ext4_format::group::GroupDescriptor;
use drystone_ext4_format::layout::Layout;
use drystone_ext4_format::superblock::{
    CREATOR_LINUX, SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET_BYTES, Superblock,
};
use drystone_ext4_format::{Corrupt, FormatError, GroupNumber, PhysicalBlock};
use std::ops::Range;

/// The largest group ends here; a smaller one has its copy before.
const ODD_BACKUP_BYTES_MAX: u64 = 129 << 20;
/// Copies are looked for in pieces of this size.
const SEARCH_BYTES: usize = 1 << 20;
/// Where a superblock has its magic number.
const MAGIC_OFFSET: usize = 56;
/// Where it has what checksums start from.
const UUID: Range<usize> = 0x68..0x78;
const CHECKSUM_SEED: Range<usize> = 0x270..0x274;
const MAGIC: [u8; 2] = [0x53, 0xef];

/// Reads a superblock; a wrong checksum is an issue, anything else an error.
pub(super) fn read_at(
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

/// A copy whose checksum holds, if it says something else of what never changes in use: where structures
/// lie, and what their checksums start from. Of the rest a primary superblock with a wrong checksum knows more.
pub(super) fn better_backup(
    device: &dyn BlockDevice,
    primary: &Superblock,
) -> Result<Option<(Superblock, PhysicalBlock)>, Error> {
    let found = find_backup(device)?.filter(|(copy, _)| {
        let is_other = matches!(compare(primary, copy), Some(BackupIssue::Differs { .. }))
            || primary.layout().checksum_seed() != copy.layout().checksum_seed();
        copy.features().has_metadata_checksums() && is_other
    });
    let Some((copy, block)) = found else { return Ok(None) };
    // It was read without regard to its checksum.
    let sealed = read_sealed_at(device, block.get() << copy.layout().log_block_size())?;
    Ok(sealed.map(|copy| (copy, block)))
}

/// A superblock whose checksum holds.
fn read_sealed_at(device: &dyn BlockDevice, offset: u64) -> Result<Option<Superblock>, Error> {
    let mut bytes = [0; SUPERBLOCK_BYTES];
    if device.size_bytes() < offset.saturating_add(SUPERBLOCK_BYTES as u64) {
        return Ok(None);
    }
    device.read_at(offset, &mut bytes)?;
    Ok(Superblock::check(&bytes).ok())
}

/// A copy in place of the primary superblock: a mount has told only that one whether the journal has to be replayed.
fn in_place_of(primary: &Superblock, copy: &Superblock) -> Option<Superblock> {
    let mut features = copy.features();
    features.incompat |= primary.features().incompat & Incompat::RECOVER;
    copy.with_features(features).ok()
}

/// The copy in the second group, if it is of the same geometry, and the primary superblock either names no copy there,
/// or has an identity by which no descriptor's checksum holds, but some by the copy's.
pub(super) fn backup_of_second_group(
    device: &dyn BlockDevice,
    primary: &Superblock,
) -> Result<Option<(Superblock, PhysicalBlock)>, Error> {
    let layout = primary.layout();
    let second = GroupNumber::new(1);
    if layout.group_count() < 2 {
        return Ok(None);
    }
    let names_copy = |layout: &Layout| layout.superblock_groups().any(|group| group == second);
    let block = layout.group_first_block(second);
    // A damaged copy says nothing.
    let Some(copy) = read_sealed_at(device, block.get() << layout.log_block_size())? else {
        return Ok(None);
    };
    let is_same = |copy: &Layout| {
        copy.blocks_count() == layout.blocks_count()
            && copy.inodes_count() == layout.inodes_count()
            && copy.log_block_size() == layout.log_block_size()
            && copy.blocks_per_group() == layout.blocks_per_group()
            && copy.descriptor_size() == layout.descriptor_size()
            && names_copy(copy)
    };
    if !is_same(copy.layout()) {
        return Ok(None);
    }
    // Where the primary one names other groups, or checksums vouch for it, the block may hold anything.
    let is_unnamed = !names_copy(layout)
        && copy.uuid() == primary.uuid()
        && layout.superblock_groups().count() == 1
        && !layout.features().has_metadata_checksums();
    if !is_unnamed && !has_better_seed(device, layout, copy.layout())? {
        return Ok(None);
    }
    Ok(in_place_of(primary, &copy).map(|copy| (copy, block)))
}

/// The primary superblock with what checksums start from in the copy in the second group, whatever else of that one is
/// damaged, if some checksums of descriptors hold by it, and none by what the primary one says.
pub(super) fn with_seed_of_copy(
    device: &dyn BlockDevice,
    primary: &Superblock,
) -> Result<Option<(Superblock, PhysicalBlock)>, Error> {
    let layout = primary.layout();
    let second = GroupNumber::new(1);
    if layout.checksum_seed().is_none() || layout.group_count() < 2 {
        return Ok(None);
    }
    let Some((block, within)) = layout.superblock_location(second) else { return Ok(None) };
    let offset = (block.get() << layout.log_block_size()) + within as u64;
    if device.size_bytes() < offset.saturating_add(SUPERBLOCK_BYTES as u64) {
        return Ok(None);
    }
    let mut copy = [0; SUPERBLOCK_BYTES];
    device.read_at(offset, &mut copy)?;
    let seed = match layout.features().incompat.contains(Incompat::CSUM_SEED) {
        true => CHECKSUM_SEED,
        false => UUID,
    };
    let mut bytes = primary.encode();
    if bytes[seed.clone()] == copy[seed.clone()] {
        return Ok(None);
    }
    bytes[seed.clone()].copy_from_slice(&copy[seed]);
    let Ok(changed) = Superblock::check_unsealed(&bytes) else { return Ok(None) };
    let is_better = has_better_seed(device, layout, changed.layout())?;
    Ok(is_better.then_some((changed, block)))
}

/// Whether checksums of descriptors hold by another superblock only.
fn has_better_seed(
    device: &dyn BlockDevice,
    layout: &Layout,
    other: &Layout,
) -> Result<bool, Error> {
    Ok(layout.checksum_seed().is_some()
        && layout.checksum_seed() != other.checksum_seed()
        && sound_descriptors(device, layout)? == 0
        && sound_descriptors(device, other)? > 0)
}

/// How many descriptors of the first block and of its first copy have the right checksum.
fn sound_descriptors(device: &dyn BlockDevice, layout: &Layout) -> Result<usize, Error> {
    let mut sound = 0;
    let copies = layout.descriptor_backups(0);
    for block in layout.descriptor_block(0).into_iter().chain(copies.into_iter().take(1)) {
        let mut bytes = vec![0; layout.block_size()];
        let offset = block.get() << layout.log_block_size();
        if device.size_bytes() < offset.saturating_add(bytes.len() as u64) {
            continue;
        }
        device.read_at(offset, &mut bytes)?;
        let groups = (0..layout.group_count()).map(GroupNumber::new);
        let descriptors = groups.zip(bytes.chunks_exact(layout.descriptor_size()));
        let is_sound = |(group, bytes): &(GroupNumber, &[u8])| {
            GroupDescriptor::check_checksum(bytes, *group, layout).is_ok()
        };
        sound += descriptors.filter(is_sound).count();
    }
    Ok(sound)
}

/// A copy that leads to the root, if the primary superblock doesn't.
pub(super) fn backup_with_root(
    device: &dyn BlockDevice,
    primary: &Superblock,
) -> Result<Option<(Superblock, PhysicalBlock)>, Error> {
    if leads_to_root(device, primary)? {
        return Ok(None);
    }
    let layout = primary.layout();
    let place =
        layout.superblock_groups().nth(1).and_then(|group| layout.superblock_location(group));
    let own = match place {
        Some((block, within)) => {
            let copy = read_at(device, (block.get() << layout.log_block_size()) + within as u64)?;
            copy.ok().map(|copy| (copy, block))
        }
        None => None,
    };
    for (copy, block) in own.into_iter().chain(usual_backup(device)?) {
        // By the same layout the root is no better.
        let is_other = copy.layout() != layout && copy.uuid() == primary.uuid();
        if !is_other || !leads_to_root(device, &copy)? {
            continue;
        }
        return Ok(in_place_of(primary, &copy).map(|copy| (copy, block)));
    }
    Ok(None)
}

/// Whether there are copies that can be used, and all say that the image was made for Linux.
pub(super) fn copies_name_linux(
    device: &dyn BlockDevice,
    primary: &Superblock,
) -> Result<bool, Error> {
    let layout = primary.layout();
    let mut is_named = false;
    for group in layout.superblock_groups().skip(1) {
        let Some((block, within)) = layout.superblock_location(group) else { continue };
        let place = (block.get() << layout.log_block_size()) + within as u64;
        let Ok(copy) = read_at(device, place)? else { continue };
        if copy.uuid() != primary.uuid() {
            continue;
        }
        if copy.creator_os() != CREATOR_LINUX {
            return Ok(false);
        }
        is_named = true;
    }
    Ok(is_named)
}

/// Looks for a copy wherever the first ones may be.
pub(super) fn find_backup(
    device: &dyn BlockDevice,
) -> Result<Option<(Superblock, PhysicalBlock)>, Error> {
    match usual_backup(device)? {
        None => find_odd_backup(device),
        found => Ok(found),
    }
}

/// Looks where the first backups of each block size lie in full groups.
fn usual_backup(device: &dyn BlockDevice) -> Result<Option<(Superblock, PhysicalBlock)>, Error> {
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
    Ok(None)
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
