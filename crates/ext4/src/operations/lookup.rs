//! Looking up names.
//!
//! # Locking
//! The dentry cache of the directory answers most look-ups; its own locks are held only briefly. Otherwise a
//! look-up shares the directory's content lock and, if it is hashed, the lock of the name's leaf.

use super::Engine;
use super::attributes::InodeSnapshot;
use crate::dentry_cache::DentryTarget;
use crate::error::{Error, Result};
use crate::inode::{Inode, UsedDirectory};
use crate::{dir, permission};
use drystone_ext4_format::error::InodeProblem;
use drystone_ext4_format::{Corrupt, InodeNumber};
use drystone_sync::Arc;
use drystone_vfs::{Access, Entry, Errno, NAME_LENGTH_MAX, RequestContext};

impl Engine {
    pub(crate) fn do_lookup(
        &self,
        context: &RequestContext,
        parent: drystone_vfs::InodeNumber,
        name: &[u8],
    ) -> Result<Entry> {
        let directory = self.searchable(context, parent)?;
        if name == b"." {
            return Ok(self.entry(&directory));
        }
        if name.len() > NAME_LENGTH_MAX {
            return Err(Errno::ENAMETOOLONG.into());
        }
        if name != b".."
            && let Some(known) = self.look_up_known(&directory, name)
        {
            return known.map(|inode| self.attributes_of(&inode));
        }
        // The reference is taken under its locks, so that the inode can't be deleted in between.
        let _content = directory.content().read();
        // One that was removed has no names, and what was its parent may be gone or another inode.
        directory.check_linked()?;
        let enter = |number| Ok(self.entry(&*self.inode(number)?));
        if name == b".." {
            return enter(dir::parent(self, &directory)?);
        }
        dir::inode_named(self, &directory, name, enter)?.ok_or(Errno::ENOENT.into())
    }

    /// The inode of a number, which may be stale.
    pub(crate) fn do_find_inode(&self, number: drystone_vfs::InodeNumber) -> Result<Entry> {
        let stale = || Error::Errno(Errno::ESTALE);
        let number = u32::try_from(number.0).map_err(|_| stale())?;
        let number = InodeNumber::new(number);
        let is_free = || matches!(self.allocator.inodes.is_allocated(number), Ok(false));
        let inode = match self.inode(number) {
            Ok(inode) => inode,
            Err(Error::Corrupt(
                Corrupt::InodeFree { .. }
                | Corrupt::InodeReserved { .. }
                | Corrupt::Inode { problem: InodeProblem::Number, .. },
            )) => return Err(stale()),
            // The record of an inode that was never used may hold anything.
            Err(Error::Corrupt(_)) if is_free() => return Err(stale()),
            Err(error) => return Err(error),
        };
        if !self.inodes.reference_named(&inode) {
            return Err(stale());
        }
        Ok(self.attributes_of(&inode))
    }

    /// Looks up a name without waiting, which succeeds most often. The locks that are tried keep
    /// everything it uses, so it needs no `Arc` of its own. Returns whether there is such a name, or
    /// `None` if that can't be told without waiting. Puts a found inode into `seen`, and takes a
    /// reference to it for the caller.
    #[inline]
    pub(crate) fn look_up_quickly(
        &self,
        context: &RequestContext,
        parent: drystone_vfs::InodeNumber,
        name: &[u8],
        seen: &mut Option<InodeSnapshot>,
    ) -> Option<bool> {
        if name.len() > NAME_LENGTH_MAX || matches!(name, b"." | b"..") {
            return None;
        }
        let parent = drystone_ext4_format::InodeNumber::new(u32::try_from(parent.0).ok()?);
        self.inodes.with_directory(parent, |directory, reader| {
            let names = directory.dentry_cache()?;
            if !permission::surely_may_search(context, directory) {
                return None;
            }
            names.try_look(reader, name, |meaning, read| match meaning {
                DentryTarget::Nothing => read.is_none_or(|read| read.holds()).then_some(false),
                DentryTarget::Inode(number) => self.inodes.try_reference(number, |inode| {
                    let now = InodeSnapshot::of(inode, inode.try_view()?);
                    // As long as the name stays, so does the inode, if its link count is right.
                    let is_named = !inode.holds_value() && !inode.is_nameless();
                    if now.is_device() || !is_named || read.is_some_and(|read| !read.holds()) {
                        return None;
                    }
                    *seen = Some(now);
                    Some(true)
                }),
            })
        })
    }

    /// What the dentry cache knows of a name; an inode gets a reference for the caller. `None` if the
    /// directory has to be read.
    fn look_up_known(&self, directory: &Inode, name: &[u8]) -> Option<Result<Arc<Inode>>> {
        let found = directory.dentry_cache()?.look(name, |meaning| match meaning {
            DentryTarget::Nothing => Some(Err(Errno::ENOENT.into())),
            DentryTarget::Inode(number) => {
                // As long as the name can't be removed, the inode can't be freed.
                Some(Ok(self.inodes.get_with_reference(number)?))
            }
        });
        found.flatten()
    }

    /// The directory of a number, in which the context may look for names.
    pub(super) fn searchable(
        &self,
        context: &RequestContext,
        number: drystone_vfs::InodeNumber,
    ) -> Result<UsedDirectory> {
        let directory = self.held_directory(number)?;
        directory.check_directory()?;
        permission::check(self, context, &directory, Access::EXECUTE)?;
        Ok(directory)
    }

    /// The inode that `name` stands for. The directory is locked only during the search.
    pub(super) fn find_in(&self, directory: &Inode, name: &[u8]) -> Result<Arc<Inode>> {
        let _content = directory.content().read();
        directory.check_linked()?;
        dir::inode_named(self, directory, name, |number| self.inode(number))?
            .ok_or(Errno::ENOENT.into())
    }
}
