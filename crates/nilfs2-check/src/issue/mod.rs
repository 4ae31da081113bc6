//! What can be wrong with an image as a whole: kinds and places.
//!
//! What is wrong with one structure by itself is [`Corrupt`], the word of the format; the kinds here are
//! contradictions between structures, and rules that only a checker looks at.

mod files;
mod volume;

pub use files::{EntryIssue, FileIssue};
pub use volume::{LogIssue, SegmentIssue, SuperblockCopy, SuperblockCopyIssue};

use drystone_nilfs2_format::{
    CheckpointNumber, Corrupt, FileBlock, InodeNumber, PhysicalBlock, SegmentNumber, VirtualBlock,
};
use thiserror::Error;

/// What is wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Nilfs2Issue {
    /// A structure contradicts the format.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
    /// One of the two superblocks is no good.
    #[error("{copy} superblock: {issue}")]
    Superblock {
        /// Which of them.
        copy: SuperblockCopy,
        /// What is wrong.
        issue: SuperblockCopyIssue,
    },
    /// A log contradicts what surrounds it.
    #[error("log at block {block}: {issue}")]
    Log {
        /// Where it starts.
        block: PhysicalBlock,
        /// What is wrong.
        issue: LogIssue,
    },
    /// A segment contradicts its record.
    #[error("segment {segment}: {issue}")]
    Segment {
        /// The segment.
        segment: SegmentNumber,
        /// What is wrong.
        issue: SegmentIssue,
    },
    /// The header of the segment usage file counts wrongly.
    #[error("segment usage file: {what}: stored {stored}, counted {counted}")]
    UsageCount {
        /// What is counted.
        what: &'static str,
        /// What is stored.
        stored: u64,
        /// What there is.
        counted: u64,
    },
    /// A virtual block contradicts what refers to it, or what is at its place.
    #[error("virtual block {block}: {issue}")]
    VirtualBlock {
        /// The virtual block.
        block: VirtualBlock,
        /// What is wrong.
        issue: VirtualBlockIssue,
    },
    /// A block isn't where it is said to be.
    #[error("block {block}: {issue}")]
    Block {
        /// Where it is said to be.
        block: PhysicalBlock,
        /// What is wrong.
        issue: PlaceIssue,
    },
    /// A group of the DAT or of the ifile contradicts itself.
    #[error("inode {file}: group {group}: {issue}")]
    Allocator {
        /// The DAT or the ifile.
        file: InodeNumber,
        /// The group.
        group: u64,
        /// What is wrong.
        issue: AllocatorIssue,
    },
    /// A checkpoint's record, or the header of their file, contradicts what there is.
    #[error("checkpoint {checkpoint}: {issue}")]
    Checkpoint {
        /// The checkpoint; 0 for the header.
        checkpoint: CheckpointNumber,
        /// What is wrong.
        issue: CheckpointIssue,
    },
    /// An inode contradicts itself or what refers to it.
    #[error("inode {inode}: {issue}")]
    File {
        /// The inode.
        inode: InodeNumber,
        /// What is wrong.
        issue: FileIssue,
    },
    /// A directory's entry contradicts others or what it names.
    #[error("directory inode {inode}: file block {block}: offset {offset}: {issue}")]
    Entry {
        /// The directory.
        inode: InodeNumber,
        /// The block within it.
        block: FileBlock,
        /// The entry's place in the block.
        offset: usize,
        /// What is wrong.
        issue: EntryIssue,
    },
}

/// What is wrong with a virtual block.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum VirtualBlockIssue {
    /// Something refers to it, but the DAT has it as free.
    #[error("inode {inode} refers to it, but it is free")]
    Free {
        /// Whose map.
        inode: InodeNumber,
    },
    /// Something refers to it, but it was never written.
    #[error("inode {inode} refers to it, but it wasn't written")]
    Unwritten {
        /// Whose map.
        inode: InodeNumber,
    },
    /// A checkpoint refers to it that isn't in its period.
    #[error("inode {inode} refers to it, but it lives from checkpoint {start} to {end}")]
    Period {
        /// Whose map.
        inode: InodeNumber,
        /// The first checkpoint that has it.
        start: CheckpointNumber,
        /// The first that hasn't.
        end: CheckpointNumber,
    },
    /// Two places of a checkpoint refer to it.
    #[error("inode {inode} refers to it, and something else does")]
    Shared {
        /// Whose map.
        inode: InodeNumber,
    },
    /// It can't be where it is said to be.
    #[error("said to be at block {place}: {issue}")]
    Place {
        /// Where it is said to be.
        place: PhysicalBlock,
        /// What is wrong.
        issue: PlaceIssue,
    },
    /// It has no place, but a period.
    #[error("has no place, but lives from checkpoint {start} to {end}")]
    NoPlace {
        /// The first checkpoint that has it.
        start: CheckpointNumber,
        /// The first that hasn't.
        end: CheckpointNumber,
    },
    /// Its period starts or ends after the newest checkpoint.
    #[error("lives from checkpoint {start} to {end}, the newest is {newest}")]
    Future {
        /// The first checkpoint that has it.
        start: CheckpointNumber,
        /// The first that hasn't.
        end: CheckpointNumber,
        /// The newest checkpoint.
        newest: CheckpointNumber,
    },
    /// It lives, but nothing refers to it.
    #[error("lives, but nothing refers to it")]
    Leaked,
}

/// Why a block can't be at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PlaceIssue {
    /// The place is in no segment.
    #[error("no segment has it")]
    Outside,
    /// The segment is clean, or the place is after what was written to it.
    #[error("nothing was written there")]
    NotWritten,
    /// Another block is there.
    #[error("another block is there")]
    Twice,
    /// The logs say something else of the place.
    #[error("no log says that it is there")]
    NotLogged,
}

/// What is wrong with a group of entries.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AllocatorIssue {
    /// The free count isn't that of the bitmap.
    #[error("{stored} entries are said to be free, the bitmap has {counted}")]
    FreeCount {
        /// What is stored.
        stored: u32,
        /// What the bitmap says.
        counted: u64,
    },
    /// Entries are in use, but their block is missing.
    #[error("entry {entry} is in use, but its block is missing")]
    Missing {
        /// The first of them.
        entry: u64,
    },
    /// An entry that is always in use is free.
    #[error("entry {entry} is free")]
    ReservedFree {
        /// The entry.
        entry: u64,
    },
}

/// What is wrong with a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CheckpointIssue {
    /// The newest checkpoint is missing.
    #[error("is the newest, but has no record")]
    NewestMissing,
    /// It is newer than the newest.
    #[error("is newer than the newest, {newest}")]
    Future {
        /// The newest.
        newest: CheckpointNumber,
    },
    /// A number is wrong.
    #[error("{what}: stored {stored}, counted {counted}")]
    Count {
        /// What is counted.
        what: &'static str,
        /// What is stored.
        stored: u64,
        /// What there is.
        counted: u64,
    },
    /// A link of the list of snapshots is wrong.
    #[error("{which} is {found}, not {expected}")]
    SnapshotLink {
        /// Which link.
        which: &'static str,
        /// What is stored.
        found: CheckpointNumber,
        /// What it has to be.
        expected: CheckpointNumber,
    },
    /// Flags that have no meaning.
    #[error("unknown flags {flags:#x}")]
    UnknownFlags {
        /// What is stored.
        flags: u32,
    },
    /// The ifile has no root directory.
    #[error("has no root directory")]
    NoRoot,
}

/// Whether an issue makes the image inconsistent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum IssueSeverity {
    /// Worth knowing, and no reason to refuse the image.
    Warning,
    /// The image is inconsistent.
    Error,
}

impl Nilfs2Issue {
    /// Whether it makes the image inconsistent.
    #[must_use]
    pub fn severity(&self) -> IssueSeverity {
        let is_warning = match self {
            Self::Superblock { issue, .. } => {
                matches!(issue, SuperblockCopyIssue::Damaged | SuperblockCopyIssue::InSegment)
            }
            Self::File { issue, .. } => *issue == FileIssue::Unlinked,
            Self::Segment { issue, .. } => *issue == SegmentIssue::Bad,
            _ => false,
        };
        if is_warning { IssueSeverity::Warning } else { IssueSeverity::Error }
    }

    /// The kind as a word for programs: the names of the kinds in lower case.
    #[must_use]
    pub fn code(&self) -> String {
        let (area, kind) = match self {
            Self::Corrupt(corrupt) => ("corrupt", format!("{corrupt:?}")),
            Self::Superblock { issue, .. } => ("superblock", format!("{issue:?}")),
            Self::Log { issue, .. } => ("log", format!("{issue:?}")),
            Self::Segment { issue, .. } => ("segment", format!("{issue:?}")),
            Self::UsageCount { .. } => ("usage", "Count".to_owned()),
            Self::VirtualBlock { issue, .. } => ("virtual_block", format!("{issue:?}")),
            Self::Block { issue, .. } => ("block", format!("{issue:?}")),
            Self::Allocator { issue, .. } => ("allocator", format!("{issue:?}")),
            Self::Checkpoint { issue, .. } => ("checkpoint", format!("{issue:?}")),
            Self::File { issue, .. } => ("file", format!("{issue:?}")),
            Self::Entry { issue, .. } => ("entry", format!("{issue:?}")),
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
}
