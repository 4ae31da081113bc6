//! The superblock and its copies: from a backup, or from what the image shows.

use super::repairer::{Done, Repairer};
use crate::image::Error;
use crate::issue::{BackupIssue, SuperblockIssue};
use crate::links::UNCOUNTED_LINKS;
use drystone_ext4_format::features::{Compat, Features, Incompat, ReadOnlyCompat};
use drystone_ext4_format::group::GroupDescriptor;
use drystone_ext4_format::hash::HashVersion;
use drystone_ext4_format::mmp::{Mmp, MmpState};
use drystone_ext4_format::superblock::{SUPERBLOCK_OFFSET_BYTES, StateFlags, Superblock};
use drystone_ext4_format::{GroupNumber, PhysicalBlock};

/// Where fields lie that nothing else sets.
const RESERVED_DESCRIPTOR_BLOCKS: usize = 0xce;
const DESCRIPTOR_SIZE: usize = 0xfe;
const FIRST_INODE: usize = 0x54;
const MIN_EXTRA_SIZE: usize = 0x15c;
const WANTED_EXTRA_SIZE: usize = 0x15e;

/// The first inode of all images that the tools make.
const USUAL_FIRST_INODE: u32 = 11;

/// Bytes of the extra fields of an inode that the tools ask for.
const EXTRA_SIZE: u16 = 32;

pub(super) fn repair(
    repairer: &mut Repairer<'_, '_>,
    issue: &SuperblockIssue,
) -> Result<Done, Error> {
    match issue {
        SuperblockIssue::Unusable { .. } | SuperblockIssue::Misleading { .. } => {
            // It is the copy that the check went on with.
            let mut superblock = repairer.checker.image.superblock.clone();
            superblock.set_state(superblock.state() - StateFlags::CLEAN);
            let bytes = superblock.encode_for_group(GroupNumber::FIRST);
            repairer.device().write_at(SUPERBLOCK_OFFSET_BYTES, &bytes)?;
            Ok(Some("the superblock was restored from the copy"))
        }
        SuperblockIssue::FeatureConflict { second, .. } => {
            change_features(repairer, |features| match *second {
                "metadata_csum" => features.read_only_compat.remove(ReadOnlyCompat::GDT_CSUM),
                _ => features.compat.remove(Compat::RESIZE_INODE),
            })
        }
        SuperblockIssue::FeatureNeeds { feature, .. } => repair_need(repairer, feature),
        // The revision is that of the features.
        SuperblockIssue::OldRevision => change_features(repairer, |_| {}),
        SuperblockIssue::FieldWithoutFeature { field, .. } => match *field {
            "s_journal_uuid" => {
                repairer.edit_superblock(|superblock| superblock.set_journal_uuid([0; 16]))
            }
            "s_usr_quota_inum" => {
                repairer.edit_superblock(|superblock| superblock.set_user_quota_inode(None))
            }
            "s_grp_quota_inum" => {
                repairer.edit_superblock(|superblock| superblock.set_group_quota_inode(None))
            }
            "s_prj_quota_inum" => {
                repairer.edit_superblock(|superblock| superblock.set_project_quota_inode(None))
            }
            "s_orphan_file_inum" => {
                repairer.edit_superblock(|superblock| superblock.set_orphan_file_inode(None))
            }
            "s_journal_inum" => {
                repairer.edit_superblock(|superblock| superblock.set_journal_inode(None))
            }
            "s_reserved_gdt_blocks" => {
                repairer.edit_superblock_bytes(RESERVED_DESCRIPTOR_BLOCKS, &[0, 0])
            }
            _ => Ok(None),
        },
        SuperblockIssue::Future { field, .. } => {
            let now = u64::from(repairer.now);
            repairer.edit_superblock(|superblock| match *field {
                "s_mtime" => superblock.set_mount_time_seconds(now),
                _ => superblock.set_write_time_seconds(now),
            })
        }
        // The check went on without the mark.
        SuperblockIssue::HalfChanged => write_primary(repairer),
        SuperblockIssue::Field { field, .. } => match *field {
            // The check went on with the right one.
            "s_inodes_count" | "s_inodes_per_group" | "s_first_meta_bg" | "s_rev_level"
            | "s_creator_os" => write_primary(repairer),
            "s_first_ino" => {
                repairer.edit_superblock_bytes(FIRST_INODE, &USUAL_FIRST_INODE.to_le_bytes())
            }
            "s_r_blocks_count" => {
                let reserved = repairer.checker.image.layout.blocks_count() / 20;
                repairer
                    .edit_superblock(|superblock| superblock.set_reserved_blocks_count(reserved))
            }
            "s_desc_size" => {
                let is_wide = repairer.checker.image.superblock.features().incompat;
                let size: u16 = if is_wide.contains(Incompat::SIXTY_FOUR_BIT) { 64 } else { 0 };
                repairer.edit_superblock_bytes(DESCRIPTOR_SIZE, &size.to_le_bytes())
            }
            "s_min_extra_isize" => {
                repairer.edit_superblock_bytes(MIN_EXTRA_SIZE, &EXTRA_SIZE.to_le_bytes())
            }
            "s_want_extra_isize" => {
                repairer.edit_superblock_bytes(WANTED_EXTRA_SIZE, &EXTRA_SIZE.to_le_bytes())
            }
            _ => Ok(None),
        },
        _ => Ok(None),
    }
}

/// How many blocks the first copy that holds reserves for more descriptors, if those are fewer.
pub(super) fn fewer_reserved(repairer: &Repairer<'_, '_>) -> Result<Option<u16>, Error> {
    let image = &repairer.checker.image;
    let layout = image.layout;
    for group in layout.superblock_groups().skip(1) {
        let Some((block, offset)) = layout.superblock_location(group) else { continue };
        let bytes = image.read_block(block)?;
        let Ok(copy) = Superblock::check(&bytes[offset..]) else { continue };
        if copy.uuid() == image.superblock.uuid() {
            let count = copy.layout().reserved_descriptor_blocks();
            let is_less = count < layout.reserved_descriptor_blocks();
            return Ok(u16::try_from(count).ok().filter(|_| is_less));
        }
    }
    Ok(None)
}

/// Reserves fewer blocks for more descriptors, as a copy does.
pub(super) fn reserve_fewer(repairer: &mut Repairer<'_, '_>) -> Result<Done, Error> {
    match fewer_reserved(repairer)? {
        Some(count) => {
            repairer.edit_superblock_bytes(RESERVED_DESCRIPTOR_BLOCKS, &count.to_le_bytes())
        }
        None => Ok(None),
    }
}

/// Turns a feature off whose need isn't met, or meets the need.
fn repair_need(repairer: &mut Repairer<'_, '_>, feature: &str) -> Result<Done, Error> {
    match feature {
        "metadata_csum_seed" => {
            change_features(repairer, |features| features.incompat.remove(Incompat::CSUM_SEED))
        }
        "bigalloc" | "64bit" => {
            change_features(repairer, |features| features.incompat.insert(Incompat::EXTENTS))
        }
        "needs_recovery" => {
            repairer.edit_superblock(|superblock| superblock.set_needs_recovery(false))
        }
        "orphan_present" => {
            repairer.edit_superblock(|superblock| superblock.set_orphan_present(false))
        }
        "orphan_file" => change_features(repairer, |features| {
            features.compat.remove(Compat::ORPHAN_FILE);
            features.read_only_compat.remove(ReadOnlyCompat::ORPHAN_PRESENT);
        }),
        "quota" => change_features(repairer, |features| {
            features.read_only_compat.remove(ReadOnlyCompat::QUOTA)
        }),
        "mmp" => change_features(repairer, |features| features.incompat.remove(Incompat::MMP)),
        "dir_index" => {
            repairer.edit_superblock(|superblock| superblock.set_hash_version(HashVersion::HalfMd4))
        }
        UNCOUNTED_LINKS => change_features(repairer, |features| {
            features.read_only_compat.insert(ReadOnlyCompat::DIR_NLINK)
        }),
        "a file of 2 GiB or more" => repairer.edit_superblock(Superblock::set_large_file),
        _ => Ok(None),
    }
}

/// Changes the features, if the geometry stays possible.
pub(super) fn change_features(
    repairer: &Repairer<'_, '_>,
    change: impl FnOnce(&mut Features),
) -> Result<Done, Error> {
    let mut changed = None;
    let repaired = repairer.edit_superblock(|superblock| {
        let mut features = superblock.features();
        change(&mut features);
        if let Ok(other) = superblock.with_features(features) {
            *superblock = other;
            changed = Some("the features were corrected");
        }
    })?;
    Ok(repaired.and(changed))
}

/// Writes the copies in a group anew.
pub(super) fn repair_backup(
    repairer: &Repairer<'_, '_>,
    group: GroupNumber,
    block: PhysicalBlock,
    issue: &BackupIssue,
) -> Result<Done, Error> {
    let layout = repairer.checker.image.layout;
    if let BackupIssue::Descriptor { descriptor } = issue {
        let mut bytes = repairer.checker.image.read_block(block)?;
        let first = descriptor - descriptor % layout.descriptors_per_block();
        let copies = bytes.chunks_exact_mut(layout.descriptor_size());
        for (number, copy) in (first..layout.group_count()).zip(copies) {
            let descriptor: &GroupDescriptor =
                &repairer.checker.image.groups[number as usize].descriptor;
            descriptor.encode_into(copy, GroupNumber::new(number), &layout);
        }
        repairer.write_block(block, &bytes)?;
        return Ok(Some("the copy was written anew"));
    }
    let Some((block, offset)) = layout.superblock_location(group) else { return Ok(None) };
    let mut superblock = repairer.checker.image.superblock.clone();
    superblock.set_needs_recovery(false);
    let bytes = superblock.encode_for_group(group);
    let place = (block.get() << layout.log_block_size()) + offset as u64;
    repairer.device().write_at(place, &bytes)?;
    Ok(Some("the copy was written anew"))
}

/// Gives multi-mount protection another block.
pub(super) fn move_mmp(repairer: &mut Repairer<'_, '_>) -> Result<Done, Error> {
    let Some(block) = repairer.allocate()? else { return Ok(None) };
    repairer.edit_superblock(|superblock| superblock.set_mmp_block(Some(block)))?;
    write_mmp(repairer, block)
}

/// Says in the block of multi-mount protection that nobody uses the image.
pub(super) fn reset_mmp(
    repairer: &mut Repairer<'_, '_>,
    block: PhysicalBlock,
) -> Result<Done, Error> {
    // A damaged number leads to a block of a file.
    if !repairer.is_alone(block) {
        return move_mmp(repairer);
    }
    write_mmp(repairer, block)
}

fn write_mmp(repairer: &Repairer<'_, '_>, block: PhysicalBlock) -> Result<Done, Error> {
    let superblock = &repairer.checker.image.superblock;
    let mut bytes = repairer.checker.image.block_buffer();
    let mmp = Mmp {
        state: MmpState::Clean,
        time_seconds: u64::from(repairer.now),
        node_name: Vec::new(),
        device_name: Vec::new(),
        check_interval_seconds: superblock.mmp_interval_seconds(),
    };
    mmp.encode(&mut bytes, repairer.checker.image.layout.checksum_seed());
    repairer.write_block(block, &bytes)?;
    Ok(Some("the block was written anew"))
}

/// Writes the superblock that the check went on with.
fn write_primary(repairer: &Repairer<'_, '_>) -> Result<Done, Error> {
    let bytes = repairer.checker.image.superblock.encode();
    repairer.device().write_at(SUPERBLOCK_OFFSET_BYTES, &bytes)?;
    Ok(Some("the superblock was corrected"))
}
