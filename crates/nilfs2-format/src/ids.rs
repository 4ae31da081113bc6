//! Numbers of inodes, blocks, segments and checkpoints, each with a type of its own.

use std::fmt;

macro_rules! number {
    ($(#[$meta:meta])* $name:ident, $label:literal) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub u64);

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, formatter)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(formatter, concat!($label, " {}"), self.0)
            }
        }
    };
}

number!(
    /// An inode's number.
    InodeNumber, "inode"
);
number!(
    /// A block of the device, in units of the block size. 0 means none.
    PhysicalBlock, "block"
);
number!(
    /// A block's number in the DAT, which stays when the cleaner moves the block. 0 means none.
    VirtualBlock, "virtual block"
);
number!(
    /// A block of a file, in units of the block size: a key of its map.
    FileBlock, "file block"
);
number!(
    /// A segment of the device; the first is 0.
    SegmentNumber, "segment"
);
number!(
    /// A checkpoint; the first is 1.
    CheckpointNumber, "checkpoint"
);

impl InodeNumber {
    /// The root directory.
    pub const ROOT: Self = Self(2);
    /// The disk address translation file: virtual to physical blocks.
    pub const DAT: Self = Self(3);
    /// The checkpoint file.
    pub const CPFILE: Self = Self(4);
    /// The segment usage file.
    pub const SUFILE: Self = Self(5);
    /// The file of inodes.
    pub const IFILE: Self = Self(6);
    /// The first that isn't reserved, where the superblock doesn't say otherwise.
    pub const FIRST_ORDINARY: Self = Self(11);

    /// Whether the file's blocks have no history: the DAT, whose map holds physical blocks, and the
    /// checkpoint and segment usage files, whose old blocks nothing reads.
    #[must_use]
    pub const fn is_without_history(self) -> bool {
        matches!(self, Self::DAT | Self::CPFILE | Self::SUFILE)
    }
}

impl CheckpointNumber {
    /// The end of a period that hasn't ended.
    pub const MAX: Self = Self(u64::MAX);

    /// The number after this one, or nothing at the end of the numbers.
    #[must_use]
    pub const fn next(self) -> Option<Self> {
        match self.0.checked_add(1) {
            Some(number) => Some(Self(number)),
            None => None,
        }
    }
}
