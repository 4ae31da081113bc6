//! Freeing an inode after its last name and its last reference are gone, or finishing that after a
//! crash.
//!
//! # Crash
//! The inode is put on the orphan record before its last name goes. Its space is freed in a chain of
//! handles; the last one frees the inode and takes it off the record. So after a crash in between, the
//! next mount finishes the work. An inode without space to free and without references is freed in the
//! handle that takes its name, and is not recorded.

use super::Engine;
use crate::deletion;
use crate::error::{Error, Result};
use crate::inode::Inode;
use crate::{file, mapping, xattr};
use drystone_jbd2::Handle;
use drystone_sync::Arc;

impl Engine {
    /// Frees the inode if it has neither names nor references. Called without locks, after anything that
    /// may have taken the last of either.
    pub(crate) fn delete_if_unused(&self, inode: &Arc<Inode>) -> Result<()> {
        self.free_unused(inode, || self.delete(inode))
    }

    /// The same after an operation that has succeeded, whatever becomes of what it has replaced. If the inode
    /// can't be freed, it stays on the orphan record and in memory: the end of the mount tries again. A damaged
    /// one is left to a checker.
    pub(crate) fn delete_or_leave(&self, inode: &Arc<Inode>) {
        if let Err(error) = self.delete_if_unused(inode) {
            self.note_damage(&error);
            tracing::error!(inode = %inode.number, %error, "an inode without names could not be freed");
        }
    }

    /// Frees an inode without names.
    pub(crate) fn delete(&self, inode: &Arc<Inode>) -> Result<()> {
        {
            let _content = inode.content().write();
            file::drop_pending(self, inode);
            file::discard(self, inode);
            deletion::free_blocks(self, inode)?;
        }
        xattr::release_all(self, inode)?;
        deletion::free_bare_inode(self, inode)
    }

    /// Whether an inode whose last name is about to go may be freed in the same handle: it has no
    /// blocks, no attributes and no references. Its name is locked, so that it gets no
    /// references. If so, claims the inode, and the caller frees it with
    /// [`free_with_name`](Engine::free_with_name). It is never recorded as an orphan then.
    pub(crate) fn claim_for_freeing(&self, inode: &Inode) -> bool {
        let is_bare = {
            let fields = inode.fields();
            fields.disk.links_count <= 1
                && !fields.has_xattrs()
                && (!fields.disk.has_block_mapping() || mapping::is_empty_root(&fields.disk))
        };
        // A thread that gives back the last reference deletes the inode only if it has no name; this
        // one has its name until it is claimed.
        is_bare && !inode.is_directory() && !inode.orphan.is_recorded() && self.inodes.claim(inode)
    }

    /// Frees a claimed inode in the handle that takes its last name. Its content lock is held.
    pub(crate) fn free_with_name(&self, handle: &mut Handle<'_>, inode: &Arc<Inode>) -> Result<()> {
        file::drop_pending(self, inode);
        file::discard(self, inode);
        deletion::free_inode(self, handle, inode)
    }

    /// Frees an orphan without names, or truncates one that has a name to its size. Called without locks.
    pub(crate) fn finish_orphan(&self, inode: &Arc<Inode>) -> Result<()> {
        if inode.links_count() == 0 {
            self.delete_if_unused(inode)
        } else {
            file::finish_cut(self, inode)
        }
    }

    /// Leaves all orphans to a checker. They stay on the record, beside those of this mount: each knows its
    /// place there.
    pub(crate) fn leave_orphans(&self) {
        self.orphans.leave();
        let mut orphans = Vec::new();
        if let Err(error) = self.orphans.load(self, &mut orphans) {
            tracing::error!(%error, "some orphans can't be read");
        }
        for orphan in orphans {
            if orphan.links_count() == 0 {
                // No thread frees it, then.
                self.inodes.claim(&orphan);
            } else {
                orphan.set_cut_pending(true);
            }
        }
    }

    /// Finishes all orphans at mount: frees those without names, and truncates the others to their
    /// recorded size. A damaged one stays on the record, for a checker. Returns how many were finished.
    pub(crate) fn clean_orphans(&self) -> Result<u64> {
        let mut count = 0;
        let mut orphans = Vec::new();
        self.orphans.load(self, &mut orphans)?;
        for orphan in orphans {
            match self.finish_orphan(&orphan) {
                Ok(()) => count += 1,
                Err(error @ Error::Corrupt(_)) => {
                    self.note_damage(&error);
                    tracing::error!(inode = %orphan.number, %error, "an orphan could not be finished");
                    if self.volume.journal.is_aborted() {
                        break;
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(count)
    }
}
