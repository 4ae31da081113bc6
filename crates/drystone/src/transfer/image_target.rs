//! An open image as a target.

use super::ends::{CopyTarget, EndResult};
use super::facts::{
    InodeFacts, Xattrs, permissions_of_other_owner, permissions_without_acl, remove_inherited_acls,
};
use super::problem::{Cause, LostProperty};
use crate::replace::{beside, private_permissions};
use drystone_sync::Arc;
use drystone_vfs::{
    Errno, Error, FileSystem, FileType, InodeGuard, InodeNumber, RenameFlags, RequestContext,
    SetAttributes, SetTime, XattrMode, find_path,
};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// An image that is written with the rights of the superuser.
pub(super) struct ImageTarget<'f> {
    file_system: &'f dyn FileSystem,
    context: RequestContext,
    /// The source is this image too: its identities are comparable with ours.
    is_source: bool,
    keep_owners: bool,
}

impl<'f> ImageTarget<'f> {
    pub fn new(
        file_system: &'f dyn FileSystem,
        source: Option<&dyn FileSystem>,
        keep_owners: bool,
    ) -> ImageTarget<'f> {
        let is_source = source.is_some_and(|source| std::ptr::addr_eq(source, file_system));
        let context = RequestContext::superuser();
        ImageTarget { file_system, context, is_source, keep_owners }
    }

    fn find(&self, directory: InodeNumber, name: &[u8]) -> drystone_vfs::Result<InodeGuard<'f>> {
        InodeGuard::lookup(self.file_system, &self.context, directory, name)
    }

    fn create(
        &self,
        directory: InodeNumber,
        name: &[u8],
        facts: &InodeFacts,
    ) -> drystone_vfs::Result<InodeGuard<'f>> {
        let node = facts.new_node();
        let permissions = private_permissions(node);
        InodeGuard::create(self.file_system, &self.context, directory, name, node, permissions)
    }

    /// Makes an entry, under a free name beside what has the name, which is returned. A directory that has it is an
    /// error, and so is `keep`.
    fn beside(
        &self,
        directory: InodeNumber,
        name: &[u8],
        keep: Option<InodeNumber>,
        make: &dyn Fn(&[u8]) -> drystone_vfs::Result<InodeGuard<'f>>,
    ) -> EndResult<(InodeGuard<'f>, Option<OsString>)> {
        match make(name) {
            Err(error) if error.errno == Errno::EEXIST => {}
            made => return Ok((made?, None)),
        }
        match self.find(directory, name) {
            Ok(existing) if existing.is_directory() => return Err(Errno::EISDIR.into()),
            Ok(existing) if keep == Some(existing.inode()) => {
                let detail = "source and target are the same file";
                return Err(Error::with_detail(Errno::EINVAL, detail).into());
            }
            Err(error) if error.errno != Errno::ENOENT => return Err(error.into()),
            _ => {}
        }
        let (made_as, made) = beside(name, make)?;
        Ok((made, (made_as != name).then(|| OsString::from_vec(made_as))))
    }
}

impl<'f> CopyTarget for ImageTarget<'f> {
    type Node = InodeGuard<'f>;
    type Original = Arc<InodeGuard<'f>>;

    fn start(&self, path: &Path) -> EndResult<InodeGuard<'f>> {
        let bytes = path.as_os_str().as_bytes();
        let found = find_path(self.file_system, &self.context, bytes, true)?;
        if found.is_directory() { Ok(found) } else { Err(Errno::ENOTDIR.into()) }
    }

    fn enclosing(&self, start: &InodeGuard<'f>) -> EndResult<Vec<(u64, u64)>> {
        let mut enclosing = Vec::new();
        if !self.is_source {
            return Ok(enclosing);
        }
        enclosing.push((0, start.inode().0));
        let mut here = self.find(start.inode(), b"..")?;
        // The root is its own parent; a damaged image may have other circles.
        while !enclosing.contains(&(0, here.inode().0)) {
            enclosing.push((0, here.inode().0));
            here = self.find(here.inode(), b"..")?;
        }
        Ok(enclosing)
    }

    fn folds_names(&self) -> bool {
        self.file_system.folds_names()
    }

    fn folded_name(
        &self,
        directory: &InodeGuard<'f>,
        name: &OsStr,
    ) -> EndResult<Option<(InodeNumber, Vec<u8>)>> {
        let directory = directory.inode();
        let folded = self.file_system.folded_name(directory, name.as_bytes())?;
        Ok(folded.map(|folded| (directory, folded)))
    }

    fn make_directory(
        &self,
        directory: &InodeGuard<'f>,
        name: &OsStr,
        facts: &InodeFacts,
    ) -> EndResult<(InodeGuard<'f>, bool)> {
        let (directory, name) = (directory.inode(), name.as_bytes());
        match self.create(directory, name, facts) {
            Err(error) if error.errno == Errno::EEXIST => match self.find(directory, name)? {
                existing if existing.is_directory() => Ok((existing, true)),
                _ => Err(Errno::ENOTDIR.into()),
            },
            made => Ok((made?, false)),
        }
    }

    fn make(
        &self,
        directory: &InodeGuard<'f>,
        name: &OsStr,
        facts: &InodeFacts,
    ) -> EndResult<(InodeGuard<'f>, Option<OsString>)> {
        let source = self.is_source.then_some(InodeNumber(facts.identity.1));
        let directory = directory.inode();
        let create = |name: &[u8]| self.create(directory, name, facts);
        self.beside(directory, name.as_bytes(), source, &create)
    }

    fn settle(&self, directory: &InodeGuard<'f>, made_as: &OsStr, name: &OsStr) -> EndResult<()> {
        let (inode, flags) = (directory.inode(), RenameFlags::empty());
        let (made_as, name) = (made_as.as_bytes(), name.as_bytes());
        Ok(self.file_system.rename(&self.context, inode, made_as, inode, name, flags)?)
    }

    fn discard(&self, directory: &InodeGuard<'f>, made_as: &OsStr) {
        // What went wrong before is what is told.
        let made_as = made_as.as_bytes();
        let _ = self.file_system.unlink(&self.context, directory.inode(), made_as);
    }

    fn write(&self, file: &InodeGuard<'f>, offset: u64, data: &[u8]) -> EndResult<()> {
        Ok(self.file_system.write_all(&self.context, file.inode(), offset, data)?)
    }

    fn set_size(&self, file: &InodeGuard<'f>, size: u64) -> EndResult<()> {
        let changes = SetAttributes { size: Some(size), ..SetAttributes::default() };
        self.file_system.set_attributes(&self.context, file.inode(), &changes)?;
        Ok(())
    }

    fn finish(
        &self,
        node: &InodeGuard<'f>,
        facts: &InodeFacts,
        xattrs: &Xattrs,
        may_inherit: bool,
        not_kept: &mut dyn FnMut(LostProperty, Cause),
    ) -> EndResult<()> {
        let inode = node.inode();
        let permissions = match self.keep_owners {
            true => facts.permissions,
            false => {
                let (owner, made) = ((facts.user, facts.group), node.attributes());
                let own = (made.user, made.group);
                permissions_of_other_owner(facts.file_type, facts.permissions, owner, own)
            }
        };
        // If the ACL can be set, it makes them what they are with it.
        let permissions = permissions_without_acl(permissions, xattrs);
        let changes = SetAttributes {
            permissions: (facts.file_type != FileType::Symlink).then_some(permissions),
            user: self.keep_owners.then_some(facts.user),
            group: self.keep_owners.then_some(facts.group),
            accessed: Some(SetTime::At(facts.accessed)),
            modified: Some(SetTime::At(facts.modified)),
            ..SetAttributes::default()
        };
        self.file_system.set_attributes(&self.context, inode, &changes)?;
        if may_inherit {
            let (file_system, context) = (self.file_system, &self.context);
            remove_inherited_acls(file_system, context, inode, facts.file_type, xattrs)?;
        }
        // After the owner: changing that drops a file's capabilities.
        for (name, value) in xattrs {
            let set = self.file_system.set_xattr(&self.context, inode, name, value, XattrMode::Set);
            match set.map_err(Cause::from) {
                Ok(()) => {}
                Err(cause) if cause.is_unsupported() || cause.is_too_large() => {
                    not_kept(LostProperty::Xattr(name.clone()), cause);
                }
                Err(cause) => return Err(cause),
            }
        }
        Ok(())
    }

    fn keep(&self, node: InodeGuard<'f>, _: &InodeGuard<'f>, _: &OsStr) -> Arc<InodeGuard<'f>> {
        Arc::new(node)
    }

    fn link(
        &self,
        original: &Arc<InodeGuard<'f>>,
        directory: &InodeGuard<'f>,
        name: &OsStr,
    ) -> EndResult<()> {
        let (original, into) = (original.inode(), directory.inode());
        let link = |name: &[u8]| {
            match InodeGuard::link(self.file_system, &self.context, original, into, name) {
                // It may be there already.
                Err(error) if error.errno == Errno::EEXIST => match self.find(into, name)? {
                    existing if existing.inode() == original => Ok(existing),
                    _ => Err(error),
                },
                linked => linked,
            }
        };
        let (_, linked_as) = self.beside(into, name.as_bytes(), None, &link)?;
        let Some(linked_as) = linked_as else { return Ok(()) };
        self.settle(directory, &linked_as, name)
            .inspect_err(|_| self.discard(directory, &linked_as))
    }
}
