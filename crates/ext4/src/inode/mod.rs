//! Inodes in memory.
//!
//! # State
//! An [`Inode`] is a decoded record of the inode table, with what the engine keeps beside it.
//! [`Inode::update`] changes it and the record in the table's buffer under one lock, in a handle. So an
//! inode in memory isn't dirty, except in the cases that `update` names, and may be dropped when nothing
//! uses it and no data of it waits. While callers hold references to it there are more conditions
//! (`may_be_parked`).
//!
//! # Locking
//! - `content` (class directory or file) is held shared to read names, data or mappings, and
//!   exclusively to change them, except that names, size and mapping of a hashed directory have locks of their own
//!   (`dir::lock_name`, [`DirectoryIndexLock`]). It is taken before a handle is started. Readers of a directory
//!   that many threads use share it without a common cache line ([`ContentLock`]).
//! - `fields` is held only while the fields are read or changed. What `content` protects (size, mapping
//!   root; for a directory `content` or the lock of its mapping) changes only with both held, so either suffices to
//!   read it.
//! - The attributes that callers see can be read without a lock (`shown`).
//!
//! # Crash
//! An inode without links is on the orphan record from the handle that took its last name until
//! the handle that frees it.

mod area;
mod attribute_words;
mod content_lock;
mod delayed_data;
pub(crate) mod inline;
mod notes;
mod orphan_record;
mod recent;
mod record_location;
mod seals;
mod store;
mod table;
pub(crate) mod time;
mod update;

pub(crate) use area::XattrArea;
pub(crate) use attribute_words::AttributeView;
pub(crate) use orphan_record::OrphanRecord;
pub(crate) use recent::UsedDirectory;
pub use store::InodeStore;
pub(crate) use table::InodeTable;

use crate::alloc::FileSpace;
use crate::dentry_cache::DentryCache;
use crate::directory_block_cache::DirectoryBlockCache;
use crate::directory_index_cache::DirectoryIndexCache;
use crate::directory_index_lock::DirectoryIndexLock;
use crate::error::{Error, Result};
use crate::extent_status::InodeExtents;
use crate::lock_classes;
use attribute_words::AttributeWords;
use content_lock::{ContentLock, CoreReaders};
use delayed_data::DelayedData;
use drystone_cache::{Buffer, Seal};
use drystone_ext4_format::inode::{Inode as DiskInode, InodeFlags};
use drystone_ext4_format::xattr::MAGIC;
use drystone_ext4_format::{InodeNumber, InodeSeed};
use drystone_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use drystone_sync::{Arc, OnceLock, RwLock, RwLockReadGuard, Weak};
use drystone_vfs::{Errno, FileType};
use record_location::RecordLocation;

/// How often the words of attributes are read, if they change meanwhile, before the fields are locked.
const VIEW_TRIES: u32 = 32;

/// What an inode's record holds.
#[derive(Debug)]
pub(crate) struct Fields {
    /// The checked record.
    pub disk: DiskInode,
    /// The record's bytes after its fields, where small attributes are kept.
    pub xattr_area: XattrArea,
    /// The block of the inode table that the record is in, as long as it is in the cache.
    table: Weak<Buffer>,
    /// The size on disk while data after it waits for blocks. `disk.size_bytes` is the size that
    /// callers see.
    pub durable_size: Option<u64>,
}

impl Fields {
    /// Whether there may be any extended attributes; cheap to ask.
    pub fn has_xattrs(&self) -> bool {
        self.disk.attribute_block.is_some() || self.xattr_area.starts_with(&MAGIC.to_le_bytes())
    }

    /// The fields of an inode that was read or made.
    pub fn new(disk: DiskInode, xattr_area: XattrArea, table: &Arc<Buffer>) -> Fields {
        Fields { disk, xattr_area, table: Arc::downgrade(table), durable_size: None }
    }
}

/// An inode in use.
///
/// The fields that a look-up and a forget touch come first, most often in two cache lines: with many
/// inodes in turn, missing these lines is what costs time. Parts that few inodes have are behind
/// pointers: the first touch of memory is a good part of the cost of a create.
#[repr(C)]
pub(crate) struct Inode {
    /// Its number.
    pub number: InodeNumber,
    file_type: FileType,
    /// The number no longer stands for this inode: it was freed, or the image is being closed.
    is_dropped: AtomicBool,
    /// The fields say that there are no names.
    is_nameless: AtomicBool,
    /// It has got blocks or data since it was loaded: it may have a preallocation window, or data that
    /// waits.
    is_written: AtomicBool,
    /// The references that callers hold. The table counts them.
    references: AtomicU64,
    shown: AttributeWords,
    /// Where its record is.
    place: RecordLocation,
    /// A part of the [`ContentLock`].
    content: RwLock<()>,
    /// Extended attributes; taken after `content`, before a handle.
    pub xattrs: RwLock<()>,
    fields: RwLock<Fields>,
    seed: Option<InodeSeed>,
    /// What only a directory has.
    directory: Option<Box<DirectoryParts>>,
    extent_seal: OnceLock<Box<Arc<dyn Seal>>>,
    /// Where the inode is recorded as an orphan.
    pub orphan: OrphanRecord,
    /// What the allocator remembers about its blocks.
    pub space: FileSpace,
    /// Data that waits for blocks.
    pub delayed: DelayedData,
    /// What is known about its extents.
    pub extents: InodeExtents,
    last_transaction: AtomicU64,
    last_data_transaction: AtomicU64,
    /// The [`WriteMark`](drystone_blockdev::WriteMark) of data that was overwritten in place.
    last_overwrite: AtomicU64,
    /// A thread frees it, or is about to; set with the inode's shard locked.
    is_claimed: AtomicBool,
    /// Updates are written to the inode table at the end of a batch.
    is_batched: AtomicBool,
    /// The batch has such updates.
    is_behind: AtomicBool,
    is_mapping_checked: AtomicBool,
    is_tail_pending: AtomicBool,
    is_cut_pending: AtomicBool,
    is_linkable: AtomicBool,
}

/// The facts about an inode that permissions depend on, at one moment. They stay the same while its
/// content lock is held, except `has_attributes`, the permission bits of `mode`, which
/// follow an access list that changes under the lock of the attributes, and the size of a hashed directory, which
/// may grow while the content lock is shared.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InodeSummary {
    pub mode: u16,
    pub user: u32,
    pub group: u32,
    pub project: Option<u32>,
    pub flags: InodeFlags,
    pub size_bytes: u64,
    /// Whether there may be any extended attributes.
    pub has_attributes: bool,
}

/// What a directory in memory has beside what every inode has.
struct DirectoryParts {
    /// Readers of the content.
    readers: CoreReaders,
    /// The names that are known.
    names: DentryCache,
    /// The blocks that are known.
    blocks: DirectoryBlockCache,
    /// The index, if it is hashed.
    index: DirectoryIndexCache,
    index_lock: DirectoryIndexLock,
    seal: OnceLock<Arc<dyn Seal>>,
}

impl DirectoryParts {
    fn new(store: &InodeStore) -> DirectoryParts {
        DirectoryParts {
            readers: CoreReaders::default(),
            names: DentryCache::new(&store.dentry_budget),
            blocks: DirectoryBlockCache::new(&store.dentry_budget),
            index: DirectoryIndexCache::new(&store.dentry_budget),
            index_lock: DirectoryIndexLock::new(),
            seal: OnceLock::new(),
        }
    }
}

impl std::fmt::Debug for Inode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inode").field("number", &self.number).finish_non_exhaustive()
    }
}

impl Inode {
    fn new(
        store: &InodeStore,
        number: InodeNumber,
        place: RecordLocation,
        fields: Fields,
    ) -> Result<Inode> {
        let file_type = time::file_type(fields.disk.file_type()?);
        let class = match file_type {
            FileType::Directory => &lock_classes::DIRECTORY,
            _ => &lock_classes::FILE,
        };
        let seed = store.volume.seed.map(|seed| seed.inode(number, fields.disk.generation));
        let is_nameless = fields.disk.links_count == 0;
        let shown = AttributeWords::new(&fields);
        Ok(Inode {
            number,
            file_type,
            is_dropped: AtomicBool::new(false),
            is_nameless: AtomicBool::new(is_nameless),
            is_written: AtomicBool::new(false),
            references: AtomicU64::new(0),
            shown,
            place,
            content: RwLock::new(class, ()),
            xattrs: RwLock::new(&lock_classes::XATTRS, ()),
            fields: RwLock::new(&lock_classes::INODE_FIELDS, fields),
            directory: (file_type == FileType::Directory)
                .then(|| Box::new(DirectoryParts::new(store))),
            extent_seal: OnceLock::new(),
            seed,
            orphan: OrphanRecord::default(),
            space: FileSpace::new(number),
            delayed: DelayedData::default(),
            extents: InodeExtents::default(),
            last_transaction: AtomicU64::new(0),
            last_data_transaction: AtomicU64::new(0),
            last_overwrite: AtomicU64::new(0),
            is_claimed: AtomicBool::new(false),
            is_batched: AtomicBool::new(false),
            is_behind: AtomicBool::new(false),
            is_mapping_checked: AtomicBool::new(false),
            is_tail_pending: AtomicBool::new(false),
            is_cut_pending: AtomicBool::new(false),
            is_linkable: AtomicBool::new(false),
        })
    }

    /// Looks at the fields. Don't hold it across anything that waits.
    pub fn fields(&self) -> RwLockReadGuard<'_, Fields> {
        self.fields.read()
    }

    /// The lock of names, data and mapping; see the module's rules.
    #[inline]
    pub fn content(&self) -> ContentLock<'_> {
        ContentLock::new(&self.content, self.directory.as_ref().map(|parts| &parts.readers))
    }

    /// The facts that permissions depend on.
    pub fn summary(&self) -> InodeSummary {
        let view = self.view();
        InodeSummary {
            mode: view.mode(),
            user: view.user(),
            group: view.group(),
            project: view.project_if_any(),
            flags: view.flags(),
            size_bytes: view.size_bytes(),
            has_attributes: view.has_xattrs(),
        }
    }

    /// What callers see of the fields, unless a thread is changing that.
    #[inline]
    pub fn try_view(&self) -> Option<AttributeView> {
        self.shown.read()
    }

    /// What callers see of the fields.
    pub fn view(&self) -> AttributeView {
        // The words change for a few nanoseconds; the fields are locked for much longer.
        for _ in 0..VIEW_TRIES {
            match self.try_view() {
                Some(view) => return view,
                None => std::hint::spin_loop(),
            }
        }
        AttributeView::of(&self.fields())
    }

    /// The size that callers see, in bytes.
    #[inline]
    pub fn size_bytes(&self) -> u64 {
        self.shown.size_bytes()
    }

    /// The number of names.
    #[inline]
    pub fn links_count(&self) -> u16 {
        self.shown.links()
    }

    /// Whether the last name is gone.
    #[inline]
    pub fn is_nameless(&self) -> bool {
        self.is_nameless.load(Ordering::Acquire)
    }

    /// Whether there may be extended attributes.
    #[inline]
    pub fn has_xattrs(&self) -> bool {
        self.shown.has_xattrs()
    }

    /// The type; it never changes.
    pub fn file_type(&self) -> FileType {
        self.file_type
    }

    /// True for a directory.
    pub fn is_directory(&self) -> bool {
        self.file_type == FileType::Directory
    }

    /// The names that are known of a directory; `None` for other types.
    #[inline]
    pub fn dentry_cache(&self) -> Option<&DentryCache> {
        self.directory.as_ref().map(|parts| &parts.names)
    }

    /// The blocks that are known of a directory; `None` for other types.
    #[inline]
    pub fn directory_block_cache(&self) -> Option<&DirectoryBlockCache> {
        self.directory.as_ref().map(|parts| &parts.blocks)
    }

    /// What is known of a directory's index; `None` for other types.
    #[inline]
    pub fn index_cache(&self) -> Option<&DirectoryIndexCache> {
        self.directory.as_ref().map(|parts| &parts.index)
    }

    /// The lock of a directory's index and mapping; `None` for other types.
    #[inline]
    pub fn index_lock(&self) -> Option<&DirectoryIndexLock> {
        self.directory.as_ref().map(|parts| &parts.index_lock)
    }

    /// The flags.
    #[inline]
    pub fn flags(&self) -> InodeFlags {
        self.shown.flags()
    }

    /// Whether it holds the value of an extended attribute. It may be in memory for the file that has
    /// the attribute, but a name must not lead to it.
    #[inline]
    pub fn holds_value(&self) -> bool {
        self.flags().contains(InodeFlags::EA_INODE)
    }

    /// Where the checksums of the inode's blocks start; `None` without `metadata_csum`.
    pub fn seed(&self) -> Option<InodeSeed> {
        self.seed
    }

    /// Whether the inode's block area maps blocks, rather than holding a link's target, a device or
    /// data.
    pub fn has_mapping(&self) -> bool {
        self.fields().disk.has_block_mapping()
    }

    /// Checksums the blocks of a directory.
    pub fn directory_seal(&self) -> Option<&Arc<dyn Seal>> {
        let (seed, parts) = (self.seed?, self.directory.as_ref()?);
        Some(parts.seal.get_or_init(|| seals::directory(seed)))
    }

    /// Checksums the inode's extent tree blocks.
    pub fn extent_seal(&self) -> Option<&Arc<dyn Seal>> {
        let seed = self.seed?;
        Some(&**self.extent_seal.get_or_init(|| Box::new(seals::extents(seed))))
    }

    /// Fails with `ENOENT` if the last name is gone: a directory that was removed takes no entries.
    pub fn check_linked(&self) -> Result<()> {
        if self.links_count() == 0 { Err(Errno::ENOENT.into()) } else { Ok(()) }
    }

    /// Fails unless the inode is a directory.
    pub fn check_directory(&self) -> Result<()> {
        if self.is_directory() { Ok(()) } else { Err(Error::Errno(Errno::ENOTDIR)) }
    }
}

/// With many files in memory, most of the memory is that of their inodes.
#[cfg(not(loom))]
const _: () = assert!(size_of::<Inode>() <= 560);
