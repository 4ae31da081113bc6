//! The rule that mends each kind of problem.

use super::mender::{Mended, Mender};
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

/// Mends a problem, if there is a rule for it.
pub(super) fn mend(mender: &mut Mender<'_, '_>, issue: &Issue) -> Result<Mended, Error> {
    // Other problems of such an inode say nothing of it.
    if stage::of(issue) == Stage::Inodes
        && let Some(inode) = issue.place().inode
        && inode != InodeNumber::ROOT
        && mender.is_garbage(inode)
    {
        return mender.clear_inode(inode);
    }
    match issue {
        Issue::Corrupt(corrupt) => mend_structure(mender, corrupt),
        Issue::Superblock(
            issue @ (SuperblockIssue::FreeBlocks { .. }
            | SuperblockIssue::FreeInodes { .. }
            | SuperblockIssue::ErrorsRecorded { .. }),
        ) => totals::mend_superblock(mender, issue),
        Issue::Superblock(SuperblockIssue::FeatureNeeds { feature: "has_journal", .. }) => {
            journal::mend_missing(mender)
        }
        Issue::Superblock(issue) => superblock::mend(mender, issue),
        Issue::Backup { group, block, issue } => {
            superblock::mend_backup(mender, *group, *block, issue)
        }
        Issue::Journal(issue) => journal::mend(mender, issue),
        Issue::Group { group, issue } => groups::mend(mender, *group, issue),
        Issue::Blocks { issue: BlockIssue::FixedOverlap { first, second }, .. } => {
            groups::separate(mender, *first, *second)
        }
        Issue::Blocks { block, issue: BlockIssue::ClaimedTwice { first, second }, .. } => {
            separate(mender, *block, *first, *second)
        }
        Issue::Inode { inode, issue } => mend_inode(mender, *inode, issue),
        Issue::Attributes { inode, issue } => match issue {
            AttributeIssue::References { block, counted, .. } => {
                inodes::set_references(mender, *inode, *block, *counted)
            }
            AttributeIssue::ValueHash { value, computed, .. } => {
                inodes::set_value_hash(mender, *value, *computed)
            }
            AttributeIssue::NoEncryptionContext | AttributeIssue::EncryptionContext => {
                fields::clear_flags(mender, *inode, InodeFlags::ENCRYPT)
            }
            _ => attributes::rewrite(mender, *inode),
        },
        Issue::Directory { inode, issue, .. } => match issue {
            DirectoryIssue::Unused { target, .. } if groups::hides(mender, *target)? => {
                let group = mender.checker.image.layout.group_of_inode(*target);
                group.map_or(Ok(None), |group| groups::distrust(mender, group))
            }
            DirectoryIssue::Reserved { target, .. }
                if quota::is_taken_for_one(mender, *target)? =>
            {
                quota::give_up_inode(mender, *target)
            }
            // It is a file if it has a name, and no attribute has it for a value.
            DirectoryIssue::Reserved { target, .. }
                if mender.checker.states.holds_value(*target)
                    && mender.checker.states.names(*target) == 0 =>
            {
                fields::clear_flags(mender, *target, InodeFlags::EA_INODE)
            }
            DirectoryIssue::Type { target, found: EntryType::Directory, .. } => {
                match salvage::restore_directory(mender, *target)? {
                    Some(done) => Ok(Some(done)),
                    None => directories::rebuild(mender, *inode, None),
                }
            }
            _ => directories::rebuild(mender, *inode, None),
        },
        Issue::Index { inode, .. } => directories::rebuild(mender, *inode, None),
        Issue::Orphans(issue) => orphans::mend(mender, issue),
        Issue::Quota { kind, issue } => match issue {
            QuotaIssue::Inode { .. } => quota::give_up(mender, *kind),
            _ => quota::rebuild(mender, *kind),
        },
    }
}

/// Gives each of two owners of a block one of its own.
fn separate(
    mender: &mut Mender<'_, '_>,
    block: PhysicalBlock,
    first: Owner,
    second: Owner,
) -> Result<Mended, Error> {
    match (first, second) {
        (_, Owner::Inode(InodeNumber::RESIZE)) => growth::rebuild(mender),
        (Owner::Fixed(FixedPart::Mmp), Owner::Inode(_)) => superblock::move_mmp(mender),
        (Owner::Inode(one), Owner::Inode(other)) if one != other => {
            let is_special = |inode: InodeNumber| {
                inode < mender.checker.image.layout.first_inode() && inode != InodeNumber::RESIZE
            };
            // The one that is damaged gives way. Between two sound ones files keep their place, and what
            // serves the image itself is written anew anyway.
            let rank = |inode: InodeNumber| -> Result<_, Error> {
                let is_foreign = directories::is_foreign(mender, inode, block)?;
                Ok((mender.is_suspect(inode), is_foreign, is_special(inode)))
            };
            let loser = if rank(one)? > rank(other)? { one } else { other };
            match loser {
                InodeNumber::RESIZE => growth::rebuild(mender),
                InodeNumber::JOURNAL => journal::move_away(mender),
                loser => maps::unshare(mender, loser, false),
            }
        }
        (_, Owner::Inode(InodeNumber::JOURNAL)) | (Owner::Inode(InodeNumber::JOURNAL), _) => {
            journal::move_away(mender)
        }
        (_, Owner::Inode(inode)) => maps::unshare(mender, inode, first == second),
        (Owner::Inode(inode), _) => maps::unshare(mender, inode, false),
        _ => Ok(None),
    }
}

fn mend_structure(mender: &mut Mender<'_, '_>, corrupt: &Corrupt) -> Result<Mended, Error> {
    match *corrupt {
        Corrupt::SuperblockChecksum { .. } => mender.edit_superblock(|_| {}),
        Corrupt::GroupChecksum { group, .. } => match groups::restore(mender, group)? {
            Some(done) => Ok(Some(done)),
            None => groups::distrust(mender, group),
        },
        Corrupt::GroupCount { group, .. } => groups::clamp_counts(mender, group),
        Corrupt::BitmapChecksum { group, .. } => totals::rebuild(mender, group),
        Corrupt::Mmp { block, .. } => superblock::reset_mmp(mender, block),
        Corrupt::OrphanFile { .. } => orphans::empty_file(mender),
        Corrupt::InodeFree { .. } => orphans::mend_free(mender),
        Corrupt::GroupLocation { group, part, .. } => groups::relocate(mender, group, part),
        Corrupt::ExtentHeader { inode, .. }
        | Corrupt::ExtentEntry { inode, .. }
        | Corrupt::ExtentChecksum { inode, .. }
        | Corrupt::BlockPointer { inode, .. } => match inode {
            InodeNumber::RESIZE => growth::rebuild(mender),
            InodeNumber::JOURNAL => journal::mend_map(mender),
            inode => mend_map(mender, corrupt, inode),
        },
        Corrupt::Directory { inode, .. }
        | Corrupt::DirectoryChecksum { inode, .. }
        | Corrupt::DirectoryIndex { inode, .. } => directories::rebuild(mender, inode, None),
        Corrupt::Attributes { inode, block, .. } => match block {
            Some(block) => attributes::rewrite_block(mender, inode, block),
            None => attributes::rewrite_area(mender, inode),
        },
        Corrupt::AttributeChecksum { inode, block, .. } => {
            attributes::rewrite_block(mender, inode, block)
        }
        Corrupt::BlockOutOfRange { block, .. } => {
            if mender.checker.image.superblock.mmp_block() == Some(block) {
                superblock::move_mmp(mender)
            } else {
                attributes::drop_impossible(mender)
            }
        }
        Corrupt::Inline { inode, problem } => match problem {
            _ if mender.checker.states.kind(inode) == EntryType::Directory => {
                directories::rebuild(mender, inode, None)
            }
            InlineProblem::Size { held, .. } => fields::set_size(mender, inode, held as u64),
            _ => attributes::rewrite_area(mender, inode),
        },
        Corrupt::Quota { kind, .. } => quota::rebuild(mender, kind),
        Corrupt::InodeChecksum { inode, .. } => mender.edit_inode(inode, |_| {}),
        Corrupt::Inode { inode, problem } => inodes::mend_field(mender, inode, problem),
        _ => Ok(None),
    }
}

fn mend_map(
    mender: &mut Mender<'_, '_>,
    corrupt: &Corrupt,
    inode: InodeNumber,
) -> Result<Mended, Error> {
    if let Corrupt::ExtentHeader { problem: ExtentHeaderProblem::Empty, .. } = corrupt
        && let Some(done) = salvage::uncover_node(mender, inode)?
    {
        return Ok(Some(done));
    }
    match maps::rebuild(mender, inode, Some)? {
        None if inode == InodeNumber::ROOT => connections::make_root(mender),
        mended => Ok(mended),
    }
}

fn mend_inode(
    mender: &mut Mender<'_, '_>,
    inode: InodeNumber,
    issue: &InodeIssue,
) -> Result<Mended, Error> {
    match *issue {
        InodeIssue::ReservedBlock { .. } => growth::rebuild(mender),
        InodeIssue::Size { .. } | InodeIssue::TooLarge { .. } if inode == InodeNumber::RESIZE => {
            growth::rebuild(mender)
        }
        InodeIssue::Purpose { purpose } => match purpose {
            "resize inode" => growth::rebuild(mender),
            "journal" => journal::mend_missing(mender),
            _ => quota::give_up_inode(mender, inode),
        },
        InodeIssue::RootNotDirectory => match groups::mend_root(mender)? {
            Some(done) => Ok(Some(done)),
            None => connections::make_root(mender),
        },
        InodeIssue::SharedNode { .. } | InodeIssue::Misaligned { .. }
            if inode == InodeNumber::JOURNAL =>
        {
            journal::mend_map(mender)
        }
        InodeIssue::SplitCluster { .. } => maps::unshare(mender, inode, false),
        InodeIssue::Unattached => connections::connect(mender, inode),
        InodeIssue::Unconnected => {
            let directories = &mender.checker.directories;
            let parent = directories.position(inode).map(|at| directories.all[at].parent);
            match parent {
                Some(parent) if parent != 0 => {
                    directories::rebuild(mender, InodeNumber::new(parent), Some(inode))
                }
                _ => Ok(None),
            }
        }
        InodeIssue::ReservedInUse
            if mender.checker.image.superblock.orphan_file_inode() == Some(inode) =>
        {
            orphans::release_file(mender, inode)
        }
        InodeIssue::SecondParent { first, second } => {
            connections::choose_parent(mender, inode, first, second)
        }
        InodeIssue::Parent { .. } => directories::rebuild(mender, inode, None),
        InodeIssue::DirectoryHole { .. } | InodeIssue::DirectoryUnwritten { .. } => {
            maps::close_holes(mender, inode)
        }
        // No directory is so large, but one of its blocks may be at a wrong place.
        InodeIssue::Size { expected, .. } if inodes::is_too_large(mender, inode, expected) => {
            maps::close_holes(mender, inode)
        }
        _ => inodes::mend(mender, inode, issue),
    }
}
