//! The end of an inode: its last name and its last user are gone.
//!
//! # Crash
//! The inode is on the orphan record before its last name goes. Its space is freed in a chain of
//! handles; the last one frees the inode and takes it off the record, so that a crash anywhere in
//! between is finished by the next mount.

use super::Inode;
use crate::credits;
use crate::error::Result;
use crate::file_system::Ext4;
use crate::{file, mapping, xattr};
use drystone_ext4_format::LogicalBlock;
use drystone_ext4_format::inode::Timestamp;
use drystone_jbd2::Handle;
use drystone_sync::Arc;
use drystone_sync::atomic::Ordering;

impl Ext4 {
    /// Frees the inode if it has neither names nor users. Called without locks, after whatever
    /// may have taken the last of either.
    pub(crate) fn delete_if_unused(&self, inode: &Arc<Inode>) -> Result<()> {
        // Names are counted down before users are looked at, and users before names; so of two
        // threads that take the last of each, one sees both gone. The swap lets only one go on.
        if inode.fields().disk.links_count > 0
            || inode.is_referenced()
            || inode.deleting.swap(true, Ordering::SeqCst)
        {
            return Ok(());
        }
        self.delete(inode)
    }

    /// Frees an inode without names. At mount, called for what a crash left.
    pub(crate) fn delete(&self, inode: &Arc<Inode>) -> Result<()> {
        {
            let _content = inode.content.write();
            file::drop_pending(self, inode);
            if has_mapping(inode) && !mapping::is_empty_root(&inode.fields().disk) {
                mapping::remove_all(self, inode, LogicalBlock::FIRST)?;
            }
        }
        xattr::release_all(self, inode)?;

        let mut handle = self.volume.start(credits::DELETE_INODE)?;
        let freed = self.free(&mut handle, inode);
        self.settle(handle, freed)
    }

    /// The last step: the inode itself.
    fn free(&self, handle: &mut Handle<'_>, inode: &Arc<Inode>) -> Result<()> {
        let now = self.now();
        self.orphans.remove(self, handle, inode)?;
        let number = inode.number;
        self.quotas.inode_freed(self, handle, inode)?;
        inode.update(self, handle, |fields| {
            fields.disk.deletion_time = deletion_time(now);
            fields.disk.size_bytes = 0;
            fields.disk.sectors = 0;
            Ok(())
        })?;
        self.allocator.forget_file(&inode.space);
        // The number may be taken again as soon as its bit is clear.
        self.inodes.remove(number);
        self.allocator.free_inode(handle, number, inode.is_directory())
    }
}

/// The time of deletion has 32 bits; 0 means that the inode is in use.
fn deletion_time(now: Timestamp) -> u32 {
    u32::try_from(now.seconds).unwrap_or(u32::MAX).max(1)
}

/// Whether the inode's block area maps blocks, rather than holding a target, a device or data.
pub(crate) fn has_mapping(inode: &Inode) -> bool {
    inode.fields().disk.has_block_mapping()
}
