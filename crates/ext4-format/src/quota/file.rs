//! Looking up, listing and changing the entries of a quota file.

use super::raw::{RawDataBlockHeader, RawQuotaEntry, RawQuotaHeader, RawQuotaInfo};
use super::{
    BLOCK_LENGTH, MemoryQuotaBlocks, QuotaBlock, QuotaBlocks, QuotaEntry, QuotaInfo, QuotaKind,
    VERSION,
};
use crate::error::{Corrupt, QuotaProblem};
use std::collections::{BTreeMap, BTreeSet};
use zerocopy::{FromBytes, IntoBytes};

/// The block with the root of the tree.
pub(super) const ROOT: u32 = 1;
/// Levels of references above the data blocks.
const DEPTH: u32 = 4;
const HEADER_LENGTH: usize = size_of::<RawQuotaHeader>();
const DATA_HEADER_LENGTH: usize = size_of::<RawDataBlockHeader>();
const ENTRY_LENGTH: usize = size_of::<RawQuotaEntry>();
/// Entries that fit a data block.
pub(super) const ENTRIES_PER_BLOCK: u16 =
    ((BLOCK_LENGTH - DATA_HEADER_LENGTH) / ENTRY_LENGTH) as u16;
pub(super) const REFERENCES: usize = BLOCK_LENGTH / 4;

/// A quota file, its head checked; blocks of the tree are checked as they are used.
#[derive(Debug)]
pub struct QuotaFile<B> {
    kind: QuotaKind,
    pub(super) info: QuotaInfo,
    pub(super) blocks: B,
}

impl<B: QuotaBlocks> QuotaFile<B> {
    /// Opens a file.
    ///
    /// # Errors
    /// What is wrong with its head, or what the storage reports.
    pub fn open(kind: QuotaKind, mut blocks: B) -> Result<Self, B::Error> {
        let corrupt = |problem| B::Error::from(Corrupt::Quota { kind, block: 0, problem });
        let room = blocks.length();
        if room <= ROOT {
            return Err(corrupt(QuotaProblem::Blocks { found: 0, room }));
        }
        let head = blocks.read(0)?;
        let (header, rest) = split::<RawQuotaHeader>(&head);
        let (expected, found) = (kind.magic(), header.magic.get());
        if found != expected {
            return Err(corrupt(QuotaProblem::Magic { found, expected }));
        }
        if header.version.get() != VERSION {
            return Err(corrupt(QuotaProblem::Version { found: header.version.get() }));
        }
        let info = QuotaInfo::from(&split::<RawQuotaInfo>(rest).0);
        if info.blocks <= ROOT || info.blocks > room {
            return Err(corrupt(QuotaProblem::Blocks { found: info.blocks, room }));
        }
        for target in [info.free_block, info.free_entry_block] {
            if target != 0 && (target <= ROOT || target >= info.blocks) {
                return Err(corrupt(QuotaProblem::Reference { target, blocks: info.blocks }));
            }
        }
        Ok(Self { kind, info, blocks })
    }

    /// Opens a file for [`readable_entries`](Self::readable_entries), whatever its head says: the root has a fixed
    /// place, and the file's length bounds what references lead to.
    ///
    /// # Errors
    /// The file is too short for a root.
    pub fn open_without_head(kind: QuotaKind, blocks: B) -> Result<Self, B::Error> {
        let room = blocks.length();
        if room <= ROOT {
            let problem = QuotaProblem::Blocks { found: 0, room };
            return Err(Corrupt::Quota { kind, block: 0, problem }.into());
        }
        Ok(Self { kind, info: QuotaInfo::with_blocks(room), blocks })
    }

    /// Makes an empty file and returns it open.
    ///
    /// # Errors
    /// What the storage reports.
    pub fn create(kind: QuotaKind, blocks: B) -> Result<Self, B::Error> {
        let mut file = Self { kind, info: QuotaInfo::with_blocks(ROOT + 1), blocks };
        file.write_info()?;
        file.blocks.write(ROOT, &[0; BLOCK_LENGTH])?;
        Ok(file)
    }

    /// What the head says.
    #[must_use]
    pub const fn info(&self) -> &QuotaInfo {
        &self.info
    }

    /// Changes for how many seconds soft limits may be exceeded.
    ///
    /// # Errors
    /// What the storage reports.
    pub fn set_grace(&mut self, space_seconds: u32, inode_seconds: u32) -> Result<(), B::Error> {
        self.info.space_grace_seconds = space_seconds;
        self.info.inode_grace_seconds = inode_seconds;
        self.write_info()
    }

    /// Gives back the blocks.
    #[must_use]
    pub fn into_blocks(self) -> B {
        self.blocks
    }

    /// The entry of an id.
    ///
    /// # Errors
    /// A block on the way to it is damaged, or the storage fails.
    pub fn get(&mut self, id: u32) -> Result<Option<QuotaEntry>, B::Error> {
        let Some((block, slot)) = self.find(id)? else { return Ok(None) };
        let bytes = self.blocks.read(block)?;
        Ok(Some(QuotaEntry::from(&entry_at(&bytes, slot))))
    }

    /// All entries, in the order of ids.
    ///
    /// # Errors
    /// What is wrong with the tree, or what the storage reports.
    pub fn entries(&mut self) -> Result<Vec<QuotaEntry>, B::Error> {
        let mut entries = Vec::new();
        self.for_each_entry(|entry| {
            entries.push(entry?);
            Ok(())
        })?;
        Ok(entries)
    }

    /// Calls `visit` for each entry, and for what is wrong with each reference that leads to none.
    pub(super) fn for_each_entry(
        &mut self,
        mut visit: impl FnMut(Result<QuotaEntry, Corrupt>) -> Result<(), Corrupt>,
    ) -> Result<(), B::Error> {
        // A tree block that is met twice could make the walk endless.
        let mut seen = BTreeSet::from([ROOT]);
        let mut pending = vec![(ROOT, 0, 0)];
        while let Some((block, level, prefix)) = pending.pop() {
            let bytes = self.blocks.read(block)?;
            let mut below = Vec::new();
            for index in 0..REFERENCES {
                let target = match self.reference(block, &bytes, index) {
                    Ok(Some(target)) => target,
                    Ok(None) => continue,
                    Err(corrupt) => {
                        visit(Err(corrupt))?;
                        continue;
                    }
                };
                let id = prefix << 8 | index as u32;
                if level + 1 == DEPTH {
                    let data = self.blocks.read(target)?;
                    let slot = find_slot(&data, id);
                    let missing = || self.corrupt(target, QuotaProblem::MissingEntry { id });
                    let entry = slot.map(|slot| QuotaEntry::from(&entry_at(&data, slot)));
                    visit(entry.ok_or_else(missing))?;
                } else if seen.insert(target) {
                    below.push((target, level + 1, id));
                } else {
                    visit(Err(self.corrupt(block, QuotaProblem::Shared { target })))?;
                }
            }
            pending.extend(below.into_iter().rev());
        }
        Ok(())
    }

    /// Checks that the data blocks hold the entries alone that the tree leads to: readers that go through
    /// the blocks find others too.
    ///
    /// # Errors
    /// What is wrong with the tree or with a data block, or what the storage reports.
    pub fn check_strays(&mut self) -> Result<(), B::Error> {
        let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
        for entry in self.entries()? {
            if let Some((block, _)) = self.find(entry.id)? {
                *counts.entry(block).or_default() += 1;
            }
        }
        for (block, count) in counts {
            let bytes = self.blocks.read(block)?;
            let used = (0..usize::from(ENTRIES_PER_BLOCK)).filter(|&slot| !is_unused(&bytes, slot));
            let used = used.count();
            if used != count {
                // A block has room for fewer entries than 16 bits count.
                return Err(self
                    .corrupt(block, QuotaProblem::Entries { found: used as u16 })
                    .into());
            }
        }
        Ok(())
    }

    /// Stores an entry, new or not.
    ///
    /// # Errors
    /// A block on the way to its place is damaged, or the storage fails.
    pub fn set(&mut self, entry: &QuotaEntry) -> Result<(), B::Error> {
        let raw = RawQuotaEntry::from(entry);
        if let Some((block, slot)) = self.find(entry.id)? {
            let mut bytes = self.blocks.read(block)?;
            put_entry(&mut bytes, slot, &raw);
            return self.blocks.write(block, &bytes);
        }
        let data_block = self.store_in_data_block(&raw)?;
        // The reference comes last: a file cut short in between has no entry rather than a
        // reference that leads nowhere.
        let mut block = ROOT;
        for level in 0..DEPTH {
            let mut bytes = self.blocks.read(block)?;
            let index = index_at(entry.id, level);
            let next = match self.reference(block, &bytes, index)? {
                Some(next) if level + 1 < DEPTH => next,
                _ => {
                    let next = if level + 1 == DEPTH { data_block } else { self.allocate()? };
                    put_reference(&mut bytes, index, next);
                    self.blocks.write(block, &bytes)?;
                    next
                }
            };
            block = next;
        }
        Ok(())
    }

    /// Where the entry of an id is: data block and slot.
    fn find(&mut self, id: u32) -> Result<Option<(u32, usize)>, B::Error> {
        let mut block = ROOT;
        for level in 0..DEPTH {
            let bytes = self.blocks.read(block)?;
            match self.reference(block, &bytes, index_at(id, level))? {
                Some(next) => block = next,
                None => return Ok(None),
            }
        }
        let data = self.blocks.read(block)?;
        match find_slot(&data, id) {
            Some(slot) => Ok(Some((block, slot))),
            None => Err(self.corrupt(block, QuotaProblem::MissingEntry { id }).into()),
        }
    }

    /// Puts a new entry into a data block with room and returns the block.
    fn store_in_data_block(&mut self, raw: &RawQuotaEntry) -> Result<u32, B::Error> {
        let (block, mut bytes) = match self.info.free_entry_block {
            0 => {
                let block = self.allocate()?;
                self.info.free_entry_block = block;
                self.write_info()?;
                (block, [0; BLOCK_LENGTH])
            }
            block => (block, self.blocks.read(block)?),
        };
        let mut header = split::<RawDataBlockHeader>(&bytes).0;
        let found = header.entries.get();
        let slot = (0..usize::from(ENTRIES_PER_BLOCK)).find(|&slot| is_unused(&bytes, slot));
        let slot = slot
            .filter(|_| found < ENTRIES_PER_BLOCK)
            .ok_or_else(|| self.corrupt(block, QuotaProblem::Entries { found }))?;
        if found + 1 == ENTRIES_PER_BLOCK {
            // Full: the list goes on with the next.
            let next = header.next.get();
            if next != 0 {
                self.check_reference(block, next)?;
                let mut after = self.blocks.read(next)?;
                let mut after_header = split::<RawDataBlockHeader>(&after).0;
                after_header.previous = 0.into();
                after[..DATA_HEADER_LENGTH].copy_from_slice(after_header.as_bytes());
                self.blocks.write(next, &after)?;
            }
            header.next = 0.into();
            header.previous = 0.into();
            self.info.free_entry_block = next;
            self.write_info()?;
        }
        header.entries = (found + 1).into();
        bytes[..DATA_HEADER_LENGTH].copy_from_slice(header.as_bytes());
        put_entry(&mut bytes, slot, raw);
        self.blocks.write(block, &bytes)?;
        Ok(block)
    }

    /// Takes an unused block, or makes the file longer, and returns it zeroed.
    fn allocate(&mut self) -> Result<u32, B::Error> {
        let block = match self.info.free_block {
            0 => {
                let block = self.info.blocks;
                self.info.blocks = block.saturating_add(1);
                block
            }
            block => {
                let bytes = self.blocks.read(block)?;
                let next = split::<RawDataBlockHeader>(&bytes).0.next.get();
                if next != 0 {
                    self.check_reference(block, next)?;
                }
                self.info.free_block = next;
                block
            }
        };
        self.blocks.write(block, &[0; BLOCK_LENGTH])?;
        self.write_info()?;
        Ok(block)
    }

    fn write_info(&mut self) -> Result<(), B::Error> {
        let mut head = [0; BLOCK_LENGTH];
        let header = RawQuotaHeader { magic: self.kind.magic().into(), version: VERSION.into() };
        head[..HEADER_LENGTH].copy_from_slice(header.as_bytes());
        let info = RawQuotaInfo::from(&self.info);
        let end = HEADER_LENGTH + size_of::<RawQuotaInfo>();
        head[HEADER_LENGTH..end].copy_from_slice(info.as_bytes());
        self.blocks.write(0, &head)
    }

    /// The checked reference at an index of a tree block.
    pub(super) fn reference(
        &self,
        block: u32,
        bytes: &QuotaBlock,
        index: usize,
    ) -> Result<Option<u32>, Corrupt> {
        let target = bytes.as_chunks::<4>().0.get(index).map_or(0, |raw| u32::from_le_bytes(*raw));
        if target == 0 {
            return Ok(None);
        }
        self.check_reference(block, target)?;
        Ok(Some(target))
    }

    fn check_reference(&self, block: u32, target: u32) -> Result<(), Corrupt> {
        let blocks = self.info.blocks;
        if target > ROOT && target < blocks {
            return Ok(());
        }
        Err(self.corrupt(block, QuotaProblem::Reference { target, blocks }))
    }

    const fn corrupt(&self, block: u32, problem: QuotaProblem) -> Corrupt {
        Corrupt::Quota { kind: self.kind, block, problem }
    }
}

/// Makes the file that holds the given entries, as `mke2fs` would.
#[must_use]
pub fn build(kind: QuotaKind, entries: impl IntoIterator<Item = QuotaEntry>) -> Vec<u8> {
    match try_build(kind, entries) {
        Ok(blocks) => blocks.to_bytes(),
        // These bytes were all written here, so they can't be corrupt.
        Err(corrupt) => unreachable!("a fresh quota file is sound: {corrupt}"),
    }
}

fn try_build(
    kind: QuotaKind,
    entries: impl IntoIterator<Item = QuotaEntry>,
) -> Result<MemoryQuotaBlocks, Corrupt> {
    let mut file = QuotaFile::create(kind, MemoryQuotaBlocks::default())?;
    for entry in entries {
        file.set(&entry)?;
    }
    Ok(file.into_blocks())
}

/// Reads a structure from bytes that the caller knows to be at least as long.
pub(super) fn split<T: FromBytes>(bytes: &[u8]) -> (T, &[u8]) {
    match T::read_from_prefix(bytes) {
        Ok(read) => read,
        Err(_) => unreachable!("a block is longer than its structures"),
    }
}

/// The byte of an id that a level of the tree looks at.
const fn index_at(id: u32, level: u32) -> usize {
    (id >> ((DEPTH - 1 - level) * 8) & 0xff) as usize
}

fn put_reference(bytes: &mut QuotaBlock, index: usize, target: u32) {
    bytes[index * 4..index * 4 + 4].copy_from_slice(&target.to_le_bytes());
}

fn slot_bytes(bytes: &QuotaBlock, slot: usize) -> &[u8] {
    let at = DATA_HEADER_LENGTH + slot * ENTRY_LENGTH;
    &bytes[at..at + ENTRY_LENGTH]
}

pub(super) fn is_unused(bytes: &QuotaBlock, slot: usize) -> bool {
    slot_bytes(bytes, slot).iter().all(|&byte| byte == 0)
}

pub(super) fn entry_at(bytes: &QuotaBlock, slot: usize) -> RawQuotaEntry {
    split::<RawQuotaEntry>(slot_bytes(bytes, slot)).0
}

fn put_entry(bytes: &mut QuotaBlock, slot: usize, raw: &RawQuotaEntry) {
    let at = DATA_HEADER_LENGTH + slot * ENTRY_LENGTH;
    bytes[at..at + ENTRY_LENGTH].copy_from_slice(raw.as_bytes());
}

/// The slot of a data block with the entry of an id.
fn find_slot(bytes: &QuotaBlock, id: u32) -> Option<usize> {
    (0..usize::from(ENTRIES_PER_BLOCK))
        .find(|&slot| !is_unused(bytes, slot) && entry_at(bytes, slot).id.get() == id)
}
