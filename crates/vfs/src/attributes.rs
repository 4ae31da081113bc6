//! Inode attributes: type, permissions, owners, size, times, flags.

/// The number of an inode, unique in its file system while the inode lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct InodeNumber(pub u64);

impl std::fmt::Display for InodeNumber {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// A point in time, relative to 1970-01-01 00:00:00 UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Timestamp {
    /// Whole seconds; negative before 1970.
    pub seconds: i64,
    /// Nanoseconds after `seconds`, below 1,000,000,000.
    pub nanoseconds: u32,
}

/// The type of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum FileType {
    /// A regular file.
    Regular,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A character device.
    CharacterDevice,
    /// A block device.
    BlockDevice,
    /// A named pipe.
    Fifo,
    /// A unix-domain socket.
    Socket,
}

impl FileType {
    /// True for a directory.
    #[must_use]
    pub const fn is_dir(self) -> bool {
        matches!(self, FileType::Directory)
    }

    /// True for a regular file.
    #[must_use]
    pub const fn is_file(self) -> bool {
        matches!(self, FileType::Regular)
    }

    /// True for a symbolic link.
    #[must_use]
    pub const fn is_symlink(self) -> bool {
        matches!(self, FileType::Symlink)
    }

    /// The type bits of `st_mode` (`S_IFMT`).
    pub const fn mode_bits(self) -> u16 {
        match self {
            FileType::Regular => 0o100_000,
            FileType::Directory => 0o040_000,
            FileType::Symlink => 0o120_000,
            FileType::CharacterDevice => 0o020_000,
            FileType::BlockDevice => 0o060_000,
            FileType::Fifo => 0o010_000,
            FileType::Socket => 0o140_000,
        }
    }

    /// The type that the type bits of `mode` name, if they name one.
    pub const fn from_mode(mode: u16) -> Option<FileType> {
        Some(match mode & 0o170_000 {
            0o100_000 => FileType::Regular,
            0o040_000 => FileType::Directory,
            0o120_000 => FileType::Symlink,
            0o020_000 => FileType::CharacterDevice,
            0o060_000 => FileType::BlockDevice,
            0o010_000 => FileType::Fifo,
            0o140_000 => FileType::Socket,
            _ => return None,
        })
    }
}

/// Bits of a mode below the type.
pub mod mode {
    /// Set-user-id on execution.
    pub const SET_USER_ID: u16 = 0o4000;
    /// Set-group-id on execution; on a directory: new entries inherit its group.
    pub const SET_GROUP_ID: u16 = 0o2000;
    /// Sticky: in such a directory only owners may remove entries.
    pub const STICKY: u16 = 0o1000;
    /// All twelve permission bits.
    pub const PERMISSIONS: u16 = 0o7777;
}

/// The device number of a device node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct DeviceNumber {
    /// The driver: 12 bits on Linux.
    pub major: u32,
    /// The instance: 20 bits on Linux.
    pub minor: u32,
}

impl DeviceNumber {
    /// Whether a device can have it: an inode has room for so many bits.
    #[must_use]
    pub const fn is_valid(self) -> bool {
        self.major < 1 << 12 && self.minor < 1 << 20
    }
}

bitflags::bitflags! {
    /// Flags of an inode as `FS_IOC_GETFLAGS` shows them (`lsattr`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct FileFlags: u32 {
        /// Secure deletion (recorded, without effect).
        const SECURE_REMOVE = 0x0000_0001;
        /// Undelete (recorded, without effect).
        const UNDELETE = 0x0000_0002;
        /// Compress (recorded, without effect).
        const COMPRESS = 0x0000_0004;
        /// Writes are synchronous.
        const SYNC = 0x0000_0008;
        /// No change of any kind is allowed.
        const IMMUTABLE = 0x0000_0010;
        /// Content may only be appended; the inode can't be unlinked.
        const APPEND = 0x0000_0020;
        /// Left out by `dump`.
        const NO_DUMP = 0x0000_0040;
        /// The access time is not updated.
        const NO_ACCESS_TIME = 0x0000_0080;
        /// Encrypted; needs a key.
        const ENCRYPT = 0x0000_0800;
        /// A directory with an index.
        const INDEX = 0x0000_1000;
        /// Data is journalled.
        const JOURNAL_DATA = 0x0000_4000;
        /// File tails are not merged (recorded, without effect).
        const NO_TAIL = 0x0000_8000;
        /// Directory changes are synchronous.
        const DIRECTORY_SYNC = 0x0001_0000;
        /// The top of a directory hierarchy, for the allocator.
        const TOP_DIRECTORY = 0x0002_0000;
        /// The inode maps its content with extents.
        const EXTENTS = 0x0008_0000;
        /// Protected by fs-verity; the content can't change.
        const VERITY = 0x0010_0000;
        /// Direct access to persistent memory.
        const DIRECT_ACCESS = 0x0200_0000;
        /// Content is stored in the inode.
        const INLINE_DATA = 0x1000_0000;
        /// New entries inherit the project.
        const PROJECT_INHERIT = 0x2000_0000;
        /// Names compare without case.
        const CASEFOLD = 0x4000_0000;
    }
}

/// Everything that `statx` tells of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InodeAttributes {
    /// The inode's number.
    pub inode: InodeNumber,
    /// Distinguishes inodes that have had the same number.
    pub generation: u32,
    /// What kind of inode this is.
    pub file_type: FileType,
    /// The twelve permission bits.
    pub permissions: u16,
    /// How many directory entries name the inode; a directory counts `.` and its children's `..`,
    /// or is 1 when there are too many to count.
    pub links: u32,
    /// The owner.
    pub user: u32,
    /// The owning group.
    pub group: u32,
    /// The project that its space is counted to.
    pub project: u32,
    /// Content length in bytes.
    pub size: u64,
    /// Space used, in units of 512 bytes.
    pub sectors: u64,
    /// The preferred size of an I/O, in bytes.
    pub block_size: u32,
    /// The device number of a device node; zero for other types.
    pub device: DeviceNumber,
    /// Last read.
    pub accessed: Timestamp,
    /// Last change of content.
    pub modified: Timestamp,
    /// Last change of content or attributes.
    pub changed: Timestamp,
    /// Creation, where it is recorded.
    pub created: Option<Timestamp>,
    /// Flags as `lsattr` shows them.
    pub flags: FileFlags,
}

impl InodeAttributes {
    /// `st_mode`: type and permissions.
    pub fn mode(&self) -> u16 {
        self.file_type.mode_bits() | self.permissions
    }
}

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The time of the call.
    Now,
    /// A given time.
    At(Timestamp),
}

/// Changes to make to an inode; `None` leaves a field alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttributes {
    /// The twelve permission bits.
    pub permissions: Option<u16>,
    /// The owner.
    pub user: Option<u32>,
    /// The owning group.
    pub group: Option<u32>,
    /// The length of a regular file.
    pub size: Option<u64>,
    /// Last read.
    pub accessed: Option<SetTime>,
    /// Last change of content.
    pub modified: Option<SetTime>,
    /// Last change of anything; set by the file system itself when `None`. Only for tools that
    /// copy a tree as it is.
    pub changed: Option<Timestamp>,
    /// Creation. Only for tools that copy a tree as it is.
    pub created: Option<Timestamp>,
    /// Flags as `chattr` sets them.
    pub flags: Option<FileFlags>,
    /// The project.
    pub project: Option<u32>,
}
