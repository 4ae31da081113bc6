//! Removes names: unlink and rmdir.

use super::Operations;
use super::attributes::{stamp_attributes, stamp_content};
use crate::directory;
use crate::error::Result;
use crate::inode::{HashedName, Inode, KnownEntry};
use crate::permission;
use drystone_sync::Arc;
use drystone_vfs::{Errno, NAME_LENGTH_MAX, RequestContext};

impl Operations<'_> {
    pub(crate) fn do_unlink(
        &self,
        context: &RequestContext,
        parent: drystone_vfs::InodeNumber,
        name: &[u8],
    ) -> Result<()> {
        let _inside = self.enter()?;
        let directory = self.searchable(context, parent)?;
        check_removable_name(name, Errno::EISDIR, Errno::EISDIR)?;
        let name = HashedName::new(name);
        let inode = {
            let _content = directory.content.write();
            let found = directory::find(&directory, name, self.source())?.ok_or(Errno::ENOENT)?;
            let inode = self.inode(found.inode, 0)?;
            permission::check_remove(context, &directory, &inode)?;
            if inode.is_directory() {
                return Err(Errno::EISDIR.into());
            }
            let _victim = inode.content.write();
            self.remove_name(&directory, &inode, name, found)?;
            Arc::clone(&inode)
        };
        self.delete_if_unused(&inode)
    }

    fn remove_name(
        &self,
        directory: &Arc<Inode>,
        inode: &Arc<Inode>,
        name: HashedName<'_>,
        found: KnownEntry,
    ) -> Result<()> {
        // What deletes the inode fails before its name is gone.
        self.warm_deletion(inode)?;
        directory::remove(self.engine, directory, name, found)?;
        let now = self.now();
        self.change(directory, |fields| {
            fields.needs_checkpoint = true;
            if inode.is_directory() && fields.record.links_count > 2 {
                fields.record.links_count -= 1;
            }
            stamp_content(&mut fields.record, now);
        });
        self.drop_name(inode);
        Ok(())
    }

    /// Whether an entry stands for an inode, and not for a later one of the same number. Their directory is
    /// locked.
    pub(super) fn leads_to(&self, found: KnownEntry, inode: &Arc<Inode>) -> Result<bool> {
        Ok(found.inode == inode.number && Arc::ptr_eq(&self.inode(found.inode, 0)?, inode))
    }

    /// An inode has one name fewer; a directory none.
    pub(super) fn drop_name(&self, inode: &Arc<Inode>) {
        let now = self.now();
        self.change(inode, |fields| {
            fields.needs_checkpoint = true;
            let links = &mut fields.record.links_count;
            *links = if inode.is_directory() { 0 } else { links.saturating_sub(1) };
            stamp_attributes(&mut fields.record, now);
        });
    }

    pub(crate) fn do_remove_directory(
        &self,
        context: &RequestContext,
        parent: drystone_vfs::InodeNumber,
        name: &[u8],
    ) -> Result<()> {
        let _inside = self.enter()?;
        let directory = self.searchable(context, parent)?;
        check_removable_name(name, Errno::EINVAL, Errno::ENOTEMPTY)?;
        let name = HashedName::new(name);
        let victim = loop {
            let victim = self.find_in(&directory, name)?;
            if !victim.is_directory() {
                permission::check_remove(context, &directory, &victim)?;
                return Err(Errno::ENOTDIR.into());
            }
            if victim.number == directory.number {
                return Err(super::read::loop_at(victim.number));
            }
            let (first, second) = if directory.number < victim.number {
                (&directory, &victim)
            } else {
                (&victim, &directory)
            };
            let _first = first.content.write();
            let _second = second.content.write();
            let found = match directory::find(&directory, name, self.source())? {
                Some(found) if self.leads_to(found, &victim)? => found,
                // The name has changed between the look and the locks.
                _ => continue,
            };
            permission::check_remove(context, &directory, &victim)?;
            if !directory::is_empty(&victim, self.source())? {
                return Err(Errno::ENOTEMPTY.into());
            }
            self.remove_name(&directory, &victim, name, found)?;
            break Arc::clone(&victim);
        };
        self.delete_if_unused(&victim)
    }
}

/// Checks a name that is to be removed; `dot` and `dot_dot` are what Linux says of these.
fn check_removable_name(name: &[u8], dot: Errno, dot_dot: Errno) -> Result<()> {
    match name {
        b"." => Err(dot.into()),
        b".." => Err(dot_dot.into()),
        b"" => Err(Errno::ENOENT.into()),
        _ if name.len() > NAME_LENGTH_MAX => Err(Errno::ENAMETOOLONG.into()),
        _ => Ok(()),
    }
}
