//! Freeing an inode: its blocks, then its number.
//!
//! # Crash
//! The blocks are freed in a chain of handles while the inode is recorded as an orphan; the handle
//! that frees the inode removes that record.

use crate::content::ContentStore;
use crate::credits;
use crate::error::Result;
use crate::inode::Inode;
use crate::mapping;
use drystone_ext4_format::LogicalBlock;
use drystone_ext4_format::inode::InodeTimestamp;
use drystone_jbd2::Handle;
use drystone_sync::Arc;

/// Unmaps and frees all blocks of an inode, in handles of its own. The content lock is held
/// exclusively.
pub(crate) fn free_blocks(fs: &ContentStore, inode: &Arc<Inode>) -> Result<()> {
    if inode.has_mapping() && !mapping::is_empty_root(&inode.fields().disk) {
        mapping::remove_all(fs, inode, LogicalBlock::FIRST)?;
    }
    Ok(())
}

/// Frees the inode in a handle of its own. It has neither blocks nor attributes any more.
pub(crate) fn free_bare_inode(fs: &ContentStore, inode: &Arc<Inode>) -> Result<()> {
    let mut handle = fs.volume.start(credits::DELETE_INODE)?;
    let freed = free_inode(fs, &mut handle, inode);
    fs.settle(handle, freed)
}

/// Frees the inode itself, the last step.
pub(crate) fn free_inode(
    fs: &ContentStore,
    handle: &mut Handle<'_>,
    inode: &Arc<Inode>,
) -> Result<()> {
    let now = fs.now();
    fs.orphans.remove(fs, handle, inode)?;
    let number = inode.number;
    fs.quotas.inode_freed(fs, handle, inode)?;
    // Before the bit is cleared: from then on the inode record may belong to another file.
    inode.update(fs, handle, |fields| {
        if fields.disk.links_count > 0 {
            fields.disk.links_count = 0;
            fields.disk.change_time = now;
        }
        fields.disk.deletion_time = deletion_time(now);
        fields.disk.size_bytes = 0;
        fields.disk.sectors = 0;
        Ok(())
    })?;
    fs.allocator.blocks.forget_file(&inode.space);
    // Before the bit is cleared: from then on the number may be taken again.
    fs.inodes.remove(number);
    fs.allocator.inodes.free(handle, number, inode.is_directory())
}

/// The deletion time has 32 bits; 0 means that the inode is in use.
fn deletion_time(now: InodeTimestamp) -> u32 {
    u32::try_from(now.seconds).unwrap_or(u32::MAX).max(1)
}
