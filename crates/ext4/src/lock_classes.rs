//! The classes of the engine's locks, and their order.
//!
//! A thread takes locks by rising rank, which is their order here; debug builds panic when one does
//! not. The journal's classes (an open handle is 200, its locks are 600 to 620 and 750 to 785), the
//! buffers' (700), the cache's (790 and 800) and the devices' (900 and up) are declared in their
//! own crates. `docs/src/design/locking.md` explains each rank.

use drystone_sync::LockClass;

/// Held while a mount ends.
pub(crate) static CLOSING: LockClass = LockClass::new("closing", 30);

/// Held while the image grows.
pub(crate) static GROWING: LockClass = LockClass::new("growing", 35);

/// The handle of the thread that rewrites the MMP block. Held by the call that joins it.
pub(crate) static MMP_THREAD: LockClass = LockClass::new("MMP thread", 40);

/// The handle of the thread that writes data back in the background.
pub(crate) static WRITE_BACK_THREAD: LockClass = LockClass::new("write-back thread", 41);

/// Held while all data of delayed allocation is written.
pub(crate) static FLUSHING: LockClass = LockClass::new("flushing", 45);

/// Serialises renames that give a directory another parent, so that no cycle can form.
pub(crate) static RENAME: LockClass = LockClass::new("rename", 50);

/// Names in a directory. Several directories are locked in the order of their inode numbers.
pub(crate) static DIRECTORY: LockClass = LockClass::new("directory", 100).nestable();

/// Names in some leaves of hashed directories. Held with the content lock shared.
pub(crate) static LEAF: LockClass = LockClass::new("leaf", 110);

/// Content of an inode that isn't a directory: its data, its mapping, its size.
pub(crate) static FILE: LockClass = LockClass::new("file", 150).nestable();

/// Extended attributes of an inode.
pub(crate) static XATTRS: LockClass = LockClass::new("xattrs", 180).nestable();

/// Where changes wait while the image is frozen. Held only to sleep, under content locks.
pub(crate) static FREEZE: LockClass = LockClass::new("freeze", 190);

/// A core's share of the writes in place and of delayed data that are under way. Held during the write,
/// without a handle.
pub(crate) static IN_PLACE: LockClass = LockClass::new("write in place", 195);

/// The index of a hashed directory, whose content lock is held shared. Held to add an entry, or to find a leaf.
pub(crate) static DIRECTORY_INDEX: LockClass = LockClass::new("directory index", 225);

/// The mapping of a directory, whose content lock may be held shared. Held in a handle to add a block.
pub(crate) static DIRECTORY_MAPPING: LockClass = LockClass::new("directory mapping", 230);

/// The list of orphans.
pub(crate) static ORPHAN: LockClass = LockClass::new("orphan list", 240);

/// The dentries of one directory. Held for a look-up.
pub(crate) static DENTRY_CACHE: LockClass = LockClass::new("dentry cache", 245);

/// The directories that have dentries. Held for a push.
pub(crate) static DENTRY_TABLES: LockClass = LockClass::new("dentry tables", 246);

/// The buffers of one directory's blocks. Held for a look-up.
pub(crate) static DIRECTORY_BLOCK_CACHE: LockClass = LockClass::new("directory block cache", 247);

/// The fields of one inode and their copy in the inode table. Held for nanoseconds.
pub(crate) static INODE_FIELDS: LockClass = LockClass::new("inode fields", 250);

/// A shard of the table of inodes in memory.
pub(crate) static INODE_TABLE: LockClass = LockClass::new("inode table", 270);

/// Inodes whose last block is still to be zeroed past the end of the file.
pub(crate) static UNCLEARED_TAILS: LockClass = LockClass::new("uncleared tails", 280);

/// Inodes with data in delayed allocation.
pub(crate) static DELAYED_ALLOCATION: LockClass = LockClass::new("delayed allocation", 285);

/// The sum of delayed blocks, while a core's part moves there. A leaf.
pub(crate) static DELAYED_COUNT: LockClass = LockClass::new("delayed blocks", 545);

/// Usage records of users, groups or projects, and what is claimed.
pub(crate) static QUOTA: LockClass = LockClass::new("quota", 350);

/// The index of attribute blocks that may be shared.
pub(crate) static XATTR_INDEX: LockClass = LockClass::new("xattr index", 360);

/// The slots of the orphan file, in the variant with a lock. Held for a search.
pub(crate) static ORPHAN_FILE: LockClass = LockClass::new("orphan file", 400);

/// Data of one inode in delayed allocation.
pub(crate) static DELAYED_DATA: LockClass = LockClass::new("delayed data", 430);

/// The inodes with reclaimable extents, least recently used first; extent locks are taken inside.
pub(crate) static EXTENT_LRU: LockClass = LockClass::new("extent LRU list", 440);

/// What is known about the extents of one inode.
pub(crate) static EXTENTS: LockClass = LockClass::new("extents", 450);

/// The inodes with reclaimable extents, as a ring; it is locked inside an extent lock.
pub(crate) static EXTENT_RING: LockClass = LockClass::new("extent ring", 460);

/// Preallocation windows: blocks set aside for files and locality groups.
pub(crate) static PREALLOCATION: LockClass = LockClass::new("preallocation windows", 480);

/// The goal that all large files share.
pub(crate) static BLOCK_GOAL: LockClass = LockClass::new("block goal", 490);

/// One block group: its bitmaps, its descriptor, its free counts.
pub(crate) static GROUP: LockClass = LockClass::new("group", 500);

/// The groups that have free runs of an order.
pub(crate) static GROUP_INDEX: LockClass = LockClass::new("group index", 510);

/// Groups with inodes that a commit has to mark as used, and freed inodes that wait for a commit.
pub(crate) static INODE_RUNS: LockClass = LockClass::new("inode runs", 520);

/// Which groups the running transaction has changed.
pub(crate) static CHANGED_GROUPS: LockClass = LockClass::new("changed groups", 525);

/// Which groups have freed blocks that wait for a commit.
pub(crate) static PENDING_FREES: LockClass = LockClass::new("pending frees", 530);

/// Files that lost blocks of a cluster that they keep.
pub(crate) static CLUSTER_CUTS: LockClass = LockClass::new("cluster cuts", 535);

/// The pool of free clusters, from which cores draw in batches.
pub(crate) static FREE_SPACE: LockClass = LockClass::new("free space", 540);

/// The superblock in memory.
pub(crate) static SUPERBLOCK: LockClass = LockClass::new("superblock", 550);

/// What a growth of the image publishes. Held to replace it.
pub(crate) static PUBLISHED: LockClass = LockClass::new("published state", 555);

/// Tells the MMP thread to end.
pub(crate) static MMP: LockClass = LockClass::new("MMP", 890);
