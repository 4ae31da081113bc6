//! What can be wrong with an inode, its map, a directory, or an entry of a metadata file.

use crate::ids::{CheckpointNumber, PhysicalBlock};
use thiserror::Error;

/// What is wrong with an inode.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum InodeProblem {
    /// The type bits of the mode name no type.
    #[error("mode {mode:#o} has no file type")]
    Mode {
        /// What is stored.
        mode: u16,
    },
    /// More than the largest size of a file.
    #[error("size {size} is too large")]
    Size {
        /// What is stored.
        size: u64,
    },
    /// A directory's size isn't a multiple of its blocks.
    #[error("a directory of {size} bytes")]
    DirectorySize {
        /// What is stored.
        size: u64,
    },
    /// A fraction of a second is a second or more.
    #[error("{nanoseconds} nanoseconds")]
    Nanoseconds {
        /// What is stored.
        nanoseconds: u32,
    },
    /// The inode isn't in use.
    #[error("not in use")]
    Free,
    /// Something refers to an inode that only the file system itself uses.
    #[error("reserved")]
    Reserved,
}

/// What is wrong with a map.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum MapProblem {
    /// The flags say something else than where the node is.
    #[error("flags are {found:#x}")]
    Flags {
        /// What is stored.
        found: u8,
    },
    /// The level isn't the one that belongs here.
    #[error("level {found}, where {expected} belongs")]
    Level {
        /// What is stored.
        found: u8,
        /// What belongs here.
        expected: u8,
    },
    /// A root has an impossible level.
    #[error("level {found}")]
    RootLevel {
        /// What is stored.
        found: u8,
    },
    /// Too many entries, or none.
    #[error("{found} entries, where 1 to {maximum} have room")]
    Count {
        /// What is stored.
        found: u16,
        /// How many there may be.
        maximum: usize,
    },
    /// Keys don't ascend.
    #[error("key {key} of entry {entry} isn't above the one before")]
    Order {
        /// The entry's position.
        entry: usize,
        /// Its key.
        key: u64,
    },
    /// The first key isn't the parent's.
    #[error("first key is {found}, the parent says {expected}")]
    FirstKey {
        /// What is stored.
        found: u64,
        /// What the parent says.
        expected: u64,
    },
    /// The node doesn't end before the parent's next key.
    #[error("last key {found} isn't below the parent's next key {limit}")]
    LastKey {
        /// What is stored.
        found: u64,
        /// The parent's next key.
        limit: u64,
    },
    /// A pointer leads nowhere.
    #[error("entry {entry} points to {pointer}")]
    Pointer {
        /// The entry's position.
        entry: usize,
        /// What is stored.
        pointer: u64,
    },
}

/// What is wrong with a directory block.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DirectoryProblem {
    /// An entry that isn't aligned, too short, or reaches beyond the block.
    #[error("an entry of {length} bytes")]
    Length {
        /// What is stored.
        length: usize,
    },
    /// The name doesn't fit into the entry.
    #[error("a name of {name} bytes in an entry of {length}")]
    NameLength {
        /// Bytes of the name.
        name: usize,
        /// Bytes of the entry.
        length: usize,
    },
    /// A name that no file can have.
    #[error("an impossible name")]
    Name,
    /// `.` or `..` is missing where it belongs, or leads elsewhere.
    #[error("`.` or `..` is wrong")]
    Dots,
    /// The directory has no block here.
    #[error("a hole")]
    Hole,
}

/// What is wrong with an entry.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DatProblem {
    /// The block isn't in a segment.
    #[error("said to be at block {block}")]
    Block {
        /// What is stored.
        block: PhysicalBlock,
    },
    /// The period ends before it starts.
    #[error("lives from checkpoint {start} to {end}")]
    Period {
        /// The first checkpoint that has it.
        start: CheckpointNumber,
        /// The first that hasn't.
        end: CheckpointNumber,
    },
    /// Something refers to an entry that has no block.
    #[error("is referred to, but has no block")]
    Unwritten,
    /// Something refers to an entry that isn't in use.
    #[error("is referred to, but free")]
    Free,
    /// A file leads to an entry that has ended.
    #[error("is referred to, but has ended in checkpoint {end}")]
    Ended {
        /// The first checkpoint that hasn't it.
        end: CheckpointNumber,
    },
}

/// What is wrong with a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CheckpointProblem {
    /// The record has another number.
    #[error("its record is that of {found}")]
    Number {
        /// What is stored.
        found: CheckpointNumber,
    },
    /// There is none.
    #[error("doesn't exist")]
    Missing,
    /// Not a snapshot where one belongs.
    #[error("isn't a snapshot, but in their list")]
    NotSnapshot,
    /// The list of snapshots contradicts itself.
    #[error("said to follow snapshot {found}, follows {expected}")]
    SnapshotList {
        /// What is stored.
        found: CheckpointNumber,
        /// What the list says.
        expected: CheckpointNumber,
    },
}
