//! What can be wrong with an inode.

use drystone_ext4_format::{InodeNumber, LogicalBlock, PhysicalBlock};
use thiserror::Error;

/// What is wrong with an inode.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum InodeIssue {
    /// In use, with a time of deletion.
    #[error("in use, but deleted at {seconds}")]
    DeletionTime {
        /// Seconds since 1970.
        seconds: u32,
    },
    /// Free, but with a mode and no time of deletion.
    #[error("without links, but not deleted")]
    NotDeleted,
    /// A flag that excludes what the inode is, or lacks its feature.
    #[error("flag {flag} on {what}")]
    Flag {
        /// The flag.
        flag: &'static str,
        /// What the inode is, or which feature is missing.
        what: &'static str,
    },
    /// Blocks are mapped by pointers in an image of clusters.
    #[error("pointers map its blocks, and clusters need extents")]
    NeedsExtents,
    /// A link or a special file is immutable, and no call can make it mutable again.
    #[error("immutable or append-only, but neither a file nor a directory")]
    FixedSpecial,
    /// A field that must be zero.
    #[error("{field} is {value}, not 0")]
    Field {
        /// The field.
        field: &'static str,
        /// What it holds.
        value: u64,
    },
    /// Neither mapped by extents nor allowed to have a block map.
    #[error("not mapped by extents")]
    NotExtents,
    /// The size does not fit the blocks.
    #[error("size is {stored}, its blocks ask for {expected}")]
    Size {
        /// What is stored.
        stored: u64,
        /// What the blocks ask for.
        expected: u64,
    },
    /// Larger than a file of its kind can be.
    #[error("size {stored} is above {limit}")]
    TooLarge {
        /// What is stored.
        stored: u64,
        /// The limit.
        limit: u64,
    },
    /// The space in use does not fit the blocks.
    #[error("{stored} sectors in use, counted {counted}")]
    Sectors {
        /// What is stored, in units of 512 bytes.
        stored: u64,
        /// What was counted.
        counted: u64,
    },
    /// An extent whose blocks have other places in their clusters than in the file's.
    #[error("logical block {logical} at block {physical} is not aligned to clusters")]
    Misaligned {
        /// The block of the file.
        logical: LogicalBlock,
        /// Its place.
        physical: PhysicalBlock,
    },
    /// Blocks of one cluster of the file lie in two clusters of the device.
    #[error(
        "logical block {logical} at block {physical} is not in the cluster of the block before it"
    )]
    SplitCluster {
        /// The block of the file.
        logical: LogicalBlock,
        /// Its place.
        physical: PhysicalBlock,
    },
    /// A node of its tree was met before, in another place.
    #[error("block {block} of its map is part of another map, or twice in this one")]
    SharedNode {
        /// The node.
        block: PhysicalBlock,
    },
    /// A symbolic link without a target, or with one that does not fit its size.
    #[error("target of {found} bytes in a symbolic link of size {size}")]
    Symlink {
        /// The size.
        size: u64,
        /// Bytes up to the first zero.
        found: u64,
    },
    /// A reserved inode holds something.
    #[error("reserved, but in use")]
    ReservedInUse,
    /// The inode should serve a purpose, and can't.
    #[error("not a {purpose}")]
    Purpose {
        /// The purpose.
        purpose: &'static str,
    },
    /// The resize inode does not map the blocks reserved for growth.
    #[error("maps block {found} where block {expected} is reserved for growth")]
    ReservedBlock {
        /// What the inode maps.
        found: PhysicalBlock,
        /// What is reserved.
        expected: PhysicalBlock,
    },
    /// The count of names is wrong.
    #[error("{stored} links, counted {counted}")]
    Links {
        /// What is stored.
        stored: u16,
        /// What was counted.
        counted: u32,
    },
    /// No name leads to the inode.
    #[error("in use, but no directory names it")]
    Unattached,
    /// No way leads from the root to the directory.
    #[error("directory is not connected to the root")]
    Unconnected,
    /// A second name of a directory.
    #[error("directory has names in directory {first} and in {second}")]
    SecondParent {
        /// A directory that names it.
        first: InodeNumber,
        /// The other.
        second: InodeNumber,
    },
    /// `..` leads elsewhere than to the directory that names this one.
    #[error("`..` is inode {found}, the parent is inode {expected}")]
    Parent {
        /// What `..` says.
        found: InodeNumber,
        /// Who names this directory.
        expected: InodeNumber,
    },
    /// A directory lacks a block.
    #[error("directory has no block at logical block {logical}")]
    DirectoryHole {
        /// The first missing block.
        logical: LogicalBlock,
    },
    /// A block of a directory is allocated, but not written.
    #[error("directory block at logical block {logical} is not initialised")]
    DirectoryUnwritten {
        /// The block.
        logical: LogicalBlock,
    },
    /// The root isn't a directory.
    #[error("the root is not a directory")]
    RootNotDirectory,
    /// The lost inode number of an entry of many.
    #[error("a value in it has {stored} references, counted {counted}")]
    ValueReferences {
        /// What is stored.
        stored: u64,
        /// What was counted.
        counted: u64,
    },
}

/// What is wrong with attributes.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AttributeIssue {
    /// The block says that more or fewer inodes share it.
    #[error("block {block} has {stored} references, counted {counted}")]
    References {
        /// The block.
        block: PhysicalBlock,
        /// What is stored.
        stored: u32,
        /// What was counted.
        counted: u32,
    },
    /// The block's hash is not that of its entries.
    #[error("block {block}: hash is {stored:#010x}, computed {computed:#010x}")]
    BlockHash {
        /// The block.
        block: PhysicalBlock,
        /// What is stored.
        stored: u32,
        /// What the entries give.
        computed: u32,
    },
    /// The inode that holds a value is not one that does.
    #[error("value inode {value} doesn't hold a value of {length} bytes")]
    ValueInode {
        /// The inode.
        value: InodeNumber,
        /// Length of the value.
        length: u64,
    },
    /// The value in an inode has another hash than its inode says.
    #[error("value inode {value}: hash is {stored:#010x}, computed {computed:#010x}")]
    ValueHash {
        /// The inode.
        value: InodeNumber,
        /// What is stored.
        stored: u32,
        /// What the value gives.
        computed: u32,
    },
    /// The name of an attribute holds a zero.
    #[error("illegal name {name:?}")]
    Name {
        /// The name after the prefix.
        name: String,
    },
    /// A value without bytes whose place is outside of the attributes.
    #[error("the empty value of {name:?} has a place outside of the attributes")]
    ValueStart {
        /// The name after the prefix.
        name: String,
    },
    /// A value in an inode of its own without a hash.
    #[error("{name:?} has no hash, but a value in an inode")]
    NoHash {
        /// The name after the prefix.
        name: String,
    },
    /// The inode is encrypted, but doesn't say how.
    #[error("encrypted, without an encryption context")]
    NoEncryptionContext,
    /// The inode is encrypted, and what should say how isn't an encryption context.
    #[error("encrypted, with a damaged encryption context")]
    EncryptionContext,
    /// The inode holds its data, but lacks the attribute that says so.
    #[error("inline data without the attribute that holds the rest")]
    NoInlineData,
    /// Attributes without names, or of an unknown kind.
    #[error("name index {index} is not defined")]
    NameIndex {
        /// The number of the prefix.
        index: u8,
    },
}

impl AttributeIssue {
    pub(super) const fn block(&self) -> Option<PhysicalBlock> {
        match self {
            Self::References { block, .. } | Self::BlockHash { block, .. } => Some(*block),
            _ => None,
        }
    }
}
