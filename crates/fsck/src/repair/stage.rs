//! In which order problems are repaired, and which of them safely.

use super::repairer::Repairer;
use super::{groups, superblock};
use crate::image::Error;
use crate::issue::{
    AttributeIssue, BackupIssue, BlockIssue, DirectoryIssue, FixedPart, GroupIssue, InodeIssue,
    Issue, OrphanIssue, QuotaIssue, SuperblockIssue,
};
use crate::report::{Pass, Problem, Report};
use drystone_ext4_format::Corrupt;
use std::collections::BTreeSet;

/// A stage of the repair: what is repaired before later stages can be judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    /// The superblock.
    Superblock,
    /// Group descriptors, and the fixed metadata that they locate.
    Groups,
    /// The root, which other places of tables may hold.
    Root,
    /// The journal.
    Journal,
    /// The record of orphans.
    Orphans,
    /// Inodes, their maps and attributes.
    Inodes,
    /// Blocks with several owners.
    Blocks,
    /// Directories: their blocks, entries and indexes.
    Directories,
    /// Names of directories, and inodes without a name.
    Connections,
    /// Counts of links and of references.
    Links,
    /// Bitmaps and counts of groups and of the superblock, quota, copies.
    Totals,
}

impl Stage {
    pub const ALL: [Self; 11] = [
        Self::Superblock,
        Self::Groups,
        Self::Root,
        Self::Journal,
        Self::Orphans,
        Self::Inodes,
        Self::Blocks,
        Self::Directories,
        Self::Connections,
        Self::Links,
        Self::Totals,
    ];

    /// The problems that are repaired before the others of the stage, which look different afterwards:
    /// too many blocks that are reserved for descriptors, groups whose inode tables lie elsewhere, and groups
    /// with names for inodes that they hide.
    pub(super) fn urgent<'p>(
        self,
        report: &'p Report,
        repairer: &Repairer<'_, '_>,
    ) -> Result<Vec<&'p Problem>, Error> {
        let mut urgent = Vec::new();
        let mut groups = BTreeSet::new();
        let has_fewer_reserved =
            self == Self::Groups && superblock::fewer_reserved(repairer)?.is_some();
        for problem in &report.problems {
            let is_urgent = match (self, &problem.issue) {
                (Self::Groups, Issue::Backup { issue, .. }) => {
                    !groups::misplaced_tables(repairer, issue)?.is_empty()
                }
                (
                    Self::Groups,
                    Issue::Blocks { issue: BlockIssue::FixedOverlap { first, second }, .. },
                ) => {
                    has_fewer_reserved
                        && [first, second].iter().any(|part| matches!(part, FixedPart::Base(_)))
                }
                (
                    Self::Directories,
                    Issue::Directory { issue: DirectoryIssue::Unused { target, .. }, .. },
                ) => {
                    // One name for each group is enough.
                    let group = repairer.checker.image.layout.group_of_inode(*target).ok();
                    !groups.contains(&group)
                        && groups::hides(repairer, *target)?
                        && groups.insert(group)
                }
                _ => false,
            };
            if is_urgent {
                urgent.push(problem);
            }
        }
        Ok(urgent)
    }
}

/// The first stage that needs what a pass finds, if rounds that repair something before leave the pass out.
pub(super) const fn first_of(pass: Pass) -> Option<Stage> {
    match pass {
        // Who shares a block is of use once the inodes are repaired.
        Pass::Duplicates => Some(Stage::Blocks),
        Pass::Links => Some(Stage::Connections),
        _ => None,
    }
}

/// The stage that repairs an issue.
pub(super) fn of(issue: &Issue) -> Stage {
    match issue {
        Issue::Corrupt(corrupt) => of_structure(corrupt),
        Issue::Superblock(issue) => match issue {
            SuperblockIssue::FreeBlocks { .. }
            | SuperblockIssue::FreeInodes { .. }
            | SuperblockIssue::ErrorsRecorded { .. } => Stage::Totals,
            _ => Stage::Superblock,
        },
        Issue::Backup { .. } => Stage::Totals,
        Issue::Journal(_) => Stage::Journal,
        Issue::Group { issue, .. } => match issue {
            GroupIssue::Flags { .. }
            | GroupIssue::Unused { .. }
            | GroupIssue::InodeInUninitialised { .. }
            | GroupIssue::InodeAmongUnused { .. } => Stage::Groups,
            _ => Stage::Totals,
        },
        Issue::Blocks { issue: BlockIssue::FixedOverlap { .. }, .. } => Stage::Groups,
        Issue::Blocks { .. } => Stage::Blocks,
        Issue::Inode { issue, .. } => match issue {
            InodeIssue::RootNotDirectory => Stage::Root,
            InodeIssue::Links { .. } | InodeIssue::ValueReferences { .. } => Stage::Links,
            InodeIssue::Unattached
            | InodeIssue::Unconnected
            | InodeIssue::SecondParent { .. }
            | InodeIssue::Parent { .. } => Stage::Connections,
            InodeIssue::DirectoryHole { .. } | InodeIssue::DirectoryUnwritten { .. } => {
                Stage::Directories
            }
            _ => Stage::Inodes,
        },
        Issue::Attributes { issue: AttributeIssue::References { .. }, .. } => Stage::Links,
        Issue::Attributes { .. } => Stage::Inodes,
        Issue::Directory { .. } | Issue::Index { .. } => Stage::Directories,
        Issue::Orphans(_) => Stage::Orphans,
        Issue::Quota { .. } => Stage::Totals,
    }
}

fn of_structure(corrupt: &Corrupt) -> Stage {
    match corrupt {
        Corrupt::SuperblockMagic { .. }
        | Corrupt::SuperblockChecksum { .. }
        | Corrupt::SuperblockGeometry { .. }
        | Corrupt::Missing { .. } => Stage::Superblock,
        Corrupt::GroupChecksum { .. }
        | Corrupt::GroupLocation { .. }
        | Corrupt::GroupOverlap { .. }
        | Corrupt::GroupsDamaged { .. }
        | Corrupt::GroupCount { .. }
        | Corrupt::Mmp { .. } => Stage::Groups,
        Corrupt::BitmapChecksum { .. } | Corrupt::Quota { .. } => Stage::Totals,
        Corrupt::OrphanFile { .. } | Corrupt::InodeFree { .. } => Stage::Orphans,
        Corrupt::Directory { .. }
        | Corrupt::DirectoryChecksum { .. }
        | Corrupt::DirectoryIndex { .. } => Stage::Directories,
        _ => Stage::Inodes,
    }
}

/// How much an issue speaks for its inode holding something that never was one.
pub(super) const fn weight(issue: &Issue) -> u32 {
    match issue {
        Issue::Corrupt(Corrupt::Inode { .. } | Corrupt::InodeChecksum { .. }) => 1,
        Issue::Corrupt(Corrupt::ExtentHeader { .. } | Corrupt::Inline { .. }) => 1,
        Issue::Inode {
            issue:
                InodeIssue::Field { .. }
                | InodeIssue::Flag { .. }
                | InodeIssue::FixedSpecial
                | InodeIssue::TooLarge { .. }
                | InodeIssue::DeletionTime { .. },
            ..
        } => 1,
        _ => 0,
    }
}

/// Whether an issue is a wrong count of links of an inode.
pub(super) const fn is_link_count(issue: &Issue) -> bool {
    matches!(issue, Issue::Inode { issue: InodeIssue::Links { .. }, .. })
}

/// Whether repairing an issue loses nothing and chooses nothing: what is wrong follows from the rest.
pub(super) const fn is_safe(issue: &Issue) -> bool {
    match issue {
        Issue::Superblock(issue) => matches!(
            issue,
            SuperblockIssue::FreeBlocks { .. }
                | SuperblockIssue::FreeInodes { .. }
                | SuperblockIssue::ErrorsRecorded { .. }
        ),
        Issue::Backup { issue, .. } => !matches!(issue, BackupIssue::Unusable(_)),
        Issue::Group { issue, .. } => matches!(
            issue,
            GroupIssue::BlocksNotMarked { .. }
                | GroupIssue::BlocksNotUsed { .. }
                | GroupIssue::InodesNotMarked { .. }
                | GroupIssue::InodesNotUsed { .. }
                | GroupIssue::Padding { .. }
                | GroupIssue::BlockInUninitialised { .. }
                | GroupIssue::FreeClusters { .. }
                | GroupIssue::FreeInodes { .. }
                | GroupIssue::Directories { .. }
        ),
        Issue::Inode { issue, .. } => matches!(
            issue,
            InodeIssue::Links { .. }
                | InodeIssue::Sectors { .. }
                | InodeIssue::NotDeleted
                | InodeIssue::ValueReferences { .. }
        ),
        Issue::Attributes { issue, .. } => matches!(issue, AttributeIssue::References { .. }),
        Issue::Orphans(issue) => {
            matches!(issue, OrphanIssue::Left { .. } | OrphanIssue::Announced)
        }
        Issue::Quota { issue, .. } => matches!(issue, QuotaIssue::Usage { .. }),
        _ => false,
    }
}
