//! The engine's locks and their order.
//!
//! A thread takes locks by rising rank, which is their order here; debug builds panic when it doesn't.
//! The devices' classes (900 and up) are declared in their own crate.

use drystone_sync::LockClass;

/// The log writer's state: where the next log goes, checkpoints, segments. Held while a log is built and
/// written; of the operations on files only a freeze takes it.
pub(crate) static LOG: LockClass = LockClass::new("nilfs2 log", 20);

/// A core's part of the gate that every change passes. The log writer takes all of them to freeze.
pub(crate) static GATE: LockClass = LockClass::new("nilfs2 gate", 40).nestable();

/// Serialises renames that give a directory another parent, so that no cycle can form.
pub(crate) static RENAME: LockClass = LockClass::new("nilfs2 rename", 50);

/// Names in a directory. Several are taken in the order of inode numbers.
pub(crate) static DIRECTORY: LockClass = LockClass::new("nilfs2 directory", 100).nestable();

/// Content of an inode that isn't a directory. Several are taken in the order of inode numbers.
pub(crate) static FILE: LockClass = LockClass::new("nilfs2 file", 150).nestable();

/// What is known of the names in a directory.
pub(crate) static DIRECTORY_INDEX: LockClass = LockClass::new("nilfs2 directory index", 200);

/// The fields of one inode.
pub(crate) static INODE_FIELDS: LockClass = LockClass::new("nilfs2 inode fields", 250);

/// The blocks of one inode that are in memory.
pub(crate) static PAGES: LockClass = LockClass::new("nilfs2 pages", 260);

/// A shard of the table of inodes in memory.
pub(crate) static INODE_TABLE: LockClass = LockClass::new("nilfs2 inode table", 270);

/// A core's list of inodes to log.
pub(crate) static DIRTY_INODES: LockClass = LockClass::new("nilfs2 dirty inodes", 280);

/// The map of one inode.
pub(crate) static MAP: LockClass = LockClass::new("nilfs2 map", 300);

/// Inodes that a core has reserved. Held while it reserves others.
pub(crate) static RESERVED_INODES: LockClass = LockClass::new("nilfs2 reserved inodes", 380);

/// The list of inode groups in memory.
pub(crate) static INODE_GROUPS: LockClass = LockClass::new("nilfs2 inode groups", 390);

/// Which inodes of one group are in use.
pub(crate) static INODE_GROUP: LockClass = LockClass::new("nilfs2 inode group", 400);

/// Inode groups to log.
pub(crate) static DIRTY_GROUPS: LockClass = LockClass::new("nilfs2 dirty groups", 410);

/// The blocks of the ifile that are in memory, and its map.
pub(crate) static IFILE: LockClass = LockClass::new("nilfs2 ifile", 450);

/// A core's part of the gate that readers of the device pass, so that no segment is rewritten below
/// them.
pub(crate) static READERS: LockClass = LockClass::new("nilfs2 readers", 480).nestable();

/// The blocks of the DAT that are in memory, and its map.
pub(crate) static DAT: LockClass = LockClass::new("nilfs2 dat", 500);

/// Blocks that are being moved. Held for a look.
pub(crate) static MOVING: LockClass = LockClass::new("nilfs2 moving", 510);

/// Inodes without names that wait for room to be deleted. Held for a look.
pub(crate) static NAMELESS: LockClass = LockClass::new("nilfs2 nameless", 695);

/// What the log writer is asked for. Held for a look.
pub(crate) static REQUESTS: LockClass = LockClass::new("nilfs2 requests", 700);

/// Where changes wait while the volume is frozen. Held only to sleep.
pub(crate) static FREEZE: LockClass = LockClass::new("nilfs2 freeze", 710);

/// The count of dirty blocks, while a core's part moves to the total.
pub(crate) static DIRTY_COUNT: LockClass = LockClass::new("nilfs2 dirty count", 720);

/// The thread of the log writer.
pub(crate) static WRITER_THREAD: LockClass = LockClass::new("nilfs2 writer thread", 10);
