//! What points to a file system is one.

use crate::{
    Access, Attributes, DirectoryVisitor, Entry, Extent, FallocateMode, FileSystem,
    FileSystemStatistics, InodeNumber, NewNode, OpenFlags, RenameFlags, RequestContext, Result,
    SeekFrom, SetAttributes, XattrMode,
};
use std::ops::Deref;

impl<T> FileSystem for T
where
    T: Deref + Send + Sync,
    T::Target: FileSystem,
{
    #[inline]
    fn root(&self) -> InodeNumber {
        (**self).root()
    }

    #[inline]
    fn lookup(&self, context: &RequestContext, parent: InodeNumber, name: &[u8]) -> Result<Entry> {
        (**self).lookup(context, parent, name)
    }

    #[inline]
    fn forget(&self, inode: InodeNumber, count: u64) {
        (**self).forget(inode, count)
    }

    #[inline]
    fn attributes(&self, inode: InodeNumber) -> Result<Attributes> {
        (**self).attributes(inode)
    }

    #[inline]
    fn set_attributes(
        &self,
        context: &RequestContext,
        inode: InodeNumber,
        changes: &SetAttributes,
    ) -> Result<Attributes> {
        (**self).set_attributes(context, inode, changes)
    }

    #[inline]
    fn create(
        &self,
        context: &RequestContext,
        parent: InodeNumber,
        name: &[u8],
        node: NewNode<'_>,
        permissions: u16,
    ) -> Result<Entry> {
        (**self).create(context, parent, name, node, permissions)
    }

    #[inline]
    fn create_unnamed(
        &self,
        context: &RequestContext,
        parent: InodeNumber,
        permissions: u16,
    ) -> Result<Entry> {
        (**self).create_unnamed(context, parent, permissions)
    }

    #[inline]
    fn link(
        &self,
        context: &RequestContext,
        inode: InodeNumber,
        parent: InodeNumber,
        name: &[u8],
    ) -> Result<Entry> {
        (**self).link(context, inode, parent, name)
    }

    #[inline]
    fn unlink(&self, context: &RequestContext, parent: InodeNumber, name: &[u8]) -> Result<()> {
        (**self).unlink(context, parent, name)
    }

    #[inline]
    fn remove_directory(
        &self,
        context: &RequestContext,
        parent: InodeNumber,
        name: &[u8],
    ) -> Result<()> {
        (**self).remove_directory(context, parent, name)
    }

    #[inline]
    fn rename(
        &self,
        context: &RequestContext,
        parent: InodeNumber,
        name: &[u8],
        new_parent: InodeNumber,
        new_name: &[u8],
        flags: RenameFlags,
    ) -> Result<()> {
        (**self).rename(context, parent, name, new_parent, new_name, flags)
    }

    #[inline]
    fn read_link(&self, inode: InodeNumber) -> Result<Vec<u8>> {
        (**self).read_link(inode)
    }

    #[inline]
    fn read_directory(
        &self,
        context: &RequestContext,
        inode: InodeNumber,
        cookie: u64,
        visit: &mut DirectoryVisitor<'_>,
    ) -> Result<()> {
        (**self).read_directory(context, inode, cookie, visit)
    }

    #[inline]
    fn check_access(
        &self,
        context: &RequestContext,
        inode: InodeNumber,
        access: Access,
    ) -> Result<()> {
        (**self).check_access(context, inode, access)
    }

    #[inline]
    fn open(
        &self,
        context: &RequestContext,
        inode: InodeNumber,
        flags: OpenFlags,
    ) -> Result<Attributes> {
        (**self).open(context, inode, flags)
    }

    #[inline]
    fn read(&self, inode: InodeNumber, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        (**self).read(inode, offset, buffer)
    }

    #[inline]
    fn write(
        &self,
        context: &RequestContext,
        inode: InodeNumber,
        offset: u64,
        data: &[u8],
    ) -> Result<usize> {
        (**self).write(context, inode, offset, data)
    }

    #[inline]
    fn append(
        &self,
        context: &RequestContext,
        inode: InodeNumber,
        data: &[u8],
    ) -> Result<(u64, usize)> {
        (**self).append(context, inode, data)
    }

    #[inline]
    fn fallocate(
        &self,
        context: &RequestContext,
        inode: InodeNumber,
        mode: FallocateMode,
        offset: u64,
        length: u64,
    ) -> Result<()> {
        (**self).fallocate(context, inode, mode, offset, length)
    }

    #[inline]
    fn seek(&self, inode: InodeNumber, from: SeekFrom) -> Result<u64> {
        (**self).seek(inode, from)
    }

    #[inline]
    fn extents(
        &self,
        inode: InodeNumber,
        offset: u64,
        length: u64,
        extents_max: usize,
    ) -> Result<Vec<Extent>> {
        (**self).extents(inode, offset, length, extents_max)
    }

    #[inline]
    fn xattr(&self, context: &RequestContext, inode: InodeNumber, name: &[u8]) -> Result<Vec<u8>> {
        (**self).xattr(context, inode, name)
    }

    #[inline]
    fn set_xattr(
        &self,
        context: &RequestContext,
        inode: InodeNumber,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        (**self).set_xattr(context, inode, name, value, mode)
    }

    #[inline]
    fn remove_xattr(
        &self,
        context: &RequestContext,
        inode: InodeNumber,
        name: &[u8],
    ) -> Result<()> {
        (**self).remove_xattr(context, inode, name)
    }

    #[inline]
    fn list_xattrs(&self, context: &RequestContext, inode: InodeNumber) -> Result<Vec<Vec<u8>>> {
        (**self).list_xattrs(context, inode)
    }

    #[inline]
    fn sync_inode(&self, inode: InodeNumber, data_only: bool) -> Result<()> {
        (**self).sync_inode(inode, data_only)
    }

    #[inline]
    fn sync(&self) -> Result<()> {
        (**self).sync()
    }

    #[inline]
    fn statistics(&self) -> Result<FileSystemStatistics> {
        (**self).statistics()
    }

    #[inline]
    fn freeze(&self) -> Result<()> {
        (**self).freeze()
    }

    #[inline]
    fn thaw(&self) -> Result<()> {
        (**self).thaw()
    }

    #[inline]
    fn accessed(&self, inode: InodeNumber) {
        (**self).accessed(inode)
    }

    #[inline]
    fn closed(&self, inode: InodeNumber) {
        (**self).closed(inode)
    }
}
