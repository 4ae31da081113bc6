//! What can be wrong with files and directories.

use drystone_nilfs2_format::{FileBlock, InodeNumber};
use thiserror::Error;

/// What is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FileIssue {
    /// The space in use isn't that of its blocks.
    #[error("{stored} units of 512 bytes are said to be in use, its blocks have {counted}")]
    Sectors {
        /// What is stored.
        stored: u64,
        /// What there are.
        counted: u64,
    },
    /// It has a block past its end.
    #[error("has file block {block} past its end at {size} bytes")]
    BehindEnd {
        /// The last such block.
        block: FileBlock,
        /// The size.
        size: u64,
    },
    /// A metadata file or an inode without content has what it may not have.
    #[error("{what} is {found}")]
    Unexpected {
        /// Which field.
        what: &'static str,
        /// What is stored.
        found: u64,
    },
    /// The target of a symbolic link isn't as long as its size says.
    #[error("the target isn't {size} bytes long")]
    Target {
        /// The size.
        size: u64,
    },
    /// A block that the file needs is a hole.
    #[error("file block {block} is missing")]
    Hole {
        /// The block.
        block: FileBlock,
    },
    /// It is in use, but has no name.
    #[error("no directory names it")]
    Unattached,
    /// It was unlinked, but open when the checkpoint was made.
    #[error("was unlinked and is still in use")]
    Unlinked,
    /// The link count isn't the number of names.
    #[error("link count is {stored}, {counted} names refer to it")]
    Links {
        /// What is stored.
        stored: u16,
        /// What there are.
        counted: u64,
    },
}

/// What is wrong with a directory's entry.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum EntryIssue {
    /// The inode is reserved.
    #[error("names inode {inode}, which is reserved")]
    Reserved {
        /// The inode.
        inode: InodeNumber,
    },
    /// The inode isn't in use.
    #[error("names inode {inode}, which is free")]
    Free {
        /// The inode.
        inode: InodeNumber,
    },
    /// The type isn't the inode's.
    #[error("names inode {inode} as type {found}, it is {expected}")]
    FileType {
        /// The inode.
        inode: InodeNumber,
        /// What is stored.
        found: u8,
        /// That of the inode.
        expected: u8,
    },
    /// The name is there twice.
    #[error("the name is there twice")]
    Duplicate,
    /// A second name for a directory.
    #[error("names directory {inode}, which another directory names")]
    SecondParent {
        /// The directory.
        inode: InodeNumber,
    },
    /// `.` or `..` isn't where it belongs.
    #[error("`.` or `..` isn't where it belongs")]
    DotsPlace,
    /// `.` or `..` leads elsewhere.
    #[error("leads to inode {found}, not {expected}")]
    DotsInode {
        /// What is stored.
        found: InodeNumber,
        /// What it has to be.
        expected: InodeNumber,
    },
}
