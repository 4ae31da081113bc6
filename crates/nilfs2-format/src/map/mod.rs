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

use crate::error::MapProblem;
pub use node::{MapNode, node_entries_max, node_entries_min};
pub use root::{DIRECT_POINTERS, MapRoot, ROOT_ENTRIES};

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
