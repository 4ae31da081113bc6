//! The model behind the interface of file systems.

use drystone_sync::{Condvar, LockClass, Mutex, MutexGuard};
use drystone_vfs::{
    Access, DirectoryEntry, DirectoryVisitor, Entry, Errno, FallocateMode, FileExtent, FileSystem,
    FileSystemStatistics, FileType, InodeAttributes, InodeNumber, NAME_LENGTH_MAX, NewNode,
    OpenFlags, RenameFlags, RequestContext, Result, SeekFrom, SetAttributes, Timestamp, XattrMode,
};

use super::Configuration;
use super::node::ModelNodeKind;
use super::permission;
use super::rename::RenameSide;
use super::state::{ModelState, ROOT};

static MODEL: LockClass = LockClass::new("model file system", 1000);

/// How much later every change is than the one before.
const TICK_NS: u32 = 1_000_000;
/// The reported size where space isn't limited.
const SPACE_CLAIMED: u64 = 1 << 40;

/// A file system in memory.
#[derive(Debug)]
pub struct MemoryFileSystem {
    state: Mutex<ModelState>,
    thawed: Condvar,
}

impl Default for MemoryFileSystem {
    fn default() -> MemoryFileSystem {
        MemoryFileSystem::new(Configuration::default())
    }
}

/// The same file system, with the references that callers hold.
impl Clone for MemoryFileSystem {
    fn clone(&self) -> MemoryFileSystem {
        let state = self.state.lock().clone();
        MemoryFileSystem { state: Mutex::new(&MODEL, state), thawed: Condvar::new() }
    }
}

impl MemoryFileSystem {
    /// An empty file system whose root belongs to the superuser.
    pub fn new(configuration: Configuration) -> MemoryFileSystem {
        MemoryFileSystem {
            state: Mutex::new(&MODEL, ModelState::new(configuration)),
            thawed: Condvar::new(),
        }
    }

    /// Sets the clock, which goes on from there.
    pub fn set_time(&self, time: Timestamp) {
        self.state.lock().now = time;
    }

    /// References that callers hold, to all inodes but the root.
    pub fn references(&self) -> u64 {
        let state = self.state.lock();
        let others = state.nodes.iter().filter(|(inode, _)| **inode != ROOT);
        others.map(|(_, node)| node.references).sum()
    }

    /// The state for a change; waits while the file system is frozen, and advances the clock.
    fn change(&self) -> MutexGuard<'_, ModelState> {
        let mut state = self.state.lock();
        self.thawed.wait_while(&mut state, |state| state.frozen);
        let nanoseconds = state.now.nanoseconds + TICK_NS;
        state.now.seconds += i64::from(nanoseconds / 1_000_000_000);
        state.now.nanoseconds = nanoseconds % 1_000_000_000;
        state
    }
}

/// Checks for features that the configuration leaves out.
impl MemoryFileSystem {
    /// `EOPNOTSUPP` if the file system doesn't have the feature.
    fn check_has(&self, has: impl FnOnce(&Configuration) -> bool) -> Result<()> {
        if has(&self.state.lock().configuration) { Ok(()) } else { Err(Errno::EOPNOTSUPP.into()) }
    }
}

/// Name, inode, type and cookie of a directory entry.
type Listed = (Vec<u8>, InodeNumber, FileType, u64);

impl FileSystem for MemoryFileSystem {
    fn root(&self) -> InodeNumber {
        ROOT
    }

    fn lookup(&self, context: &RequestContext, parent: InodeNumber, name: &[u8]) -> Result<Entry> {
        let mut state = self.state.lock();
        let directory = state.searched(context, parent)?;
        let inode = match name {
            b"." => parent,
            b".." if !directory.removed => directory.parent,
            _ => state.find_existing(context, parent, name)?,
        };
        state.entry(inode)
    }

    fn find_inode(&self, inode: InodeNumber) -> Result<Entry> {
        let mut state = self.state.lock();
        if state.node(inode)?.attributes.links == 0 {
            return Err(Errno::ESTALE.into());
        }
        state.entry(inode)
    }

    fn forget(&self, inode: InodeNumber, count: u64) {
        let mut state = self.state.lock();
        let Ok(node) = state.node_mut(inode) else {
            panic!("inode {inode} is forgotten without a reference");
        };
        assert!(node.references >= count, "inode {inode} is forgotten too often");
        node.references -= count;
        state.delete_if_unused(inode);
    }

    fn attributes(&self, inode: InodeNumber) -> Result<InodeAttributes> {
        Ok(self.state.lock().node(inode)?.shown())
    }

    fn set_attributes(
        &self,
        context: &RequestContext,
        inode: InodeNumber,
        changes: &SetAttributes,
    ) -> Result<InodeAttributes> {
        self.change().set_attributes(context, inode, changes)
    }

    fn create(
        &self,
        context: &RequestContext,
        parent: InodeNumber,
        name: &[u8],
        node: NewNode<'_>,
        permissions: u16,
    ) -> Result<Entry> {
        self.change().create(context, parent, name, node, permissions)
    }

    fn create_unnamed(
        &self,
        context: &RequestContext,
        parent: InodeNumber,
        permissions: u16,
    ) -> Result<Entry> {
        self.check_has(|has| has.unnamed_files)?;
        self.change().create_unnamed(context, parent, permissions)
    }

    fn link(
        &self,
        context: &RequestContext,
        inode: InodeNumber,
        parent: InodeNumber,
        name: &[u8],
    ) -> Result<Entry> {
        self.change().link(context, inode, parent, name)
    }

    fn unlink(&self, context: &RequestContext, parent: InodeNumber, name: &[u8]) -> Result<()> {
        self.change().unlink(context, parent, name)
    }

    fn remove_directory(
        &self,
        context: &RequestContext,
        parent: InodeNumber,
        name: &[u8],
    ) -> Result<()> {
        self.change().remove_directory(context, parent, name)
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
        let is_plain = !flags.intersects(RenameFlags::EXCHANGE | RenameFlags::WHITEOUT);
        if self.check_has(|has| has.exchanging_renames || is_plain).is_err() {
            return Err(Errno::EINVAL.into());
        }
        let from = RenameSide { parent, name };
        let to = RenameSide { parent: new_parent, name: new_name };
        self.change().rename(context, from, to, flags)
    }

    fn read_link(&self, inode: InodeNumber) -> Result<Vec<u8>> {
        match &self.state.lock().node(inode)?.kind {
            ModelNodeKind::Symlink(target) => Ok(target.clone()),
            _ => Err(Errno::EINVAL.into()),
        }
    }

    fn read_directory(
        &self,
        context: &RequestContext,
        inode: InodeNumber,
        cookie: u64,
        visit: &mut DirectoryVisitor<'_>,
    ) -> Result<()> {
        for (name, inode, file_type, cookie) in self.entries_after(context, inode, cookie)? {
            let entry = DirectoryEntry { inode, file_type: Some(file_type), cookie, name: &name };
            if !visit(&entry) {
                break;
            }
        }
        Ok(())
    }

    fn check_access(
        &self,
        context: &RequestContext,
        inode: InodeNumber,
        access: Access,
    ) -> Result<()> {
        permission::check(self.state.lock().node(inode)?, context, access)
    }

    fn open(
        &self,
        context: &RequestContext,
        inode: InodeNumber,
        flags: OpenFlags,
    ) -> Result<InodeAttributes> {
        if flags.contains(OpenFlags::TRUNCATE) {
            self.change().open(context, inode, flags)
        } else {
            self.state.lock().open(context, inode, flags)
        }
    }

    fn read(&self, inode: InodeNumber, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        self.state.lock().read(inode, offset, buffer)
    }

    fn write(
        &self,
        context: &RequestContext,
        inode: InodeNumber,
        offset: u64,
        data: &[u8],
    ) -> Result<usize> {
        self.change().write(context, inode, offset, data)
    }

    fn append(
        &self,
        context: &RequestContext,
        inode: InodeNumber,
        data: &[u8],
    ) -> Result<(u64, usize)> {
        self.change().append(context, inode, data)
    }

    fn fallocate(
        &self,
        context: &RequestContext,
        inode: InodeNumber,
        mode: FallocateMode,
        offset: u64,
        length: u64,
    ) -> Result<()> {
        self.check_has(|has| has.ranges)?;
        self.change().fallocate(context, inode, mode, offset, length)
    }

    fn seek(&self, inode: InodeNumber, from: SeekFrom) -> Result<u64> {
        self.state.lock().seek(inode, from)
    }

    fn extents(
        &self,
        inode: InodeNumber,
        offset: u64,
        length: u64,
        extents_max: usize,
    ) -> Result<Vec<FileExtent>> {
        let state = self.state.lock();
        let node = state.node(inode)?;
        // In the model only regular files have blocks.
        if node.attributes.file_type != FileType::Regular {
            return Ok(Vec::new());
        }
        Ok(node.content()?.extents(offset, length, extents_max))
    }

    fn xattr(&self, context: &RequestContext, inode: InodeNumber, name: &[u8]) -> Result<Vec<u8>> {
        self.check_has(|has| has.xattrs)?;
        self.state.lock().xattr(context, inode, name)
    }

    fn set_xattr(
        &self,
        context: &RequestContext,
        inode: InodeNumber,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        self.check_has(|has| has.xattrs)?;
        self.change().set_xattr(context, inode, name, value, mode)
    }

    fn remove_xattr(
        &self,
        context: &RequestContext,
        inode: InodeNumber,
        name: &[u8],
    ) -> Result<()> {
        self.check_has(|has| has.xattrs)?;
        self.change().remove_xattr(context, inode, name)
    }

    fn list_xattrs(&self, context: &RequestContext, inode: InodeNumber) -> Result<Vec<Vec<u8>>> {
        if self.check_has(|has| has.xattrs).is_err() {
            return Ok(Vec::new());
        }
        self.state.lock().list_xattrs(context, inode)
    }

    fn sync_inode(&self, inode: InodeNumber, _data_only: bool) -> Result<()> {
        self.state.lock().node(inode).map(|_| ())
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn statistics(&self) -> Result<FileSystemStatistics> {
        let state = self.state.lock();
        let block_size = state.configuration.block_size;
        let blocks = state.configuration.space_max.unwrap_or(SPACE_CLAIMED) / u64::from(block_size);
        let blocks_free = blocks - state.blocks_used.min(blocks);
        let inodes = u64::from(u32::MAX);
        Ok(FileSystemStatistics {
            block_size,
            blocks,
            blocks_free,
            blocks_available: blocks_free,
            inodes,
            inodes_free: inodes - state.nodes.len() as u64,
            name_length_max: NAME_LENGTH_MAX as u32,
            identifier: 0,
        })
    }

    fn freeze(&self) -> Result<()> {
        let mut state = self.state.lock();
        if state.frozen {
            return Err(Errno::EBUSY.into());
        }
        state.frozen = true;
        Ok(())
    }

    fn thaw(&self) -> Result<()> {
        let mut state = self.state.lock();
        if !state.frozen {
            return Err(Errno::EINVAL.into());
        }
        state.frozen = false;
        self.thawed.notify_all();
        Ok(())
    }
}

impl MemoryFileSystem {
    /// The entries of a directory after `cookie`, in the order of their cookies.
    fn entries_after(
        &self,
        context: &RequestContext,
        inode: InodeNumber,
        cookie: u64,
    ) -> Result<Vec<Listed>> {
        let state = self.state.lock();
        let node = state.node(inode)?;
        let directory = node.directory()?;
        permission::check(node, context, Access::READ)?;
        if directory.removed {
            return Err(Errno::ENOENT.into());
        }
        let mut entries = vec![
            (b".".to_vec(), inode, FileType::Directory, 1),
            (b"..".to_vec(), directory.parent, FileType::Directory, 2),
        ];
        for (name, link) in &directory.entries {
            let file_type = state.node(link.inode)?.file_type();
            entries.push((name.clone(), link.inode, file_type, link.cookie));
        }
        entries.retain(|entry| entry.3 > cookie);
        entries.sort_by_key(|entry| entry.3);
        Ok(entries)
    }
}
