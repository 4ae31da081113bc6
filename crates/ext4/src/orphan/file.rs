//! The orphan file: slots that threads take and free without a lock.
//!
//! # State
//! The slots in use are here, in atomics; a block's bytes get a copy of them when a commit freezes
//! the block. The counter of a block's free slots is what promises that a search in it ends: a
//! slot is looked for only after the counter was taken down.
//!
//! # Locking
//! None. That is possible because the checksum of a block is computed by its seal, never at an
//! update.
//!
//! # Crash
//! Write access to the block comes before the slot changes: it freezes what an earlier transaction
//! has in the block, so that no slot is committed sooner than the change that it stands for.

use crate::error::Result;
use crate::volume::Volume;
use drystone_cache::{Buffer, Seal};
use drystone_ext4_format::orphan_file::{self, OrphanBlock, OrphanPlace};
use drystone_ext4_format::{InodeNumber, InodeSeed, PhysicalBlock};
use drystone_jbd2::Handle;
use drystone_sync::Arc;
use drystone_sync::atomic::{AtomicI32, AtomicU32, Ordering};
use drystone_sync::current_core;

/// Searches of a block before it is treated as full: others free and take slots meanwhile, so that
/// a search can miss the slot that the counter promises.
const SWEEPS_MAX: u32 = 3;
/// Blocks between the starting points of neighbouring cores.
const CORE_STRIDE: usize = 13;

/// The slots of one block, and how they get into its bytes.
struct Slots {
    slots: Box<[AtomicU32]>,
    place: OrphanPlace,
}

impl Seal for Slots {
    fn seal(&self, _block: u64, bytes: &mut [u8]) {
        for (index, slot) in self.slots.iter().enumerate() {
            // Acquire pairs with the release of who set the slot; its handle has stopped.
            let inode = InodeNumber::from_field(slot.load(Ordering::Acquire));
            orphan_file::set_slot(bytes, index, inode);
        }
        orphan_file::seal(bytes, &self.place);
    }
}

struct Block {
    buffer: Arc<Buffer>,
    slots: Arc<Slots>,
    seal: Arc<dyn Seal>,
    free: AtomicI32,
}

/// The orphan file of a mounted image.
pub(crate) struct OrphanFile {
    blocks: Box<[Block]>,
    slots_per_block: u64,
}

impl std::fmt::Debug for OrphanFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OrphanFile").field("blocks", &self.blocks.len()).finish_non_exhaustive()
    }
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
            let slots: Box<[AtomicU32]> = (0..count).map(|_| AtomicU32::new(0)).collect();
            let mut free = count as i32;
            for (slot, orphan) in OrphanBlock::check(&buffer.read(), &place, last)?.orphans() {
                slots[slot].store(orphan.get(), Ordering::Relaxed);
                free -= 1;
            }
            let slots = Arc::new(Slots { slots, place });
            let seal: Arc<dyn Seal> = slots.clone();
            blocks.push(Block { buffer, slots, seal, free: AtomicI32::new(free) });
        }
        let slots_per_block = orphan_file::slots_per_block(volume.block_size()) as u64;
        Ok(OrphanFile { blocks: blocks.into(), slots_per_block })
    }

    /// The inodes in the file, with their slots.
    pub fn orphans(&self) -> Vec<(u64, InodeNumber)> {
        let mut orphans = Vec::new();
        for (index, block) in self.blocks.iter().enumerate() {
            for (slot, inode) in block.slots.slots.iter().enumerate() {
                if let Some(inode) = InodeNumber::from_field(inode.load(Ordering::Acquire)) {
                    orphans.push((index as u64 * self.slots_per_block + slot as u64, inode));
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
        (slot / self.slots_per_block) as usize
    }

    /// Takes the counter of a block's free slots down by one, if it is above zero.
    pub(super) fn take_free(&self, index: usize) -> bool {
        self.blocks[index]
            .free
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, |free| (free > 0).then(|| free - 1))
            .is_ok()
    }

    /// Gets write access to a block, before one of its slots changes.
    pub(super) fn access(&self, handle: &mut Handle<'_>, index: usize) -> Result<()> {
        let block = &self.blocks[index];
        Ok(handle.access(&block.buffer, Some(&block.seal))?)
    }

    /// Claims a slot of a block whose counter was taken down; gives the count back if none is found.
    pub(super) fn claim(&self, index: usize, inode: InodeNumber) -> Option<u64> {
        match self.blocks[index].slots.claim(inode) {
            Some(slot) => Some(index as u64 * self.slots_per_block + slot as u64),
            None => {
                self.give_free(index);
                None
            }
        }
    }

    /// Gives a count back.
    pub(super) fn give_free(&self, index: usize) {
        // After the slot is free: who takes the counter down finds one.
        self.blocks[index].free.fetch_add(1, Ordering::Release);
    }

    /// Frees a slot. Write access to its block was got before.
    pub(super) fn release(&self, slot: u64, inode: InodeNumber) {
        let index = self.block_of(slot);
        let place = &self.blocks[index].slots.slots[(slot % self.slots_per_block) as usize];
        let before = place.swap(0, Ordering::Release);
        assert_eq!(before, inode.get(), "an orphan slot changed hands");
        self.give_free(index);
    }

    /// Takes a slot for `inode`; nothing if the file is full.
    pub fn add(&self, handle: &mut Handle<'_>, inode: InodeNumber) -> Result<Option<u64>> {
        let count = self.blocks.len();
        if count == 0 {
            return Ok(None);
        }
        let start = current_core() * CORE_STRIDE % count;
        let free = (start..count).chain(0..start).find(|&index| self.take_free(index));
        let Some(index) = free else { return Ok(None) };
        if let Err(error) = self.access(handle, index) {
            self.give_free(index);
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
}

impl Slots {
    fn claim(&self, inode: InodeNumber) -> Option<usize> {
        for _ in 0..SWEEPS_MAX {
            for (index, slot) in self.slots.iter().enumerate() {
                if slot.load(Ordering::Relaxed) == 0
                    && slot
                        .compare_exchange(0, inode.get(), Ordering::AcqRel, Ordering::Relaxed)
                        .is_ok()
                {
                    return Some(index);
                }
            }
        }
        None
    }
}
