//! What can be wrong with quota files, the orphan file, fast commits and the MMP block.

use crate::ids::{InodeNumber, PhysicalBlock};
use thiserror::Error;

/// What is wrong with a quota file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum QuotaProblem {
    /// The magic number is not that of this kind.
    #[error("magic is {found:#010x}, not {expected:#010x}")]
    Magic {
        /// What is stored.
        found: u32,
        /// The kind's magic number.
        expected: u32,
    },
    /// An unknown version.
    #[error("version {found}")]
    Version {
        /// What is stored.
        found: u32,
    },
    /// The file has too few blocks, or more than its length has room for.
    #[error("{found} blocks, the file has room for {room}")]
    Blocks {
        /// What is stored.
        found: u32,
        /// What the file has room for.
        room: u32,
    },
    /// A reference leads to the header, the root or past the end.
    #[error("refers to block {target} of {blocks}")]
    Reference {
        /// Where it leads.
        target: u32,
        /// Blocks of the file.
        blocks: u32,
    },
    /// Two references lead to the same block of the tree.
    #[error("block {target} is in the tree twice")]
    Shared {
        /// The block.
        target: u32,
    },
    /// A data block claims more entries than fit, or has room and claims none.
    #[error("data block claims {found} entries")]
    Entries {
        /// What is stored.
        found: u16,
    },
    /// The tree leads to a data block without an entry of the id.
    #[error("no entry of id {id} where the tree leads")]
    MissingEntry {
        /// The id.
        id: u32,
    },
}

/// What is wrong with a block of the orphan file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum OrphanFileProblem {
    /// The block is too short for a slot, or no multiple of 4 bytes.
    #[error("a block of {length} bytes can't hold slots")]
    BlockLength {
        /// Length of the block.
        length: usize,
    },
    /// The magic number is wrong.
    #[error("magic is {found:#010x}, not 0x0b10ca04")]
    Magic {
        /// What is stored.
        found: u32,
    },
    /// The checksum is wrong.
    #[error("checksum is {stored:#010x}, computed {computed:#010x}")]
    Checksum {
        /// What is stored.
        stored: u32,
        /// What the slots give.
        computed: u32,
    },
    /// A slot names an inode that the filesystem does not have.
    #[error("slot {slot} names inode {inode}, the last is {last}")]
    Slot {
        /// The slot.
        slot: usize,
        /// What it names.
        inode: InodeNumber,
        /// The last inode.
        last: InodeNumber,
    },
}

/// What can be wrong with a fast commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FastCommitProblem {
    /// A tag that is not known.
    #[error("unknown tag {0}")]
    Tag(u16),
    /// A value of the wrong length.
    #[error("a record with tag {tag} has {bytes} bytes")]
    Length {
        /// The tag of the record.
        tag: u16,
        /// Its bytes.
        bytes: usize,
    },
    /// An inode number that can't be meant: none, beyond the last, or reserved.
    #[error("not the number of a file")]
    Number,
    /// A range of blocks that can't be one of a file.
    #[error("a range that no file can have")]
    Range,
    /// A block that something else uses.
    #[error("block {0} is to be its own, but is in use already")]
    BlockInUse(PhysicalBlock),
    /// A name that can't be one.
    #[error("a name that can't be one")]
    Name,
    /// Something is said of an inode that neither the image nor a fast commit has.
    #[error("it is neither in use nor made")]
    Absent,
    /// A name in an inode that isn't a directory.
    #[error("a name is added to it, but it isn't a directory")]
    NoDirectory,
    /// A directory that goes, and has names.
    #[error("a directory that is removed has names")]
    NotEmpty,
    /// A directory with more names than one.
    #[error("a directory with several names")]
    DirectoryNames,
    /// More names than can be counted, or fewer than none.
    #[error("an impossible number of names")]
    Links,
    /// Another type of file than the image has for the same inode.
    #[error("it changes the type of file")]
    Type,
    /// A file that maps its blocks otherwise than the image has it.
    #[error("it changes how blocks are mapped")]
    Mapping,
    /// Attributes in a block of their own, which no fast commit can bring.
    #[error("a new inode has a block of attributes")]
    Attributes,
}

/// What is wrong with the block of multi-mount protection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum MmpProblem {
    /// Fewer bytes than the structure has.
    #[error("{length} bytes are too few")]
    BlockLength {
        /// Length of the block.
        length: usize,
    },
    /// The magic number is wrong.
    #[error("magic is {found:#010x}, not 0x004d4d50")]
    Magic {
        /// What is stored.
        found: u32,
    },
    /// The checksum is wrong.
    #[error("checksum is {stored:#010x}, computed {computed:#010x}")]
    Checksum {
        /// What is stored.
        stored: u32,
        /// What the content gives.
        computed: u32,
    },
    /// The sequence number is above those that mounts use.
    #[error("sequence is {found:#010x}")]
    Sequence {
        /// What is stored.
        found: u32,
    },
}
