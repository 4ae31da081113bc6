//! The operations of a file system.

use crate::{
    Access, Attributes, DeviceNumber, Errno, FileType, InodeNumber, RequestContext, Result,
    SetAttributes,
};

/// An inode that a call names, with one reference to it for the caller.
pub type Entry = Attributes;

/// What [`FileSystem::create`] makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewNode<'a> {
    /// A regular file.
    Regular,
    /// A directory.
    Directory,
    /// A symbolic link to a target of 1 to 4095 bytes.
    Symlink(&'a [u8]),
    /// A character device.
    CharacterDevice(DeviceNumber),
    /// A block device.
    BlockDevice(DeviceNumber),
    /// A named pipe.
    Fifo,
    /// A unix-domain socket.
    Socket,
}

impl NewNode<'_> {
    /// The type that the new inode will have.
    pub fn file_type(&self) -> FileType {
        match self {
            NewNode::Regular => FileType::Regular,
            NewNode::Directory => FileType::Directory,
            NewNode::Symlink(_) => FileType::Symlink,
            NewNode::CharacterDevice(_) => FileType::CharacterDevice,
            NewNode::BlockDevice(_) => FileType::BlockDevice,
            NewNode::Fifo => FileType::Fifo,
            NewNode::Socket => FileType::Socket,
        }
    }
}

bitflags::bitflags! {
    /// How a file is opened.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct OpenFlags: u32 {
        /// For reading.
        const READ = 1;
        /// For writing.
        const WRITE = 2;
        /// Cut to length zero.
        const TRUNCATE = 4;
        /// For execution: permission to execute is checked instead of permission to read.
        const EXECUTE = 8;
    }
}

bitflags::bitflags! {
    /// How [`FileSystem::rename`] treats an existing target.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct RenameFlags: u32 {
        /// Fail with `EEXIST` if the target exists.
        const NO_REPLACE = 1;
        /// Swap source and target; both must exist.
        const EXCHANGE = 2;
        /// Leave a whiteout (character device 0:0) in place of the source.
        const WHITEOUT = 4;
    }
}

/// What [`FileSystem::fallocate`] does to a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FallocateMode {
    /// Give every block of the range space, and extend the size where `keep_size` is false.
    Allocate {
        /// The size stays, even if the range ends behind it.
        keep_size: bool,
    },
    /// Make the range a hole; the size stays.
    PunchHole,
    /// Make the range read as zeros, with space.
    ZeroRange {
        /// The size stays, even if the range ends behind it.
        keep_size: bool,
    },
    /// Take the range out; what follows moves down. Whole blocks only.
    CollapseRange,
    /// Put a hole in; what follows moves up. Whole blocks only.
    InsertRange,
}

/// What [`FileSystem::seek`] looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeekFrom {
    /// The next byte, at or after an offset, that is stored.
    Data(u64),
    /// The next byte, at or after an offset, that is in a hole (or the end).
    Hole(u64),
}

bitflags::bitflags! {
    /// What is special about a mapped range, with the bits of `FIEMAP`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct ExtentFlags: u32 {
        /// The last range of the file.
        const LAST = 0x0001;
        /// The place is not yet known.
        const UNKNOWN = 0x0002;
        /// Waits for space to be allocated.
        const DELAYED = 0x0004;
        /// Shares a block with other things; `physical` may not be aligned.
        const NOT_ALIGNED = 0x0100;
        /// Stored in the inode.
        const INLINE = 0x0200;
        /// Has space, reads as zeros.
        const UNWRITTEN = 0x0800;
        /// Found by merging block-mapped neighbours.
        const MERGED = 0x1000;
        /// Other files may have the same place.
        const SHARED = 0x2000;
    }
}

/// A range of a file and its place on the device, both in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Offset in the file.
    pub logical: u64,
    /// Offset on the device.
    pub physical: u64,
    /// Length of the range.
    pub length: u64,
    /// What is special about it.
    pub flags: ExtentFlags,
}

/// How [`FileSystem::set_xattr`] treats an existing attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XattrMode {
    /// Create or replace.
    Set,
    /// Fail with `EEXIST` if there is one.
    Create,
    /// Fail with `ENODATA` if there is none.
    Replace,
}

/// One name in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectoryEntry<'a> {
    /// The inode it names.
    pub inode: InodeNumber,
    /// The type of that inode; `None` where the directory doesn't record it.
    pub file_type: Option<FileType>,
    /// Where to go on after this entry.
    pub cookie: u64,
    /// The name: any bytes but `/` and NUL.
    pub name: &'a [u8],
}

/// Receives the entries of a directory; returns false to stop *before* the given entry is
/// consumed (it will be delivered again when reading goes on at the cookie of the one before).
pub type DirectoryVisitor<'a> = dyn FnMut(&DirectoryEntry<'_>) -> bool + 'a;

/// What `statfs` tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct FileSystemStatistics {
    /// Bytes in a block.
    pub block_size: u32,
    /// Blocks that files may use.
    pub blocks: u64,
    /// Blocks that are free.
    pub blocks_free: u64,
    /// Blocks that are free for users without privileges.
    pub blocks_available: u64,
    /// Inodes.
    pub inodes: u64,
    /// Inodes that are free.
    pub inodes_free: u64,
    /// Longest name in bytes.
    pub name_length_max: u32,
    /// Identifies the file system.
    pub identifier: u64,
}

/// A file system.
///
/// All calls may be made from many threads at once. Errors are those that the Linux system calls
/// of the same name would give. A name is 1 to 255 bytes without `/` and NUL; `.` and `..` are
/// accepted by [`lookup`](FileSystem::lookup) only.
pub trait FileSystem: Send + Sync {
    /// The inode of the root directory.
    fn root(&self) -> InodeNumber;

    /// True if there are directories that compare names without case, or may be from now on: a name
    /// that was found, or wasn't, tells nothing of what others that are spelled differently find later.
    fn folds_names(&self) -> bool {
        false
    }

    /// Finds a name in a directory. Gives a reference.
    fn lookup(&self, context: &RequestContext, parent: InodeNumber, name: &[u8]) -> Result<Entry>;

    /// Finds an inode by its number alone, for a caller that has kept the number without a reference, as
    /// in a file handle: the generation tells whether it is still the same inode. `ESTALE` if no inode of
    /// that number has a name. Gives a reference.
    fn find_inode(&self, inode: InodeNumber) -> Result<Entry>;

    /// Gives back `count` references to an inode.
    fn forget(&self, inode: InodeNumber, count: u64);

    /// The attributes of an inode.
    fn attributes(&self, inode: InodeNumber) -> Result<Attributes>;

    /// Changes attributes, all or none, and returns the new ones.
    fn set_attributes(
        &self,
        context: &RequestContext,
        inode: InodeNumber,
        changes: &SetAttributes,
    ) -> Result<Attributes>;

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
    /// during the whole listing are delivered exactly once, whatever else changes.
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

    /// Checks that a file may be opened so and cuts it if asked. Gives a reference.
    fn open(
        &self,
        context: &RequestContext,
        inode: InodeNumber,
        flags: OpenFlags,
    ) -> Result<Attributes>;

    /// Reads up to `buffer.len()` bytes; fewer only at the end of the file.
    fn read(&self, inode: InodeNumber, offset: u64, buffer: &mut [u8]) -> Result<usize>;

    /// A caller has read content, names or the target of an inode on behalf of somebody whose reading is
    /// to be seen in the time of last access, if the file system keeps such times. Reading by itself
    /// changes nothing.
    fn accessed(&self, inode: InodeNumber) {
        let _ = inode;
    }

    /// Writes `data` at `offset`, extending the file as needed. Returns how many bytes were
    /// written: fewer than asked only if an error came after some. The caller learns which one by
    /// writing the rest.
    fn write(
        &self,
        context: &RequestContext,
        inode: InodeNumber,
        offset: u64,
        data: &[u8],
    ) -> Result<usize>;

    /// Writes all of `data` at `offset`. What [`write`](Self::write) leaves is written again, until
    /// nothing is left or an error says why it can't be.
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

    /// Finds data or a hole; `ENXIO` behind the end.
    fn seek(&self, inode: InodeNumber, from: SeekFrom) -> Result<u64>;

    /// Where the bytes of a range are on the device, at most `extents_max` ranges (`FIEMAP`).
    fn extents(
        &self,
        inode: InodeNumber,
        offset: u64,
        length: u64,
        extents_max: usize,
    ) -> Result<Vec<Extent>>;

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

    /// A caller is done with a file that it had opened for writing. What it wrote in place of content
    /// that it had cut off is written at once, so that a crash seldom leaves an empty file; a sync tells
    /// whether that went well.
    fn closed(&self, inode: InodeNumber) {
        let _ = inode;
    }

    /// Returns when the content of an inode is durable, and its attributes unless `data_only`
    /// allows those to wait that aren't needed to read it.
    fn sync_inode(&self, inode: InodeNumber, data_only: bool) -> Result<()>;

    /// Returns when everything is durable.
    fn sync(&self) -> Result<()>;

    /// Space and inodes in use.
    fn statistics(&self) -> Result<FileSystemStatistics>;

    /// The same, as seen from an inode: a directory for whose content there is a limit is as large as
    /// that.
    fn statistics_at(&self, inode: InodeNumber) -> Result<FileSystemStatistics> {
        let _ = inode;
        self.statistics()
    }

    /// Makes everything durable and the image consistent as it stands, and holds back changes
    /// until [`thaw`](FileSystem::thaw).
    fn freeze(&self) -> Result<()>;

    /// Lets changes go on after [`freeze`](FileSystem::freeze).
    fn thaw(&self) -> Result<()>;
}
