//! The blocks of a directory: finds, checks and adds them.
//!
//! A block is checked, including its checksum, when it comes from the device, and trusted from then
//! on.

use super::{DirectoryForm, EntrySearch, FoundEntry, Vacancy, corrupt, shape};
use crate::block_use;
use crate::content::ContentStore;
use crate::content::SoughtName;
use crate::directory_index_lock::DirectoryIndexLock;
use crate::error::{Error, Result};
use crate::inode::{Inode, InodeSummary};
use crate::mapping::{self, StepProgress};
use drystone_cache::{Buffer, BufferWriter};
use drystone_ext4_format::dir::{self, DirectoryBlock, DirectoryLayout, DirectoryPlace, Entry};
use drystone_ext4_format::error::{DirectoryProblem, InodeProblem};
use drystone_ext4_format::extent::Extent;
use drystone_ext4_format::features::Incompat;
use drystone_ext4_format::htree::{self, IndexBlock, IndexKind, IndexLimits};
use drystone_ext4_format::inode::InodeFlags;
use drystone_ext4_format::{Corrupt, InodeNumber, LogicalBlock, PhysicalBlock};
use drystone_jbd2::Handle;
use drystone_sync::Arc;
use drystone_vfs::RequestContext;

/// The limit of block numbers in an index entry.
const INDEXED_BLOCKS_MAX: u32 = 1 << 28;

/// A directory during one operation.
pub(super) struct Directory<'a> {
    pub fs: &'a ContentStore,
    pub inode: &'a Inode,
    pub layout: DirectoryLayout,
    pub shape: DirectoryForm,
    /// Number of blocks when it was opened. A hashed directory may get more while its content lock is shared.
    pub blocks: u32,
    /// Whose quota pays for new blocks; `None` has no limit.
    pub grows_for: Option<&'a RequestContext>,
}

impl<'a> Directory<'a> {
    pub fn open(fs: &'a ContentStore, inode: &'a Inode) -> Result<Directory<'a>> {
        Directory::open_by(fs, inode, &inode.summary())
    }

    /// Opens a directory with a given summary.
    pub fn open_by(
        fs: &'a ContentStore,
        inode: &'a Inode,
        summary: &InodeSummary,
    ) -> Result<Directory<'a>> {
        let InodeSummary { flags, size_bytes, .. } = *summary;
        let volume = &fs.volume;
        let shape = shape(fs, flags);
        let blocks = match shape {
            DirectoryForm::Inline => 0,
            DirectoryForm::Linear | DirectoryForm::Hashed => {
                u32::try_from(size_bytes >> volume.layout().log_block_size())
                    .ok()
                    .filter(|_| size_bytes.is_multiple_of(volume.block_size() as u64))
                    // Directories have no holes, so there can't be more blocks; and walks over all
                    // blocks must end.
                    .filter(|&blocks| u64::from(blocks) <= volume.layout().blocks_count())
                    .ok_or(Corrupt::Inode {
                        inode: inode.number,
                        problem: InodeProblem::Size { bytes: size_bytes },
                    })?
            }
        };
        let layout = DirectoryLayout {
            file_type: volume.features.incompat.contains(Incompat::FILETYPE),
            checksum: inode.seed(),
            encrypted: flags.contains(InodeFlags::ENCRYPT),
            casefolded: flags.contains(InodeFlags::CASEFOLD),
            inode_last: InodeNumber::new(volume.layout().inodes_count()),
        };
        Ok(Directory { fs, inode, layout, shape, blocks, grows_for: None })
    }

    /// Prepares a name for a look-up.
    pub fn seek<'n>(&self, name: &'n [u8], wants_room: bool) -> Result<SoughtName<'n>> {
        self.fs.names.seek(&self.layout, name, wants_room)
    }

    /// A block's place, for errors.
    pub fn place(&self, block: LogicalBlock) -> DirectoryPlace {
        DirectoryPlace { inode: self.inode.number, block }
    }

    /// The limits for the check of index blocks that were read before.
    pub fn limits(&self) -> IndexLimits {
        let blocks = self.inode.size_bytes() >> self.fs.volume.layout().log_block_size();
        let directory_blocks =
            u32::try_from(blocks).map_or(self.blocks, |now| now.max(self.blocks));
        IndexLimits { directory_blocks, large_directory: self.is_large() }
    }

    /// Most levels of index nodes below the root.
    pub fn levels_max(&self) -> u8 {
        IndexLimits { directory_blocks: 0, large_directory: self.is_large() }.levels_max()
    }

    fn is_large(&self) -> bool {
        self.fs.volume.features.incompat.contains(Incompat::LARGE_DIR)
    }

    /// A block's buffer, and a record that may have room; `None` for a hole.
    fn buffer(&self, block: LogicalBlock) -> Result<Option<(Arc<Buffer>, Option<usize>)>> {
        if let Some(known) = self.inode.directory_block_cache().and_then(|blocks| blocks.get(block))
        {
            return Ok(Some(known));
        }
        let mapped = {
            let _mapping = self.inode.index_lock().map(DirectoryIndexLock::read_mapping);
            mapping::map(self.fs, self.inode, block, 1)?
        };
        match mapped.physical {
            // Directories are never preallocated, so an unwritten block counts as a hole.
            Some(physical) if !mapped.unwritten => {
                let buffer = self.fs.volume.read(physical)?;
                if let Some(blocks) = self.inode.directory_block_cache() {
                    blocks.note(block, &buffer);
                }
                Ok(Some((buffer, None)))
            }
            _ => Ok(None),
        }
    }

    /// The next block of entries from a number on; `None` at the end. Holes have no entries, and are
    /// stepped over at once: in a damaged image they may be as long as the directory claims.
    pub fn next_entries(&self, from: u32) -> Result<Option<EntryBlock>> {
        let mut number = from;
        while number < self.blocks {
            let block = LogicalBlock::new(number);
            if let Some(entries) = self.entries(block)? {
                return Ok(Some(entries));
            }
            let hole = mapping::map(self.fs, self.inode, block, self.blocks - number)?;
            number = number.saturating_add(hole.length.max(1));
        }
        Ok(None)
    }

    /// A block of entries; `None` for a hole.
    fn entries(&self, block: LogicalBlock) -> Result<Option<EntryBlock>> {
        let Some((buffer, room)) = self.buffer(block)? else { return Ok(None) };
        buffer.check_once(block_use::names(self.inode.number), |bytes| {
            let place = self.place(block);
            dir::verify(bytes, &self.layout, place)?;
            let view = DirectoryBlock::check(bytes, &self.layout, place)?;
            if block == LogicalBlock::FIRST {
                view.check_dots(place)?;
            }
            Ok::<_, Error>(())
        })?;
        Ok(Some(EntryBlock { buffer, block, layout: self.layout, room }))
    }

    /// A block of entries that must be there.
    pub fn leaf(&self, block: LogicalBlock) -> Result<EntryBlock> {
        self.entries(block)?.ok_or_else(|| self.hole(block))
    }

    fn hole(&self, block: LogicalBlock) -> Error {
        corrupt(self, block, DirectoryProblem::Hole)
    }

    /// The root of the index.
    pub fn root(&self) -> Result<IndexNode> {
        let block = LogicalBlock::FIRST;
        self.index(block, IndexKind::Root)
    }

    /// An index block below the root.
    pub fn node(&self, block: LogicalBlock) -> Result<IndexNode> {
        self.index(block, IndexKind::Node)
    }

    fn index(&self, block: LogicalBlock, kind: IndexKind) -> Result<IndexNode> {
        let (buffer, _) = self.buffer(block)?.ok_or_else(|| self.hole(block))?;
        let usage = match kind {
            IndexKind::Root => block_use::names(self.inode.number),
            IndexKind::Node => block_use::index_node(self.inode.number),
        };
        buffer.check_once(usage, |bytes| {
            htree::verify(bytes, kind, &self.layout, self.place(block))?;
            Ok::<_, Error>(self.check_index_bytes(bytes, block, kind)?)
        })?;
        Ok(IndexNode { buffer, block, kind })
    }

    /// Checks the structure of an index block again.
    pub fn check_index(&self, node: &IndexNode) -> Result<()> {
        Ok(self.check_index_bytes(&node.buffer.read(), node.block, node.kind)?)
    }

    fn check_index_bytes(
        &self,
        bytes: &[u8],
        block: LogicalBlock,
        kind: IndexKind,
    ) -> std::result::Result<(), Corrupt> {
        let (layout, place, limits) = (&self.layout, self.place(block), self.limits());
        match kind {
            IndexKind::Root => IndexBlock::check_root(bytes, layout, place, &limits)?,
            IndexKind::Node => IndexBlock::check_node(bytes, layout, place, &limits)?,
        };
        Ok(())
    }

    /// Opens a block for changes.
    pub fn write<'b>(
        &self,
        handle: &mut Handle<'_>,
        buffer: &'b Arc<Buffer>,
    ) -> Result<BufferWriter<'b>> {
        Ok(handle.write(buffer, self.inode.directory_seal())?)
    }

    /// Adds `N` blocks at the end. The caller writes their content, with [`fill`](Self::fill). On
    /// an error the directory is unchanged.
    pub fn append<const N: usize>(&mut self, handle: &mut Handle<'_>) -> Result<[NewBlock; N]> {
        let _mapping = self.inode.index_lock().map(DirectoryIndexLock::write_mapping);
        // Other threads may have added blocks since the directory was opened.
        let first = self.limits().directory_blocks;
        let end = first.checked_add(N as u32).ok_or(Error::NoSpace)?;
        let volume = &self.fs.volume;
        let size_bytes = u64::from(end) << volume.layout().log_block_size();
        let is_indexable = end <= INDEXED_BLOCKS_MAX;
        if (!self.is_large() && u32::try_from(size_bytes).is_err()) || !is_indexable {
            return Err(Error::NoSpace);
        }
        let none = NewBlock { block: LogicalBlock::FIRST, physical: PhysicalBlock::new(0) };
        let mut added = [none; N];
        for (number, slot) in (first..).zip(&mut added) {
            let block = LogicalBlock::new(number);
            match self.map_new(handle, block) {
                Ok(physical) => *slot = NewBlock { block, physical },
                Err(error) => {
                    if number > first {
                        let from = LogicalBlock::new(first);
                        self.unmap(handle, from, number)?;
                    }
                    return Err(error);
                }
            }
        }
        self.inode.update(self.fs, handle, |fields| {
            fields.disk.size_bytes = size_bytes;
            Ok(())
        })?;
        self.blocks = end;
        Ok(added)
    }

    fn unmap(&self, handle: &mut Handle<'_>, from: LogicalBlock, end: u32) -> Result<()> {
        if let Some(blocks) = self.inode.directory_block_cache() {
            blocks.clear();
        }
        match mapping::remove(self.fs, handle, self.inode, from, u64::from(end))? {
            // At most one block is left to remove, which one step does.
            StepProgress::Done | StepProgress::More { .. } => Ok(()),
        }
    }

    fn map_new(&self, handle: &mut Handle<'_>, logical: LogicalBlock) -> Result<PhysicalBlock> {
        let (fs, inode) = (self.fs, self.inode);
        let superuser = RequestContext::superuser();
        let context = self.grows_for.unwrap_or(&superuser);
        let run = mapping::allocate(fs, handle, context, inode, logical, 1)?;
        let extent = Extent::of_block(logical, run.physical);
        if let Err(error) = mapping::insert(fs, handle, inode, extent) {
            mapping::release_unmapped(fs, handle, inode, &run)?;
            return Err(error);
        }
        Ok(run.physical)
    }

    /// Writes the first content of a new block. The bytes that `content` gets are zero.
    pub fn fill(
        &self,
        handle: &mut Handle<'_>,
        new: NewBlock,
        content: impl FnOnce(&mut [u8]),
    ) -> Result<()> {
        let buffer = self.fs.volume.zeroed(new.physical)?;
        content(&mut handle.create(&buffer, self.inode.directory_seal())?);
        if let Some(blocks) = self.inode.directory_block_cache() {
            blocks.note(new.block, &buffer);
        }
        Ok(())
    }
}

/// A block that was just added to a directory.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewBlock {
    /// Its number in the directory.
    pub block: LogicalBlock,
    physical: PhysicalBlock,
}

/// A checked block of entries.
pub(super) struct EntryBlock {
    pub buffer: Arc<Buffer>,
    pub block: LogicalBlock,
    layout: DirectoryLayout,
    /// A record that may have room.
    room: Option<usize>,
}

impl EntryBlock {
    /// Looks at the entries.
    #[inline]
    pub fn look<T>(&self, look: impl FnOnce(&DirectoryBlock<'_>) -> T) -> T {
        look(&DirectoryBlock::trusted(&self.buffer.read(), &self.layout))
    }

    /// The entry of a name, or where it could be inserted in this block.
    pub fn search(&self, sought: &SoughtName<'_>) -> EntrySearch {
        let Some(name) = sought.exact().filter(|_| sought.wants_room) else {
            return self.find(sought).map_or(EntrySearch::Absent(None), EntrySearch::Found);
        };
        self.look(|view| match view.find_or_room(name) {
            Ok((entry, previous)) => EntrySearch::Found(self.found(&entry, Some(previous))),
            Err(room) => EntrySearch::Absent(Some(self.vacancy_at(room))),
        })
    }

    /// The entry of a name.
    pub fn find(&self, sought: &SoughtName<'_>) -> Option<FoundEntry> {
        self.look(|view| {
            if let Some(name) = sought.exact() {
                let (entry, previous) = view.find_with_previous(name)?;
                return Some(self.found(&entry, Some(previous)));
            }
            let entry = view.entries().find(|entry| sought.matches(entry.name))?;
            Some(self.found(&entry, None))
        })
    }

    /// Where a name that isn't in this block could be inserted.
    pub fn vacancy(&self, name: &[u8]) -> Vacancy {
        let room = self.look(|view| {
            let known = self.room.filter(|&offset| view.has_room_at(offset, name));
            known.or_else(|| view.find_room(name))
        });
        self.vacancy_at(room)
    }

    fn vacancy_at(&self, room: Option<usize>) -> Vacancy {
        let (buffer, block, layout) = (Arc::clone(&self.buffer), self.block, self.layout);
        Vacancy { buffer, block, layout, room }
    }

    /// Drops the cached room, because the records of the block are about to move.
    pub fn forget_room(&self, directory: &Directory<'_>) {
        if let Some(blocks) = directory.inode.directory_block_cache() {
            blocks.set_room(self.block, None);
        }
    }

    fn found(&self, entry: &Entry<'_>, previous: Option<usize>) -> FoundEntry {
        FoundEntry {
            inode: entry.inode,
            block: self.block,
            buffer: Some(Arc::clone(&self.buffer)),
            offset: entry.offset,
            // The first record has itself as the previous one.
            previous: previous.filter(|&previous| previous != entry.offset),
            layout: self.layout,
        }
    }

    /// Whether there are no names but `.` and `..`.
    pub fn is_empty(&self) -> bool {
        self.look(|view| view.is_empty())
    }
}

/// A checked block of an index.
#[derive(Clone)]
pub(super) struct IndexNode {
    pub buffer: Arc<Buffer>,
    pub block: LogicalBlock,
    /// Root or node: how the block imitates a block of entries.
    pub kind: IndexKind,
}

impl IndexNode {
    /// Looks at the index entries.
    #[inline]
    pub fn look<T>(&self, look: impl FnOnce(&IndexBlock<'_>) -> T) -> T {
        look(&IndexBlock::trusted(&self.buffer.read(), self.kind))
    }
}
