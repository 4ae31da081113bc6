//! What an inode is: file type, flags, device numbers.

use bitflags::bitflags;

bitflags! {
    /// Flags of an inode.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct InodeFlags: u32 {
        /// Overwrite when deleted; not implemented by Linux.
        const SECURE_DELETE = 0x1;
        /// Keep for undelete; not implemented by Linux.
        const UNDELETE = 0x2;
        /// Compress; not implemented by Linux.
        const COMPRESS = 0x4;
        /// Write synchronously.
        const SYNC = 0x8;
        /// Never change.
        const IMMUTABLE = 0x10;
        /// Only append.
        const APPEND = 0x20;
        /// Leave out of dumps.
        const NO_DUMP = 0x40;
        /// Don't update the access time.
        const NO_ACCESS_TIME = 0x80;
        /// Compressed and written since.
        const DIRTY = 0x100;
        /// Has compressed clusters.
        const COMPRESSED_BLOCKS = 0x200;
        /// Read without decompression.
        const NO_COMPRESS = 0x400;
        /// Encrypted.
        const ENCRYPT = 0x800;
        /// A directory with a hashed index.
        const INDEX = 0x1000;
        /// A directory of the AFS server.
        const IMAGIC = 0x2000;
        /// Journal the data.
        const JOURNAL_DATA = 0x4000;
        /// Don't merge tails.
        const NO_TAIL = 0x8000;
        /// A directory whose changes are written synchronously.
        const DIRECTORY_SYNC = 0x1_0000;
        /// A directory whose subdirectories are unrelated.
        const TOP_DIRECTORY = 0x2_0000;
        /// Its blocks count in blocks of the file system instead of 512 bytes.
        const HUGE_FILE = 0x4_0000;
        /// Mapped by extents.
        const EXTENTS = 0x8_0000;
        /// Protected by a Merkle tree.
        const VERITY = 0x10_0000;
        /// Holds a large extended attribute.
        const EA_INODE = 0x20_0000;
        /// Has blocks beyond its size; set by old kernels.
        const EOF_BLOCKS = 0x40_0000;
        /// A snapshot.
        const SNAPSHOT = 0x100_0000;
        /// Accessed without the page cache.
        const DAX = 0x200_0000;
        /// A snapshot that is being deleted.
        const SNAPSHOT_DELETED = 0x400_0000;
        /// A snapshot that is being shrunk.
        const SNAPSHOT_SHRUNK = 0x800_0000;
        /// Data lie in the inode.
        const INLINE_DATA = 0x1000_0000;
        /// New entries inherit the project.
        const PROJECT_INHERIT = 0x2000_0000;
        /// A directory whose names ignore case.
        const CASEFOLD = 0x4000_0000;
        /// Reserved.
        const RESERVED = 0x8000_0000;

        const _ = !0;
    }
}

/// Type of a file, from the top four bits of the mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ModeFileType {
    /// A pipe with a name.
    Fifo,
    /// A character device.
    CharacterDevice,
    /// A directory.
    Directory,
    /// A block device.
    BlockDevice,
    /// A file with data.
    Regular,
    /// A symbolic link.
    Symlink,
    /// A socket with a name.
    Socket,
}

const TYPE_MASK: u16 = 0o170_000;

impl ModeFileType {
    /// The type in a mode, if it is a known one.
    #[must_use]
    pub const fn from_mode(mode: u16) -> Option<Self> {
        match mode & TYPE_MASK {
            0o010_000 => Some(Self::Fifo),
            0o020_000 => Some(Self::CharacterDevice),
            0o040_000 => Some(Self::Directory),
            0o060_000 => Some(Self::BlockDevice),
            0o100_000 => Some(Self::Regular),
            0o120_000 => Some(Self::Symlink),
            0o140_000 => Some(Self::Socket),
            _ => None,
        }
    }

    /// The bits of a mode that stand for this type.
    #[must_use]
    pub const fn mode_bits(self) -> u16 {
        match self {
            Self::Fifo => 0o010_000,
            Self::CharacterDevice => 0o020_000,
            Self::Directory => 0o040_000,
            Self::BlockDevice => 0o060_000,
            Self::Regular => 0o100_000,
            Self::Symlink => 0o120_000,
            Self::Socket => 0o140_000,
        }
    }

    /// Whether it is a device.
    #[must_use]
    pub const fn is_device(self) -> bool {
        matches!(self, Self::CharacterDevice | Self::BlockDevice)
    }
}

/// The number of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InodeDevice {
    /// Which driver: 12 bits.
    pub major: u32,
    /// Which device of it: 20 bits.
    pub minor: u32,
}

impl InodeDevice {
    /// Reads the number from the block area of a device's inode.
    ///
    /// The first word holds 8 bits each; if it is zero, the second holds 12 and 20.
    #[must_use]
    pub fn decode(block_area: &[u8; 60]) -> Self {
        let [old, new] = [0, 4].map(|at| {
            u32::from_le_bytes([
                block_area[at],
                block_area[at + 1],
                block_area[at + 2],
                block_area[at + 3],
            ])
        });
        if old != 0 {
            Self { major: old >> 8 & 0xff, minor: old & 0xff }
        } else {
            Self { major: new >> 8 & 0xfff, minor: (new & 0xff) | (new >> 12 & 0xf_ff00) }
        }
    }

    /// The block area of a device's inode; numbers too large lose their upper bits.
    #[must_use]
    pub fn encode(self) -> [u8; 60] {
        let mut block_area = [0; 60];
        if self.major < 0x100 && self.minor < 0x100 {
            let old = self.major << 8 | self.minor;
            block_area[..4].copy_from_slice(&old.to_le_bytes());
        } else {
            let new =
                (self.minor & 0xff) | (self.major & 0xfff) << 8 | (self.minor & 0xf_ff00) << 12;
            block_area[4..8].copy_from_slice(&new.to_le_bytes());
        }
        block_area
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn devices_round_trip(major in 0u32..0x1000, minor in 0u32..0x10_0000) {
            let device = InodeDevice { major, minor };
            prop_assert_eq!(InodeDevice::decode(&device.encode()), device);
        }

        #[test]
        fn types_round_trip(mode: u16) {
            if let Some(kind) = ModeFileType::from_mode(mode) {
                prop_assert_eq!(kind.mode_bits(), mode & 0o170_000);
            }
        }
    }
}
