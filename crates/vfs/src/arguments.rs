//! What the calls of [`FileSystem`] take and return, besides attributes.
//!
//! [`FileSystem`]: crate::FileSystem

use crate::{DeviceNumber, FileType, InodeAttributes, InodeNumber};

/// An inode that a call names, with one reference to it for the caller.
pub type Entry = InodeAttributes;

/// What [`FileSystem::create`](crate::FileSystem::create) makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewNode<'a> {
    /// A regular file.
    Regular,
    /// A directory.
    Directory,
    /// A symbolic link to a target of 1 to 4095 bytes.
    Symlink(&'a [u8]),
    /// A character device.
    CharacterDevice(DeviceNumber),
    /// A block device.
    BlockDevice(DeviceNumber),
    /// A named pipe.
    Fifo,
    /// A unix-domain socket.
    Socket,
}

impl NewNode<'_> {
    /// The type that the new inode will have.
    pub fn file_type(&self) -> FileType {
        match self {
            NewNode::Regular => FileType::Regular,
            NewNode::Directory => FileType::Directory,
            NewNode::Symlink(_) => FileType::Symlink,
            NewNode::CharacterDevice(_) => FileType::CharacterDevice,
            NewNode::BlockDevice(_) => FileType::BlockDevice,
            NewNode::Fifo => FileType::Fifo,
            NewNode::Socket => FileType::Socket,
        }
    }
}

bitflags::bitflags! {
    /// How a file is opened.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct OpenFlags: u32 {
        /// For reading.
        const READ = 1;
        /// For writing.
        const WRITE = 2;
        /// Truncate to length zero.
        const TRUNCATE = 4;
        /// For execution: permission to execute is checked instead of permission to read.
        const EXECUTE = 8;
    }
}

bitflags::bitflags! {
    /// How [`FileSystem::rename`](crate::FileSystem::rename) treats an existing target.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct RenameFlags: u32 {
        /// Fail with `EEXIST` if the target exists.
        const NO_REPLACE = 1;
        /// Swap source and target; both must exist.
        const EXCHANGE = 2;
        /// Leave a whiteout (character device 0:0) in place of the source.
        const WHITEOUT = 4;
    }
}

/// What [`FileSystem::fallocate`](crate::FileSystem::fallocate) does to a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FallocateMode {
    /// Give every block of the range space, and extend the size where `keep_size` is false.
    Allocate {
        /// The size stays, even if the range ends after it.
        keep_size: bool,
    },
    /// Make the range a hole; the size stays.
    PunchHole,
    /// Make the range read as zeros, with space.
    ZeroRange {
        /// The size stays, even if the range ends after it.
        keep_size: bool,
    },
    /// Take the range out; what follows moves down. Whole blocks only.
    CollapseRange,
    /// Put a hole in; what follows moves up. Whole blocks only.
    InsertRange,
}

/// What [`FileSystem::seek`](crate::FileSystem::seek) looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeekFrom {
    /// The next byte, at or after an offset, that is stored.
    Data(u64),
    /// The next byte, at or after an offset, that is in a hole (or the end).
    Hole(u64),
}

bitflags::bitflags! {
    /// What is special about a mapped range, with the bits of `FIEMAP`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct ExtentFlags: u32 {
        /// The last range of the file.
        const LAST = 0x0001;
        /// The place is not yet known.
        const UNKNOWN = 0x0002;
        /// Waits for space to be allocated.
        const DELAYED = 0x0004;
        /// Shares a block with other things; `physical` may not be aligned.
        const NOT_ALIGNED = 0x0100;
        /// Stored in the inode.
        const INLINE = 0x0200;
        /// Has space, reads as zeros.
        const UNWRITTEN = 0x0800;
        /// Merged from block-mapped neighbours.
        const MERGED = 0x1000;
        /// Other files may share the place.
        const SHARED = 0x2000;
    }
}

/// A range of a file and its place on the device, both in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileExtent {
    /// Offset in the file.
    pub logical: u64,
    /// Offset on the device.
    pub physical: u64,
    /// Length of the range.
    pub length: u64,
    /// What is special about it.
    pub flags: ExtentFlags,
}

/// How [`FileSystem::set_xattr`](crate::FileSystem::set_xattr) treats an existing attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XattrMode {
    /// Create or replace.
    Set,
    /// Fail with `EEXIST` if there is one.
    Create,
    /// Fail with `ENODATA` if there is none.
    Replace,
}

/// One name in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectoryEntry<'a> {
    /// The inode it names.
    pub inode: InodeNumber,
    /// The type of that inode; `None` where the directory doesn't record it.
    pub file_type: Option<FileType>,
    /// Where to continue after this entry.
    pub cookie: u64,
    /// The name: any bytes but `/` and NUL.
    pub name: &'a [u8],
}

/// Receives the entries of a directory. Returns false to stop *before* the given entry, which comes
/// again when reading continues at the cookie of the entry before it.
pub type DirectoryVisitor<'a> = dyn FnMut(&DirectoryEntry<'_>) -> bool + 'a;

/// What `statfs` tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct FileSystemStatistics {
    /// Bytes in a block.
    pub block_size: u32,
    /// Blocks that files may use.
    pub blocks: u64,
    /// Blocks that are free.
    pub blocks_free: u64,
    /// Blocks that are free for users without privileges.
    pub blocks_available: u64,
    /// Inodes.
    pub inodes: u64,
    /// Inodes that are free.
    pub inodes_free: u64,
    /// Longest name in bytes.
    pub name_length_max: u32,
    /// Identifies the file system.
    pub identifier: u64,
}
