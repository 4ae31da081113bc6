//! What the metadata blocks in the cache are used as, and for which inode or group.
//!
//! A block has one use. On a damaged image two structures may claim one block, and each would find what
//! it has checked changed under it by the other: the first that reads the block gets it, the second an
//! error.

use crate::error::Error;
use drystone_cache::{BlockInOtherUse, BlockUse};
use drystone_ext4_format::error::BlockProblem;
use drystone_ext4_format::{Corrupt, GroupNumber, InodeNumber, PhysicalBlock};

/// Attributes, which inodes may share.
pub(crate) const ATTRIBUTES: BlockUse = numbered(1, 0);
/// Slots of the orphan file.
pub(crate) const ORPHANS: BlockUse = numbered(2, 0);

const fn numbered(kind: u64, number: u32) -> BlockUse {
    BlockUse::new(kind << 32 | number as u64)
}

/// Names of a directory. The first block has the same use when it becomes the root of an index.
pub(crate) const fn names(directory: InodeNumber) -> BlockUse {
    numbered(3, directory.get())
}

/// An index block below the root.
pub(crate) const fn index_node(directory: InodeNumber) -> BlockUse {
    numbered(4, directory.get())
}

/// A node of an extent tree or block map.
pub(crate) const fn mapping(inode: InodeNumber) -> BlockUse {
    numbered(5, inode.get())
}

/// A group's block bitmap.
pub(crate) const fn block_bitmap(group: GroupNumber) -> BlockUse {
    numbered(6, group.get())
}

/// A group's inode bitmap.
pub(crate) const fn inode_bitmap(group: GroupNumber) -> BlockUse {
    numbered(7, group.get())
}

impl From<BlockInOtherUse> for Error {
    fn from(BlockInOtherUse { block }: BlockInOtherUse) -> Error {
        Error::Corrupt(Corrupt::Block {
            block: PhysicalBlock::new(block),
            problem: BlockProblem::TwoUses,
        })
    }
}
