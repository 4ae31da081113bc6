//! The `FileSystem` trait of a mount: each method calls the part that does the work, and turns its
//! errors into error numbers.
//!
//! # Locking
//! A change waits here for the end of a freeze, before it takes a lock, so that reads on other threads go on
//! meanwhile. If a freeze begins between this and the start of its handle, the start waits.

use crate::mount::Ext4;
use crate::operations::xattrs;
use crate::{file, permission};
use drystone_ext4_format::features::Incompat;
use drystone_vfs::{
    Access, DirectoryVisitor, Entry, Errno, FallocateMode, FileExtent, FileSystem,
    FileSystemStatistics, InodeAttributes, InodeNumber, NewNode, OpenFlags, RenameFlags,
    RequestContext, Result, SeekFrom, SetAttributes, XattrMode,
};

impl FileSystem for Ext4 {
    fn root(&self) -> InodeNumber {
        InodeNumber(u64::from(drystone_ext4_format::InodeNumber::ROOT.get()))
    }

    fn folds_names(&self) -> bool {
        self.volume.features.incompat.contains(Incompat::CASEFOLD)
    }

    fn folded_name(&self, directory: InodeNumber, name: &[u8]) -> Result<Option<Vec<u8>>> {
        let directory = self.held(directory)?;
        Ok(self.names.folded(directory.flags(), name))
    }

    fn time_granularity_ns(&self) -> u32 {
        // The parts of a second lie after the first 128 bytes of an inode.
        match self.volume.layout().inode_size() {
            128 => 1_000_000_000,
            _ => 1,
        }
    }

    fn lookup(&self, context: &RequestContext, parent: InodeNumber, name: &[u8]) -> Result<Entry> {
        let mut seen = None;
        let is_known = self.look_up_quickly(context, parent, name, &mut seen);
        match seen {
            Some(seen) => Ok(self.attributes_from(&seen)),
            None if is_known == Some(false) => Err(Errno::ENOENT.into()),
            None => self.done(self.do_lookup(context, parent, name)),
        }
    }

    fn find_inode(&self, inode: InodeNumber) -> Result<Entry> {
        self.done(self.do_find_inode(inode))
    }

    fn forget(&self, inode: InodeNumber, count: u64) {
        self.do_forget(inode, count);
    }

    fn attributes(&self, inode: InodeNumber) -> Result<InodeAttributes> {
        Ok(self.attributes_of(&*self.held(inode)?))
    }

    fn set_attributes(
        &self,
        context: &RequestContext,
        inode: InodeNumber,
        changes: &SetAttributes,
    ) -> Result<InodeAttributes> {
        self.volume.freeze.wait_thawed();
        let inode = self.held(inode)?;
        self.done(self.with_room(|| self.do_set_attributes(context, &inode, changes)))
    }

    fn create(
        &self,
        context: &RequestContext,
        parent: InodeNumber,
        name: &[u8],
        node: NewNode<'_>,
        permissions: u16,
    ) -> Result<Entry> {
        self.volume.freeze.wait_thawed();
        self.done(self.with_room(|| self.do_create(context, parent, name, node, permissions)))
    }

    fn create_unnamed(
        &self,
        context: &RequestContext,
        parent: InodeNumber,
        permissions: u16,
    ) -> Result<Entry> {
        self.volume.freeze.wait_thawed();
        self.done(self.with_room(|| self.do_create_unnamed(context, parent, permissions)))
    }

    fn link(
        &self,
        context: &RequestContext,
        inode: InodeNumber,
        parent: InodeNumber,
        name: &[u8],
    ) -> Result<Entry> {
        self.volume.freeze.wait_thawed();
        self.done(self.with_room(|| self.do_link(context, inode, parent, name)))
    }

    fn unlink(&self, context: &RequestContext, parent: InodeNumber, name: &[u8]) -> Result<()> {
        self.volume.freeze.wait_thawed();
        self.done(self.do_unlink(context, parent, name))
    }

    fn remove_directory(
        &self,
        context: &RequestContext,
        parent: InodeNumber,
        name: &[u8],
    ) -> Result<()> {
        self.volume.freeze.wait_thawed();
        self.done(self.do_remove_directory(context, parent, name))
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
        self.volume.freeze.wait_thawed();
        self.done(
            self.with_room(|| self.do_rename(context, parent, name, new_parent, new_name, flags)),
        )
    }

    fn read_link(&self, inode: InodeNumber) -> Result<Vec<u8>> {
        let inode = self.held(inode)?;
        self.done(file::read_link(self, &inode))
    }

    fn read_directory(
        &self,
        context: &RequestContext,
        inode: InodeNumber,
        cookie: u64,
        visit: &mut DirectoryVisitor<'_>,
    ) -> Result<()> {
        self.done(self.do_read_directory(context, inode, cookie, visit))
    }

    fn check_access(
        &self,
        context: &RequestContext,
        inode: InodeNumber,
        access: Access,
    ) -> Result<()> {
        let inode = self.held(inode)?;
        self.done(permission::check(self, context, &inode, access))
    }

    fn open(
        &self,
        context: &RequestContext,
        inode: InodeNumber,
        flags: OpenFlags,
    ) -> Result<InodeAttributes> {
        if flags.contains(OpenFlags::TRUNCATE) {
            self.volume.freeze.wait_thawed();
        }
        self.done(self.do_open(context, inode, flags))
    }

    fn open_held(
        &self,
        context: &RequestContext,
        inode: InodeNumber,
        flags: OpenFlags,
    ) -> Result<()> {
        if flags.contains(OpenFlags::TRUNCATE) {
            self.volume.freeze.wait_thawed();
        }
        self.done(self.do_open_held(context, inode, flags))
    }

    fn read(&self, inode: InodeNumber, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let inode = self.held(inode)?;
        self.done(file::read(self, &inode, offset, buffer))
    }

    fn accessed(&self, inode: InodeNumber) {
        self.do_accessed(inode);
    }

    fn write(
        &self,
        context: &RequestContext,
        inode: InodeNumber,
        offset: u64,
        data: &[u8],
    ) -> Result<usize> {
        self.volume.freeze.wait_thawed();
        let inode = self.held(inode)?;
        self.done(self.with_room(|| file::write(self, context, &inode, offset, data)))
    }

    fn append(
        &self,
        context: &RequestContext,
        inode: InodeNumber,
        data: &[u8],
    ) -> Result<(u64, usize)> {
        self.volume.freeze.wait_thawed();
        let inode = self.held(inode)?;
        self.done(self.with_room(|| file::append(self, context, &inode, data)))
    }

    fn fallocate(
        &self,
        context: &RequestContext,
        inode: InodeNumber,
        mode: FallocateMode,
        offset: u64,
        length: u64,
    ) -> Result<()> {
        self.volume.freeze.wait_thawed();
        let inode = self.held(inode)?;
        // These move blocks, so they can't be tried again after a part was done: flush before.
        if matches!(mode, FallocateMode::CollapseRange | FallocateMode::InsertRange)
            && self.allocator.blocks.is_low()
        {
            self.done(file::flush_all(self))?;
        }
        let fallocate = || file::fallocate(self, context, &inode, mode, offset, length);
        self.done(self.with_room(fallocate))
    }

    fn seek(&self, inode: InodeNumber, from: SeekFrom) -> Result<u64> {
        let inode = self.held(inode)?;
        self.done(file::seek(self, &inode, from))
    }

    fn extents(
        &self,
        inode: InodeNumber,
        offset: u64,
        length: u64,
        extents_max: usize,
    ) -> Result<Vec<FileExtent>> {
        let inode = self.held(inode)?;
        self.done(file::extents(self, &inode, offset, length, extents_max))
    }

    fn xattr(&self, context: &RequestContext, inode: InodeNumber, name: &[u8]) -> Result<Vec<u8>> {
        let inode = self.held(inode)?;
        self.done(xattrs::get(self, context, &inode, name))
    }

    fn set_xattr(
        &self,
        context: &RequestContext,
        inode: InodeNumber,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        self.volume.freeze.wait_thawed();
        let inode = self.held(inode)?;
        self.done(self.with_room(|| xattrs::set(self, context, &inode, name, value, mode)))
    }

    fn remove_xattr(
        &self,
        context: &RequestContext,
        inode: InodeNumber,
        name: &[u8],
    ) -> Result<()> {
        self.volume.freeze.wait_thawed();
        let inode = self.held(inode)?;
        self.done(self.with_room(|| xattrs::remove(self, context, &inode, name)))
    }

    fn list_xattrs(&self, context: &RequestContext, inode: InodeNumber) -> Result<Vec<Vec<u8>>> {
        let inode = self.held(inode)?;
        self.done(xattrs::list(self, context, &inode))
    }

    fn closed(&self, inode: InodeNumber) {
        self.do_closed(inode);
    }

    fn sync_inode(&self, inode: InodeNumber, data_only: bool) -> Result<()> {
        let inode = self.held(inode)?;
        self.done(file::sync(self, &inode, data_only))
    }

    fn sync(&self) -> Result<()> {
        self.done(self.do_sync())
    }

    fn statistics(&self) -> Result<FileSystemStatistics> {
        Ok(self.do_statistics())
    }

    fn statistics_at(&self, inode: InodeNumber) -> Result<FileSystemStatistics> {
        let mut statistics = self.do_statistics();
        if self.quotas.is_any() {
            let inode = self.held(inode)?;
            self.done(self.quotas.limit_statistics(self, &inode, &mut statistics))?;
        }
        Ok(statistics)
    }

    fn grow(&self, size_bytes: u64) -> Result<()> {
        self.done(Ext4::grow(self, size_bytes))
    }

    fn freeze(&self) -> Result<()> {
        self.done(self.do_freeze())
    }

    fn thaw(&self) -> Result<()> {
        self.done(self.do_thaw())
    }

    fn is_frozen(&self) -> bool {
        self.volume.freeze.holds_back()
    }

    fn wait_thawed(&self) {
        self.volume.freeze.wait_thawed();
    }
}
