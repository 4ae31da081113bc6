//! Journal credits: how many metadata blocks an operation may change at most.
//!
//! Each constant is the sum of what its parts change. An unused credit only takes room in the
//! transaction while the handle is open.

/// The superblock.
pub(crate) const SUPERBLOCK: u32 = 1;
/// One block of the inode table.
pub(crate) const INODE: u32 = 1;
/// A bitmap and its group's descriptor.
pub(crate) const BITMAP: u32 = 2;
/// Blocks of the inode table that are zeroed at once.
pub(crate) const INODE_RUN_TABLE_BLOCKS: u32 = 4;
/// Allocating an inode: its bitmap, the block bitmap of a group that is used for the first time,
/// and the blocks of the inode table that are zeroed.
pub(crate) const ALLOCATE_INODE: u32 = 2 * BITMAP + INODE_RUN_TABLE_BLOCKS;
/// Usage records of a user, a group and a project: a block each.
pub(crate) const QUOTA: u32 = 3;
/// Deepest extent tree.
pub(crate) const EXTENT_DEPTH_MAX: u32 = 5;
/// Changing the mapping in one leaf: on each level the old node and a new one (with its bitmap), or
/// one that is freed; and the root.
const MAPPING_CHANGE: u32 = EXTENT_DEPTH_MAX * (2 + BITMAP) + INODE + QUOTA;
/// Allocating and mapping one run, or marking one as written or unwritten.
pub(crate) const MAPPING_INSERT: u32 = MAPPING_CHANGE + BITMAP;
/// Block groups that one step of a removal touches, at most.
pub(crate) const MAPPING_REMOVE_GROUPS: u32 = 8;
/// One step of unmapping a range.
pub(crate) const MAPPING_REMOVE_STEP: u32 = MAPPING_CHANGE + MAPPING_REMOVE_GROUPS * BITMAP;
/// One step of moving extents, or cutting one.
pub(crate) const MAPPING_SHIFT_STEP: u32 = MAPPING_CHANGE;
/// The orphan record: a block of the orphan file, or the superblock and a neighbour's inode.
pub(crate) const ORPHAN: u32 = SUPERBLOCK + 2 * INODE;
/// Inserting a name: up to three index levels and two leaves change; three of these are new blocks.
pub(crate) const DIRECTORY_INSERT: u32 = 5 + 3 * (BITMAP + 1) + MAPPING_INSERT + INODE;
/// One more split for the same name: two blocks change and one is new.
pub(crate) const DIRECTORY_SPLIT: u32 = 3 + MAPPING_INSERT;
/// Removing a name: a leaf.
pub(crate) const DIRECTORY_REMOVE: u32 = 1 + INODE;
/// Attributes: an old block and a new one with their bitmaps, the inode and its usage, a feature bit.
pub(crate) const XATTR: u32 = 2 * (1 + BITMAP) + INODE + QUOTA + SUPERBLOCK;
/// An attribute's value in an inode of its own, without the blocks of the value.
pub(crate) const VALUE_INODE: u32 = ALLOCATE_INODE + INODE + ORPHAN + MAPPING_INSERT;
/// A new usage record: the file's head, the path to it, its block, and the next one with room.
pub(crate) const QUOTA_RECORD: u32 = 1 + 4 + 2 + 1;
/// One more block of a usage file.
pub(crate) const QUOTA_GROWTH: u32 = MAPPING_INSERT + 1 + INODE;

/// A new inode and its name.
pub(crate) const CREATE: u32 =
    ALLOCATE_INODE + 2 * INODE + QUOTA + 2 * XATTR + ORPHAN + DIRECTORY_INSERT + MAPPING_INSERT;
/// Removing a name, perhaps the inode's last.
pub(crate) const UNLINK: u32 = DIRECTORY_REMOVE + 2 * INODE + ORPHAN;
/// Freeing an inode whose blocks are free already.
pub(crate) const DELETE_INODE: u32 = ORPHAN + QUOTA + INODE + BITMAP;
/// Adding a name, removing one, changing a directory's parent, creating a whiteout.
pub(crate) const RENAME: u32 = CREATE + UNLINK + DIRECTORY_REMOVE + 2 * INODE;
/// A run of blocks: its bitmap, its mapping, the inode, the usage records, a feature bit.
pub(crate) const WRITE: u32 = BITMAP + 2 * MAPPING_INSERT + INODE + QUOTA + SUPERBLOCK;
/// The inode after a write that needs no space.
pub(crate) const WRITE_RECORD: u32 = INODE + SUPERBLOCK;
/// One step of freeing a range: the orphan record, a path of the tree, and the groups that the
/// step's runs lie in.
pub(crate) const CUT: u32 = ORPHAN + INODE + QUOTA + MAPPING_REMOVE_STEP;
/// Attributes of an inode, and its ACL.
pub(crate) const SET_ATTRIBUTES: u32 = INODE + 2 * QUOTA + XATTR;
