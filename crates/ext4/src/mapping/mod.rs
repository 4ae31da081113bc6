//! Logical to physical.
use crate::error::Result;
use crate::file_system::Ext4;
use crate::inode::Inode;
use drystone_cache::Seal;
use drystone_ext4_format::extent::Extent;
use drystone_ext4_format::inode::Inode as DiskInode;
use drystone_ext4_format::{InodeSeed, LogicalBlock};
use drystone_sync::Arc;
use drystone_vfs::{Errno, FileType};

/// The next mapped run at or after `from`.
pub(crate) fn next_extent(_: &Ext4, _: &Inode, _: LogicalBlock) -> Result<Option<Extent>> {
    Err(Errno::ENOSYS.into())
}
/// Frees all blocks from `from` on, in handles of its own; content lock held, inode an orphan.
pub(crate) fn remove_all(_: &Ext4, _: &Arc<Inode>, _: LogicalBlock) -> Result<()> {
    Err(Errno::ENOSYS.into())
}
/// The empty map of a new inode.
pub(crate) fn initialise(_: &Ext4, _: &mut DiskInode, _: FileType) {}
pub(crate) fn seal(_: InodeSeed) -> Arc<dyn Seal> {
    struct Nothing;
    impl Seal for Nothing {
        fn seal(&self, _: u64, _: &mut [u8]) {}
    }
    Arc::new(Nothing)
}
