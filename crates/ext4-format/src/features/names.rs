//! The names of features, as the tools write them.

use super::{Compat, FeatureChange, Features, Incompat, ReadOnlyCompat};
use std::fmt;
use thiserror::Error;

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
}

/// Older names that the tools accept as well.
const ALIASES: &[(&str, &str)] =
    &[("extents", "extent"), ("uninit_groups", "uninit_bg"), ("journal", "has_journal")];

/// States of an image, and features that nothing uses.
const NEVER_CHOSEN: [&str; 5] =
    ["dir_prealloc", "imagic_inodes", "snapshot_bitmap", "needs_recovery", "orphan_present"];

/// A name in a list of features that no feature has.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("unknown feature {name:?}; there are {}", Features::supported_names().join(", "))]
pub struct UnknownFeature {
    /// The name.
    pub name: String,
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

impl Features {
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

    /// The names of all features that can be chosen for an image that is to be written.
    #[must_use]
    pub fn supported_names() -> Vec<&'static str> {
        let compat = Compat::NAMES.iter().map(|(_, name)| *name);
        let incompat =
            Incompat::NAMES.iter().filter(|(flag, _)| Incompat::SUPPORTED.contains(*flag));
        let read_only = ReadOnlyCompat::NAMES.iter();
        let read_only = read_only.filter(|(flag, _)| ReadOnlyCompat::WRITABLE.contains(*flag));
        let others = incompat.map(|(_, name)| *name).chain(read_only.map(|(_, name)| *name));
        compat.chain(others).filter(|name| !NEVER_CHOSEN.contains(name)).collect()
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
