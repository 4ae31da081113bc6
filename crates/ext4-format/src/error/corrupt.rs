//! A structure that contradicts the format: which one, where, and how.

use super::{
    AclProblem, AttributeProblem, BlockProblem, DirectoryProblem, ExtentEntryProblem,
    ExtentHeaderProblem, FastCommitProblem, GeometryProblem, GroupCounter, GroupPart, IndexProblem,
    InlineProblem, InodeProblem, MappedBlockProblem, MmpProblem, OrphanFileProblem, QuotaProblem,
};
use crate::ids::{GroupNumber, InodeNumber, LogicalBlock, PhysicalBlock, QuotaKind};
use thiserror::Error;

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
    /// The metadata of two groups lie in the same block.
    #[error("group {group}: block {block} holds metadata of another group too")]
    GroupOverlap {
        /// One of the groups.
        group: GroupNumber,
        /// The first block that both claim.
        block: PhysicalBlock,
    },
    /// More group descriptors are damaged than an image that is worth opening can have.
    #[error("{count} of the first {groups} group descriptors are damaged")]
    GroupsDamaged {
        /// Those that are damaged.
        count: u32,
        /// Those that were looked at.
        groups: u32,
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
    /// A block isn't what something takes it for.
    #[error("block {block} {problem}")]
    Block {
        /// The block.
        block: PhysicalBlock,
        /// What is wrong.
        problem: BlockProblem,
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
    /// A name refers to an inode that only the file system itself uses.
    #[error("inode {inode} has a name, but it is reserved")]
    InodeReserved {
        /// The inode.
        inode: InodeNumber,
    },
    /// An inode that is in use is free in the inode bitmap.
    #[error("inode {inode} is in use, but free in the inode bitmap")]
    InodeInUse {
        /// The inode.
        inode: InodeNumber,
    },
    /// A block that is past the end of a file, or in a hole, turned out to be mapped.
    #[error("inode {inode}: block {block} is mapped where nothing should be")]
    BlockMapped {
        /// Whose block.
        inode: InodeNumber,
        /// The block within the file.
        block: LogicalBlock,
    },
    /// An inode maps a block of the device that it may not map.
    #[error("inode {inode}: block {block} {problem}")]
    MappedBlock {
        /// Whose mapping.
        inode: InodeNumber,
        /// The block.
        block: PhysicalBlock,
        /// What is wrong.
        problem: MappedBlockProblem,
    },
    /// A directory lies below itself.
    #[error("directory inode {inode} lies below itself")]
    DirectoryLoop {
        /// The directory.
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
    /// A fast commit says what can't be.
    #[error("fast commit: inode {inode}: {problem}")]
    FastCommit {
        /// The inode that it speaks of; 0 if it names none.
        inode: InodeNumber,
        /// What is wrong.
        problem: FastCommitProblem,
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
