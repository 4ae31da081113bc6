//! The orphan file: slots that threads take and free without a lock (`orphans=file`).
//!
//! A thread starts at the block of its core and goes on until it finds a block whose counter of free
//! slots it can decrement. It gets write access to that block, and then claims a slot that is zero. This
//! is the published algorithm and nothing else.
//!
//! # State
//! The slots in use are atomics; they are copied to a block's bytes when a commit freezes the block. A
//! thread searches a block only after it decremented the block's counter of free slots: that promises it
//! a slot.
//!
//! # Locking
//! None. No lock is needed because the checksum of a block is computed by its seal, never at an update.
//!
//! # Crash
//! A thread gets write access to the block before it changes the slot: that freezes the block's state of
//! an earlier transaction, so that no slot is committed before the change that it stands for.

use super::slots::OrphanSlots;
use crate::block_use;
use crate::error::{Error, Result};
use crate::volume::Volume;
use drystone_cache::{Buffer, Seal};
use drystone_ext4_format::orphan_file::{self, OrphanBlock, OrphanPlace};
use drystone_ext4_format::{InodeNumber, InodeSeed, PhysicalBlock};
use drystone_jbd2::Handle;
use drystone_sync::{Arc, current_core};

/// A slot's number is its block's index in the file and its own index in the block, which takes so many
/// bits.
const SLOT_BITS: u32 = 16;

/// Blocks between the starting points of neighbouring cores.
const CORE_STRIDE: usize = 13;

/// The slots of one block, and how they get into its bytes.
pub(super) struct PlacedSlots {
    pub slots: OrphanSlots,
    place: OrphanPlace,
}

impl Seal for PlacedSlots {
    fn seal(&self, _block: u64, bytes: &mut [u8], _: u64) {
        // The handles of the threads that set a slot have stopped.
        for (index, inode) in self.slots.contents().enumerate() {
            orphan_file::set_slot(bytes, index, inode);
        }
        orphan_file::seal(bytes, &self.place);
    }
}

struct SlotBlock {
    buffer: Arc<Buffer>,
    placed: Arc<PlacedSlots>,
    seal: Arc<dyn Seal>,
}

/// The orphan file of a mounted image.
pub(crate) struct OrphanFile {
    blocks: Box<[SlotBlock]>,
}

impl std::fmt::Debug for OrphanFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OrphanFile").field("blocks", &self.blocks.len()).finish_non_exhaustive()
    }
}

/// The block in which a core begins to search.
pub(super) fn start_block(core: usize, blocks: usize) -> usize {
    match core * CORE_STRIDE {
        start if start < blocks => start,
        beyond => beyond % blocks,
    }
}

impl OrphanFile {
    /// The longest orphan file: Linux mounts no image with a longer one. All blocks stay in memory.
    pub const BLOCKS_MAX: u64 = 512;

    /// A slot's number. The largest block has 2^14 slots.
    #[inline]
    pub(super) fn slot_number(block: usize, slot: usize) -> u64 {
        (block as u64) << SLOT_BITS | slot as u64
    }

    /// A slot's block, and its place there.
    #[inline]
    pub(super) fn place(slot: u64) -> (usize, usize) {
        ((slot >> SLOT_BITS) as usize, (slot & ((1 << SLOT_BITS) - 1)) as usize)
    }

    /// Reads and checks the blocks of the orphan file `inode`, which lie at `physical`.
    pub fn open(
        volume: &Volume,
        inode: InodeNumber,
        seed: Option<InodeSeed>,
        physical: &[PhysicalBlock],
    ) -> Result<OrphanFile> {
        let last = InodeNumber::new(volume.layout().inodes_count());
        let mut blocks = Vec::with_capacity(physical.len());
        for &block in physical {
            let place = OrphanPlace { inode, block, checksum: seed };
            let buffer = volume.read(block)?;
            buffer.check_once(block_use::ORPHANS, |bytes| {
                OrphanBlock::verify(bytes, &place)?;
                Ok::<_, Error>(())
            })?;
            let count = orphan_file::slots_per_block(volume.block_size());
            let slots = {
                let bytes = buffer.read();
                OrphanSlots::new(count, OrphanBlock::check(&bytes, &place, last)?.orphans())
            };
            let placed = Arc::new(PlacedSlots { slots, place });
            let seal: Arc<dyn Seal> = placed.clone();
            blocks.push(SlotBlock { buffer, placed, seal });
        }
        Ok(OrphanFile { blocks: blocks.into() })
    }

    /// The inodes in the file, with their slots.
    pub fn orphans(&self) -> Vec<(u64, InodeNumber)> {
        let mut orphans = Vec::new();
        for (index, block) in self.blocks.iter().enumerate() {
            for (slot, inode) in block.placed.slots.contents().enumerate() {
                if let Some(inode) = inode {
                    orphans.push((OrphanFile::slot_number(index, slot), inode));
                }
            }
        }
        orphans
    }

    /// Number of blocks.
    pub(super) fn block_count(&self) -> usize {
        self.blocks.len()
    }

    /// The slots of a block.
    #[inline]
    pub(super) fn slots(&self, index: usize) -> &OrphanSlots {
        &self.blocks[index].placed.slots
    }

    /// The slots of a block, for a thread that keeps one of them.
    pub(super) fn placed(&self, index: usize) -> &Arc<PlacedSlots> {
        &self.blocks[index].placed
    }

    /// Gets write access to a block, before one of its slots changes.
    #[inline]
    pub(super) fn access(&self, handle: &mut Handle<'_>, index: usize) -> Result<()> {
        let block = &self.blocks[index];
        Ok(handle.access(&block.buffer, Some(&block.seal))?)
    }

    /// Takes a slot for `inode`; `None` if the file is full.
    pub fn add(&self, handle: &mut Handle<'_>, inode: InodeNumber) -> Result<Option<u64>> {
        let count = self.blocks.len();
        if count == 0 {
            return Ok(None);
        }
        let start = start_block(current_core(), count);
        let free = (start..count).chain(0..start).find(|&index| self.slots(index).take_free());
        let Some(index) = free else { return Ok(None) };
        if let Err(error) = self.access(handle, index) {
            self.slots(index).give_free();
            return Err(error);
        }
        let slot = self.slots(index).claim(inode);
        Ok(slot.map(|slot| OrphanFile::slot_number(index, slot)))
    }

    /// Frees the slot that [`add`](OrphanFile::add) took.
    pub fn remove(&self, handle: &mut Handle<'_>, slot: u64, inode: InodeNumber) -> Result<()> {
        let (index, place) = OrphanFile::place(slot);
        self.access(handle, index)?;
        self.slots(index).release(place, inode);
        Ok(())
    }
}
