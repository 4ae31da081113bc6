//! What a forked child sees of an image that its parent has opened: every call fails, and nothing is given back.

use drystone_vfs::{
    Access, DirectoryVisitor, Entry, Errno, Error, FallocateMode, FileExtent, FileSystem,
    FileSystemStatistics, InodeAttributes, InodeNumber, NewNode, OpenFlags, RenameFlags,
    RequestContext, Result, SeekFrom, SetAttributes, XattrMode,
};

/// Why it fails.
pub(crate) fn refusal() -> Error {
    let detail = "the image was opened by the process that this one was forked from";
    Error::with_detail(Errno::EBADF, detail)
}

/// The files of an image of another process.
pub(crate) struct ForeignFileSystem;

macro_rules! refused {
    ($(fn $name:ident($($type:ty),*) -> $result:ty;)*) => {
        $(refused!(@ $name [] [a b c d e f] [$($type,)*] $result);)*
    };
    // Each type gets a name of its own; the names are never used.
    (@ $name:ident [$($done:tt)*] [$next:ident $($names:ident)*] [$type:ty, $($types:ty,)*] $result:ty) => {
        refused!(@ $name [$($done)* $next: $type,] [$($names)*] [$($types,)*] $result);
    };
    (@ $name:ident [$($argument:ident: $type:ty,)*] [$($names:ident)*] [] $result:ty) => {
        fn $name(&self, $($argument: $type),*) -> Result<$result> {
            $(let _ = $argument;)*
            Err(refusal())
        }
    };
}

impl FileSystem for ForeignFileSystem {
    fn root(&self) -> InodeNumber {
        // A walk begins there, and comes no further.
        InodeNumber(0)
    }

    fn forget(&self, _: InodeNumber, _: u64) {}

    refused! {
        fn folded_name(InodeNumber, &[u8]) -> Option<Vec<u8>>;
        fn lookup(&RequestContext, InodeNumber, &[u8]) -> Entry;
        fn find_inode(InodeNumber) -> Entry;
        fn attributes(InodeNumber) -> InodeAttributes;
        fn set_attributes(&RequestContext, InodeNumber, &SetAttributes) -> InodeAttributes;
        fn create(&RequestContext, InodeNumber, &[u8], NewNode<'_>, u16) -> Entry;
        fn create_unnamed(&RequestContext, InodeNumber, u16) -> Entry;
        fn link(&RequestContext, InodeNumber, InodeNumber, &[u8]) -> Entry;
        fn unlink(&RequestContext, InodeNumber, &[u8]) -> ();
        fn remove_directory(&RequestContext, InodeNumber, &[u8]) -> ();
        fn rename(&RequestContext, InodeNumber, &[u8], InodeNumber, &[u8], RenameFlags) -> ();
        fn read_link(InodeNumber) -> Vec<u8>;
        fn read_directory(&RequestContext, InodeNumber, u64, &mut DirectoryVisitor<'_>) -> ();
        fn check_access(&RequestContext, InodeNumber, Access) -> ();
        fn open(&RequestContext, InodeNumber, OpenFlags) -> InodeAttributes;
        fn read(InodeNumber, u64, &mut [u8]) -> usize;
        fn write(&RequestContext, InodeNumber, u64, &[u8]) -> usize;
        fn append(&RequestContext, InodeNumber, &[u8]) -> (u64, usize);
        fn fallocate(&RequestContext, InodeNumber, FallocateMode, u64, u64) -> ();
        fn seek(InodeNumber, SeekFrom) -> u64;
        fn extents(InodeNumber, u64, u64, usize) -> Vec<FileExtent>;
        fn xattr(&RequestContext, InodeNumber, &[u8]) -> Vec<u8>;
        fn set_xattr(&RequestContext, InodeNumber, &[u8], &[u8], XattrMode) -> ();
        fn remove_xattr(&RequestContext, InodeNumber, &[u8]) -> ();
        fn list_xattrs(&RequestContext, InodeNumber) -> Vec<Vec<u8>>;
        fn sync_inode(InodeNumber, bool) -> ();
        fn sync() -> ();
        fn statistics() -> FileSystemStatistics;
        fn grow(u64) -> ();
        fn freeze() -> ();
        fn thaw() -> ();
    }
}
