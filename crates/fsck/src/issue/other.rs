//! What can be wrong with the journal, the record of orphans and quota.

use drystone_ext4_format::{Corrupt, InodeNumber, LogicalBlock};
use drystone_jbd2_format as jbd2;
use thiserror::Error;

/// What is wrong with the journal.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum JournalIssue {
    /// The journal must be replayed, and was not asked to be.
    #[error("needs to be replayed; what follows may be due to that")]
    NeedsReplay,
    /// A fast commit was not replayed.
    #[error("holds a fast commit, which was not replayed")]
    FastCommit,
    /// A descriptor is damaged of which the journal holds a sound copy.
    #[error("{0}; the journal has a sound copy, but a mount reads the descriptor first and fails")]
    Heals(Corrupt),
    /// The journal's inode can't be used.
    #[error("inode {inode} can't be used")]
    Inode {
        /// The inode.
        inode: InodeNumber,
    },
    /// The journal has no block where it needs one.
    #[error("no block at logical block {logical}")]
    Hole {
        /// The missing block.
        logical: LogicalBlock,
    },
    /// The journal is longer than its inode.
    #[error("{blocks} blocks, but its inode has {found}")]
    Length {
        /// What the journal's superblock says.
        blocks: u32,
        /// Blocks of the inode.
        found: u64,
    },
    /// The journal's inode has a size beyond its blocks.
    #[error("its inode has a size of {blocks} blocks, but only {found} blocks")]
    Size {
        /// Blocks by the size.
        blocks: u64,
        /// Blocks of the inode.
        found: u64,
    },
    /// Fast commits leave too little room for the log.
    #[error("fast commits leave {blocks} blocks to the log")]
    Room {
        /// What is left, the superblock included.
        blocks: u32,
    },
    /// The journal says that it serves several file systems.
    #[error("lies in the image, but has {users} users")]
    Users {
        /// How many.
        users: u32,
    },
    /// The journal's blocks are not of the file system's size.
    #[error("blocks of {found} bytes")]
    BlockSize {
        /// What the journal's superblock says.
        found: u32,
    },
    /// The journal remembers an error.
    #[error("was stopped by error {number}")]
    Stopped {
        /// The number of the error.
        number: i32,
    },
    /// A block of the journal contradicts its format.
    #[error(transparent)]
    Corrupt(#[from] jbd2::Corrupt),
    /// A copy in the journal belongs to a block that is not in the image, or is the journal's own.
    #[error("holds a copy of block {target}, which doesn't exist or is the journal's")]
    Target {
        /// The block.
        target: u64,
    },
    /// The journal holds something to replay, but the superblock says that there is nothing.
    #[error("is not empty, but the superblock says so")]
    NotEmpty,
}

impl JournalIssue {
    pub(super) const fn is_warning(&self) -> bool {
        matches!(self, Self::NeedsReplay | Self::FastCommit)
    }
}

/// What is wrong with the record of orphans.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum OrphanIssue {
    /// The list leads to an inode that can't be an orphan.
    #[error("inode {inode} can't be one")]
    NoOrphan {
        /// The inode.
        inode: InodeNumber,
    },
    /// The list or the file names an inode twice, or the list is a loop.
    #[error("inode {inode} is recorded twice")]
    Twice {
        /// The inode.
        inode: InodeNumber,
    },
    /// The orphan file holds inodes, but the superblock says that it doesn't.
    #[error("the file names inode {inode}, but the superblock says that it is empty")]
    NotEmpty {
        /// The first such inode.
        inode: InodeNumber,
    },
    /// The image was unmounted cleanly, but the superblock says that the file holds orphans.
    #[error("the superblock announces some, but there are none")]
    Announced,
    /// The image was unmounted with orphans.
    #[error("{count} are left, though the image was unmounted cleanly")]
    Left {
        /// How many.
        count: u64,
    },
    /// The orphan file can't be read.
    #[error("inode {inode} is not the orphan file")]
    File {
        /// The inode that should be.
        inode: InodeNumber,
    },
}

impl OrphanIssue {
    pub(super) const fn is_warning(&self) -> bool {
        matches!(self, Self::Left { .. })
    }

    pub(super) const fn inode(&self) -> Option<InodeNumber> {
        match self {
            Self::NoOrphan { inode }
            | Self::Twice { inode }
            | Self::NotEmpty { inode }
            | Self::File { inode } => Some(*inode),
            Self::Left { .. } | Self::Announced => None,
        }
    }
}

/// What is wrong with a quota file.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum QuotaIssue {
    /// The usage of an id is wrong.
    #[error(
        "id {id} uses {space_stored} bytes and {inodes_stored} inodes, counted {space_counted} \
         and {inodes_counted}"
    )]
    Usage {
        /// The user, group or project.
        id: u32,
        /// Bytes as stored.
        space_stored: u64,
        /// Inodes as stored.
        inodes_stored: u64,
        /// Bytes that were counted.
        space_counted: u64,
        /// Inodes that were counted.
        inodes_counted: u64,
    },
    /// Entries can't be read.
    #[error("{count} references lead to no entry: the limits behind them are lost")]
    Lost {
        /// How many references: to entries, or to blocks with references.
        count: u64,
    },
    /// The quota file is longer than one can be.
    #[error("inode {inode} has {size_bytes} bytes, and a quota file at most 2 GiB")]
    Size {
        /// The inode.
        inode: InodeNumber,
        /// Its size.
        size_bytes: u64,
    },
    /// The quota file's inode can't be used.
    #[error("inode {inode} is not a quota file")]
    Inode {
        /// The inode.
        inode: InodeNumber,
    },
}
