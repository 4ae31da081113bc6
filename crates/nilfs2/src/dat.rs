//! The DAT in memory: translates, allocates, ends and frees virtual blocks.
//!
//! # State
//! Entries below `first_candidate` are all in use, as far as is known.
//!
//! # Locking
//! [`DatFile`] is behind a reader-writer lock. A reader of a file translates under the shared lock and releases it
//! before it reads the device; only the log writer changes the DAT.

use crate::error::Result;
use crate::metadata_file::MetadataFile;
use crate::volume::{BlockBytes, BlockSource, Volume};
use drystone_nilfs2_format::allocator::{EntryBlock, EntryLayout};
use drystone_nilfs2_format::dat::{DatEntry, ENTRY_BYTES};
use drystone_nilfs2_format::error::DatProblem;
use drystone_nilfs2_format::inode::Inode;
use drystone_nilfs2_format::{
    CheckpointNumber, Corrupt, FileBlock, InodeNumber, PhysicalBlock, VirtualBlock,
};
use drystone_ondisk::bitmap;
use drystone_sync::{Arc, RwLock};

/// The DAT in memory.
#[derive(Debug)]
pub(crate) struct DatFile {
    pub(crate) file: MetadataFile,
    layout: EntryLayout,
    block_bytes: usize,
    first_candidate: u64,
}

/// A block of the DAT.
#[derive(Debug)]
pub(crate) struct DatBlock {
    pub(crate) place: PhysicalBlock,
    /// Its entries in use: a freed one may still have its bytes. None for bitmaps and counts.
    pub(crate) entries: Vec<DatEntry>,
}

/// Where the newest state has the block of an entry.
fn live_place(entry: &DatEntry) -> Option<PhysicalBlock> {
    (entry.is_live() && entry.block.0 != 0).then_some(entry.block)
}

/// Where a walk over the blocks of the DAT is.
#[derive(Debug)]
pub(crate) struct DatWalk {
    from: Option<FileBlock>,
    /// The bitmap that was read last, and its group; zeros for a hole.
    bits: Option<(u64, BlockBytes)>,
}

impl DatWalk {
    pub(crate) fn new() -> Self {
        Self { from: Some(FileBlock(0)), bits: None }
    }
}

impl DatFile {
    pub(crate) fn load(inode: &Inode, block_bytes: usize) -> Result<Self> {
        Ok(Self {
            file: MetadataFile::load(InodeNumber::DAT, inode, block_bytes)?,
            layout: EntryLayout::new(block_bytes, ENTRY_BYTES),
            block_bytes,
            first_candidate: 1,
        })
    }

    /// The entry of a virtual block, loaded if need be.
    pub(crate) fn entry(&mut self, number: VirtualBlock, volume: &Volume) -> Result<DatEntry> {
        let (key, offset) = self.layout.entry(number.0);
        match self.file.load_block(key, volume)? {
            Some(block) => Ok(DatEntry::check(&block[offset..], number, &volume.geometry)?),
            None => Err(Corrupt::Dat { block: number, problem: DatProblem::Free }.into()),
        }
    }

    /// The entry of a virtual block that something once referred to; nothing if it is free.
    pub(crate) fn find(
        &mut self,
        number: VirtualBlock,
        volume: &Volume,
    ) -> Result<Option<DatEntry>> {
        let (key, bit) = self.bit_of(number);
        match self.file.load_block(key, volume)? {
            Some(bits) if bitmap::test(bits, bit) => self.entry(number, volume).map(Some),
            _ => Ok(None),
        }
    }

    /// The bitmap that says whether a virtual block is in use, and its bit there.
    fn bit_of(&self, number: VirtualBlock) -> (FileBlock, usize) {
        let bit = (number.0 % self.layout.entries_per_group()) as usize;
        (self.layout.bitmap(self.layout.group_of(number.0)), bit)
    }

    /// The blocks of the file that change when an entry is freed.
    pub(crate) fn blocks_of(&self, number: VirtualBlock) -> [FileBlock; 3] {
        let group = self.layout.group_of(number.0);
        let descriptor = self.layout.descriptor(group).0;
        [self.layout.entry(number.0).0, self.layout.bitmap(group), descriptor]
    }

    /// The next block of a walk. It isn't kept in memory.
    pub(crate) fn next_block(
        &self,
        walk: &mut DatWalk,
        volume: &Volume,
    ) -> Result<Option<DatBlock>> {
        let Some(from) = walk.from else { return Ok(None) };
        let Some(found) = self.file.map.next(from, volume)? else { return Ok(None) };
        let (key, place) = (FileBlock(found.key), PhysicalBlock(found.pointer));
        let mut entries = Vec::new();
        if let EntryBlock::Entries { first } = self.layout.role_of(key) {
            let block = match self.file.cached(key) {
                Some(block) => Arc::clone(block),
                None => volume.read_block(place)?,
            };
            let (group, first_bit) =
                (self.layout.group_of(first), self.bit_of(VirtualBlock(first)).1);
            let bits = match walk.bits.take() {
                Some((known, bits)) if known == group => bits,
                _ => self.bits_of(group, volume)?,
            };
            // A damaged map may have any key: the entries of the last ones aren't in a group.
            let bits_left = first_bit..bits.len() * 8;
            for (bit, bytes) in bits_left.zip(block.chunks_exact(ENTRY_BYTES)) {
                let entry = DatEntry::read(bytes)?;
                // Damage may have cleared the bit: a freed entry has ended or is zeros.
                if bitmap::test(&bits, bit) || live_place(&entry).is_some() {
                    entries.push(entry);
                }
            }
            walk.bits = Some((group, bits));
        }
        walk.from = key.0.checked_add(1).map(FileBlock);
        Ok(Some(DatBlock { place, entries }))
    }

    /// The bitmap of a group. It isn't kept in memory.
    fn bits_of(&self, group: u64, volume: &Volume) -> Result<BlockBytes> {
        let key = self.layout.bitmap(group);
        if let Some(bits) = self.file.cached(key) {
            return Ok(Arc::clone(bits));
        }
        match self.file.map.get(key, volume)? {
            0 => Ok(vec![0; self.block_bytes].into()),
            pointer => volume.read(pointer),
        }
    }

    fn set_entry(&mut self, number: VirtualBlock, entry: &DatEntry, volume: &Volume) -> Result<()> {
        let (key, offset) = self.layout.entry(number.0);
        let block = self.file.edit_zeroed(key, volume)?;
        block[offset..offset + ENTRY_BYTES].copy_from_slice(&entry.encode());
        Ok(())
    }

    /// Takes a free entry. It has no block yet. One whose bit is wrong, because a file may lead to its block, is left
    /// out.
    pub(crate) fn allocate(&mut self, volume: &Volume) -> Result<VirtualBlock> {
        let per_group = self.layout.entries_per_group();
        let mut group = self.layout.group_of(self.first_candidate);
        let mut from = self.first_candidate % per_group;
        let bit = loop {
            let (key, _) = self.layout.descriptor(group);
            let free = match self.file.load_block(key, volume)? {
                None => per_group,
                Some(block) => u64::from(read_u32(block, self.layout.descriptor(group).1)),
            };
            if free > 0 {
                let bit = match self.file.load_block(self.layout.bitmap(group), volume)? {
                    None => (from < per_group).then_some(from),
                    Some(bits) => {
                        let range = from as usize..per_group as usize;
                        bitmap::find_zero(bits, range).map(|bit| bit as u64)
                    }
                };
                if let Some(bit) = bit {
                    let number = VirtualBlock(group * per_group + bit);
                    if self.live_place(number, volume).is_none() {
                        break bit;
                    }
                    tracing::error!(block = number.0, "the block lives, but is marked free");
                    from = bit + 1;
                    continue;
                }
            }
            group += 1;
            from = 0;
        };
        let number = VirtualBlock(group * per_group + bit);
        self.change_bit(number, volume, true)?;
        let entry = DatEntry {
            block: PhysicalBlock(0),
            start: CheckpointNumber(1),
            end: CheckpointNumber::MAX,
        };
        self.set_entry(number, &entry, volume)?;
        self.first_candidate = number.0 + 1;
        Ok(number)
    }

    /// Where the newest state has a block, whatever the bit of its entry says.
    pub(crate) fn live_place(
        &mut self,
        number: VirtualBlock,
        volume: &Volume,
    ) -> Option<PhysicalBlock> {
        self.entry(number, volume).ok().and_then(|entry| live_place(&entry))
    }

    /// Frees an entry.
    pub(crate) fn free(&mut self, number: VirtualBlock, volume: &Volume) -> Result<()> {
        self.change_bit(number, volume, false)?;
        self.set_entry(number, &DatEntry::default(), volume)?;
        self.first_candidate = self.first_candidate.min(number.0).max(1);
        Ok(())
    }

    fn change_bit(&mut self, number: VirtualBlock, volume: &Volume, is_used: bool) -> Result<()> {
        let (bitmap_key, bit) = self.bit_of(number);
        let bits = self.file.edit_zeroed(bitmap_key, volume)?;
        let (byte, mask) = (&mut bits[bit / 8], 1 << (bit % 8));
        if (*byte & mask != 0) == is_used {
            return Err(Corrupt::Dat { block: number, problem: DatProblem::Free }.into());
        }
        *byte ^= mask;
        let (key, offset) = self.layout.descriptor(self.layout.group_of(number.0));
        let make = || new_descriptors(&self.layout, self.block_bytes);
        let block = self.file.edit(key, volume, make)?;
        let free = read_u32(block, offset);
        let free = if is_used { free.wrapping_sub(1) } else { free.wrapping_add(1) };
        block[offset..offset + 4].copy_from_slice(&free.to_le_bytes());
        Ok(())
    }

    /// Notes where a block that is new in `checkpoint` is.
    pub(crate) fn begin(
        &mut self,
        number: VirtualBlock,
        block: PhysicalBlock,
        checkpoint: CheckpointNumber,
        volume: &Volume,
    ) -> Result<()> {
        let entry = DatEntry { block, start: checkpoint, end: CheckpointNumber::MAX };
        self.set_entry(number, &entry, volume)
    }

    /// Notes that a block isn't in `checkpoint` and later ones; one that nothing ever had is freed. On a damaged
    /// volume the block may have ended before, or be free: its entry stays as it is, because the log can't take back
    /// the change that ends it.
    pub(crate) fn end(
        &mut self,
        number: VirtualBlock,
        checkpoint: CheckpointNumber,
        has_history: bool,
        volume: &Volume,
    ) -> Result<()> {
        let mut entry = self.entry(number, volume)?;
        let is_unwritten = entry.block.0 == 0;
        if !entry.is_live() || is_unwritten && self.find(number, volume)?.is_none() {
            tracing::error!(block = number.0, "a file led to a block that has ended or is free");
            return Ok(());
        }
        if is_unwritten {
            return self.free(number, volume);
        }
        entry.end = if has_history { checkpoint } else { entry.start };
        self.set_entry(number, &entry, volume)
    }

    /// Notes where the cleaner has moved a block.
    pub(crate) fn relocate(
        &mut self,
        number: VirtualBlock,
        block: PhysicalBlock,
        volume: &Volume,
    ) -> Result<()> {
        let entry = DatEntry { block, ..self.entry(number, volume)? };
        self.set_entry(number, &entry, volume)
    }
}

/// A descriptor block all of whose groups are free.
pub(crate) fn new_descriptors(layout: &EntryLayout, block_bytes: usize) -> Vec<u8> {
    // A group has eight entries for each byte of a block, which is at most 64 KiB.
    (layout.entries_per_group() as u32).to_le_bytes().repeat(block_bytes / 4)
}

pub(crate) fn read_u32(block: &[u8], offset: usize) -> u32 {
    let field = &block[offset..offset + 4];
    u32::from_le_bytes([field[0], field[1], field[2], field[3]])
}

/// Reads through the DAT: pointers are virtual blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Translated<'a> {
    pub(crate) volume: &'a Volume,
    pub(crate) dat: &'a RwLock<DatFile>,
}

impl Translated<'_> {
    /// Where a virtual block that something refers to is. The caller has entered as a reader.
    pub(crate) fn translate(&self, number: VirtualBlock) -> Result<PhysicalBlock> {
        let entry = self.entry(number)?;
        if entry.block.0 == 0 {
            return Err(Corrupt::Dat { block: number, problem: DatProblem::Unwritten }.into());
        }
        Ok(entry.block)
    }

    /// Checks that the log writer can end a virtual block that a file leads to. The caller has locked the file's map,
    /// so that the log writer doesn't end it meanwhile.
    pub(crate) fn check_entry(&self, number: VirtualBlock) -> Result<()> {
        let _reader = self.volume.enter_reader();
        let entry = self.entry(number)?;
        let wrong = |problem| Err(Corrupt::Dat { block: number, problem }.into());
        if entry.block.0 == 0 {
            // The log writer is about to place it, unless nobody has allocated it.
            let is_used = self.look_at(|dat| dat.bit_of(number), bitmap::test)?;
            if is_used != Some(true) {
                return wrong(DatProblem::Free);
            }
        }
        if !entry.is_live() {
            return wrong(DatProblem::Ended { end: entry.end });
        }
        Ok(())
    }

    /// Has the entry in memory of a virtual block that a file leads to.
    pub(crate) fn warm_entry(&self, number: VirtualBlock) -> Result<()> {
        let _reader = self.volume.enter_reader();
        self.entry(number).map(drop)
    }

    fn entry(&self, number: VirtualBlock) -> Result<DatEntry> {
        let check = |block: &[u8], offset: usize| {
            DatEntry::check(&block[offset..], number, &self.volume.geometry)
        };
        match self.look_at(|dat| dat.layout.entry(number.0), check)? {
            Some(entry) => Ok(entry?),
            None => Err(Corrupt::Dat { block: number, problem: DatProblem::Free }.into()),
        }
    }

    /// Looks at a place in a block of the DAT; nothing if that is in a hole.
    fn look_at<T>(
        &self,
        place: impl Fn(&DatFile) -> (FileBlock, usize),
        look: impl Fn(&[u8], usize) -> T,
    ) -> Result<Option<T>> {
        loop {
            let (key, at, pointer) = {
                let dat = self.dat.read();
                let (key, at) = place(&dat);
                if let Some(block) = dat.file.cached(key) {
                    return Ok(Some(look(block, at)));
                }
                (key, at, dat.file.map.get(key, self.volume)?)
            };
            if pointer == 0 {
                return Ok(None);
            }
            let block = self.volume.read(pointer)?;
            if let Some(block) = self.dat.write().file.keep(key, pointer, block, self.volume)? {
                return Ok(Some(look(block, at)));
            }
        }
    }
}

impl BlockSource for Translated<'_> {
    fn read(&self, pointer: u64) -> Result<BlockBytes> {
        let _reader = self.volume.enter_reader();
        self.volume.read_block(self.translate(VirtualBlock(pointer))?)
    }
}
