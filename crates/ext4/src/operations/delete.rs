//! The end of an inode: its last name and its last user are gone, or a crash cut its end off.
//!
//! # Crash
//! The inode is on the orphan record before its last name goes. Its space is freed in a chain of
//! handles; the last one frees the inode and takes it off the record, so that the next mount finishes
//! what a crash anywhere in between leaves. Where there is no space to free and nobody uses the inode,
//! one handle takes the name and frees the inode, and nothing is recorded.

use super::Engine;
use crate::deletion;
use crate::error::{Error, Result};
use crate::inode::Inode;
use crate::{file, mapping, xattr};
use drystone_jbd2::Handle;
use drystone_sync::Arc;

impl Engine {
    /// Frees the inode if it has neither names nor users. Called without locks, after whatever
    /// may have taken the last of either.
    pub(crate) fn delete_if_unused(&self, inode: &Arc<Inode>) -> Result<()> {
        if self.claim_unused(inode) { self.delete(inode) } else { Ok(()) }
    }

    /// Frees an inode without names. At mount, called for what a crash left.
    pub(crate) fn delete(&self, inode: &Arc<Inode>) -> Result<()> {
        {
            let _content = inode.content.write();
            file::drop_pending(self, inode);
            file::discard(self, inode);
            deletion::free_blocks(self, inode)?;
        }
        xattr::release_all(self, inode)?;
        deletion::free_bare_inode(self, inode)
    }

    /// Whether an inode whose last name is about to go may be freed in the same handle: it has no
    /// blocks, no attributes to let go of, and no users. Its name's directory is locked, so that it
    /// gets none. Claims the inode for that; then the caller frees it, with
    /// [`free_with_name`](Engine::free_with_name). It is never an orphan then.
    pub(crate) fn claim_for_freeing(&self, inode: &Inode) -> bool {
        let is_bare = {
            let fields = inode.fields();
            fields.disk.links_count <= 1
                && !fields.has_xattrs()
                && (!fields.disk.has_block_mapping() || mapping::is_empty_root(&fields.disk))
        };
        // A thread that takes back the last reference looks for names first, and sees one as long as
        // this one isn't claimed.
        is_bare && !inode.is_directory() && !inode.orphan.is_recorded() && self.inodes.claim(inode)
    }

    /// Frees a claimed inode in the handle that takes its last name. Its content lock is held.
    pub(crate) fn free_with_name(&self, handle: &mut Handle<'_>, inode: &Arc<Inode>) -> Result<()> {
        file::drop_pending(self, inode);
        file::discard(self, inode);
        deletion::free_inode(self, handle, inode)
    }

    /// Finishes all orphans at mount: frees those without names, cuts the others to their recorded
    /// size. One that is damaged stays on record, for a checker. Returns how many were finished.
    pub(crate) fn clean_orphans(&self) -> Result<u64> {
        let mut count = 0;
        for orphan in self.orphans.load(self)? {
            let finished = if orphan.fields().disk.links_count == 0 {
                self.delete_if_unused(&orphan)
            } else {
                file::finish_cut(self, &orphan)
            };
            match finished {
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
