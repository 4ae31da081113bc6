//! What can be wrong with an image: kinds and places.
//!
//! [`Corrupt`] names a structure that contradicts the format or itself; [`Unsupported`] names
//! something valid that this code does not do. Both are values to compare and to print, and hold
//! no more than numbers.

use crate::acl::AclProblem;
use crate::dir::DirectoryProblem;
use crate::htree::IndexProblem;
use crate::ids::{GroupNumber, InodeNumber, LogicalBlock, PhysicalBlock};
use crate::inline::InlineProblem;
use crate::mmp::MmpProblem;
use crate::orphan_file::OrphanFileProblem;
use crate::quota::{QuotaKind, QuotaProblem};
use crate::xattr::AttributeProblem;
use thiserror::Error;

/// Why bytes of an image could not be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FormatError {
    /// The bytes contradict the format.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
    /// The bytes use something that is not supported.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
}

/// Something in an image contradicts the format: which structure, where, and how.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Corrupt {
    /// Fewer bytes than the structure has.
    #[error("{structure} needs {needed} bytes, found {found}")]
    Truncated {
        /// The structure.
        structure: &'static str,
        /// Bytes that it has.
        needed: usize,
        /// Bytes that there are.
        found: usize,
    },
    /// The superblock's magic number is wrong: not ext2, ext3 or ext4.
    #[error("superblock: magic is {found:#06x}, not 0xef53")]
    SuperblockMagic {
        /// What is stored.
        found: u16,
    },
    /// The superblock's checksum is wrong.
    #[error("superblock: checksum is {stored:#010x}, computed {computed:#010x}")]
    SuperblockChecksum {
        /// What is stored.
        stored: u32,
        /// What its content gives.
        computed: u32,
    },
    /// A number in the superblock is impossible.
    #[error("superblock: {problem}")]
    SuperblockGeometry {
        /// Which number, and why.
        problem: GeometryProblem,
    },
    /// A group descriptor's checksum is wrong.
    #[error("group {group}: descriptor checksum is {stored:#06x}, computed {computed:#06x}")]
    GroupChecksum {
        /// The group.
        group: GroupNumber,
        /// What is stored.
        stored: u16,
        /// What its content gives.
        computed: u16,
    },
    /// A group descriptor points where that part of a group can't be.
    #[error("group {group}: {part} can't be at block {block}")]
    GroupLocation {
        /// The group.
        group: GroupNumber,
        /// Which part.
        part: GroupPart,
        /// Where the descriptor says it is.
        block: PhysicalBlock,
    },
    /// A group descriptor counts more than a group has.
    #[error("group {group}: {counted} is {found}, more than {limit}")]
    GroupCount {
        /// The group.
        group: GroupNumber,
        /// What is counted.
        counted: GroupCounter,
        /// The count.
        found: u32,
        /// What the group has.
        limit: u32,
    },
    /// A bitmap's checksum is wrong.
    #[error("group {group}: {part} checksum is {stored:#010x}, computed {computed:#010x}")]
    BitmapChecksum {
        /// The group.
        group: GroupNumber,
        /// Which bitmap.
        part: GroupPart,
        /// What is stored.
        stored: u32,
        /// What the bitmap gives.
        computed: u32,
    },
    /// A bitmap and its descriptor disagree on how much is free.
    #[error("group {group}: {part} has {counted} free, the descriptor says {stored}")]
    BitmapCount {
        /// The group.
        group: GroupNumber,
        /// Which bitmap.
        part: GroupPart,
        /// What the descriptor says.
        stored: u32,
        /// The zeros of the bitmap.
        counted: u32,
    },
    /// A block bitmap says that a block of fixed metadata is free.
    #[error("group {group}: block {block} holds fixed metadata but is free in the block bitmap")]
    BitmapMetadata {
        /// The group.
        group: GroupNumber,
        /// The block.
        block: PhysicalBlock,
    },
    /// Something refers to a block that is free.
    #[error("block {block} is referred to, but it is free")]
    BlockFree {
        /// The block.
        block: PhysicalBlock,
    },
    /// Something claims a block that holds fixed metadata.
    #[error("block {block} is claimed, but it holds fixed metadata")]
    BlockFixed {
        /// The block.
        block: PhysicalBlock,
    },
    /// Something refers to a block beyond the end.
    #[error("block {block} lies outside the {blocks} blocks of the image")]
    BlockOutOfRange {
        /// The block.
        block: PhysicalBlock,
        /// Blocks of the image.
        blocks: u64,
    },
    /// An inode's checksum is wrong.
    #[error("inode {inode}: checksum is {stored:#010x}, computed {computed:#010x}")]
    InodeChecksum {
        /// The inode.
        inode: InodeNumber,
        /// What is stored.
        stored: u32,
        /// What its content gives.
        computed: u32,
    },
    /// A field of an inode is impossible.
    #[error("inode {inode}: {problem}")]
    Inode {
        /// The inode.
        inode: InodeNumber,
        /// Which field, and why.
        problem: InodeProblem,
    },
    /// A name, or a well-known place, refers to an inode that is not in use.
    #[error("inode {inode} is referred to, but not in use")]
    InodeFree {
        /// The inode.
        inode: InodeNumber,
    },
    /// The record of orphans names an inode twice.
    #[error("the record of orphans names inode {inode} twice")]
    OrphanTwice {
        /// The inode.
        inode: InodeNumber,
    },
    /// The record of orphans names an inode that can't be one.
    #[error("the record of orphans names inode {inode}, which is reserved or free")]
    OrphanInode {
        /// The inode.
        inode: InodeNumber,
    },
    /// The journal's inode has no block where the journal needs one.
    #[error("journal inode {inode}: no block at logical block {block}")]
    JournalHole {
        /// The journal's inode.
        inode: InodeNumber,
        /// The block within it.
        block: LogicalBlock,
    },
    /// A feature needs something that the superblock doesn't name.
    #[error("superblock: feature {feature} is on, but the superblock names no {missing}")]
    Missing {
        /// The feature.
        feature: &'static str,
        /// What is not there.
        missing: &'static str,
    },
    /// The header of an extent node is wrong.
    #[error("inode {inode}: extent node {}: {problem}", place(*.block))]
    ExtentHeader {
        /// The inode.
        inode: InodeNumber,
        /// The node's block, or none for the root in the inode.
        block: Option<PhysicalBlock>,
        /// What is wrong.
        problem: ExtentHeaderProblem,
    },
    /// An entry of an extent node is wrong.
    #[error("inode {inode}: extent node {}: entry {entry}: {problem}", place(*.block))]
    ExtentEntry {
        /// The inode.
        inode: InodeNumber,
        /// The node's block, or none for the root in the inode.
        block: Option<PhysicalBlock>,
        /// The entry's position.
        entry: u16,
        /// What is wrong.
        problem: ExtentEntryProblem,
    },
    /// A pointer of a block map leads where no data of a file can be.
    #[error("inode {inode}: block map {}: pointer {index} is {found}", place(*.holder))]
    BlockPointer {
        /// The inode.
        inode: InodeNumber,
        /// The block that holds the pointer, or none for the inode.
        holder: Option<PhysicalBlock>,
        /// The pointer's position.
        index: u32,
        /// Where it leads.
        found: PhysicalBlock,
    },
    /// The checksum of an extent block is wrong.
    #[error(
        "inode {inode}: extent block {block}: checksum is {stored:#010x}, computed {computed:#010x}"
    )]
    ExtentChecksum {
        /// The inode.
        inode: InodeNumber,
        /// The block.
        block: PhysicalBlock,
        /// What is stored.
        stored: u32,
        /// What its content gives.
        computed: u32,
    },
    /// A directory block is wrong.
    #[error("directory inode {inode}: logical block {block}: offset {offset}: {problem}")]
    Directory {
        /// The directory.
        inode: InodeNumber,
        /// The block within it.
        block: LogicalBlock,
        /// The record's place in the block.
        offset: usize,
        /// What is wrong.
        problem: DirectoryProblem,
    },
    /// The checksum of a directory block, a leaf or an index block, is wrong.
    #[error(
        "directory inode {inode}: logical block {block}: checksum is {stored:#010x}, \
         computed {computed:#010x}"
    )]
    DirectoryChecksum {
        /// The directory.
        inode: InodeNumber,
        /// The block within it.
        block: LogicalBlock,
        /// What is stored.
        stored: u32,
        /// What its content gives.
        computed: u32,
    },
    /// An index block of a hashed directory is wrong.
    #[error("directory inode {inode}: index block {block}: {problem}")]
    DirectoryIndex {
        /// The directory.
        inode: InodeNumber,
        /// The block within it.
        block: LogicalBlock,
        /// What is wrong.
        problem: IndexProblem,
    },
    /// Extended attributes are wrong.
    #[error("inode {inode}: attributes {}: offset {offset}: {problem}", place(*.block))]
    Attributes {
        /// The inode.
        inode: InodeNumber,
        /// The attribute block, or none for the area in the inode.
        block: Option<PhysicalBlock>,
        /// The entry's place in the area or block.
        offset: usize,
        /// What is wrong.
        problem: AttributeProblem,
    },
    /// The checksum of an attribute block is wrong.
    #[error(
        "inode {inode}: attribute block {block}: checksum is {stored:#010x}, \
         computed {computed:#010x}"
    )]
    AttributeChecksum {
        /// The inode.
        inode: InodeNumber,
        /// The block.
        block: PhysicalBlock,
        /// What is stored.
        stored: u32,
        /// What its content gives.
        computed: u32,
    },
    /// An access control list is wrong.
    #[error("inode {inode}: access control list: {problem}")]
    Acl {
        /// The inode.
        inode: InodeNumber,
        /// What is wrong.
        problem: AclProblem,
    },
    /// Inline data is wrong.
    #[error("inode {inode}: inline data: {problem}")]
    Inline {
        /// The inode.
        inode: InodeNumber,
        /// What is wrong.
        problem: InlineProblem,
    },
    /// A block of the orphan file is wrong.
    #[error("orphan file inode {inode}: block {block}: {problem}")]
    OrphanFile {
        /// The orphan file.
        inode: InodeNumber,
        /// The block.
        block: PhysicalBlock,
        /// What is wrong.
        problem: OrphanFileProblem,
    },
    /// The block of multi-mount protection is wrong.
    #[error("multi-mount protection block {block}: {problem}")]
    Mmp {
        /// The block.
        block: PhysicalBlock,
        /// What is wrong.
        problem: MmpProblem,
    },
    /// A quota file is wrong.
    #[error("{kind} quota file: block {block}: {problem}")]
    Quota {
        /// Whose quota.
        kind: QuotaKind,
        /// The block of the file, in units of 1 KiB.
        block: u32,
        /// What is wrong.
        problem: QuotaProblem,
    },
}

fn place(block: Option<PhysicalBlock>) -> String {
    block.map_or_else(|| "in the inode".to_owned(), |block| format!("at block {block}"))
}

/// Something valid that is not supported.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Unsupported {
    /// Incompatible features, by name: the image can't be used.
    #[error("unsupported incompatible features: {features}")]
    IncompatFeatures {
        /// Their names, separated by commas.
        features: String,
    },
    /// Read-only compatible features, by name: the image can't be written.
    #[error("unsupported features, the image can only be read: {features}")]
    ReadOnlyCompatFeatures {
        /// Their names, separated by commas.
        features: String,
    },
    /// A revision of the format that is not known.
    #[error("unsupported revision {revision}")]
    Revision {
        /// The revision.
        revision: u32,
    },
    /// A checksum type that is not known.
    #[error("unsupported checksum type {kind}")]
    ChecksumType {
        /// The number of the type.
        kind: u8,
    },
}

/// An impossible number in the superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum GeometryProblem {
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

/// A part of a group that its descriptor locates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum GroupPart {
    /// The bitmap of blocks (or clusters).
    #[error("block bitmap")]
    BlockBitmap,
    /// The bitmap of inodes.
    #[error("inode bitmap")]
    InodeBitmap,
    /// The inode table.
    #[error("inode table")]
    InodeTable,
}

/// A number that a group descriptor counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum GroupCounter {
    /// Free blocks (clusters).
    #[error("free clusters")]
    FreeClusters,
    /// Free inodes.
    #[error("free inodes")]
    FreeInodes,
    /// Directories.
    #[error("used directories")]
    UsedDirectories,
    /// Inodes at the end of the table that were never used.
    #[error("unused inodes")]
    UnusedInodes,
}

/// An impossible field of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum InodeProblem {
    /// The number is 0 or beyond the last inode.
    #[error("no such inode")]
    Number,
    /// The inode is free in the inode bitmap, or is not for files.
    #[error("referred to, but it is free or reserved")]
    NotInUse,
    /// The mode has no known file type.
    #[error("mode {mode:#o} has no file type")]
    FileType {
        /// The stored mode.
        mode: u16,
    },
    /// The extra fields don't fit the inode or are not aligned.
    #[error("extra size is {bytes}")]
    ExtraSize {
        /// The stored number.
        bytes: u16,
    },
    /// The size is larger than a file can be.
    #[error("size is {bytes}")]
    Size {
        /// The stored number.
        bytes: u64,
    },
    /// More space is in use than can be counted.
    #[error("{sectors} sectors in use")]
    Sectors {
        /// The number, in units of 512 bytes.
        sectors: u64,
    },
    /// The block of extended attributes lies outside the device.
    #[error("attribute block is {block}")]
    AttributeBlock {
        /// The stored number.
        block: PhysicalBlock,
    },
}

/// What is wrong with the header of an extent node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ExtentHeaderProblem {
    /// The magic number is wrong.
    #[error("magic is {found:#06x}, not 0xf30a")]
    Magic {
        /// What is stored.
        found: u16,
    },
    /// The node claims more room than it has, or none.
    #[error("room for {max} entries, there is room for {fits}")]
    Max {
        /// What is stored.
        max: u16,
        /// What fits.
        fits: u16,
    },
    /// There are more entries than room.
    #[error("{entries} entries, room for {max}")]
    Entries {
        /// How many are stored.
        entries: u16,
        /// The room that is stored.
        max: u16,
    },
    /// The depth is not one less than the parent's, or above the limit.
    #[error("depth is {found}, expected {expected}")]
    Depth {
        /// What is stored.
        found: u16,
        /// What the parent asks for; the limit for a root.
        expected: u16,
    },
    /// An index node has no entries.
    #[error("no entries")]
    Empty,
}

/// What is wrong with an entry of an extent node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ExtentEntryProblem {
    /// The extent has no blocks.
    #[error("length is 0")]
    Length,
    /// The extent ends beyond the last block that a file can have.
    #[error("blocks {start} + {length} exceed the largest file")]
    LogicalRange {
        /// First block of the file.
        start: LogicalBlock,
        /// Number of blocks.
        length: u32,
    },
    /// The entry starts before the end of its predecessor.
    #[error("starts at {start}, before {previous_end}")]
    Order {
        /// First block of this entry.
        start: LogicalBlock,
        /// First block that the entry could have.
        previous_end: u64,
    },
    /// The entry starts outside the range that the parent gives.
    #[error("covers {start} to {end}, outside of the parent's range")]
    OutsideParent {
        /// First block of the entry.
        start: LogicalBlock,
        /// First block behind the entry.
        end: u64,
    },
    /// The blocks lie outside the device, or on its fixed metadata.
    #[error("device blocks {start} + {length} can't hold data")]
    PhysicalRange {
        /// First block of the device.
        start: PhysicalBlock,
        /// Number of blocks.
        length: u32,
    },
}
