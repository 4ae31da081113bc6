//! The orphan file: slots that threads take and free without a lock.
//!
//! # State
//! The slots in use are in atomics; a block's bytes get a copy of them when a commit freezes the
//! block. The counter of a block's free slots is what promises that a search in it ends: a slot is
//! looked for only after the counter was taken down.
//!
//! # Locking
//! None. That is possible because the checksum of a block is computed by its seal, never at an
//! update.
//!
//! # Crash
//! Write access to the block comes before the slot changes: it freezes what an earlier transaction
//! has in the block, so that no slot is committed sooner than the change that it stands for.

use super::own;
use super::slots::Slots;
use crate::error::Result;
use crate::volume::Volume;
use drystone_cache::{Buffer, Seal};
use drystone_ext4_format::orphan_file::{self, OrphanBlock, OrphanPlace};
use drystone_ext4_format::{InodeNumber, InodeSeed, PhysicalBlock};
use drystone_jbd2::Handle;
use drystone_sync::atomic::{AtomicUsize, Ordering};
use drystone_sync::{Arc, current_core};

/// A slot is known by its block's place in the file and its own in the block, which takes so many
/// bits.
const SLOT_BITS: u32 = 16;

/// Blocks between the starting points of neighbouring cores.
const CORE_STRIDE: usize = 13;

/// The slots of one block, and how they get into its bytes.
pub(super) struct PlacedSlots {
    pub slots: Slots,
    place: OrphanPlace,
}

impl Seal for PlacedSlots {
    fn seal(&self, _block: u64, bytes: &mut [u8], _: u64) {
        // The handles of those who set a slot have stopped.
        for (index, inode) in self.slots.contents().enumerate() {
            orphan_file::set_slot(bytes, index, inode);
        }
        orphan_file::seal(bytes, &self.place);
    }
}

struct Block {
    buffer: Arc<Buffer>,
    placed: Arc<PlacedSlots>,
    seal: Arc<dyn Seal>,
}

/// The orphan file of a mounted image.
pub(crate) struct OrphanFile {
    blocks: Box<[Block]>,
    /// Tells the file from those of other images.
    number: u64,
    /// How many slots were asked for to be kept.
    set_aside: AtomicUsize,
}

impl std::fmt::Debug for OrphanFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OrphanFile").field("blocks", &self.blocks.len()).finish_non_exhaustive()
    }
}

/// What a slot is known by. The largest block has 2^14 slots.
fn slot_number(block: usize, slot: usize) -> u64 {
    (block as u64) << SLOT_BITS | slot as u64
}

/// A slot's place in its block.
fn place_of(slot: u64) -> usize {
    (slot & ((1 << SLOT_BITS) - 1)) as usize
}

impl OrphanFile {
    /// Reads and checks the blocks of the orphan file `inode`, which lie at `physical`.
    pub fn open(
        volume: &Volume,
        inode: InodeNumber,
        seed: Option<InodeSeed>,
        physical: &[PhysicalBlock],
    ) -> Result<OrphanFile> {
        let last = InodeNumber::new(volume.layout.inodes_count());
        let mut blocks = Vec::with_capacity(physical.len());
        for &block in physical {
            let place = OrphanPlace { inode, block, checksum: seed };
            let buffer = volume.read(block)?;
            buffer.check_once(|bytes| OrphanBlock::verify(bytes, &place))?;
            let count = orphan_file::slots_per_block(volume.block_size());
            let slots = {
                let bytes = buffer.read();
                Slots::new(count, OrphanBlock::check(&bytes, &place, last)?.orphans())
            };
            let placed = Arc::new(PlacedSlots { slots, place });
            let seal: Arc<dyn Seal> = placed.clone();
            blocks.push(Block { buffer, placed, seal });
        }
        Ok(OrphanFile {
            blocks: blocks.into(),
            number: own::new_file(),
            set_aside: AtomicUsize::new(0),
        })
    }

    /// The inodes in the file, with their slots.
    pub fn orphans(&self) -> Vec<(u64, InodeNumber)> {
        let mut orphans = Vec::new();
        for (index, block) in self.blocks.iter().enumerate() {
            for (slot, inode) in block.placed.slots.contents().enumerate() {
                if let Some(inode) = inode {
                    orphans.push((slot_number(index, slot), inode));
                }
            }
        }
        orphans
    }

    /// Number of blocks.
    pub(super) fn block_count(&self) -> usize {
        self.blocks.len()
    }

    /// The block that holds a slot.
    pub(super) fn block_of(&self, slot: u64) -> usize {
        (slot >> SLOT_BITS) as usize
    }

    /// The slots of a block.
    pub(super) fn slots(&self, index: usize) -> &Slots {
        &self.blocks[index].placed.slots
    }

    /// Gets write access to a block, before one of its slots changes.
    pub(super) fn access(&self, handle: &mut Handle<'_>, index: usize) -> Result<()> {
        let block = &self.blocks[index];
        Ok(handle.access(&block.buffer, Some(&block.seal))?)
    }

    /// Claims a slot of a block whose counter was taken down.
    pub(super) fn claim(&self, index: usize, inode: InodeNumber) -> Option<u64> {
        let slot = self.slots(index).claim(inode)?;
        Some(slot_number(index, slot))
    }

    /// Frees a slot. Write access to its block was got before.
    pub(super) fn release(&self, slot: u64, inode: InodeNumber) {
        self.slots(self.block_of(slot)).release(place_of(slot), inode);
    }

    /// Takes a slot for `inode`; nothing if the file is full.
    pub fn add(&self, handle: &mut Handle<'_>, inode: InodeNumber) -> Result<Option<u64>> {
        let count = self.blocks.len();
        if count == 0 {
            return Ok(None);
        }
        let start = match current_core() * CORE_STRIDE {
            start if start < count => start,
            beyond => beyond % count,
        };
        let free = (start..count).chain(0..start).find(|&index| self.slots(index).take_free());
        let Some(index) = free else { return Ok(None) };
        if let Err(error) = self.access(handle, index) {
            self.slots(index).give_free();
            return Err(error);
        }
        Ok(self.claim(index, inode))
    }

    /// Frees the slot that [`add`](OrphanFile::add) took.
    pub fn remove(&self, handle: &mut Handle<'_>, slot: u64, inode: InodeNumber) -> Result<()> {
        self.access(handle, self.block_of(slot))?;
        self.release(slot, inode);
        Ok(())
    }

    /// Takes a slot for an `inode` that the calling thread cuts, and says whether it is the one that the
    /// thread keeps.
    #[inline]
    pub fn add_cut(
        &self,
        handle: &mut Handle<'_>,
        inode: InodeNumber,
    ) -> Result<Option<(u64, bool)>> {
        let kept = own::slot_of(self.number);
        if let Some(number) = kept {
            let block = &self.blocks[self.block_of(number)];
            if let Some(slot) = block.placed.slots.kept(place_of(number)) {
                handle.access(&block.buffer, Some(&block.seal))?;
                slot.put(inode);
                return Ok(Some((number, true)));
            }
        }
        if kept.is_none() {
            self.set_aside();
        }
        Ok(self.add(handle, inode)?.map(|slot| (slot, false)))
    }

    /// Has the calling thread keep a slot for its next cuts, if there are enough.
    #[cold]
    fn set_aside(&self) {
        let count = self.blocks.len();
        if count == 0 {
            return;
        }
        let number = self.set_aside.fetch_add(1, Ordering::Relaxed);
        let index = number % count;
        let placed = &self.blocks[index].placed;
        if let Some(place) = placed.slots.set_aside(number / count) {
            own::keep(self.number, slot_number(index, place), place, placed);
        }
    }

    /// Takes `inode` out of the slot that the thread keeps.
    #[inline]
    pub fn end_cut(&self, handle: &mut Handle<'_>, slot: u64, inode: InodeNumber) -> Result<()> {
        let block = &self.blocks[self.block_of(slot)];
        handle.access(&block.buffer, Some(&block.seal))?;
        block.placed.slots.keep(place_of(slot), inode);
        Ok(())
    }
}
