//! What can be wrong with a group.

use drystone_ext4_format::error::GroupPart;
use drystone_ext4_format::{InodeNumber, PhysicalBlock};
use thiserror::Error;

/// What is wrong with a group.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum GroupIssue {
    /// Flags without the feature that gives them a meaning, or unknown ones.
    #[error("flags are {flags:#06x}")]
    Flags {
        /// All flags.
        flags: u16,
    },
    /// Unused inodes without the feature that lets readers leave them out.
    #[error("{unused} unused inodes, without the feature uninit_bg")]
    Unused {
        /// What the descriptor says.
        unused: u32,
    },
    /// Clusters are in use, but free in the bitmap.
    #[error("{count} clusters in use from block {block} on are free in the block bitmap")]
    BlocksNotMarked {
        /// The first block.
        block: PhysicalBlock,
        /// How many clusters.
        count: u64,
    },
    /// Clusters are marked in the bitmap, but nothing uses them.
    #[error(
        "{count} clusters from block {block} on are marked in the block bitmap, but not in use"
    )]
    BlocksNotUsed {
        /// The first block.
        block: PhysicalBlock,
        /// How many clusters.
        count: u64,
    },
    /// Inodes are in use, but free in the bitmap.
    #[error("{count} inodes in use from {inode} on are free in the inode bitmap")]
    InodesNotMarked {
        /// The first inode.
        inode: InodeNumber,
        /// How many.
        count: u64,
    },
    /// Inodes are marked in the bitmap, but not in use.
    #[error("{count} inodes from {inode} on are marked in the inode bitmap, but not in use")]
    InodesNotUsed {
        /// The first inode.
        inode: InodeNumber,
        /// How many.
        count: u64,
    },
    /// Bits after the last block or inode of the group are free.
    #[error("{part}: padding is not all ones")]
    Padding {
        /// Which bitmap.
        part: GroupPart,
    },
    /// Inodes are in use in a group whose inodes are said to be not initialised.
    #[error("inode {inode} is in use, but the group's inodes are flagged as not initialised")]
    InodeInUninitialised {
        /// The first such inode.
        inode: InodeNumber,
    },
    /// Clusters are in use in a group whose blocks are said to be not initialised.
    #[error("block {block} is in use, but the group's blocks are flagged as not initialised")]
    BlockInUninitialised {
        /// The first such block.
        block: PhysicalBlock,
    },
    /// An inode is in use after where the descriptor says that none was ever used.
    #[error("inode {inode} is in use, among the {unused} that were never used")]
    InodeAmongUnused {
        /// The inode.
        inode: InodeNumber,
        /// What the descriptor says.
        unused: u32,
    },
    /// The count of free clusters is wrong.
    #[error("{stored} free clusters, counted {counted}")]
    FreeClusters {
        /// What is stored.
        stored: u32,
        /// What was counted.
        counted: u32,
    },
    /// The count of free inodes is wrong.
    #[error("{stored} free inodes, counted {counted}")]
    FreeInodes {
        /// What is stored.
        stored: u32,
        /// What was counted.
        counted: u32,
    },
    /// The count of directories is wrong.
    #[error("{stored} directories, counted {counted}")]
    Directories {
        /// What is stored.
        stored: u32,
        /// What was counted.
        counted: u32,
    },
}
