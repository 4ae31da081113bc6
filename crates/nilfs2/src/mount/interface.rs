//! Implements the `FileSystem` trait: passes each call on, and turns errors into errno values.

use super::Nilfs2;
use crate::permission;
use drystone_vfs::{
    Access, DirectoryVisitor, Entry, Errno, FallocateMode, FileExtent, FileSystem,
    FileSystemStatistics, InodeAttributes, InodeNumber, NewNode, OpenFlags, RenameFlags,
    RequestContext, Result, SeekFrom, SetAttributes, XattrMode,
};

impl FileSystem for Nilfs2 {
    fn root(&self) -> InodeNumber {
        InodeNumber(drystone_nilfs2_format::InodeNumber::ROOT.0)
    }

    fn lookup(&self, context: &RequestContext, parent: InodeNumber, name: &[u8]) -> Result<Entry> {
        Ok(self.operations().do_lookup(context, parent, name)?)
    }

    fn find_inode(&self, inode: InodeNumber) -> Result<Entry> {
        Ok(self.operations().do_find_inode(inode)?)
    }

    fn forget(&self, inode: InodeNumber, count: u64) {
        self.operations().do_forget(inode, count);
    }

    fn attributes(&self, inode: InodeNumber) -> Result<InodeAttributes> {
        let operations = self.operations();
        Ok(operations.attributes_of(&*operations.held(inode)?))
    }

    fn set_attributes(
        &self,
        context: &RequestContext,
        inode: InodeNumber,
        changes: &SetAttributes,
    ) -> Result<InodeAttributes> {
        Ok(self.operations().do_set_attributes(context, inode, changes)?)
    }

    fn create(
        &self,
        context: &RequestContext,
        parent: InodeNumber,
        name: &[u8],
        node: NewNode<'_>,
        permissions: u16,
    ) -> Result<Entry> {
        Ok(self.operations().do_create(context, parent, name, node, permissions)?)
    }

    /// NILFS2 has no record of inodes without names, so it makes none.
    fn create_unnamed(&self, _: &RequestContext, _: InodeNumber, _: u16) -> Result<Entry> {
        Err(Errno::EOPNOTSUPP.into())
    }

    fn link(
        &self,
        context: &RequestContext,
        inode: InodeNumber,
        parent: InodeNumber,
        name: &[u8],
    ) -> Result<Entry> {
        Ok(self.operations().do_link(context, inode, parent, name)?)
    }

    fn unlink(&self, context: &RequestContext, parent: InodeNumber, name: &[u8]) -> Result<()> {
        Ok(self.operations().do_unlink(context, parent, name)?)
    }

    fn remove_directory(
        &self,
        context: &RequestContext,
        parent: InodeNumber,
        name: &[u8],
    ) -> Result<()> {
        Ok(self.operations().do_remove_directory(context, parent, name)?)
    }

    fn rename(
        &self,
        context: &RequestContext,
        parent: InodeNumber,
        name: &[u8],
        new_parent: InodeNumber,
        new_name: &[u8],
        flags: RenameFlags,
    ) -> Result<()> {
        let (from, to) = ((parent, name), (new_parent, new_name));
        Ok(self.operations().do_rename(context, from, to, flags)?)
    }

    fn read_link(&self, inode: InodeNumber) -> Result<Vec<u8>> {
        Ok(self.operations().do_read_link(inode)?)
    }

    fn read_directory(
        &self,
        context: &RequestContext,
        inode: InodeNumber,
        cookie: u64,
        visit: &mut DirectoryVisitor<'_>,
    ) -> Result<()> {
        Ok(self.operations().do_read_directory(context, inode, cookie, visit)?)
    }

    fn check_access(
        &self,
        context: &RequestContext,
        inode: InodeNumber,
        access: Access,
    ) -> Result<()> {
        let inode = self.operations().held(inode)?;
        if access.contains(Access::WRITE) {
            self.operations().check_writable()?;
        }
        Ok(permission::check(context, &inode, access)?)
    }

    fn open(
        &self,
        context: &RequestContext,
        inode: InodeNumber,
        flags: OpenFlags,
    ) -> Result<InodeAttributes> {
        Ok(self.operations().do_open(context, inode, flags)?)
    }

    fn open_held(
        &self,
        context: &RequestContext,
        inode: InodeNumber,
        flags: OpenFlags,
    ) -> Result<()> {
        Ok(self.operations().do_open_held(context, inode, flags)?)
    }

    fn read(&self, inode: InodeNumber, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        Ok(self.operations().do_read(inode, offset, buffer)?)
    }

    fn write(
        &self,
        context: &RequestContext,
        inode: InodeNumber,
        offset: u64,
        data: &[u8],
    ) -> Result<usize> {
        Ok(self.operations().do_write(context, inode, Some(offset), data)?.1)
    }

    fn append(
        &self,
        context: &RequestContext,
        inode: InodeNumber,
        data: &[u8],
    ) -> Result<(u64, usize)> {
        Ok(self.operations().do_write(context, inode, None, data)?)
    }

    fn fallocate(
        &self,
        _: &RequestContext,
        _: InodeNumber,
        _: FallocateMode,
        _: u64,
        _: u64,
    ) -> Result<()> {
        Err(Errno::EOPNOTSUPP.into())
    }

    fn seek(&self, inode: InodeNumber, from: SeekFrom) -> Result<u64> {
        Ok(self.operations().do_seek(inode, from)?)
    }

    fn extents(
        &self,
        inode: InodeNumber,
        offset: u64,
        length: u64,
        extents_max: usize,
    ) -> Result<Vec<FileExtent>> {
        Ok(self.operations().do_extents(inode, offset, length, extents_max)?)
    }

    fn xattr(&self, _: &RequestContext, _: InodeNumber, _: &[u8]) -> Result<Vec<u8>> {
        Err(Errno::EOPNOTSUPP.into())
    }

    fn set_xattr(
        &self,
        _: &RequestContext,
        _: InodeNumber,
        _: &[u8],
        _: &[u8],
        _: XattrMode,
    ) -> Result<()> {
        Err(Errno::EOPNOTSUPP.into())
    }

    fn remove_xattr(&self, _: &RequestContext, _: InodeNumber, _: &[u8]) -> Result<()> {
        Err(Errno::EOPNOTSUPP.into())
    }

    fn list_xattrs(&self, _: &RequestContext, _: InodeNumber) -> Result<Vec<Vec<u8>>> {
        Ok(Vec::new())
    }

    fn sync_inode(&self, inode: InodeNumber, data_only: bool) -> Result<()> {
        Ok(self.operations().do_sync_inode(inode, data_only)?)
    }

    fn sync(&self) -> Result<()> {
        Ok(self.operations().do_sync()?)
    }

    fn statistics(&self) -> Result<FileSystemStatistics> {
        Ok(self.operations().do_statistics())
    }

    fn freeze(&self) -> Result<()> {
        Ok(self.operations().do_freeze()?)
    }

    fn thaw(&self) -> Result<()> {
        Ok(self.operations().do_thaw()?)
    }

    fn is_frozen(&self) -> bool {
        self.engine.gate.is_frozen()
    }

    fn wait_thawed(&self) {
        self.engine.gate.wait_until_thawed();
    }
}
