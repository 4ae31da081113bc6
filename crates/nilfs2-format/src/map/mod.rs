//! Maps: which block of a file is where.
//!
//! A small file has its pointers in the inode; a larger one has a B-tree, whose root is in the inode
//! and whose nodes are blocks. A pointer is a virtual block, which the DAT translates; in the DAT's
//! own map it is a physical block. 0 is a hole.
//!
//! # Reference
//! `struct nilfs_bmap`, `struct nilfs_btree_node` in `nilfs2_ondisk.h`.

mod node;
mod root;

pub use node::{MapNode, node_entries_max, node_entries_min};
pub use root::{DIRECT_POINTERS, MapRoot, ROOT_ENTRIES};

use thiserror::Error;

/// The level of nodes that point to data.
pub const LEVEL_OF_LEAVES: u8 = 1;
/// No level reaches this.
pub const LEVEL_LIMIT: u8 = 14;

/// A key and what it leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct MapEntry {
    /// The first block of the file that it is about.
    pub key: u64,
    /// The data block or the node.
    pub pointer: u64,
}

/// What is wrong with a map.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum MapProblem {
    /// The flags say something else than where the node is.
    #[error("flags are {found:#x}")]
    Flags {
        /// What is stored.
        found: u8,
    },
    /// The level isn't the one that belongs here.
    #[error("level {found}, where {expected} belongs")]
    Level {
        /// What is stored.
        found: u8,
        /// What belongs here.
        expected: u8,
    },
    /// A root has an impossible level.
    #[error("level {found}")]
    RootLevel {
        /// What is stored.
        found: u8,
    },
    /// Too many entries, or none.
    #[error("{found} entries, where 1 to {maximum} have room")]
    Count {
        /// What is stored.
        found: u16,
        /// How many there may be.
        maximum: usize,
    },
    /// Keys don't ascend.
    #[error("key {key} of entry {entry} isn't above the one before")]
    Order {
        /// The entry's position.
        entry: usize,
        /// Its key.
        key: u64,
    },
    /// The first key isn't the parent's.
    #[error("first key is {found}, the parent says {expected}")]
    FirstKey {
        /// What is stored.
        found: u64,
        /// What the parent says.
        expected: u64,
    },
    /// The node doesn't end before the parent's next key.
    #[error("last key {found} isn't below the parent's next key {limit}")]
    LastKey {
        /// What is stored.
        found: u64,
        /// The parent's next key.
        limit: u64,
    },
    /// A pointer leads nowhere.
    #[error("entry {entry} points to {pointer}")]
    Pointer {
        /// The entry's position.
        entry: usize,
        /// What is stored.
        pointer: u64,
    },
}

fn check_order(entries: &[MapEntry]) -> Result<(), MapProblem> {
    for (index, pair) in entries.windows(2).enumerate() {
        if pair[0].key >= pair[1].key {
            return Err(MapProblem::Order { entry: index + 1, key: pair[1].key });
        }
    }
    match entries.iter().position(|entry| entry.pointer == 0) {
        Some(entry) => Err(MapProblem::Pointer { entry, pointer: 0 }),
        None => Ok(()),
    }
}
