//! Removing names: unlink and rmdir.
//!
//! # Locking
//! The name, as [`dir::lock_name`] locks it, or for a directory the content lock of its parent, exclusively;
//! and the content lock of the inode that the name stands for, exclusively. Whether the inode is on the
//! orphan record is decided under its lock, and a removed directory gets no names meanwhile.
//!
//! # Crash
//! Each operation is one handle. An inode that loses its last name is put on the orphan record in it, or
//! is freed in it.

use super::Engine;
use super::links;
use crate::error::Result;
use crate::inode::Inode;
use crate::{credits, dir, permission};
use drystone_ext4_format::Corrupt;
use drystone_jbd2::Handle;
use drystone_sync::Arc;
use drystone_vfs::{Errno, NAME_LENGTH_MAX, RequestContext};

impl Engine {
    pub(crate) fn do_unlink(
        &self,
        context: &RequestContext,
        parent: drystone_vfs::InodeNumber,
        name: &[u8],
    ) -> Result<()> {
        let directory = self.searchable(context, parent)?;
        check_removable_name(name, Errno::EISDIR, Errno::EISDIR)?;
        let inode = {
            let locked = dir::lock_name(self, &directory, name)?;
            let dir::EntrySearch::Found(found) = &locked.search else {
                return Err(Errno::ENOENT.into());
            };
            let inode = self.inode(found.inode)?;
            permission::check_remove(self, context, &directory, &locked.summary, &inode)?;
            if inode.is_directory() {
                return Err(Errno::EISDIR.into());
            }
            // Whether the inode is on the orphan record is decided under its content lock.
            let victim =
                (!drystone_sync::planted!("unlink-without-lock")).then(|| inode.content().write());
            let mut handle = self.volume.start(credits::UNLINK + credits::DELETE_INODE)?;
            let removed = self.remove_name(&mut handle, &directory, &inode, name, found);
            self.settle(handle, removed)?;
            drop(victim);
            inode
        };
        self.delete_or_leave(&inode);
        Ok(())
    }

    fn remove_name(
        &self,
        handle: &mut Handle<'_>,
        directory: &Inode,
        inode: &Arc<Inode>,
        name: &[u8],
        found: &dir::FoundEntry,
    ) -> Result<()> {
        dir::remove(self, handle, directory, name, found)?;
        if inode.is_directory() {
            directory.update(self, handle, |fields| {
                links::remove_subdirectory(fields);
                Ok(())
            })?;
        }
        directory.stamp_names(self, handle)?;
        if self.claim_for_freeing(inode) {
            self.free_with_name(handle, inode)
        } else {
            links::drop_name(self, handle, inode)
        }
    }

    pub(crate) fn do_remove_directory(
        &self,
        context: &RequestContext,
        parent: drystone_vfs::InodeNumber,
        name: &[u8],
    ) -> Result<()> {
        let directory = self.searchable(context, parent)?;
        check_removable_name(name, Errno::EINVAL, Errno::ENOTEMPTY)?;
        let victim = loop {
            let victim = self.find_in(&directory, name)?;
            if !victim.is_directory() {
                let summary = directory.summary();
                permission::check_remove(self, context, &directory, &summary, &victim)?;
                return Err(Errno::ENOTDIR.into());
            }
            if victim.number == directory.number {
                return Err(Corrupt::DirectoryLoop { inode: victim.number }.into());
            }
            let (first, second) = if directory.number < victim.number {
                (&*directory, &victim)
            } else {
                (&victim, &*directory)
            };
            let _first = first.content().write();
            let _second = second.content().write();
            directory.check_linked()?;
            // The number may be that of another inode by now.
            let is_victim = |number| number == victim.number && !victim.is_dropped();
            let found = match dir::entry_named(self, &directory, &directory.summary(), name)? {
                Some(found) if is_victim(found.inode) || drystone_sync::planted!("stale-name") => {
                    found
                }
                _ => continue,
            };
            permission::check_remove(self, context, &directory, &directory.summary(), &victim)?;
            if !dir::is_empty(self, &victim)? {
                return Err(Errno::ENOTEMPTY.into());
            }
            let mut handle = self.volume.start(credits::UNLINK)?;
            let removed = self.remove_name(&mut handle, &directory, &victim, name, &found);
            self.settle(handle, removed)?;
            break Arc::clone(&victim);
        };
        self.delete_or_leave(&victim);
        Ok(())
    }
}

fn check_removable_name(name: &[u8], dot: Errno, dot_dot: Errno) -> Result<()> {
    match name {
        b"." => Err(dot.into()),
        b".." => Err(dot_dot.into()),
        b"" => Err(Errno::ENOENT.into()),
        _ if name.len() > NAME_LENGTH_MAX => Err(Errno::ENAMETOOLONG.into()),
        _ => Ok(()),
    }
}
