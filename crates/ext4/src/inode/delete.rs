//! The end of an inode: its last name and its last user are gone.
//!
//! # Crash
//! The inode is on the orphan record before its last name goes. Its space is freed in a chain of
//! handles; the last one frees the inode and takes it off the record, so that a crash anywhere in
//! between is finished by the next mount. Where there is no space to free and nobody uses the inode,
//! one handle takes the name and frees the inode, and nothing is recorded.

use super::Inode;
use crate::credits;
use crate::engine::Engine;
use crate::error::Result;
use crate::{file, mapping, xattr};
use drystone_ext4_format::LogicalBlock;
use drystone_ext4_format::inode::Timestamp;
use drystone_jbd2::Handle;
use drystone_sync::Arc;
use drystone_sync::atomic::Ordering;

impl Engine {
    /// Frees the inode if it has neither names nor users. Called without locks, after whatever
    /// may have taken the last of either.
    pub(crate) fn delete_if_unused(&self, inode: &Arc<Inode>) -> Result<()> {
        // Names are counted down before users are looked at, and users before names; so of two
        // threads that take the last of each, one sees both gone. The claim lets only one go on.
        let is_claimed = inode.is_claimed.load(Ordering::Relaxed);
        if is_claimed || !inode.is_nameless() || !self.inodes.claim(inode) {
            return Ok(());
        }
        self.delete(inode)
    }

    /// Frees an inode without names. At mount, called for what a crash left.
    pub(crate) fn delete(&self, inode: &Arc<Inode>) -> Result<()> {
        {
            let _content = inode.content.write();
            file::drop_pending(self, inode);
            file::discard(self, inode);
            if has_mapping(inode) && !mapping::is_empty_root(&inode.fields().disk) {
                mapping::remove_all(self, inode, LogicalBlock::FIRST)?;
            }
        }
        xattr::release_all(self, inode)?;

        let mut handle = self.volume.start(credits::DELETE_INODE)?;
        let freed = self.free(&mut handle, inode);
        self.settle(handle, freed)
    }

    /// Whether an inode whose last name is about to go may be freed in the same handle: it has no
    /// blocks, no attributes to let go of, and no users. Its name's directory is locked, so that it
    /// gets none. Claims the inode for that; then the caller frees it, with
    /// [`free_with_name`](Engine::free_with_name). It is never an orphan then.
    pub(crate) fn claim_for_freeing(&self, inode: &Inode) -> bool {
        let is_bare = {
            let fields = inode.fields();
            fields.disk.links_count <= 1
                && !xattr::has_any(&fields)
                && (!fields.disk.has_block_mapping() || mapping::is_empty_root(&fields.disk))
        };
        // Who takes back the last reference looks for names first, and sees one as long as this
        // one isn't claimed.
        is_bare && !inode.is_directory() && !inode.orphan.is_recorded() && self.inodes.claim(inode)
    }

    /// Frees a claimed inode in the handle that takes its last name. Its content lock is held.
    pub(crate) fn free_with_name(&self, handle: &mut Handle<'_>, inode: &Arc<Inode>) -> Result<()> {
        file::drop_pending(self, inode);
        file::discard(self, inode);
        self.free(handle, inode)
    }

    /// The last step: the inode itself.
    fn free(&self, handle: &mut Handle<'_>, inode: &Arc<Inode>) -> Result<()> {
        let now = self.now();
        self.orphans.remove(self, handle, inode)?;
        let number = inode.number;
        self.quotas.inode_freed(self, handle, inode)?;
        // Before the bit is clear, for from then on the record may be another's.
        inode.update(self, handle, |fields| {
            if fields.disk.links_count > 0 {
                fields.disk.links_count = 0;
                fields.disk.change_time = now;
            }
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
