//! A file system some of whose calls fail, to see what is left behind when a caller gives up there.

use drystone_sync::atomic::{AtomicU64, Ordering};
use drystone_vfs::{
    Access, DirectoryVisitor, Entry, Errno, FallocateMode, FileExtent, FileSystem,
    FileSystemStatistics, InodeAttributes, InodeNumber, NewNode, OpenFlags, RenameFlags,
    RequestContext, Result, SeekFrom, SetAttributes, XattrMode,
};
use std::ops::Range;

/// Passes calls on to another file system, but for some that fail.
pub struct FailingFileSystem<'f> {
    inner: &'f dyn FileSystem,
    /// Which calls fail, counted from 0.
    failing: Range<u64>,
    errno: Errno,
    calls: AtomicU64,
}

impl<'f> FailingFileSystem<'f> {
    /// Passes on `before` calls that can fail, fails the next one, and passes on the others.
    pub fn new(inner: &'f dyn FileSystem, before: u64) -> FailingFileSystem<'f> {
        FailingFileSystem::at(inner, before..before + 1, Errno::EIO)
    }

    /// Fails those calls with this number.
    pub fn at(
        inner: &'f dyn FileSystem,
        failing: Range<u64>,
        errno: Errno,
    ) -> FailingFileSystem<'f> {
        FailingFileSystem { inner, failing, errno, calls: AtomicU64::new(0) }
    }

    /// True once a call has failed.
    pub fn has_failed(&self) -> bool {
        self.calls.load(Ordering::Relaxed) > self.failing.start
    }

    fn count(&self) -> Result<()> {
        match self.failing.contains(&self.calls.fetch_add(1, Ordering::Relaxed)) {
            true => Err(self.errno.into()),
            false => Ok(()),
        }
    }
}

/// Methods that pass their call on unless it is one that fails.
macro_rules! counted {
    ($(fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        $(fn $name(&self, $($argument: $type),*) -> Result<$result> {
            self.count()?;
            self.inner.$name($($argument),*)
        })*
    };
}

impl FileSystem for FailingFileSystem<'_> {
    fn root(&self) -> InodeNumber {
        self.inner.root()
    }

    fn folds_names(&self) -> bool {
        self.inner.folds_names()
    }

    fn folded_name(&self, directory: InodeNumber, name: &[u8]) -> Result<Option<Vec<u8>>> {
        self.inner.folded_name(directory, name)
    }

    fn time_granularity_ns(&self) -> u32 {
        self.inner.time_granularity_ns()
    }

    fn forget(&self, inode: InodeNumber, count: u64) {
        self.inner.forget(inode, count);
    }

    fn accessed(&self, inode: InodeNumber) {
        self.inner.accessed(inode);
    }

    fn closed(&self, inode: InodeNumber) {
        self.inner.closed(inode);
    }

    fn is_frozen(&self) -> bool {
        self.inner.is_frozen()
    }

    fn wait_thawed(&self) {
        self.inner.wait_thawed();
    }

    counted! {
        fn lookup(context: &RequestContext, parent: InodeNumber, name: &[u8]) -> Entry;
        fn find_inode(inode: InodeNumber) -> Entry;
        fn attributes(inode: InodeNumber) -> InodeAttributes;
        fn set_attributes(context: &RequestContext, inode: InodeNumber, changes: &SetAttributes) -> InodeAttributes;
        fn create(context: &RequestContext, parent: InodeNumber, name: &[u8], node: NewNode<'_>, permissions: u16) -> Entry;
        fn create_unnamed(context: &RequestContext, parent: InodeNumber, permissions: u16) -> Entry;
        fn link(context: &RequestContext, inode: InodeNumber, parent: InodeNumber, name: &[u8]) -> Entry;
        fn unlink(context: &RequestContext, parent: InodeNumber, name: &[u8]) -> ();
        fn remove_directory(context: &RequestContext, parent: InodeNumber, name: &[u8]) -> ();
        fn rename(context: &RequestContext, parent: InodeNumber, name: &[u8], new_parent: InodeNumber, new_name: &[u8], flags: RenameFlags) -> ();
        fn read_link(inode: InodeNumber) -> Vec<u8>;
        fn read_directory(context: &RequestContext, inode: InodeNumber, cookie: u64, visit: &mut DirectoryVisitor<'_>) -> ();
        fn check_access(context: &RequestContext, inode: InodeNumber, access: Access) -> ();
        fn open(context: &RequestContext, inode: InodeNumber, flags: OpenFlags) -> InodeAttributes;
        fn open_held(context: &RequestContext, inode: InodeNumber, flags: OpenFlags) -> ();
        fn read(inode: InodeNumber, offset: u64, buffer: &mut [u8]) -> usize;
        fn write(context: &RequestContext, inode: InodeNumber, offset: u64, data: &[u8]) -> usize;
        fn append(context: &RequestContext, inode: InodeNumber, data: &[u8]) -> (u64, usize);
        fn fallocate(context: &RequestContext, inode: InodeNumber, mode: FallocateMode, offset: u64, length: u64) -> ();
        fn seek(inode: InodeNumber, from: SeekFrom) -> u64;
        fn extents(inode: InodeNumber, offset: u64, length: u64, extents_max: usize) -> Vec<FileExtent>;
        fn xattr(context: &RequestContext, inode: InodeNumber, name: &[u8]) -> Vec<u8>;
        fn set_xattr(context: &RequestContext, inode: InodeNumber, name: &[u8], value: &[u8], mode: XattrMode) -> ();
        fn remove_xattr(context: &RequestContext, inode: InodeNumber, name: &[u8]) -> ();
        fn list_xattrs(context: &RequestContext, inode: InodeNumber) -> Vec<Vec<u8>>;
        fn sync_inode(inode: InodeNumber, data_only: bool) -> ();
        fn sync() -> ();
        fn statistics() -> FileSystemStatistics;
        fn grow(size_bytes: u64) -> ();
        fn freeze() -> ();
        fn thaw() -> ();
    }
}
