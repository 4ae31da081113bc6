//! What can be wrong with the numbers of a superblock.

use crate::ids::GroupNumber;
use thiserror::Error;

/// An impossible number in the superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum GeometryProblem {
    /// The descriptor table doesn't fit into a group.
    #[error("{blocks} blocks of descriptors don't fit into groups of {blocks_per_group} blocks")]
    DescriptorTable {
        /// Blocks of the table, with those reserved for its growth.
        blocks: u64,
        /// Blocks of a group.
        blocks_per_group: u32,
    },
    /// The block size is not 1 to 64 KiB.
    #[error("block size is 1 KiB << {log}")]
    BlockSize {
        /// The stored exponent.
        log: u32,
    },
    /// The cluster size is below the block size, too large, or differs from it without bigalloc.
    #[error("cluster size is 1 KiB << {log}")]
    ClusterSize {
        /// The stored exponent.
        log: u32,
    },
    /// The blocks of a group don't fit one bitmap, or are none, or don't match the clusters.
    #[error("{blocks} blocks in a group")]
    BlocksPerGroup {
        /// The number.
        blocks: u32,
    },
    /// The clusters of a group don't fit one bitmap, or don't match the blocks.
    #[error("{clusters} clusters in a group")]
    ClustersPerGroup {
        /// The number.
        clusters: u32,
    },
    /// The inodes of a group don't fit one bitmap, don't fill a block, or are not a multiple of 8.
    #[error("{inodes} inodes in a group")]
    InodesPerGroup {
        /// The number.
        inodes: u32,
    },
    /// The inode size is not a power of two from 128 to the block size.
    #[error("inode size is {bytes}")]
    InodeSize {
        /// The number.
        bytes: u16,
    },
    /// The descriptor size is not a power of two from 64 to the block size.
    #[error("group descriptor size is {bytes}")]
    DescriptorSize {
        /// The number.
        bytes: u16,
    },
    /// The first data block is not the one that the block size asks for.
    #[error("first data block is {block}")]
    FirstDataBlock {
        /// The number.
        block: u32,
    },
    /// There are no blocks, or more than can be addressed.
    #[error("{blocks} blocks")]
    BlocksCount {
        /// The number.
        blocks: u64,
    },
    /// There are more groups than can be numbered, or than inode numbers allow.
    #[error("{groups} groups")]
    GroupCount {
        /// The number.
        groups: u64,
    },
    /// The inodes are not as many as the groups have.
    #[error("{inodes} inodes, but the groups have {expected}")]
    InodesCount {
        /// The number.
        inodes: u32,
        /// Inodes in a group times groups.
        expected: u64,
    },
    /// The first inode for files lies among the reserved or beyond the last.
    #[error("first ordinary inode is {inode}")]
    FirstInode {
        /// The number.
        inode: u32,
    },
    /// More descriptor blocks are reserved than one indirect block could hold.
    #[error("{blocks} reserved descriptor blocks")]
    ReservedDescriptorBlocks {
        /// The number.
        blocks: u16,
    },
    /// The first meta group lies beyond the descriptor table.
    #[error("first meta block group is {first}, with {descriptor_blocks} descriptor blocks")]
    FirstMetaGroup {
        /// The number.
        first: u32,
        /// Blocks of all descriptors.
        descriptor_blocks: u32,
    },
    /// More blocks are reserved than there are.
    #[error("{reserved} reserved of {total} blocks")]
    ReservedBlocks {
        /// The reserved ones.
        reserved: u64,
        /// The total.
        total: u64,
    },
    /// A flexible group would have more groups than can be numbered.
    #[error("flexible group size is 1 << {log}")]
    FlexGroupSize {
        /// The stored exponent.
        log: u8,
    },
    /// The extra fields that inodes shall have don't fit.
    #[error("extra inode fields of {bytes} bytes in inodes of {inode_size}")]
    ExtraInodeSize {
        /// The number.
        bytes: u16,
        /// Bytes of an inode.
        inode_size: u16,
    },
    /// A group's fixed metadata does not fit into it.
    #[error("group {group} is too small for its metadata")]
    GroupTooSmall {
        /// The group.
        group: GroupNumber,
    },
}
