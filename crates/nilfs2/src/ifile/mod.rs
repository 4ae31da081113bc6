//! The ifile in memory: which inodes are in use, and their records.
//!
//! # State
//! The bitmap of a group and its count of free inodes are loaded when they are first needed, and changed in
//! memory; the log writer takes those of changed groups when it freezes. Only the log writer changes records:
//! until then the inode in memory has the newest state.
//!
//! A freed number is reused only after the log writer has frozen that it is free.
//!
//! # Locking
//! A lock for each group, and one for the blocks and the map of the file, which is released while the
//! device is read.

mod search;

use crate::dat::{Translated, read_u32};
use crate::error::Result;
use crate::lock_classes::{DIRTY_GROUPS, IFILE, INODE_GROUP, INODE_GROUPS};
use crate::metadata_file::MetadataFile;
use crate::policy::InodeSearch;
use crate::volume::{BlockBytes, BlockSource};
use drystone_nilfs2_format::allocator::{EntryBlock, EntryLayout};
use drystone_nilfs2_format::error::InodeProblem;
use drystone_nilfs2_format::inode::{INODE_BYTES, Inode};
use drystone_nilfs2_format::{Corrupt, FileBlock, InodeNumber};
use drystone_ondisk::bitmap;
use drystone_sync::atomic::{AtomicU64, Ordering};
use drystone_sync::{Arc, Mutex, RwLock};
use search::InodeSearcher;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Which inodes of a group are in use. Loaded at the first look.
#[derive(Debug, Default)]
struct InodeGroup {
    /// None for a group that wasn't looked at.
    bits: Option<BlockBytes>,
    free: u32,
    is_dirty: bool,
    /// Blocks of records that couldn't be read. No inode is made there as long as the volume is mounted: a disk may
    /// take seconds to find a block bad.
    unreadable: BTreeSet<FileBlock>,
}

/// A group as it is to be logged.
#[derive(Debug)]
pub(crate) struct FrozenGroup {
    pub(crate) group: u64,
    pub(crate) bits: BlockBytes,
    pub(crate) free: u32,
}

/// The ifile in memory.
#[derive(Debug)]
pub(crate) struct Ifile {
    pub(crate) file: RwLock<MetadataFile>,
    pub(crate) layout: EntryLayout,
    block_bytes: usize,
    /// Those that were looked at: an inode in use may have any number.
    groups: RwLock<BTreeMap<u64, Arc<Mutex<InodeGroup>>>>,
    dirty_groups: Mutex<Vec<u64>>,
    /// The block that was last looked at for the record of a new inode, unless it may have left memory since. A search
    /// for one inode looks once for each block, since the log writer has the file locked for long.
    record_block: AtomicU64,
    searcher: InodeSearcher,
    first_inode: InodeNumber,
}

impl Ifile {
    pub(crate) fn load(
        inode: &Inode,
        block_bytes: usize,
        first_inode: InodeNumber,
        search: InodeSearch,
    ) -> Result<Self> {
        let file = MetadataFile::load(InodeNumber::IFILE, inode, block_bytes)?;
        Ok(Self {
            file: RwLock::new(&IFILE, file),
            layout: EntryLayout::new(block_bytes, INODE_BYTES),
            block_bytes,
            groups: RwLock::new(&INODE_GROUPS, BTreeMap::new()),
            dirty_groups: Mutex::new(&DIRTY_GROUPS, Vec::new()),
            record_block: AtomicU64::new(u64::MAX),
            searcher: InodeSearcher::new(search),
            first_inode,
        })
    }

    /// A block of the file; nothing for a hole.
    fn block(&self, key: FileBlock, source: Translated<'_>) -> Result<Option<BlockBytes>> {
        loop {
            let pointer = {
                let file = self.file.read();
                if let Some(block) = file.cached(key) {
                    return Ok(Some(Arc::clone(block)));
                }
                file.map.get(key, &source)?
            };
            if pointer == 0 {
                return Ok(None);
            }
            let read = source.read(pointer);
            let mut file = self.file.write();
            match read {
                Ok(block) => {
                    if let Some(block) = file.keep(key, pointer, block, &source)? {
                        return Ok(Some(Arc::clone(block)));
                    }
                }
                Err(error)
                    if file.cached(key).is_none() && file.map.get(key, &source)? == pointer =>
                {
                    return Err(error);
                }
                // The block was logged again meanwhile, and what it was read by may lead nowhere.
                Err(_) => {}
            }
        }
    }

    /// The record of an inode that is in use.
    pub(crate) fn record(&self, number: InodeNumber, source: Translated<'_>) -> Result<Inode> {
        let wrong = |problem| Corrupt::Inode { inode: number, problem };
        if number != InodeNumber::ROOT && number < self.first_inode {
            return Err(wrong(InodeProblem::Reserved).into());
        }
        let (key, offset) = self.layout.entry(number.0);
        let Some(block) = self.block(key, source)? else {
            return Err(wrong(InodeProblem::Free).into());
        };
        Ok(Inode::check(&block[offset..], number, self.block_bytes)?)
    }

    /// The first of the inodes from `number` to `end` whose record the log writer can't write, because the block that
    /// it goes into can't be read; `end` if there is none.
    fn first_unreadable(
        &self,
        mut number: u64,
        end: u64,
        unreadable: &mut BTreeSet<FileBlock>,
        source: Translated<'_>,
    ) -> u64 {
        while number < end {
            let (key, _) = self.layout.entry(number);
            if self.record_block.load(Ordering::Relaxed) != key.0 {
                if unreadable.contains(&key) {
                    return number;
                }
                if let Err(error) = self.block(key, source) {
                    tracing::warn!(number, %error, "no inode is made in a block that can't be read");
                    unreadable.insert(key);
                    return number;
                }
                self.record_block.store(key.0, Ordering::Relaxed);
            }
            number = self.first_of_next_block(number);
        }
        end
    }

    fn first_of_next_block(&self, number: u64) -> u64 {
        let per_block = self.layout.entries_per_block();
        (number / per_block + 1) * per_block
    }

    fn group(&self, group: u64) -> Arc<Mutex<InodeGroup>> {
        if let Some(group) = self.groups.read().get(&group) {
            return Arc::clone(group);
        }
        let make = || Arc::new(Mutex::new(&INODE_GROUP, InodeGroup::default()));
        Arc::clone(self.groups.write().entry(group).or_insert_with(make))
    }

    /// Loads a group that wasn't looked at.
    fn load_group(
        &self,
        number: u64,
        group: &mut InodeGroup,
        source: Translated<'_>,
    ) -> Result<()> {
        if group.bits.is_some() {
            return Ok(());
        }
        let (key, offset) = self.layout.descriptor(number);
        group.free = match self.block(key, source)? {
            Some(block) => read_u32(&block, offset),
            None => self.layout.entries_per_group() as u32,
        };
        let bits = self.block(self.layout.bitmap(number), source)?;
        group.bits = Some(bits.unwrap_or_else(|| vec![0; self.block_bytes].into()));
        Ok(())
    }

    fn note_dirty(&self, number: u64, group: &mut InodeGroup) {
        if !std::mem::replace(&mut group.is_dirty, true) {
            self.dirty_groups.lock().push(number);
        }
    }

    /// Takes a free inode number.
    pub(crate) fn allocate(&self, source: Translated<'_>) -> Result<InodeNumber> {
        self.searcher.allocate(self, source)
    }

    /// Takes the first free inode of a group from `from` on, and the free ones that follow it, `count_max` at most.
    /// Inodes whose record couldn't be logged are left out: that would fail the log, and not the change.
    fn take(
        &self,
        number: u64,
        from: u64,
        count_max: usize,
        source: Translated<'_>,
    ) -> Result<Option<Range<u64>>> {
        let per_group = self.layout.entries_per_group();
        let first = self.first_inode.0.saturating_sub(number * per_group).max(from);
        // Groups of reserved inodes alone stay out of memory: a superblock may claim a million of them.
        if first >= per_group {
            return Ok(None);
        }
        let shared = self.group(number);
        let mut group = shared.lock();
        self.load_group(number, &mut group, source)?;
        if group.free == 0 {
            return Ok(None);
        }
        // A damaged group may say that it has fewer free inodes than it has.
        let count_max = count_max.min(group.free as usize);
        let InodeGroup { bits: Some(bits), unreadable, .. } = &mut *group else {
            unreachable!("the group was loaded just now")
        };
        let base = number * per_group;
        let mut first = first as usize;
        let inodes = loop {
            let Some(start) = bitmap::find_zero(bits, first..per_group as usize) else {
                return Ok(None);
            };
            let end_max = (start + count_max).min(per_group as usize);
            let end = (start + 1..end_max).find(|bit| bitmap::test(bits, *bit)).unwrap_or(end_max);
            let (start, end) = (base + start as u64, base + end as u64);
            let end = self.first_unreadable(start, end, unreadable, source);
            if end > start {
                break start..end;
            }
            first = (self.first_of_next_block(start) - base) as usize;
        };
        let (start, end) = ((inodes.start - base) as usize, (inodes.end - base) as usize);
        bitmap::set_range(Arc::make_mut(bits), start..end);
        group.free -= (end - start) as u32;
        self.note_dirty(number, &mut group);
        Ok(Some(inodes))
    }

    /// Gives inodes of one group back that were taken since the last freeze.
    fn give_back(&self, inodes: Range<u64>) {
        if inodes.is_empty() {
            return;
        }
        let number = self.layout.group_of(inodes.start);
        let shared = self.group(number);
        let mut group = shared.lock();
        let Some(bits) = &mut group.bits else { return };
        let bits = Arc::make_mut(bits);
        for inode in inodes.clone() {
            bitmap::clear(bits, (inode % self.layout.entries_per_group()) as usize);
        }
        group.free += (inodes.end - inodes.start) as u32;
        self.note_dirty(number, &mut group);
    }

    /// Has the group of an inode in memory.
    pub(crate) fn warm(&self, inode: InodeNumber, source: Translated<'_>) -> Result<()> {
        let number = self.layout.group_of(inode.0);
        let shared = self.group(number);
        self.load_group(number, &mut shared.lock(), source)
    }

    /// Whether an inode number is in use.
    pub(crate) fn is_used(&self, inode: InodeNumber, source: Translated<'_>) -> Result<bool> {
        let number = self.layout.group_of(inode.0);
        let shared = self.group(number);
        let mut group = shared.lock();
        self.load_group(number, &mut group, source)?;
        let bit = (inode.0 % self.layout.entries_per_group()) as usize;
        Ok(group.bits.as_ref().is_some_and(|bits| bitmap::test(bits, bit)))
    }

    /// Frees an inode number.
    pub(crate) fn free(&self, inode: InodeNumber, source: Translated<'_>) -> Result<()> {
        let number = self.layout.group_of(inode.0);
        let shared = self.group(number);
        let mut group = shared.lock();
        self.load_group(number, &mut group, source)?;
        let bit = (inode.0 % self.layout.entries_per_group()) as usize;
        let Some(bits) = &mut group.bits else { unreachable!("the group was loaded just now") };
        if bitmap::test(bits, bit) {
            bitmap::clear(Arc::make_mut(bits), bit);
            group.free = group.free.saturating_add(1);
            self.note_dirty(number, &mut group);
        }
        drop(group);
        self.searcher.note_free(inode);
        Ok(())
    }

    /// The groups that have changed since this was last asked. No change is under way.
    pub(crate) fn freeze_groups(&self) -> Vec<FrozenGroup> {
        self.searcher.give_back(self);
        let mut numbers = std::mem::take(&mut *self.dirty_groups.lock());
        numbers.sort_unstable();
        numbers.into_iter().filter_map(|number| self.freeze_group(number)).collect()
    }

    fn freeze_group(&self, number: u64) -> Option<FrozenGroup> {
        let shared = self.group(number);
        let mut group = shared.lock();
        group.is_dirty = false;
        let bits = Arc::clone(group.bits.as_ref()?);
        Some(FrozenGroup { group: number, bits, free: group.free })
    }

    /// Drops clean blocks if more than `blocks_max` are in memory.
    pub(crate) fn trim(&self, blocks_max: usize) {
        self.file.write().trim(blocks_max);
        self.record_block.store(u64::MAX, Ordering::Relaxed);
    }

    /// The log writer is about to write the superblock: the published hint starts over.
    pub(crate) fn reset_hint(&self) {
        self.searcher.reset_hint();
    }

    /// The numbers of all inodes in use from `from` on, one group at a time: those of the first group
    /// that has any, and where to go on.
    pub(crate) fn used_from(
        &self,
        from: InodeNumber,
        source: Translated<'_>,
    ) -> Result<Option<(Vec<InodeNumber>, InodeNumber)>> {
        let per_group = self.layout.entries_per_group();
        let mut group = self.layout.group_of(from.0);
        loop {
            let key = self.layout.bitmap(group);
            let Some(next) = self.file.read().map.next(key, &source)? else { return Ok(None) };
            if next.key != key.0 {
                // A damaged map may have any key: the next group is found without a step for each between.
                let found = match self.layout.role_of(FileBlock(next.key)) {
                    EntryBlock::Bitmap { group } => group,
                    EntryBlock::Descriptors { first_group } => first_group,
                    EntryBlock::Entries { first } => self.layout.group_of(first).saturating_add(1),
                };
                group = found.max(group + 1);
                continue;
            }
            // After the last number there are no inodes, whatever the map says.
            let Some(end) = (group + 1).checked_mul(per_group) else { return Ok(None) };
            let Some(bits) = self.block(key, source)? else { return Ok(None) };
            let used = (0..per_group as usize)
                .filter(|bit| bitmap::test(&bits, *bit))
                .map(|bit| InodeNumber(group * per_group + bit as u64))
                .filter(|inode| *inode >= from)
                .collect();
            return Ok(Some((used, InodeNumber(end))));
        }
    }
}
