//! What can be wrong with a directory block or with the index of a hashed directory.

use crate::ids::{InodeNumber, LogicalBlock};
use thiserror::Error;

/// What is wrong with a directory block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DirectoryProblem {
    /// The block isn't a multiple of 4 bytes, or too short or too long to hold records.
    #[error("a block of {length} bytes can't hold entries")]
    BlockLength {
        /// Length of the block.
        length: usize,
    },
    /// A record is shorter than a record can be, or than its name.
    #[error("record length {length} is below {needed}")]
    RecordTooShort {
        /// Stored record length.
        length: usize,
        /// Length that its name needs.
        needed: usize,
    },
    /// A record length is not a multiple of 4.
    #[error("record length {length} is not a multiple of 4")]
    RecordUnaligned {
        /// Stored record length.
        length: usize,
    },
    /// A record goes on past the end of the block.
    #[error("record length {length} exceeds the {room} bytes that are left")]
    RecordTooLong {
        /// Stored record length.
        length: usize,
        /// Bytes up to the end.
        room: usize,
    },
    /// A live entry has no name.
    #[error("entry of inode {inode} has no name")]
    EmptyName {
        /// What the entry names.
        inode: InodeNumber,
    },
    /// A name is longer than names can be.
    #[error("name length {length} exceeds 255")]
    NameTooLong {
        /// Stored length.
        length: usize,
    },
    /// A name holds a slash or a zero byte.
    #[error("name holds the byte {byte:#04x}")]
    NameByte {
        /// The byte.
        byte: u8,
    },
    /// An entry names an inode that the filesystem does not have.
    #[error("entry names inode {inode}, the last is {last}")]
    InodeNumber {
        /// What the entry names.
        inode: InodeNumber,
        /// The last inode.
        last: InodeNumber,
    },
    /// The type of an entry is not one that the format defines.
    #[error("entry type {found}")]
    EntryType {
        /// Stored type.
        found: u8,
    },
    /// An entry changed while the directory was locked: something else uses the block too.
    #[error("an entry changed by itself")]
    Shared,
    /// No block is mapped where an entry or an index points.
    #[error("no block is mapped here")]
    Hole,
    /// The block has no tail though the image has checksums.
    #[error("no checksum tail")]
    MissingTail,
    /// The first block does not start with the entries `.` and `..`.
    #[error("no {name:?} entry where it belongs")]
    MissingDot {
        /// The name that is missing.
        name: &'static str,
    },
}

/// What is wrong with an index block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum IndexProblem {
    /// The block is too short to be an index block.
    #[error("a block of {length} bytes can't hold an index")]
    BlockLength {
        /// Length of the block.
        length: usize,
    },
    /// The records that hide the index are not those of a root or a node.
    #[error("not disguised as the records of an index block")]
    Disguise,
    /// The root names a hash function that the format does not define.
    #[error("hash version {found}")]
    HashVersion {
        /// Stored number.
        found: u8,
    },
    /// The root's information has another length than 8, or reserved fields are set.
    #[error("root information is malformed")]
    RootInfo,
    /// More levels than allowed.
    #[error("{found} levels of index nodes, at most {limit} are allowed")]
    Levels {
        /// Stored number.
        found: u8,
        /// Most that the filesystem allows.
        limit: u8,
    },
    /// The stored limit is not what the block has room for.
    #[error("limit is {found}, the block has room for {expected}")]
    Limit {
        /// Stored limit.
        found: u16,
        /// What fits.
        expected: u16,
    },
    /// No entries, or more than the limit.
    #[error("{count} entries, limit {limit}")]
    Count {
        /// Stored count.
        count: u16,
        /// Stored limit.
        limit: u16,
    },
    /// A hash is below the one before it.
    #[error("entry {position} has hash {hash:#010x}, below {previous:#010x} before it")]
    HashOrder {
        /// The entry.
        position: u16,
        /// Its hash.
        hash: u32,
        /// The hash before.
        previous: u32,
    },
    /// The entries of all index blocks lead to more leaves than there can be.
    #[error("the index leads to more leaves than the directory has blocks ({blocks})")]
    Leaves {
        /// Blocks of the directory.
        blocks: u32,
    },
    /// An entry points at block 0 or past the end of the directory.
    #[error("entry {position} points at {block}, the directory has {blocks}")]
    Target {
        /// The entry.
        position: u16,
        /// Where it points.
        block: LogicalBlock,
        /// Blocks of the directory.
        blocks: u32,
    },
}
