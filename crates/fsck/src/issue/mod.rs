//! What can be wrong with an image as a whole: kinds and places.
//!
//! What is wrong with one structure by itself is [`Corrupt`], the word of the format; the kinds
//! here are contradictions between structures, and rules that only a checker looks at.

mod blocks;
mod directory;
mod group;
mod inode;
mod other;
mod superblock;

pub use blocks::{BlockIssue, FixedPart, Owner};
pub use directory::{DirectoryIssue, IndexIssue};
pub use group::GroupIssue;
pub use inode::{AttributeIssue, InodeIssue};
pub use other::{JournalIssue, OrphanIssue, QuotaIssue};
pub use superblock::{BackupIssue, SuperblockIssue};

use drystone_ext4_format::quota::QuotaKind;
use drystone_ext4_format::{Corrupt, GroupNumber, InodeNumber, LogicalBlock, PhysicalBlock};
use thiserror::Error;

/// What is wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Issue {
    /// A structure contradicts the format.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
    /// The superblock contradicts the image or itself.
    #[error("superblock: {0}")]
    Superblock(#[from] SuperblockIssue),
    /// A copy of the superblock or of descriptors is no good.
    #[error("group {group}: backup at block {block}: {issue}")]
    Backup {
        /// The group that holds the copy.
        group: GroupNumber,
        /// The copy's block.
        block: PhysicalBlock,
        /// What is wrong with it.
        issue: BackupIssue,
    },
    /// The journal can't be used or replayed.
    #[error("journal: {0}")]
    Journal(#[from] JournalIssue),
    /// A group contradicts what is in it.
    #[error("group {group}: {issue}")]
    Group {
        /// The group.
        group: GroupNumber,
        /// What is wrong.
        issue: GroupIssue,
    },
    /// Blocks have owners that exclude each other.
    #[error("{}: {issue}", blocks::BlockRunText { block: *.block, count: *.count })]
    Blocks {
        /// The first block.
        block: PhysicalBlock,
        /// How many blocks.
        count: u64,
        /// What is wrong.
        issue: BlockIssue,
    },
    /// An inode contradicts itself or what refers to it.
    #[error("inode {inode}: {issue}")]
    Inode {
        /// The inode.
        inode: InodeNumber,
        /// What is wrong.
        issue: InodeIssue,
    },
    /// Attributes contradict what they refer to, or what refers to them.
    #[error("inode {inode}: attributes: {issue}")]
    Attributes {
        /// The inode.
        inode: InodeNumber,
        /// What is wrong.
        issue: AttributeIssue,
    },
    /// A directory's entries contradict each other or what they name.
    #[error("directory inode {inode}: logical block {block}: offset {offset}: {issue}")]
    Directory {
        /// The directory.
        inode: InodeNumber,
        /// The block within it.
        block: LogicalBlock,
        /// The entry's place in the block.
        offset: usize,
        /// What is wrong.
        issue: DirectoryIssue,
    },
    /// A directory's index contradicts its leaves.
    #[error("directory inode {inode}: logical block {block}: {issue}")]
    Index {
        /// The directory.
        inode: InodeNumber,
        /// The block within it.
        block: LogicalBlock,
        /// What is wrong.
        issue: IndexIssue,
    },
    /// The record of orphans is wrong.
    #[error("orphans: {0}")]
    Orphans(#[from] OrphanIssue),
    /// A quota file contradicts the files.
    #[error("{kind} quota: {issue}")]
    Quota {
        /// Whose quota.
        kind: QuotaKind,
        /// What is wrong.
        issue: QuotaIssue,
    },
}

/// Whether an issue makes the image inconsistent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Worth knowing, and no reason to refuse the image.
    Warning,
    /// The image is inconsistent.
    Error,
}

impl serde::Serialize for Severity {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(match self {
            Self::Warning => "warning",
            Self::Error => "error",
        })
    }
}

/// Where something is: as much of this as applies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IssueLocation {
    /// The inode.
    pub inode: Option<InodeNumber>,
    /// The group.
    pub group: Option<GroupNumber>,
    /// The block of the device.
    pub block: Option<PhysicalBlock>,
    /// The block of the inode's file.
    pub logical_block: Option<LogicalBlock>,
    /// The place in the block, in bytes.
    pub offset: Option<usize>,
}

impl Issue {
    /// Whether it makes the image inconsistent.
    #[must_use]
    pub fn severity(&self) -> Severity {
        let is_warning = match self {
            Self::Superblock(issue) => issue.is_warning(),
            // Copies are for repair; nothing keeps them up to date.
            Self::Backup { .. } => true,
            Self::Journal(issue) => issue.is_warning(),
            Self::Orphans(issue) => issue.is_warning(),
            Self::Inode { issue, .. } => matches!(issue, InodeIssue::FixedSpecial),
            _ => false,
        };
        if is_warning { Severity::Warning } else { Severity::Error }
    }

    /// The kind as a word for programs: the names of the kinds in lower case.
    #[must_use]
    pub fn code(&self) -> String {
        let (area, kind) = match self {
            Self::Corrupt(corrupt) => ("corrupt", format!("{corrupt:?}")),
            Self::Superblock(issue) => ("superblock", format!("{issue:?}")),
            Self::Backup { issue, .. } => ("backup", format!("{issue:?}")),
            Self::Journal(issue) => ("journal", format!("{issue:?}")),
            Self::Group { issue, .. } => ("group", format!("{issue:?}")),
            Self::Blocks { issue, .. } => ("blocks", format!("{issue:?}")),
            Self::Inode { issue, .. } => ("inode", format!("{issue:?}")),
            Self::Attributes { issue, .. } => ("attributes", format!("{issue:?}")),
            Self::Directory { issue, .. } => ("directory", format!("{issue:?}")),
            Self::Index { issue, .. } => ("index", format!("{issue:?}")),
            Self::Orphans(issue) => ("orphans", format!("{issue:?}")),
            Self::Quota { issue, .. } => ("quota", format!("{issue:?}")),
        };
        let mut code = area.to_owned();
        for character in kind.chars().take_while(|character| character.is_ascii_alphanumeric()) {
            if character.is_ascii_uppercase() {
                code.push('_');
            }
            code.push(character.to_ascii_lowercase());
        }
        code
    }

    /// Where it is.
    #[must_use]
    pub fn place(&self) -> IssueLocation {
        let none = IssueLocation::default();
        match *self {
            Self::Corrupt(ref corrupt) => place_of(corrupt),
            Self::Superblock(_) | Self::Quota { .. } | Self::Journal(_) => none,
            Self::Backup { group, block, .. } => {
                IssueLocation { group: Some(group), block: Some(block), ..none }
            }
            Self::Group { group, .. } => IssueLocation { group: Some(group), ..none },
            Self::Blocks { block, ref issue, .. } => {
                IssueLocation { block: Some(block), inode: issue.inode(), ..none }
            }
            Self::Inode { inode, .. } => IssueLocation { inode: Some(inode), ..none },
            Self::Attributes { inode, ref issue } => {
                IssueLocation { inode: Some(inode), block: issue.block(), ..none }
            }
            Self::Directory { inode, block, offset, .. } => IssueLocation {
                inode: Some(inode),
                logical_block: Some(block),
                offset: Some(offset),
                ..none
            },
            Self::Index { inode, block, .. } => {
                IssueLocation { inode: Some(inode), logical_block: Some(block), ..none }
            }
            Self::Orphans(ref issue) => IssueLocation { inode: issue.inode(), ..none },
        }
    }
}

fn place_of(corrupt: &Corrupt) -> IssueLocation {
    let none = IssueLocation::default();
    match *corrupt {
        Corrupt::GroupChecksum { group, .. }
        | Corrupt::GroupCount { group, .. }
        | Corrupt::BitmapChecksum { group, .. }
        | Corrupt::BitmapCount { group, .. } => IssueLocation { group: Some(group), ..none },
        Corrupt::GroupLocation { group, block, .. } | Corrupt::BitmapMetadata { group, block } => {
            IssueLocation { group: Some(group), block: Some(block), ..none }
        }
        Corrupt::Block { block, .. }
        | Corrupt::BlockOutOfRange { block, .. }
        | Corrupt::Mmp { block, .. } => IssueLocation { block: Some(block), ..none },
        Corrupt::InodeChecksum { inode, .. }
        | Corrupt::Inode { inode, .. }
        | Corrupt::InodeFree { inode }
        | Corrupt::OrphanTwice { inode }
        | Corrupt::OrphanInode { inode }
        | Corrupt::Acl { inode, .. }
        | Corrupt::Inline { inode, .. } => IssueLocation { inode: Some(inode), ..none },
        Corrupt::ExtentHeader { inode, block, .. }
        | Corrupt::ExtentEntry { inode, block, .. }
        | Corrupt::BlockPointer { inode, holder: block, .. } => {
            IssueLocation { inode: Some(inode), block, ..none }
        }
        Corrupt::Attributes { inode, block, offset, .. } => {
            IssueLocation { inode: Some(inode), block, offset: Some(offset), ..none }
        }
        Corrupt::ExtentChecksum { inode, block, .. }
        | Corrupt::AttributeChecksum { inode, block, .. }
        | Corrupt::OrphanFile { inode, block, .. } => {
            IssueLocation { inode: Some(inode), block: Some(block), ..none }
        }
        Corrupt::Directory { inode, block, offset, .. } => IssueLocation {
            inode: Some(inode),
            logical_block: Some(block),
            offset: Some(offset),
            ..none
        },
        Corrupt::JournalHole { inode, block }
        | Corrupt::DirectoryChecksum { inode, block, .. }
        | Corrupt::DirectoryIndex { inode, block, .. } => {
            IssueLocation { inode: Some(inode), logical_block: Some(block), ..none }
        }
        _ => none,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_words_and_places() {
        let inode = InodeNumber::new(12);
        let issue = Issue::Inode { inode, issue: InodeIssue::Sectors { stored: 8, counted: 16 } };
        assert_eq!(issue.code(), "inode_sectors");
        assert_eq!(issue.place().inode, Some(inode));
        let issue = Issue::Corrupt(Corrupt::InodeChecksum { inode, stored: 1, computed: 2 });
        assert_eq!(issue.code(), "corrupt_inode_checksum");
        assert_eq!(issue.place().inode, Some(inode));
    }
}
