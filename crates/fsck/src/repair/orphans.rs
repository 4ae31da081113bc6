//! The record of orphans: what a mount would delete is deleted, and the record emptied.

use super::fields;
use super::maps;
use super::repairer::{Done, Repairer};
use super::superblock::change_features;
use crate::image::Error;
use crate::issue::OrphanIssue;
use crate::mapping;
use drystone_ext4_format::features::{Compat, ReadOnlyCompat};
use drystone_ext4_format::inode::{Inode, InodeFlags};
use drystone_ext4_format::orphan_file::{self, OrphanPlace};
use drystone_ext4_format::{InodeNumber, PhysicalBlock};

pub(super) fn repair(repairer: &mut Repairer<'_, '_>, issue: &OrphanIssue) -> Result<Done, Error> {
    match issue {
        OrphanIssue::Left { .. } => process(repairer),
        OrphanIssue::Announced => {
            repairer.edit_superblock(|superblock| superblock.set_orphan_present(false))
        }
        OrphanIssue::NoOrphan { .. } | OrphanIssue::Twice { .. } => process(repairer),
        OrphanIssue::NotEmpty { .. } => empty_file(repairer),
        OrphanIssue::File { inode } => give_up(repairer, *inode),
    }
}

/// Keeps orphans in a list through the inodes again.
fn give_up(repairer: &mut Repairer<'_, '_>, inode: InodeNumber) -> Result<Done, Error> {
    let repaired = change_features(repairer, |features| {
        features.compat.remove(Compat::ORPHAN_FILE);
        features.read_only_compat.remove(ReadOnlyCompat::ORPHAN_PRESENT);
    })?;
    if repaired.is_none() {
        return Ok(None);
    }
    release_file(repairer, inode)
}

/// Has the superblock name no orphan file, and clears the inode that it named.
pub(super) fn release_file(
    repairer: &mut Repairer<'_, '_>,
    inode: InodeNumber,
) -> Result<Done, Error> {
    repairer.edit_superblock(|superblock| superblock.set_orphan_file_inode(None))?;
    // Anything that has a name is not the orphan file.
    if repairer.checker.states.names(inode) == 0
        && inode >= repairer.checker.image.layout.first_inode()
    {
        repairer.clear_inode(inode)?;
    }
    Ok(Some("the orphan file was given up"))
}

/// An inode that is recorded is free already.
pub(super) fn repair_free(repairer: &mut Repairer<'_, '_>) -> Result<Done, Error> {
    process(repairer)
}

/// Deletes the orphans without links, cuts those with links to their size, and empties the record.
fn process(repairer: &mut Repairer<'_, '_>) -> Result<Done, Error> {
    let orphans: Vec<u32> = repairer.checker.orphans.inodes.iter().copied().collect();
    let layout = repairer.checker.image.layout;
    let orphans = orphans.into_iter().map(InodeNumber::new);
    let orphans: Vec<InodeNumber> =
        orphans.filter(|inode| *inode >= layout.first_inode()).collect();
    for number in orphans {
        let Some((inode, _)) = repairer.checker.image.inode(number)? else { continue };
        if inode.links_count > 0 {
            cut(repairer, &inode)?;
        } else if inode.mode != 0 {
            fields::set_deletion_time(repairer, number, repairer.now)?;
        }
    }
    repairer.edit_superblock(|superblock| superblock.set_last_orphan(None))?;
    if layout.features().compat.contains(Compat::ORPHAN_FILE) {
        empty_file(repairer)?;
    }
    Ok(Some("the orphans were deleted, or cut to their size"))
}

/// Frees the blocks behind the end of a file that was being cut.
fn cut(repairer: &mut Repairer<'_, '_>, inode: &Inode) -> Result<(), Error> {
    let block_size = repairer.checker.image.layout.block_size() as u64;
    let end = inode.size_bytes.div_ceil(block_size);
    if inode.is_regular() && inode.has_block_mapping() {
        maps::rebuild(repairer, inode.number, |extent| extent.overlap(0, end))?;
    }
    fields::set_deletion_time(repairer, inode.number, 0)?;
    Ok(())
}

/// Frees all places in the orphan file.
pub(super) fn empty_file(repairer: &mut Repairer<'_, '_>) -> Result<Done, Error> {
    let layout = repairer.checker.image.layout;
    let Some(number) = repairer.checker.image.superblock.orphan_file_inode() else {
        return Ok(None);
    };
    let Some((inode, _)) = repairer.checker.image.inode(number)? else { return Ok(None) };
    if !inode.is_regular() || inode.flags.contains(InodeFlags::INLINE_DATA) {
        return Ok(None);
    }
    let extents = mapping::extents_of(&repairer.checker.image, &inode)?;
    let blocks: Vec<PhysicalBlock> = extents
        .iter()
        .flat_map(|extent| {
            (0..u64::from(extent.length)).filter_map(|offset| extent.physical.checked_add(offset))
        })
        .collect();
    // Blocks that something else has are no blocks of it, and neither are those behind its end.
    let length = inode.size_bytes >> layout.log_block_size();
    if blocks.len() as u64 != length || !blocks.iter().all(|block| repairer.is_alone(*block)) {
        return give_up(repairer, number);
    }
    for block in blocks {
        let mut bytes = repairer.checker.image.block_buffer();
        orphan_file::init(&mut bytes);
        let place = OrphanPlace { inode: number, block, checksum: inode.seed(&layout) };
        orphan_file::seal(&mut bytes, &place);
        repairer.write_block(block, &bytes)?;
    }
    repairer.edit_superblock(|superblock| superblock.set_orphan_present(false))?;
    Ok(Some("the orphan file was emptied"))
}
