//! The rule that mends each kind of problem.

use super::mender::{Mended, Mender};
use super::{groups, inodes, journal, orphans, superblock, totals};
use crate::image::Error;
use crate::issue::{AttributeIssue, Issue, SuperblockIssue};
use drystone_ext4_format::Corrupt;

/// Mends a problem, if there is a rule for it.
pub(super) fn mend(mender: &mut Mender<'_, '_>, issue: &Issue) -> Result<Mended, Error> {
    match issue {
        Issue::Corrupt(corrupt) => mend_structure(mender, corrupt),
        Issue::Superblock(
            issue @ (SuperblockIssue::FreeBlocks { .. }
            | SuperblockIssue::FreeInodes { .. }
            | SuperblockIssue::ErrorsRecorded { .. }),
        ) => totals::mend_superblock(mender, issue),
        Issue::Superblock(issue) => superblock::mend(mender, issue),
        Issue::Backup { group, block, issue } => {
            superblock::mend_backup(mender, *group, *block, issue)
        }
        Issue::Journal(issue) => journal::mend(mender, issue),
        Issue::Group { group, issue } => groups::mend(mender, *group, issue),
        Issue::Inode { inode, issue } => inodes::mend(mender, *inode, issue),
        Issue::Attributes { inode, issue: AttributeIssue::References { block, counted, .. } } => {
            inodes::set_references(mender, *inode, *block, *counted)
        }
        Issue::Attributes { issue: AttributeIssue::ValueHash { value, computed, .. }, .. } => {
            inodes::set_value_hash(mender, *value, *computed)
        }
        Issue::Orphans(issue) => orphans::mend(mender, issue),
        _ => Ok(None),
    }
}

fn mend_structure(mender: &mut Mender<'_, '_>, corrupt: &Corrupt) -> Result<Mended, Error> {
    match *corrupt {
        Corrupt::SuperblockChecksum { .. } => mender.edit_superblock(|_| {}),
        Corrupt::GroupChecksum { group, .. } => groups::distrust(mender, group),
        Corrupt::GroupCount { group, .. } => groups::clamp_counts(mender, group),
        Corrupt::BitmapChecksum { group, .. } => totals::rebuild(mender, group),
        Corrupt::Mmp { block, .. } => superblock::reset_mmp(mender, block),
        Corrupt::OrphanFile { .. } => orphans::empty_file(mender),
        Corrupt::InodeFree { .. } => orphans::mend_free(mender),
        Corrupt::InodeChecksum { inode, .. } => mender.edit_inode(inode, |_| {}),
        Corrupt::Inode { inode, problem } => inodes::mend_field(mender, inode, problem),
        _ => Ok(None),
    }
}
