//! Group descriptors.

use super::mender::{Mended, Mender};
use super::totals;
use crate::image::Error;
use crate::issue::GroupIssue;
use drystone_ext4_format::GroupNumber;
use drystone_ext4_format::checksum::Checksums;
use drystone_ext4_format::group::GroupFlags;

pub(super) fn mend(
    mender: &mut Mender<'_, '_>,
    group: GroupNumber,
    issue: &GroupIssue,
) -> Result<Mended, Error> {
    match issue {
        GroupIssue::Flags { .. } => {
            let layout = mender.checker.image.layout;
            let is_last = group == layout.last_group();
            let has_checksums = layout.checksums() != Checksums::None;
            mender.edit_descriptor(group, |descriptor| {
                let uninitialised = GroupFlags::INODE_UNINIT | GroupFlags::BLOCK_UNINIT;
                if !has_checksums {
                    descriptor.flags.remove(uninitialised);
                } else if is_last {
                    descriptor.flags.remove(GroupFlags::BLOCK_UNINIT);
                }
            })
        }
        GroupIssue::Unused { .. } => {
            mender.edit_descriptor(group, |descriptor| descriptor.unused_inodes_count = 0)
        }
        GroupIssue::InodeInUninitialised { .. } | GroupIssue::InodeAmongUnused { .. } => {
            distrust(mender, group)
        }
        _ => totals::rebuild(mender, group),
    }
}

/// Believes nothing that a descriptor says of what was never used: all of its inodes are looked at.
pub(super) fn distrust(mender: &mut Mender<'_, '_>, group: GroupNumber) -> Result<Mended, Error> {
    mender.edit_descriptor(group, |descriptor| {
        descriptor.flags.remove(GroupFlags::INODE_UNINIT | GroupFlags::BLOCK_UNINIT);
        descriptor.unused_inodes_count = 0;
    })
}

/// Sets impossible counts to what is possible; they are counted later.
pub(super) fn clamp_counts(
    mender: &mut Mender<'_, '_>,
    group: GroupNumber,
) -> Result<Mended, Error> {
    let inodes = mender.checker.image.layout.inodes_per_group();
    mender.edit_descriptor(group, |descriptor| {
        descriptor.free_clusters_count = 0;
        descriptor.free_inodes_count = descriptor.free_inodes_count.min(inodes);
        descriptor.used_directories_count = descriptor.used_directories_count.min(inodes);
        if descriptor.unused_inodes_count > inodes {
            descriptor.unused_inodes_count = 0;
        }
    })
}
