//! What can be wrong with extended attributes and access control lists.

use crate::ids::InodeNumber;
use thiserror::Error;

/// What is wrong with attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AttributeProblem {
    /// Too few bytes to hold attributes.
    #[error("{length} bytes are too few")]
    Length {
        /// Length of the area or block.
        length: usize,
    },
    /// The magic number of a block is wrong.
    #[error("magic is {found:#010x}, not 0xea020000")]
    Magic {
        /// What is stored.
        found: u32,
    },
    /// A block claims to be more than one block.
    #[error("{found} blocks, not 1")]
    Blocks {
        /// What is stored.
        found: u32,
    },
    /// A block has no inode that refers to it, or more than allowed.
    #[error("reference count {found}")]
    ReferenceCount {
        /// What is stored.
        found: u32,
    },
    /// An entry or the zero word after the last goes on past the end.
    #[error("entries reach the end")]
    EntriesTooLong,
    /// A value lies outside, or over the entries.
    #[error("value of {length} bytes at {start} is out of bounds")]
    ValueBounds {
        /// Where the value starts.
        start: usize,
        /// Its length.
        length: usize,
    },
    /// Two values overlap.
    #[error("value at {start} overlaps another")]
    ValueOverlap {
        /// Where the value starts.
        start: usize,
    },
    /// A value in an inode of its own has an offset too, or is larger than values can be.
    #[error("value in inode {inode} is malformed")]
    InodeValue {
        /// The inode that holds the value.
        inode: InodeNumber,
    },
    /// The inode that should hold a value isn't a value inode, or holds another value.
    #[error("inode {inode} does not hold this value")]
    InodeValueMismatch {
        /// The inode that should hold the value.
        inode: InodeNumber,
    },
    /// A name occurs twice.
    #[error("name occurs twice")]
    Duplicate,
    /// The hash of an entry is not that of its name and value.
    #[error("entry hash is {stored:#010x}, computed {computed:#010x}")]
    EntryHash {
        /// What is stored.
        stored: u32,
        /// What name and value give.
        computed: u32,
    },
}

/// What is wrong with a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AclProblem {
    /// Not a whole number of entries.
    #[error("{length} bytes can't be a list")]
    Length {
        /// Length of the list.
        length: usize,
    },
    /// An unknown version of the form.
    #[error("version {found}")]
    Version {
        /// What is stored.
        found: u32,
    },
    /// An entry with an unknown tag.
    #[error("entry {entry} has tag {tag:#x}")]
    Tag {
        /// Position of the entry.
        entry: usize,
        /// Stored tag.
        tag: u16,
    },
    /// Permission bits beyond read, write and execute.
    #[error("entry {entry} has permissions {permissions:#o}")]
    Permissions {
        /// Position of the entry.
        entry: usize,
        /// Stored bits.
        permissions: u16,
    },
    /// The id that stands for no id.
    #[error("entry {entry} names no user or group")]
    Id {
        /// Position of the entry.
        entry: usize,
    },
    /// An entry out of order, or a second one where there can be one.
    #[error("entry {entry} is out of order")]
    Order {
        /// Position of the entry.
        entry: usize,
    },
    /// Owner, owning group, others, or the mask that named entries need, is missing.
    #[error("a required entry is missing")]
    Missing,
}
