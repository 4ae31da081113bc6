//! An open image as a target.

use super::ends::{CopyTarget, EndResult};
use super::facts::{InodeFacts, Xattrs, remove_inherited_acls};
use super::problem::{Cause, LostProperty};
use crate::replace;
use drystone_vfs::{
    Entry, Errno, Error, FileSystem, FileType, InodeNumber, RequestContext, SetAttributes, SetTime,
    XattrMode, resolve,
};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
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

    /// Makes an entry, in place of anything but a directory or `keep`.
    fn put(
        &self,
        directory: InodeNumber,
        name: &[u8],
        keep: Option<InodeNumber>,
        make: &dyn Fn(&[u8]) -> drystone_vfs::Result<Entry>,
    ) -> EndResult<Entry> {
        match make(name) {
            Err(error) if error.errno == Errno::EEXIST => {}
            made => return Ok(made?),
        }
        let existing = match self.file_system.lookup(&self.context, directory, name) {
            Err(error) if error.errno == Errno::ENOENT => return Ok(make(name)?),
            existing => existing?,
        };
        self.file_system.forget(existing.inode, 1);
        if existing.file_type == FileType::Directory {
            return Err(Errno::EISDIR.into());
        }
        if keep == Some(existing.inode) {
            let detail = "source and target are the same file";
            return Err(Error::with_detail(Errno::EINVAL, detail).into());
        }
        Ok(replace(self.file_system, &self.context, directory, name, make)?)
    }
}

impl CopyTarget for ImageTarget<'_> {
    type Node = InodeNumber;
    type Original = InodeNumber;

    fn start(&self, path: &Path) -> EndResult<InodeNumber> {
        let entry = resolve(self.file_system, &self.context, path.as_os_str().as_bytes(), true)?;
        if entry.file_type != FileType::Directory {
            self.file_system.forget(entry.inode, 1);
            return Err(Errno::ENOTDIR.into());
        }
        Ok(entry.inode)
    }

    fn enclosing(&self, start: &InodeNumber) -> EndResult<Vec<(u64, u64)>> {
        let mut enclosing = Vec::new();
        if !self.is_source {
            return Ok(enclosing);
        }
        let mut here = *start;
        loop {
            enclosing.push((0, here.0));
            let parent = self.file_system.lookup(&self.context, here, b"..")?.inode;
            self.file_system.forget(parent, 1);
            // The root is its own parent; a damaged image may have other circles.
            if enclosing.contains(&(0, parent.0)) {
                return Ok(enclosing);
            }
            here = parent;
        }
    }

    fn make_directory(
        &self,
        directory: &InodeNumber,
        name: &OsStr,
        facts: &InodeFacts,
    ) -> EndResult<(InodeNumber, bool)> {
        let name = name.as_bytes();
        let created = self.file_system.create(
            &self.context,
            *directory,
            name,
            facts.new_node(),
            facts.permissions,
        );
        match created {
            Err(error) if error.errno == Errno::EEXIST => {
                let existing = self.file_system.lookup(&self.context, *directory, name)?;
                if existing.file_type != FileType::Directory {
                    self.file_system.forget(existing.inode, 1);
                    return Err(Errno::ENOTDIR.into());
                }
                Ok((existing.inode, true))
            }
            other => Ok((other?.inode, false)),
        }
    }

    fn make(
        &self,
        directory: &InodeNumber,
        name: &OsStr,
        facts: &InodeFacts,
    ) -> EndResult<InodeNumber> {
        let source = self.is_source.then_some(InodeNumber(facts.identity.1));
        let create = |name: &[u8]| {
            let node = facts.new_node();
            self.file_system.create(&self.context, *directory, name, node, facts.permissions)
        };
        Ok(self.put(*directory, name.as_bytes(), source, &create)?.inode)
    }

    fn write(&self, file: &InodeNumber, offset: u64, data: &[u8]) -> EndResult<()> {
        Ok(self.file_system.write_all(&self.context, *file, offset, data)?)
    }

    fn set_size(&self, file: &InodeNumber, size: u64) -> EndResult<()> {
        let changes = SetAttributes { size: Some(size), ..SetAttributes::default() };
        self.file_system.set_attributes(&self.context, *file, &changes)?;
        Ok(())
    }

    fn finish(
        &self,
        node: &InodeNumber,
        facts: &InodeFacts,
        xattrs: &Xattrs,
        may_inherit: bool,
        not_kept: &mut dyn FnMut(LostProperty, Cause),
    ) -> EndResult<()> {
        let changes = SetAttributes {
            permissions: (facts.file_type != FileType::Symlink).then_some(facts.permissions),
            user: self.keep_owners.then_some(facts.user),
            group: self.keep_owners.then_some(facts.group),
            accessed: Some(SetTime::At(facts.accessed)),
            modified: Some(SetTime::At(facts.modified)),
            ..SetAttributes::default()
        };
        self.file_system.set_attributes(&self.context, *node, &changes)?;
        if may_inherit {
            let (file_system, context) = (self.file_system, &self.context);
            remove_inherited_acls(file_system, context, *node, facts.file_type, xattrs)?;
        }
        // After the owner: changing that drops a file's capabilities.
        for (name, value) in xattrs {
            let set = self.file_system.set_xattr(&self.context, *node, name, value, XattrMode::Set);
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

    fn keep(&self, node: InodeNumber, _: &InodeNumber, _: &OsStr) -> InodeNumber {
        node
    }

    fn link(&self, original: &InodeNumber, directory: &InodeNumber, name: &OsStr) -> EndResult<()> {
        let link = |name: &[u8]| {
            match self.file_system.link(&self.context, *original, *directory, name) {
                Err(error) if error.errno == Errno::EEXIST => {
                    // It may be there already.
                    let existing = self.file_system.lookup(&self.context, *directory, name)?;
                    if existing.inode == *original {
                        return Ok(existing);
                    }
                    self.file_system.forget(existing.inode, 1);
                    Err(error)
                }
                linked => linked,
            }
        };
        let entry = self.put(*directory, name.as_bytes(), None, &link)?;
        self.file_system.forget(entry.inode, 1);
        Ok(())
    }

    fn forget(&self, original: InodeNumber) {
        self.file_system.forget(original, 1);
    }

    fn release(&self, node: &InodeNumber) {
        self.file_system.forget(*node, 1);
    }
}
