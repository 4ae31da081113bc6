//! The operations of a file system.

use crate::{
    Access, DirectoryVisitor, Entry, Errno, FallocateMode, FileExtent, FileSystemStatistics,
    InodeAttributes, InodeNumber, NewNode, OpenFlags, RenameFlags, RequestContext, Result,
    SeekFrom, SetAttributes, XattrMode,
};

/// A file system.
///
/// All calls may be made from many threads at once. Errors are those that the Linux system calls
/// of the same name would give. A name is 1 to 255 bytes without `/` and NUL; `.` and `..` are
/// accepted by [`lookup`](FileSystem::lookup) only.
pub trait FileSystem: Send + Sync {
    /// The inode of the root directory.
    fn root(&self) -> InodeNumber;

    /// True if directories that compare names without case exist or may be made. Then differently
    /// spelled names may be the same name, and a cache of look-ups must not rely on the spelling.
    fn folds_names(&self) -> bool {
        false
    }

    /// What names of `directory` are compared by, if it compares them without case: two names are one entry
    /// there if this is the same for both. `None` if the directory tells names apart by their bytes.
    fn folded_name(&self, _directory: InodeNumber, _name: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(None)
    }

    /// What the times of inodes are multiples of, in nanoseconds: a power of ten, at most a second.
    fn time_granularity_ns(&self) -> u32 {
        1
    }

    /// Finds a name in a directory. Gives a reference. A removed directory has no names, not even `..`.
    fn lookup(&self, context: &RequestContext, parent: InodeNumber, name: &[u8]) -> Result<Entry>;

    /// Finds an inode by its number alone, for a caller that has kept the number without a reference, as
    /// in a file handle. The generation tells whether it is still the same inode. `ESTALE` if no linked
    /// inode has that number. Gives a reference.
    fn find_inode(&self, inode: InodeNumber) -> Result<Entry>;

    /// Gives back `count` references to an inode.
    fn forget(&self, inode: InodeNumber, count: u64);

    /// The attributes of an inode.
    fn attributes(&self, inode: InodeNumber) -> Result<InodeAttributes>;

    /// Changes attributes, all or none, and returns the new ones.
    fn set_attributes(
        &self,
        context: &RequestContext,
        inode: InodeNumber,
        changes: &SetAttributes,
    ) -> Result<InodeAttributes>;

    /// Makes an inode with a name in a directory; `EEXIST` if the name is taken. `permissions` are
    /// reduced by the umask or the directory's default ACL. Gives a reference.
    fn create(
        &self,
        context: &RequestContext,
        parent: InodeNumber,
        name: &[u8],
        node: NewNode<'_>,
        permissions: u16,
    ) -> Result<Entry>;

    /// Makes a regular file without a name (`O_TMPFILE`), which [`link`](FileSystem::link) may
    /// name later. Gives a reference.
    fn create_unnamed(
        &self,
        context: &RequestContext,
        parent: InodeNumber,
        permissions: u16,
    ) -> Result<Entry>;

    /// Gives an inode that isn't a directory one more name. Gives a reference.
    fn link(
        &self,
        context: &RequestContext,
        inode: InodeNumber,
        parent: InodeNumber,
        name: &[u8],
    ) -> Result<Entry>;

    /// Removes a name of an inode that isn't a directory.
    fn unlink(&self, context: &RequestContext, parent: InodeNumber, name: &[u8]) -> Result<()>;

    /// Removes an empty directory.
    fn remove_directory(
        &self,
        context: &RequestContext,
        parent: InodeNumber,
        name: &[u8],
    ) -> Result<()>;

    /// Moves a name, replacing the target unless flags say otherwise.
    fn rename(
        &self,
        context: &RequestContext,
        parent: InodeNumber,
        name: &[u8],
        new_parent: InodeNumber,
        new_name: &[u8],
        flags: RenameFlags,
    ) -> Result<()>;

    /// The target of a symbolic link.
    fn read_link(&self, inode: InodeNumber) -> Result<Vec<u8>>;

    /// Lists a directory from `cookie` (0: the start), `.` and `..` first. Entries that are there
    /// during the whole listing are delivered exactly once, whatever else changes. No lock is held while
    /// `visit` runs: it may call the file system, also to change the directory.
    fn read_directory(
        &self,
        context: &RequestContext,
        inode: InodeNumber,
        cookie: u64,
        visit: &mut DirectoryVisitor<'_>,
    ) -> Result<()>;

    /// Checks that an inode may be used as `access` says.
    fn check_access(
        &self,
        context: &RequestContext,
        inode: InodeNumber,
        access: Access,
    ) -> Result<()>;

    /// Checks that a file may be opened with `flags`, and truncates it if they say so. Gives a reference.
    fn open(
        &self,
        context: &RequestContext,
        inode: InodeNumber,
        flags: OpenFlags,
    ) -> Result<InodeAttributes>;

    /// As [`open`](FileSystem::open), for a caller that goes on with the reference it has: gives none.
    fn open_held(
        &self,
        context: &RequestContext,
        inode: InodeNumber,
        flags: OpenFlags,
    ) -> Result<()> {
        self.forget(self.open(context, inode, flags)?.inode, 1);
        Ok(())
    }

    /// Reads up to `buffer.len()` bytes; fewer only at the end of the file.
    fn read(&self, inode: InodeNumber, offset: u64, buffer: &mut [u8]) -> Result<usize>;

    /// Updates the access time, if the file system keeps it: a program has read the inode's content,
    /// entries or target. Reading by itself changes no time.
    fn accessed(&self, inode: InodeNumber) {
        let _ = inode;
    }

    /// Writes `data` at `offset`, extending the file as needed. Returns how many bytes were
    /// written: fewer than asked only if an error came after some. The caller gets that error by
    /// writing the rest.
    fn write(
        &self,
        context: &RequestContext,
        inode: InodeNumber,
        offset: u64,
        data: &[u8],
    ) -> Result<usize>;

    /// Writes all of `data` at `offset`: calls [`write`](Self::write) until nothing is left or it fails.
    ///
    /// # Errors
    /// A part of the data may have been written.
    fn write_all(
        &self,
        context: &RequestContext,
        inode: InodeNumber,
        mut offset: u64,
        mut data: &[u8],
    ) -> Result<()> {
        while !data.is_empty() {
            let written = self.write(context, inode, offset, data)?;
            if written == 0 {
                return Err(Errno::ENOSPC.into());
            }
            offset += written as u64;
            data = &data[written..];
        }
        Ok(())
    }

    /// Writes `data` at the end of the file; returns the offset that it was written at and how
    /// many bytes were written.
    fn append(
        &self,
        context: &RequestContext,
        inode: InodeNumber,
        data: &[u8],
    ) -> Result<(u64, usize)>;

    /// Changes the space behind a range of a file.
    fn fallocate(
        &self,
        context: &RequestContext,
        inode: InodeNumber,
        mode: FallocateMode,
        offset: u64,
        length: u64,
    ) -> Result<()>;

    /// Finds data or a hole; `ENXIO` past the end.
    fn seek(&self, inode: InodeNumber, from: SeekFrom) -> Result<u64>;

    /// Where the bytes of a range are on the device, at most `extents_max` ranges (`FIEMAP`).
    fn extents(
        &self,
        inode: InodeNumber,
        offset: u64,
        length: u64,
        extents_max: usize,
    ) -> Result<Vec<FileExtent>>;

    /// The value of an extended attribute, by its full name (`user.x`); `ENODATA` if there is none.
    fn xattr(&self, context: &RequestContext, inode: InodeNumber, name: &[u8]) -> Result<Vec<u8>>;

    /// Sets an extended attribute.
    fn set_xattr(
        &self,
        context: &RequestContext,
        inode: InodeNumber,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()>;

    /// Removes an extended attribute; `ENODATA` if there is none.
    fn remove_xattr(&self, context: &RequestContext, inode: InodeNumber, name: &[u8])
    -> Result<()>;

    /// The full names of all extended attributes that the context may see.
    fn list_xattrs(&self, context: &RequestContext, inode: InodeNumber) -> Result<Vec<Vec<u8>>>;

    /// Tells that a file opened for writing was closed. If it had been truncated to zero, its new
    /// content is written to the device at once, so that a crash seldom leaves an empty file. Errors of
    /// that write are reported by the next sync.
    fn closed(&self, inode: InodeNumber) {
        let _ = inode;
    }

    /// Returns when an inode's content and attributes are durable. With `data_only`, attributes
    /// that aren't needed to read the content may be left out.
    fn sync_inode(&self, inode: InodeNumber, data_only: bool) -> Result<()>;

    /// Returns when everything is durable.
    fn sync(&self) -> Result<()>;

    /// Space and inodes in use.
    fn statistics(&self) -> Result<FileSystemStatistics>;

    /// Space and inodes as seen from an inode: below a directory with a project quota the limit counts
    /// as the size.
    fn statistics_at(&self, inode: InodeNumber) -> Result<FileSystemStatistics> {
        let _ = inode;
        self.statistics()
    }

    /// Gives the image as much of this size as it can use, while other calls go on. `EINVAL` if the image is
    /// larger than that, `ENOSPC` if the device can't be as large, `EOPNOTSUPP` where images only grow while
    /// nothing uses them.
    fn grow(&self, size_bytes: u64) -> Result<()> {
        let _ = size_bytes;
        Err(Errno::EOPNOTSUPP.into())
    }

    /// Makes everything durable and the image consistent as it stands, and holds back changes
    /// until [`thaw`](FileSystem::thaw).
    fn freeze(&self) -> Result<()>;

    /// Lets changes go on after [`freeze`](FileSystem::freeze).
    fn thaw(&self) -> Result<()>;

    /// Whether changes that begin now wait until [`thaw`](FileSystem::thaw).
    fn is_frozen(&self) -> bool {
        false
    }

    /// Returns when changes don't wait any longer.
    fn wait_thawed(&self) {}
}
