//! What can be wrong with directories.

use drystone_ext4_format::dir::EntryType;
use drystone_ext4_format::{InodeNumber, LogicalBlock};
use thiserror::Error;

/// What is wrong with an entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DirectoryIssue {
    /// The entry names an inode that is not in use.
    #[error("entry {name:?} names inode {target}, which is not in use")]
    Unused {
        /// The name.
        name: String,
        /// The inode.
        target: InodeNumber,
    },
    /// The entry names an inode that no name may lead to.
    #[error("entry {name:?} names inode {target}, which is reserved")]
    Reserved {
        /// The name.
        name: String,
        /// The inode.
        target: InodeNumber,
    },
    /// The entry names an inode that the image does not have.
    #[error("entry {name:?} names inode {target}, which does not exist")]
    NoInode {
        /// The name.
        name: String,
        /// The inode.
        target: InodeNumber,
    },
    /// The entry's type is not that of the inode.
    #[error("entry {name:?} of inode {target} has type {found:?}, not {expected:?}")]
    Type {
        /// The name.
        name: String,
        /// The inode.
        target: InodeNumber,
        /// What the entry says.
        found: EntryType,
        /// What the inode is.
        expected: EntryType,
    },
    /// A type where the image does not record types.
    #[error("entry {name:?} has a type, without the feature filetype")]
    TypeStored {
        /// The name.
        name: String,
    },
    /// The name holds a byte that names can't hold.
    #[error("entry {name:?} has an illegal name")]
    Name {
        /// The name.
        name: String,
    },
    /// The name isn't UTF-8, where a directory ignores case and must know each character.
    #[error("entry {name:?} has a name that isn't UTF-8")]
    Encoding {
        /// The name.
        name: String,
    },
    /// An encrypted directory names an inode that isn't encrypted, or by another policy.
    #[error("entry {name:?} names inode {target}, which isn't encrypted as the directory is")]
    Policy {
        /// The name.
        name: String,
        /// The inode.
        target: InodeNumber,
    },
    /// The name is in the directory twice.
    #[error("name {name:?} is in the directory twice")]
    Duplicate {
        /// The name.
        name: String,
    },
    /// `.` or `..` where it does not belong.
    #[error("entry {name:?} where it does not belong")]
    Dot {
        /// The name.
        name: String,
    },
    /// The name of a dot is not followed by a zero.
    #[error("entry {name:?} does not end with a zero")]
    DotEnd {
        /// The name.
        name: String,
    },
    /// The first entry is not `.`, or names another inode.
    #[error("first entry isn't a \".\" that names the directory")]
    MissingDot,
    /// The second entry is not `..`.
    #[error("second entry isn't \"..\"")]
    MissingDotDot,
}

/// What is wrong with a directory's index.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum IndexIssue {
    /// A block that the index leads to twice.
    #[error("the index leads here twice")]
    Twice,
    /// A block that the index does not lead to.
    #[error("the index does not lead here")]
    Unreferenced,
    /// A block that the index leads to, and that the directory lacks.
    #[error("the index leads to logical block {target}, where the directory has no block")]
    Missing {
        /// The block.
        target: LogicalBlock,
    },
    /// An entry of a node lies outside the range that the parent gives.
    #[error("index entry of hash {hash:#010x} is outside of {low:#010x} to {high:#010x}")]
    NodeRange {
        /// The entry's hash.
        hash: u32,
        /// The least that it could be.
        low: u32,
        /// The most that it could be.
        high: u32,
    },
    /// A name in a leaf has a hash outside the range that the index gives.
    #[error("name {name:?} has hash {hash:#010x}, outside of {low:#010x} to {high:#010x}")]
    LeafRange {
        /// The name.
        name: String,
        /// Its hash.
        hash: u32,
        /// The least that it could be.
        low: u32,
        /// The most that it could be.
        high: u32,
    },
    /// A node lies at another level than the root says.
    #[error("the index is flagged, but the feature dir_index is off")]
    NoFeature,
    /// A stored hash of an encrypted name differs from what the index needs.
    #[error("the hash function can't be used: {version}")]
    HashVersion {
        /// The number of the function.
        version: u8,
    },
}
