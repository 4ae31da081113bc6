//! The rule that repairs each kind of problem.

use super::repairer::{Done, Repairer};
use super::stage::{self, Stage};
use super::{
    attributes, connections, directories, fields, groups, growth, inodes, journal, maps, orphans,
    quota, salvage, superblock, totals,
};
use crate::image::Error;
use crate::issue::{
    AttributeIssue, BlockIssue, DirectoryIssue, FixedPart, InodeIssue, Issue, Owner, QuotaIssue,
    SuperblockIssue,
};
use drystone_ext4_format::dir::EntryType;
use drystone_ext4_format::error::{ExtentHeaderProblem, InlineProblem};
use drystone_ext4_format::inode::InodeFlags;
use drystone_ext4_format::{Corrupt, InodeNumber, PhysicalBlock};

/// Repairs a problem, if there is a rule for it.
pub(super) fn repair(repairer: &mut Repairer<'_, '_>, issue: &Issue) -> Result<Done, Error> {
    // Other problems of such an inode say nothing of it.
    if stage::of(issue) == Stage::Inodes
        && let Some(inode) = issue.place().inode
    {
        if is_nothing(repairer, inode)? {
            return repairer.clear_inode(inode);
        }
        // What may be repaired without being asked mustn't make another map of it.
        if !stage::is_safe(issue) && maps::has_unflagged_tree(repairer, inode)? {
            return maps::use_extents(repairer, inode);
        }
    }
    match issue {
        Issue::Corrupt(corrupt) => repair_structure(repairer, corrupt),
        Issue::Superblock(
            issue @ (SuperblockIssue::FreeBlocks { .. }
            | SuperblockIssue::FreeInodes { .. }
            | SuperblockIssue::ErrorsRecorded { .. }),
        ) => totals::repair_superblock(repairer, issue),
        Issue::Superblock(SuperblockIssue::FeatureNeeds { feature: "has_journal", .. }) => {
            journal::repair_missing(repairer)
        }
        Issue::Superblock(issue) => superblock::repair(repairer, issue),
        Issue::Backup { group, block, issue } => match groups::restore_tables(repairer, issue)? {
            Some(done) => Ok(Some(done)),
            None => superblock::repair_backup(repairer, *group, *block, issue),
        },
        Issue::Journal(issue) => journal::repair(repairer, issue),
        Issue::Group { group, issue } => groups::repair(repairer, *group, issue),
        Issue::Blocks { issue: BlockIssue::FixedOverlap { first, second }, .. } => {
            groups::separate(repairer, *first, *second)
        }
        Issue::Blocks { block, issue: BlockIssue::ClaimedTwice { first, second }, .. } => {
            separate(repairer, *block, *first, *second)
        }
        Issue::Inode { inode, issue } => repair_inode(repairer, *inode, issue),
        Issue::Attributes { inode, issue } => match issue {
            AttributeIssue::References { block, counted, .. } => {
                inodes::set_references(repairer, *inode, *block, *counted)
            }
            AttributeIssue::ValueHash { value, computed, .. } => {
                inodes::set_value_hash(repairer, *value, *computed)
            }
            AttributeIssue::NoEncryptionContext | AttributeIssue::EncryptionContext => {
                fields::clear_flags(repairer, *inode, InodeFlags::ENCRYPT)
            }
            _ => attributes::rewrite(repairer, *inode),
        },
        Issue::Directory { inode, issue, .. } => match issue {
            DirectoryIssue::Unused { target, .. } if groups::hides(repairer, *target)? => {
                let group = repairer.checker.image.layout.group_of_inode(*target);
                group.map_or(Ok(None), |group| groups::distrust(repairer, group))
            }
            DirectoryIssue::Reserved { target, .. }
                if quota::is_taken_for_one(repairer, *target)? =>
            {
                quota::give_up_inode(repairer, *target)
            }
            // It is a file if it has a name, and no attribute has it for a value.
            DirectoryIssue::Reserved { target, .. }
                if repairer.checker.states.holds_value(*target)
                    && repairer.checker.states.names(*target) == 0 =>
            {
                fields::clear_flags(repairer, *target, InodeFlags::EA_INODE)
            }
            DirectoryIssue::Type { target, found: EntryType::Directory, .. } => {
                match salvage::restore_directory(repairer, *target)? {
                    Some(done) => Ok(Some(done)),
                    None => directories::rebuild(repairer, *inode, None),
                }
            }
            _ => directories::rebuild(repairer, *inode, None),
        },
        Issue::Index { inode, .. } => directories::rebuild(repairer, *inode, None),
        Issue::Orphans(issue) => orphans::repair(repairer, issue),
        Issue::Quota { kind, issue } => match issue {
            QuotaIssue::Inode { .. } => quota::give_up(repairer, *kind),
            _ => quota::rebuild(repairer, *kind),
        },
    }
}

/// Whether an inode never was one. The root, which all names depend on, is something as long as it maps blocks.
fn is_nothing(repairer: &Repairer<'_, '_>, inode: InodeNumber) -> Result<bool, Error> {
    if inode != InodeNumber::ROOT || !repairer.is_garbage(inode) {
        return Ok(repairer.is_garbage(inode));
    }
    let pieces = maps::take_apart(repairer, inode)?;
    Ok(pieces.is_none_or(|pieces| pieces.extents.is_empty()))
}

/// Gives each of two owners of a block one of its own.
fn separate(
    repairer: &mut Repairer<'_, '_>,
    block: PhysicalBlock,
    first: Owner,
    second: Owner,
) -> Result<Done, Error> {
    match (first, second) {
        (_, Owner::Inode(InodeNumber::RESIZE)) => growth::rebuild(repairer),
        (Owner::Fixed(FixedPart::Mmp), Owner::Inode(_)) => superblock::move_mmp(repairer),
        (Owner::Inode(one), Owner::Inode(other)) if one != other => {
            let is_special = |inode: InodeNumber| {
                inode < repairer.checker.image.layout.first_inode() && inode != InodeNumber::RESIZE
            };
            // The one that is damaged gives way. Between two sound ones files keep their place, and what
            // serves the image itself is written anew anyway.
            let rank = |inode: InodeNumber| -> Result<_, Error> {
                let is_foreign = directories::is_foreign(repairer, inode, block)?;
                Ok((repairer.is_suspect(inode), is_foreign, is_special(inode)))
            };
            let loser = if rank(one)? > rank(other)? { one } else { other };
            match loser {
                InodeNumber::RESIZE => growth::rebuild(repairer),
                InodeNumber::JOURNAL => journal::move_away(repairer),
                loser => maps::unshare(repairer, loser, false),
            }
        }
        (_, Owner::Inode(InodeNumber::JOURNAL)) | (Owner::Inode(InodeNumber::JOURNAL), _) => {
            journal::move_away(repairer)
        }
        (_, Owner::Inode(inode)) => maps::unshare(repairer, inode, first == second),
        (Owner::Inode(inode), _) => maps::unshare(repairer, inode, false),
        _ => Ok(None),
    }
}

fn repair_structure(repairer: &mut Repairer<'_, '_>, corrupt: &Corrupt) -> Result<Done, Error> {
    match *corrupt {
        Corrupt::SuperblockChecksum { .. } => repairer.edit_superblock(|_| {}),
        Corrupt::GroupChecksum { group, .. } => match groups::restore(repairer, group)? {
            Some(done) => Ok(Some(done)),
            None => groups::distrust(repairer, group),
        },
        Corrupt::GroupCount { group, .. } => groups::clamp_counts(repairer, group),
        Corrupt::BitmapChecksum { group, .. } => totals::rebuild(repairer, group),
        Corrupt::Mmp { block, .. } => superblock::reset_mmp(repairer, block),
        Corrupt::OrphanFile { .. } => orphans::empty_file(repairer),
        Corrupt::InodeFree { .. } => orphans::repair_free(repairer),
        Corrupt::GroupLocation { group, part, .. } => groups::relocate(repairer, group, part),
        Corrupt::ExtentHeader { inode, .. }
        | Corrupt::ExtentEntry { inode, .. }
        | Corrupt::ExtentChecksum { inode, .. }
        | Corrupt::BlockPointer { inode, .. } => match inode {
            InodeNumber::RESIZE => growth::rebuild(repairer),
            InodeNumber::JOURNAL => journal::repair_map(repairer),
            inode => repair_map(repairer, corrupt, inode),
        },
        Corrupt::Directory { inode, .. }
        | Corrupt::DirectoryChecksum { inode, .. }
        | Corrupt::DirectoryIndex { inode, .. } => directories::rebuild(repairer, inode, None),
        Corrupt::Attributes { inode, block, .. } => match block {
            Some(block) => attributes::rewrite_block(repairer, inode, block),
            None => attributes::rewrite_area(repairer, inode),
        },
        Corrupt::AttributeChecksum { inode, block, .. } => {
            attributes::rewrite_block(repairer, inode, block)
        }
        Corrupt::BlockOutOfRange { block, .. } => {
            if repairer.checker.image.superblock.mmp_block() == Some(block) {
                superblock::move_mmp(repairer)
            } else {
                attributes::drop_impossible(repairer)
            }
        }
        Corrupt::Inline { inode, problem } => match problem {
            _ if repairer.checker.states.kind(inode) == EntryType::Directory => {
                directories::rebuild(repairer, inode, None)
            }
            InlineProblem::Size { held, .. } => fields::set_size(repairer, inode, held as u64),
            _ => attributes::rewrite_area(repairer, inode),
        },
        Corrupt::Quota { kind, .. } => quota::rebuild(repairer, kind),
        Corrupt::InodeChecksum { inode, .. } => repairer.edit_inode(inode, |_| {}),
        Corrupt::Inode { inode, problem } => inodes::repair_field(repairer, inode, problem),
        _ => Ok(None),
    }
}

fn repair_map(
    repairer: &mut Repairer<'_, '_>,
    corrupt: &Corrupt,
    inode: InodeNumber,
) -> Result<Done, Error> {
    if let Corrupt::ExtentHeader { problem: ExtentHeaderProblem::Empty, .. } = corrupt
        && let Some(done) = salvage::uncover_node(repairer, inode)?
    {
        return Ok(Some(done));
    }
    match maps::rebuild(repairer, inode, Some)? {
        None if inode == InodeNumber::ROOT => connections::make_root(repairer),
        repaired => Ok(repaired),
    }
}

fn repair_inode(
    repairer: &mut Repairer<'_, '_>,
    inode: InodeNumber,
    issue: &InodeIssue,
) -> Result<Done, Error> {
    match *issue {
        InodeIssue::ReservedBlock { .. } => growth::rebuild(repairer),
        InodeIssue::Size { .. } | InodeIssue::TooLarge { .. } if inode == InodeNumber::RESIZE => {
            growth::rebuild(repairer)
        }
        InodeIssue::Purpose { purpose } => match purpose {
            "resize inode" => growth::rebuild(repairer),
            "journal" => journal::repair_missing(repairer),
            _ => quota::give_up_inode(repairer, inode),
        },
        InodeIssue::RootNotDirectory => match groups::repair_root(repairer)? {
            Some(done) => Ok(Some(done)),
            None => connections::make_root(repairer),
        },
        InodeIssue::SharedNode { .. } | InodeIssue::Misaligned { .. }
            if inode == InodeNumber::JOURNAL =>
        {
            journal::repair_map(repairer)
        }
        InodeIssue::SplitCluster { .. } => maps::unshare(repairer, inode, false),
        InodeIssue::Unattached => connections::connect(repairer, inode),
        InodeIssue::Unconnected => {
            let directories = &repairer.checker.found.directories;
            let parent = directories.position(inode).map(|at| directories.all[at].parent);
            match parent {
                Some(parent) if parent != 0 => {
                    directories::rebuild(repairer, InodeNumber::new(parent), Some(inode))
                }
                _ => Ok(None),
            }
        }
        InodeIssue::ReservedInUse
            if repairer.checker.image.superblock.orphan_file_inode() == Some(inode) =>
        {
            orphans::release_file(repairer, inode)
        }
        InodeIssue::SecondParent { first, second } => {
            connections::choose_parent(repairer, inode, first, second)
        }
        InodeIssue::Parent { .. } => directories::rebuild(repairer, inode, None),
        InodeIssue::DirectoryHole { .. } | InodeIssue::DirectoryUnwritten { .. } => {
            maps::close_holes(repairer, inode)
        }
        // No directory is so large, but one of its blocks may be at a wrong place.
        InodeIssue::Size { expected, .. } if inodes::is_too_large(repairer, inode, expected) => {
            maps::close_holes(repairer, inode)
        }
        _ => inodes::repair(repairer, inode, issue),
    }
}
