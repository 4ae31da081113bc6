//! Inodes in memory.
//!
//! # State
//! An inode is *dirty* from its first change until the log writer freezes it, and *in flight* from then
//! until its log is durable. Meanwhile it stays in memory, and so do the blocks that are being logged;
//! only then what is in the log can be read from there.
//!
//! # Locking
//! `content` is the lock that operations take for their whole length: exclusively to change names or
//! data, shared to read them. `fields`, `pages` and `map` are held shortly inside it. The log writer
//! takes these three, never `content`.

mod directory_index;
mod pages;
mod table;

pub(crate) use directory_index::{DirectoryIndex, EntryPlace, HashedName, KnownEntry};
pub(crate) use pages::{FrozenPages, Pages};
pub(crate) use table::InodeTable;

use crate::block_map::BlockMap;
use crate::dat::Translated;
use crate::error::Result;
use crate::lock_classes::{DIRECTORY, DIRECTORY_INDEX, FILE, INODE_FIELDS, MAP, PAGES};
use crate::volume::BlockBytes;
use drystone_nilfs2_format::error::InodeProblem;
use drystone_nilfs2_format::{Corrupt, FileBlock, InodeNumber, PhysicalBlock, VirtualBlock};
use drystone_sync::atomic::{AtomicU64, Ordering};
use drystone_sync::{Arc, Mutex, RwLock};
use drystone_vfs::{FileType, Timestamp};

/// The fields of an inode as a record has them. The map and the space are as of the last log.
pub(crate) type Record = drystone_nilfs2_format::inode::Inode;

/// Blocks that are read at once when a file is read from front to back.
const READ_AHEAD_BLOCKS: u64 = 32;

/// What changes of an inode, but for its data.
#[derive(Debug)]
pub(crate) struct Fields {
    pub(crate) record: Record,
    /// The time of access that a caller has set. The format has none: it lasts as long as the inode is in memory.
    pub(crate) accessed: Option<Timestamp>,
    pub(crate) is_dirty: bool,
    /// Something else than data and times has changed, so that a data log won't do.
    pub(crate) needs_checkpoint: bool,
    /// The log writer has it.
    pub(crate) in_flight: bool,
    /// A log knows the inode.
    pub(crate) is_logged: bool,
    /// It has neither names nor users, and goes with the next log.
    pub(crate) is_deleted: bool,
    /// It has no names and isn't used, and is deleted when a log has room.
    pub(crate) waits_for_room: bool,
}

/// An inode in memory.
#[derive(Debug)]
pub(crate) struct Inode {
    pub(crate) number: InodeNumber,
    pub(crate) file_type: FileType,
    pub(crate) content: RwLock<()>,
    pub(crate) fields: Mutex<Fields>,
    pub(crate) pages: Mutex<Pages>,
    pub(crate) map: RwLock<BlockMap>,
    /// In a box, because most inodes have none.
    pub(crate) index: Mutex<Option<Box<DirectoryIndex>>>,
    /// References of callers; changed with the shard of the table locked.
    references: AtomicU64,
}

impl Inode {
    /// An inode with the fields of a record.
    pub(crate) fn new(
        number: InodeNumber,
        record: Record,
        is_logged: bool,
        block_bytes: usize,
    ) -> Result<Self> {
        let problem = InodeProblem::Mode { mode: record.mode };
        let file_type =
            FileType::from_mode(record.mode).ok_or(Corrupt::Inode { inode: number, problem })?;
        let has_map =
            matches!(file_type, FileType::Regular | FileType::Directory | FileType::Symlink);
        let map = if has_map {
            BlockMap::load(number, &record.map, block_bytes)?
        } else {
            BlockMap::empty(number, block_bytes)
        };
        let class = if file_type == FileType::Directory { &DIRECTORY } else { &FILE };
        let fields = Fields {
            record,
            accessed: None,
            is_dirty: false,
            needs_checkpoint: false,
            in_flight: false,
            waits_for_room: false,
            is_logged,
            is_deleted: false,
        };
        Ok(Self {
            number,
            file_type,
            content: RwLock::new(class, ()),
            fields: Mutex::new(&INODE_FIELDS, fields),
            pages: Mutex::new(&PAGES, Pages::default()),
            map: RwLock::new(&MAP, map),
            index: Mutex::new(&DIRECTORY_INDEX, None),
            references: AtomicU64::new(0),
        })
    }

    pub(crate) fn is_directory(&self) -> bool {
        self.file_type == FileType::Directory
    }

    /// Whether a log keeps blocks for it.
    pub(crate) fn has_map(&self) -> bool {
        matches!(self.file_type, FileType::Regular | FileType::Directory | FileType::Symlink)
    }

    pub(crate) fn size(&self) -> u64 {
        self.fields.lock().record.size_bytes
    }

    /// Whether anything of it isn't in a durable log.
    pub(crate) fn is_unlogged(&self) -> bool {
        let fields = self.fields.lock();
        fields.is_dirty || fields.in_flight
    }

    /// Whether it has lost its last name, and isn't deleted.
    pub(crate) fn is_nameless(&self) -> bool {
        let fields = self.fields.lock();
        fields.record.links_count == 0 && !fields.is_deleted
    }

    pub(crate) fn references(&self) -> u64 {
        self.references.load(Ordering::Relaxed)
    }

    /// A block of its content; nothing for a hole. The content is locked. What is read ahead may fail.
    pub(crate) fn block(
        &self,
        key: FileBlock,
        source: Translated<'_>,
    ) -> Result<Option<BlockBytes>> {
        {
            let pages = self.pages.lock();
            if let Some(page) = pages.blocks.get(&key) {
                return Ok(Some(Arc::clone(&page.bytes)));
            }
            if pages.is_cut(key) {
                return Ok(None);
            }
        }
        let pointers = self.pointers(key, source)?;
        let Some(first) = pointers.first() else { return Ok(None) };
        let reader = source.volume.enter_reader();
        let first = source.translate(*first)?;
        let mut count = 1;
        while let Some(next) = pointers.get(count)
            && let Ok(place) = source.translate(*next)
            && place.0 == first.0 + count as u64
        {
            count += 1;
        }
        let block_bytes = source.volume.block_bytes();
        let mut bytes = vec![0; block_bytes * count];
        let read = source.volume.read_blocks(first, &mut bytes);
        if count > 1 && read.is_err() {
            bytes.truncate(block_bytes);
            source.volume.read_blocks(first, &mut bytes)?;
        } else {
            read?;
        }
        drop(reader);
        source.volume.content_added_bytes.fetch_add(bytes.len(), Ordering::Relaxed);
        let mut pages = self.pages.lock();
        for (key, block) in (key.0..).map(FileBlock).zip(bytes.chunks_exact(block_bytes)) {
            if !pages.is_cut(key) {
                pages.keep(key, || block.into());
            }
        }
        Ok(pages.blocks.get(&key).map(|page| Arc::clone(&page.bytes)))
    }

    /// Looks at a block of its content; nothing for a hole. The content is locked.
    pub(crate) fn look_at<T>(
        &self,
        key: FileBlock,
        source: Translated<'_>,
        look: impl FnOnce(&[u8]) -> T,
    ) -> Result<Option<T>> {
        let pages = self.pages.lock();
        if let Some(page) = pages.blocks.get(&key) {
            return Ok(Some(look(&page.bytes)));
        }
        drop(pages);
        let block = self.block(key, source)?;
        Ok(block.map(|bytes| look(&bytes)))
    }

    /// What a block and some of those after it lead to, up to the first hole.
    pub(crate) fn pointers(
        &self,
        key: FileBlock,
        source: Translated<'_>,
    ) -> Result<Vec<VirtualBlock>> {
        let ahead = if self.file_type == FileType::Regular { READ_AHEAD_BLOCKS } else { 1 };
        let (next, cut) = {
            let pages = self.pages.lock();
            (pages.blocks.range(key..).next().map(|(next, _)| *next), pages.cut())
        };
        // What is in memory may be on its way to the log, and have no place by its pointer. What was cut off is
        // on its way out of the map.
        let end = [next, cut].into_iter().flatten().map(|end| end.0).min().unwrap_or(u64::MAX);
        let end = end.min(key.0.saturating_add(ahead));
        let map = self.map.read();
        let mut pointers = Vec::new();
        for key in key.0..end {
            match map.get(FileBlock(key), &source) {
                Ok(0) => break,
                Ok(pointer) => pointers.push(VirtualBlock(pointer)),
                Err(error) if pointers.is_empty() => return Err(error),
                // Only blocks that weren't asked for are after it.
                Err(_) => break,
            }
        }
        Ok(pointers)
    }

    /// The first key from `from` on that isn't a hole. The content is locked.
    pub(crate) fn next_data(
        &self,
        from: FileBlock,
        source: Translated<'_>,
    ) -> Result<Option<FileBlock>> {
        let (page, cut) = {
            let pages = self.pages.lock();
            (pages.blocks.range(from..).next().map(|(key, _)| *key), pages.cut())
        };
        let mapped = self.map.read().next(from, &source)?.map(|entry| FileBlock(entry.key));
        let mapped = mapped.filter(|key| cut.is_none_or(|cut| *key < cut));
        Ok([page, mapped].into_iter().flatten().min())
    }

    /// Where a block is on the device; nothing for a hole, and for what no log has.
    pub(crate) fn place_of(
        &self,
        key: FileBlock,
        source: Translated<'_>,
    ) -> Result<Option<PhysicalBlock>> {
        {
            let pages = self.pages.lock();
            let page = pages.blocks.get(&key);
            let is_unlogged = page.is_some_and(|page| page.is_dirty || page.in_flight);
            if is_unlogged || pages.is_cut(key) {
                return Ok(None);
            }
        }
        let pointer = self.map.read().get(key, &source)?;
        let _reader = source.volume.enter_reader();
        match pointer {
            0 => Ok(None),
            pointer => source.translate(VirtualBlock(pointer)).map(Some),
        }
    }
}
