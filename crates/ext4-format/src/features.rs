//! Feature flags of the superblock, with the names that the e2fsprogs tools use.
//!
//! Three sets decide what a program that doesn't know a flag may do: unknown compatible flags are
//! harmless, unknown read-only compatible ones forbid writing, unknown incompatible ones forbid
//! any use.

use crate::error::Unsupported;
use bitflags::bitflags;
use std::fmt;
use thiserror::Error;

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
        /// Inodes have fields behind the first 128 bytes.
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

impl Compat {
    const NAMES: &'static [(Self, &'static str)] = &[
        (Self::DIR_PREALLOC, "dir_prealloc"),
        (Self::HAS_JOURNAL, "has_journal"),
        (Self::IMAGIC_INODES, "imagic_inodes"),
        (Self::EXT_ATTR, "ext_attr"),
        (Self::DIR_INDEX, "dir_index"),
        (Self::RESIZE_INODE, "resize_inode"),
        (Self::EXCLUDE_BITMAP, "snapshot_bitmap"),
        (Self::SPARSE_SUPER2, "sparse_super2"),
        (Self::FAST_COMMIT, "fast_commit"),
        (Self::STABLE_INODES, "stable_inodes"),
        (Self::ORPHAN_FILE, "orphan_file"),
    ];
}

impl Incompat {
    const NAMES: &'static [(Self, &'static str)] = &[
        (Self::COMPRESSION, "compression"),
        (Self::FILETYPE, "filetype"),
        (Self::RECOVER, "needs_recovery"),
        (Self::JOURNAL_DEV, "journal_dev"),
        (Self::META_BG, "meta_bg"),
        (Self::EXTENTS, "extent"),
        (Self::SIXTY_FOUR_BIT, "64bit"),
        (Self::MMP, "mmp"),
        (Self::FLEX_BG, "flex_bg"),
        (Self::EA_INODE, "ea_inode"),
        (Self::DIRDATA, "dirdata"),
        (Self::CSUM_SEED, "metadata_csum_seed"),
        (Self::LARGE_DIR, "large_dir"),
        (Self::INLINE_DATA, "inline_data"),
        (Self::ENCRYPT, "encrypt"),
        (Self::CASEFOLD, "casefold"),
    ];

    /// What may be set in an image that is used at all.
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
    const NAMES: &'static [(Self, &'static str)] = &[
        (Self::SPARSE_SUPER, "sparse_super"),
        (Self::LARGE_FILE, "large_file"),
        (Self::HUGE_FILE, "huge_file"),
        (Self::GDT_CSUM, "uninit_bg"),
        (Self::DIR_NLINK, "dir_nlink"),
        (Self::EXTRA_ISIZE, "extra_isize"),
        (Self::HAS_SNAPSHOT, "snapshot"),
        (Self::QUOTA, "quota"),
        (Self::BIGALLOC, "bigalloc"),
        (Self::METADATA_CSUM, "metadata_csum"),
        (Self::REPLICA, "replica"),
        (Self::READONLY, "read-only"),
        (Self::PROJECT, "project"),
        (Self::SHARED_BLOCKS, "shared_blocks"),
        (Self::VERITY, "verity"),
        (Self::ORPHAN_PRESENT, "orphan_present"),
    ];

    /// What may be set in an image that is written.
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

/// Older names that the tools accept as well.
const ALIASES: &[(&str, &str)] =
    &[("extents", "extent"), ("uninit_groups", "uninit_bg"), ("journal", "has_journal")];

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

/// A name in a list of features that no feature has.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("unknown feature {name:?}")]
pub struct UnknownFeature {
    /// The name.
    pub name: String,
}

impl Features {
    /// No features.
    pub const NONE: Self = Self {
        compat: Compat::empty(),
        incompat: Incompat::empty(),
        read_only_compat: ReadOnlyCompat::empty(),
    };

    /// All flags of all three sets, known or not.
    const EVERY: Self = Self {
        compat: Compat::all(),
        incompat: Incompat::all(),
        read_only_compat: ReadOnlyCompat::all(),
    };

    /// Reads a list as `mke2fs -O` takes it: names separated by commas or spaces, `^` in front of
    /// those to clear, `none` to clear all that came before.
    pub fn parse(list: &str) -> Result<FeatureChange, UnknownFeature> {
        let mut change = FeatureChange::default();
        for word in list.split([',', ' ']).filter(|word| !word.is_empty()) {
            if word.eq_ignore_ascii_case("none") {
                change = FeatureChange { set: Self::NONE, clear: Self::EVERY };
                continue;
            }
            let (name, clears) = match word.strip_prefix('^') {
                Some(name) => (name, true),
                None => (word, false),
            };
            let feature =
                Self::from_name(name).ok_or_else(|| UnknownFeature { name: name.to_owned() })?;
            if clears {
                change.clear = change.clear.union(feature);
                change.set = change.set.difference(feature);
            } else {
                change.set = change.set.union(feature);
                change.clear = change.clear.difference(feature);
            }
        }
        Ok(change)
    }

    /// The feature of that name, in any case; `FEATURE_I17` and the like name a flag by number.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        let name = name.to_ascii_lowercase();
        let name =
            ALIASES.iter().find(|(alias, _)| *alias == name).map_or(&*name, |(_, name)| name);
        if let Some((flag, _)) = Compat::NAMES.iter().find(|(_, known)| *known == name) {
            return Some(Self { compat: *flag, ..Self::NONE });
        }
        if let Some((flag, _)) = Incompat::NAMES.iter().find(|(_, known)| *known == name) {
            return Some(Self { incompat: *flag, ..Self::NONE });
        }
        if let Some((flag, _)) = ReadOnlyCompat::NAMES.iter().find(|(_, known)| *known == name) {
            return Some(Self { read_only_compat: *flag, ..Self::NONE });
        }
        let numbered = name.strip_prefix("feature_")?;
        let (set, number) = numbered.split_at_checked(1)?;
        let bits = 1u32.checked_shl(number.parse().ok()?)?;
        match set {
            "c" => Some(Self { compat: Compat::from_bits_retain(bits), ..Self::NONE }),
            "i" => Some(Self { incompat: Incompat::from_bits_retain(bits), ..Self::NONE }),
            "r" => Some(Self {
                read_only_compat: ReadOnlyCompat::from_bits_retain(bits),
                ..Self::NONE
            }),
            _ => None,
        }
    }

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

    /// The names of all features that are set, in the order of the tools.
    #[must_use]
    pub fn names(self) -> Vec<String> {
        let mut names = Vec::new();
        let compat = Compat::NAMES.iter().map(|&(flag, name)| (flag.bits(), name));
        let incompat = Incompat::NAMES.iter().map(|&(flag, name)| (flag.bits(), name));
        let read_only = ReadOnlyCompat::NAMES.iter().map(|&(flag, name)| (flag.bits(), name));
        push_names(&mut names, self.compat.bits(), 'C', compat);
        push_names(&mut names, self.incompat.bits(), 'I', incompat);
        push_names(&mut names, self.read_only_compat.bits(), 'R', read_only);
        names
    }
}

fn push_names(
    names: &mut Vec<String>,
    set: u32,
    letter: char,
    known: impl Iterator<Item = (u32, &'static str)> + Clone,
) {
    for bit in 0..u32::BITS {
        if set & (1 << bit) == 0 {
            continue;
        }
        match known.clone().find(|(flag, _)| *flag == 1 << bit) {
            Some((_, name)) => names.push(name.to_owned()),
            None => names.push(format!("FEATURE_{letter}{bit}")),
        }
    }
}

impl fmt::Display for Features {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.names().join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_sets_and_clears() {
        let change = Features::parse("^metadata_csum,64bit extents,^has_journal").unwrap();
        let before = Features {
            read_only_compat: ReadOnlyCompat::METADATA_CSUM | ReadOnlyCompat::SPARSE_SUPER,
            ..Features::NONE
        };
        assert_eq!(before.apply(&change).to_string(), "extent,64bit,sparse_super");
        let change = Features::parse("64bit,none,quota").unwrap();
        assert_eq!(before.apply(&change).to_string(), "quota");
        assert_eq!(Features::parse("nope").unwrap_err().name, "nope");
        assert!(Features::parse("feature_x99").is_err());
    }

    #[test]
    fn unknown_flags_have_numbers() {
        let features = Features { incompat: Incompat::from_bits_retain(1 << 27), ..Features::NONE };
        assert_eq!(features.to_string(), "FEATURE_I27");
        assert_eq!(Features::from_name("FEATURE_I27"), Some(features));
        assert!(features.check_readable().is_err());
        let features =
            Features { read_only_compat: ReadOnlyCompat::SHARED_BLOCKS, ..Features::NONE };
        assert!(features.check_readable().is_ok());
        assert_eq!(
            features.check_writable().unwrap_err(),
            Unsupported::ReadOnlyCompatFeatures { features: "shared_blocks".to_owned() }
        );
    }
}
