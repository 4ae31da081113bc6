//! Numbers of inodes, groups and blocks, each with a type of its own.

use std::fmt;

macro_rules! number {
    ($(#[$meta:meta])* $name:ident, $inner:ty, $label:literal) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name($inner);

        impl $name {
            /// Wraps a raw number.
            #[must_use]
            pub const fn new(number: $inner) -> Self {
                Self(number)
            }

            /// The raw number.
            #[must_use]
            pub const fn get(self) -> $inner {
                self.0
            }

            /// The raw number as 64 bits.
            #[must_use]
            pub const fn as_u64(self) -> u64 {
                self.0 as u64
            }

            /// This number plus `count`, or nothing if that does not fit.
            #[must_use]
            pub const fn checked_add(self, count: $inner) -> Option<Self> {
                match self.0.checked_add(count) {
                    Some(number) => Some(Self(number)),
                    None => None,
                }
            }

            /// This number minus `count`, or nothing if that is below zero.
            #[must_use]
            pub const fn checked_sub(self, count: $inner) -> Option<Self> {
                match self.0.checked_sub(count) {
                    Some(number) => Some(Self(number)),
                    None => None,
                }
            }

            /// How far this number is beyond `start`, or nothing if it is before it.
            #[must_use]
            pub const fn distance_from(self, start: Self) -> Option<$inner> {
                self.0.checked_sub(start.0)
            }
        }

        impl From<$inner> for $name {
            fn from(number: $inner) -> Self {
                Self(number)
            }
        }

        impl From<$name> for $inner {
            fn from(number: $name) -> Self {
                number.0
            }
        }

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
    /// An inode's number; the first is 1, and 0 means none.
    InodeNumber, u32, "inode"
);
number!(
    /// A block group's number; the first is 0.
    GroupNumber, u32, "group"
);
number!(
    /// A block of the device, in units of the file system's block size.
    PhysicalBlock, u64, "block"
);
number!(
    /// A block of a file, in units of the file system's block size.
    LogicalBlock, u32, "logical block"
);

impl InodeNumber {
    /// Reserved for bad blocks.
    pub const BAD_BLOCKS: Self = Self(1);
    /// The root directory.
    pub const ROOT: Self = Self(2);
    /// The user quota file.
    pub const USER_QUOTA: Self = Self(3);
    /// The group quota file.
    pub const GROUP_QUOTA: Self = Self(4);
    /// Reserved for a boot loader.
    pub const BOOT_LOADER: Self = Self(5);
    /// Reserved for undelete.
    pub const UNDELETE: Self = Self(6);
    /// Holds the blocks reserved for growth of the descriptor table.
    pub const RESIZE: Self = Self(7);
    /// The journal.
    pub const JOURNAL: Self = Self(8);
    /// Reserved for snapshots.
    pub const EXCLUDE: Self = Self(9);
    /// Reserved for a replica.
    pub const REPLICA: Self = Self(10);
    /// The first inode for files where the superblock does not say otherwise (revision 0).
    pub const FIRST_ORDINARY: Self = Self(11);

    /// Wraps a number read from a field where 0 means none.
    #[must_use]
    pub const fn from_field(number: u32) -> Option<Self> {
        if number == 0 { None } else { Some(Self(number)) }
    }
}

impl GroupNumber {
    /// The first group.
    pub const FIRST: Self = Self(0);

    /// The number as an index into an array of groups.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl LogicalBlock {
    /// The first block of a file.
    pub const FIRST: Self = Self(0);
    /// The last number a block of a file could have.
    pub const MAX: Self = Self(u32::MAX);
}

/// The kind of owner that a quota file counts for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum QuotaKind {
    /// Users.
    User,
    /// Groups.
    Group,
    /// Projects.
    Project,
}

impl QuotaKind {
    /// The magic number of a file of this kind.
    #[must_use]
    pub const fn magic(self) -> u32 {
        match self {
            Self::User => 0xd9c0_1f11,
            Self::Group => 0xd9c0_1927,
            Self::Project => 0xd9c0_3f14,
        }
    }
}

impl fmt::Display for QuotaKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::User => "user",
            Self::Group => "group",
            Self::Project => "project",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_is_checked() {
        assert_eq!(LogicalBlock::MAX.checked_add(1), None);
        assert_eq!(PhysicalBlock::new(5).checked_sub(6), None);
        assert_eq!(PhysicalBlock::new(9).distance_from(PhysicalBlock::new(4)), Some(5));
        assert_eq!(InodeNumber::from_field(0), None);
        assert_eq!(format!("{:?} {}", InodeNumber::ROOT, InodeNumber::ROOT), "inode 2 2");
    }
}
