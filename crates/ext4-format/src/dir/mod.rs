//! Directory blocks and their entries.
//!
//! A directory is a file whose blocks are chains of records. A record holds an entry (inode
//! number, type, name) or, with inode number 0, room; it may be longer than its entry, and that
//! slack is where new entries go. Records never cross blocks and the last one ends where the
//! block ends, or 12 bytes before, where an image with checksums keeps a tail disguised as an
//! unused record. Linear directories, the leaves of hashed ones and the two pieces of an inline
//! directory all have this shape.
//!
//! [`DirectoryBlock`] reads, [`DirectoryBlockMut`] edits in place, [`DirectoryBlockBuilder`] packs
//! entries into a fresh block. All work on a slice that is one block; its length is the block
//! size.
//!
//! # Reference
//! Kernel documentation, "ext4 Data Structures and Algorithms", Directory Entries.

mod build;
mod deleted;
mod edit;
mod heads;
pub(crate) mod pack;
mod record;
mod tail;
mod tail_room;
#[cfg(test)]
mod tests;
mod view;

pub use build::{DirectoryBlockBuilder, init_empty, init_with_dots};
pub use edit::{DirectoryBlockMut, NewEntry, NoEntry, NoRoom};
pub(crate) use pack::Kept;
pub use record::{RawRecordHeader, RawTail, record_length};
pub use tail::{seal, verify};
pub use tail_room::{add_tail, remove_tail};
pub use view::{DirectoryBlock, Entries, Entry};

use crate::checksum::InodeSeed;
use crate::error::{Corrupt, DirectoryProblem};
use crate::ids::{InodeNumber, LogicalBlock};

/// Longest name of an entry, in bytes.
pub const NAME_LENGTH_MAX: usize = 255;

/// Bytes at the end of a block that hold its checksum.
pub const TAIL_LENGTH: usize = 12;

/// The format of one directory's blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirectoryLayout {
    /// Whether entries hold the type of what they name (the `filetype` feature).
    pub file_type: bool,
    /// The seed of the block checksums; `None` where the image has none, and no tails.
    pub checksum: Option<InodeSeed>,
    /// Whether names are ciphertext, and so may hold any byte.
    pub encrypted: bool,
    /// Whether names are compared without case.
    pub casefolded: bool,
    /// The last inode number of the filesystem.
    pub inode_last: InodeNumber,
}

impl DirectoryLayout {
    /// Whether entries store their hash after the name, because it can't be computed without the
    /// key.
    #[must_use]
    pub const fn stores_hashes(&self) -> bool {
        self.encrypted && self.casefolded
    }

    /// Whether two names are the same if, and only if, their bytes are.
    #[must_use]
    pub const fn compares_bytes(&self) -> bool {
        !self.casefolded && !self.encrypted
    }

    /// Bytes of a block of `block_size` that records may fill.
    #[must_use]
    pub const fn records_end(&self, block_size: usize) -> usize {
        match self.checksum {
            Some(_) => block_size.saturating_sub(TAIL_LENGTH),
            None => block_size,
        }
    }

    /// The same without a tail: the layout of the pieces of an inline directory.
    #[must_use]
    pub const fn without_tail(self) -> Self {
        Self { checksum: None, ..self }
    }
}

/// Which block of which directory: names the place in errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirectoryPlace {
    /// The directory.
    pub inode: InodeNumber,
    /// The block within it.
    pub block: LogicalBlock,
}

impl DirectoryPlace {
    pub(crate) fn corrupt(self, offset: usize, problem: DirectoryProblem) -> Corrupt {
        Corrupt::Directory { inode: self.inode, block: self.block, offset, problem }
    }
}

/// The type of what an entry names, as entries store it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EntryType {
    /// Not recorded: the image lacks the `filetype` feature, or the writer didn't know.
    Unknown,
    /// A regular file.
    Regular,
    /// A directory.
    Directory,
    /// A character device.
    CharacterDevice,
    /// A block device.
    BlockDevice,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A symbolic link.
    Symlink,
}

impl EntryType {
    /// The type for a stored code, or `None` for one that the format does not define.
    #[must_use]
    pub const fn from_raw(raw: u8) -> Option<Self> {
        Some(match raw {
            0 => Self::Unknown,
            1 => Self::Regular,
            2 => Self::Directory,
            3 => Self::CharacterDevice,
            4 => Self::BlockDevice,
            5 => Self::Fifo,
            6 => Self::Socket,
            7 => Self::Symlink,
            _ => return None,
        })
    }

    /// The stored code.
    #[must_use]
    pub const fn to_raw(self) -> u8 {
        match self {
            Self::Unknown => 0,
            Self::Regular => 1,
            Self::Directory => 2,
            Self::CharacterDevice => 3,
            Self::BlockDevice => 4,
            Self::Fifo => 5,
            Self::Socket => 6,
            Self::Symlink => 7,
        }
    }

    /// The type that the file type bits of a mode ask for.
    #[must_use]
    pub const fn from_mode(mode: u16) -> Self {
        match mode & 0o170_000 {
            0o100_000 => Self::Regular,
            0o040_000 => Self::Directory,
            0o020_000 => Self::CharacterDevice,
            0o060_000 => Self::BlockDevice,
            0o010_000 => Self::Fifo,
            0o140_000 => Self::Socket,
            0o120_000 => Self::Symlink,
            _ => Self::Unknown,
        }
    }
}
