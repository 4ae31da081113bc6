//! Feature flags of the superblock, with the names that the e2fsprogs tools use.
//!
//! Three sets decide what a program that doesn't know a flag may do: unknown compatible flags are
//! harmless, unknown read-only compatible ones forbid writing, unknown incompatible ones forbid
//! any use.

mod names;

pub use names::UnknownFeature;

use crate::error::Unsupported;
use bitflags::bitflags;

/// Largest size of a file in an image without `large_file`.
pub const FILE_BYTES_MAX_WITHOUT_LARGE_FILE: u64 = i32::MAX as u64;

bitflags! {
    /// Features that a program may ignore.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Compat: u32 {
        /// Directories preallocate blocks.
        const DIR_PREALLOC = 0x1;
        /// Inodes of the AFS server.
        const IMAGIC_INODES = 0x2;
        /// There is a journal.
        const HAS_JOURNAL = 0x4;
        /// There are extended attributes.
        const EXT_ATTR = 0x8;
        /// Blocks are reserved for growth of the descriptor table.
        const RESIZE_INODE = 0x10;
        /// Directories are hashed.
        const DIR_INDEX = 0x20;
        /// Blocks excluded from snapshots have a bitmap.
        const EXCLUDE_BITMAP = 0x100;
        /// At most two backups of the superblock, in named groups.
        const SPARSE_SUPER2 = 0x200;
        /// The journal has an area for fast commits.
        const FAST_COMMIT = 0x400;
        /// Inode numbers and the UUID never change.
        const STABLE_INODES = 0x800;
        /// Orphans are recorded in a file.
        const ORPHAN_FILE = 0x1000;

        // Unknown flags are kept.
        const _ = !0;
    }

    /// Features without which nothing may be done.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Incompat: u32 {
        /// Compressed files.
        const COMPRESSION = 0x1;
        /// Directory entries store the file type.
        const FILETYPE = 0x2;
        /// The journal must be replayed.
        const RECOVER = 0x4;
        /// The device is an external journal.
        const JOURNAL_DEV = 0x8;
        /// Descriptors are spread over the groups.
        const META_BG = 0x10;
        /// Files are mapped by extents.
        const EXTENTS = 0x40;
        /// Block numbers have 64 bits.
        const SIXTY_FOUR_BIT = 0x80;
        /// Multi-mount protection.
        const MMP = 0x100;
        /// Metadata of several groups lie together.
        const FLEX_BG = 0x200;
        /// Large extended attributes lie in inodes of their own.
        const EA_INODE = 0x400;
        /// Directory entries carry data.
        const DIRDATA = 0x1000;
        /// The superblock stores the seed of checksums.
        const CSUM_SEED = 0x2000;
        /// Directories of more than 2 GiB or of a third index level.
        const LARGE_DIR = 0x4000;
        /// Small files lie in their inode.
        const INLINE_DATA = 0x8000;
        /// Encrypted files.
        const ENCRYPT = 0x10000;
        /// Directories whose names ignore case.
        const CASEFOLD = 0x20000;

        const _ = !0;
    }

    /// Features without which nothing may be written.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct ReadOnlyCompat: u32 {
        /// Backups of the superblock in few groups.
        const SPARSE_SUPER = 0x1;
        /// Files above 2 GiB.
        const LARGE_FILE = 0x2;
        /// Never used.
        const BTREE_DIR = 0x4;
        /// Files whose count of sectors exceeds 32 bits.
        const HUGE_FILE = 0x8;
        /// Descriptors have a CRC-16 and flags for what is not initialised (`uninit_bg`).
        const GDT_CSUM = 0x10;
        /// Directories may have any number of subdirectories.
        const DIR_NLINK = 0x20;
        /// Inodes have fields after the first 128 bytes.
        const EXTRA_ISIZE = 0x40;
        /// There are snapshots.
        const HAS_SNAPSHOT = 0x80;
        /// Quota is kept in hidden inodes.
        const QUOTA = 0x100;
        /// Space is allocated in clusters of blocks.
        const BIGALLOC = 0x200;
        /// Metadata have a CRC-32C.
        const METADATA_CSUM = 0x400;
        /// There is a replica.
        const REPLICA = 0x800;
        /// Never to be written.
        const READONLY = 0x1000;
        /// Project quota is tracked.
        const PROJECT = 0x2000;
        /// Files share blocks.
        const SHARED_BLOCKS = 0x4000;
        /// Files protected by a Merkle tree.
        const VERITY = 0x8000;
        /// The orphan file may hold orphans.
        const ORPHAN_PRESENT = 0x10000;

        const _ = !0;
    }
}

impl Incompat {
    /// Incompatible features that are supported.
    pub const SUPPORTED: Self = Self::FILETYPE
        .union(Self::RECOVER)
        .union(Self::META_BG)
        .union(Self::EXTENTS)
        .union(Self::SIXTY_FOUR_BIT)
        .union(Self::MMP)
        .union(Self::FLEX_BG)
        .union(Self::EA_INODE)
        .union(Self::CSUM_SEED)
        .union(Self::LARGE_DIR)
        .union(Self::INLINE_DATA)
        .union(Self::ENCRYPT)
        .union(Self::CASEFOLD);
}

impl ReadOnlyCompat {
    /// Read-only compatible features with which images can be written.
    pub const WRITABLE: Self = Self::SPARSE_SUPER
        .union(Self::LARGE_FILE)
        .union(Self::HUGE_FILE)
        .union(Self::GDT_CSUM)
        .union(Self::DIR_NLINK)
        .union(Self::EXTRA_ISIZE)
        .union(Self::QUOTA)
        .union(Self::BIGALLOC)
        .union(Self::METADATA_CSUM)
        .union(Self::PROJECT)
        .union(Self::VERITY)
        .union(Self::ORPHAN_PRESENT);
}

/// All features of an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Features {
    /// Those that may be ignored.
    pub compat: Compat,
    /// Those that must be known.
    pub incompat: Incompat,
    /// Those that must be known to write.
    pub read_only_compat: ReadOnlyCompat,
}

/// A request to set some features and to clear others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FeatureChange {
    /// Features to set.
    pub set: Features,
    /// Features to clear.
    pub clear: Features,
}

impl Features {
    /// No features.
    pub const NONE: Self = Self {
        compat: Compat::empty(),
        incompat: Incompat::empty(),
        read_only_compat: ReadOnlyCompat::empty(),
    };

    /// Whether all metadata have checksums.
    #[must_use]
    pub const fn has_metadata_checksums(&self) -> bool {
        self.read_only_compat.contains(ReadOnlyCompat::METADATA_CSUM)
    }

    /// All flags of all three sets, known or not.
    const EVERY: Self = Self {
        compat: Compat::all(),
        incompat: Incompat::all(),
        read_only_compat: ReadOnlyCompat::all(),
    };

    /// These features after a change.
    #[must_use]
    pub fn apply(self, change: &FeatureChange) -> Self {
        self.difference(change.clear).union(change.set)
    }

    /// The features of either.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self {
            compat: self.compat | other.compat,
            incompat: self.incompat | other.incompat,
            read_only_compat: self.read_only_compat | other.read_only_compat,
        }
    }

    /// The features of this one that the other has not.
    #[must_use]
    pub fn difference(self, other: Self) -> Self {
        Self {
            compat: self.compat.difference(other.compat),
            incompat: self.incompat.difference(other.incompat),
            read_only_compat: self.read_only_compat.difference(other.read_only_compat),
        }
    }

    /// Whether all features of the other are set in this one.
    #[must_use]
    pub fn contains(self, other: Self) -> bool {
        other.difference(self) == Self::NONE
    }

    /// Refuses incompatible features that are not supported.
    pub fn check_readable(self) -> Result<(), Unsupported> {
        if self.incompat.contains(Incompat::JOURNAL_DEV) {
            return Err(Unsupported::JournalDevice);
        }
        let unknown = self.incompat.difference(Incompat::SUPPORTED);
        if unknown.is_empty() {
            return Ok(());
        }
        let features = Self { incompat: unknown, ..Self::NONE }.to_string();
        Err(Unsupported::IncompatFeatures { features })
    }

    /// Refuses features with which the image may not be written.
    pub fn check_writable(self) -> Result<(), Unsupported> {
        self.check_readable()?;
        let unknown = self.read_only_compat.difference(ReadOnlyCompat::WRITABLE);
        if unknown.is_empty() {
            return Ok(());
        }
        let features = Self { read_only_compat: unknown, ..Self::NONE }.to_string();
        Err(Unsupported::ReadOnlyCompatFeatures { features })
    }
}

#[cfg(test)]
mod tests;
