//! The policies of the engine: which variant of a mechanism is used.

use std::fmt;
use std::str::FromStr;

/// Where the search for a free inode starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InodeSearch {
    /// At the first inode of the volume, as Linux does.
    First,
    /// After the inode that was made last, or at one that was freed before it, as published in 2014.
    NextHint,
    /// In a group that the core has to itself.
    #[default]
    PerCore,
}

impl InodeSearch {
    /// All ways.
    pub const ALL: [Self; 3] = [Self::First, Self::NextHint, Self::PerCore];

    /// The name, as it is given to a mount.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::NextHint => "next-hint",
            Self::PerCore => "per-core",
        }
    }
}

impl fmt::Display for InodeSearch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// A name that stands for no way.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("inode-search is first, next-hint or per-core, not '{0}'")]
pub struct UnknownInodeSearch(String);

impl FromStr for InodeSearch {
    type Err = UnknownInodeSearch;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|search| search.name() == name);
        found.ok_or_else(|| UnknownInodeSearch(name.to_owned()))
    }
}
