//! Directory block cache: the buffers of a directory's blocks, and where its leaves have room.
//!
//! # State
//! For each block of a directory in memory: a weak reference to its buffer, which doesn't keep the
//! buffer in the buffer cache, and the offset of a record that may have room. A directory's block
//! stays where it is until the directory is freed, so a live buffer is the block's. Memory comes
//! from the budget of the dentry cache; when that is used up, nothing is added.
//!
//! # Locking
//! Look-ups share the lock, and only try it; while it is held exclusively, a thread falls back to the mapping and
//! the buffer cache. Buffers are noted under the directory's content lock. A room is used and changed with a
//! name in its block locked (`dir::lock_name`); these changes share the lock, and wait for it.
//!
//! # Invariants
//! - A room is an offset at which a record starts. A thread that moves the records of a block drops
//!   the room first.
//! - The buffer cache drops a buffer only once no weak reference can become a strong one, so two
//!   buffers of one block never exist.

use crate::dentry_cache::DentryBudget;
use crate::lock_classes;
use drystone_cache::Buffer;
use drystone_ext4_format::LogicalBlock;
use drystone_sync::atomic::{AtomicU32, Ordering};
use drystone_sync::{Arc, RwLock, Weak};

/// Blocks from this number on are not cached: a bound on the memory of one directory.
const BLOCKS_MAX: usize = 1 << 16;
/// The memory that one block takes: its entry, and the allocation that a weak reference keeps of a
/// buffer that has left the cache.
const BLOCK_BYTES: usize = size_of::<CachedBlock>() + size_of::<Buffer>() + 2 * size_of::<usize>();
/// No room is known.
const NOWHERE: u32 = u32::MAX;

/// The cached blocks of one directory.
#[derive(Debug)]
pub(crate) struct DirectoryBlockCache {
    /// By number.
    blocks: RwLock<Vec<CachedBlock>>,
    budget: Arc<DentryBudget>,
}

#[derive(Debug)]
struct CachedBlock {
    buffer: Weak<Buffer>,
    room: AtomicU32,
}

impl CachedBlock {
    fn new(buffer: Weak<Buffer>) -> CachedBlock {
        CachedBlock { buffer, room: AtomicU32::new(NOWHERE) }
    }
}

impl DirectoryBlockCache {
    /// Nothing is known.
    pub fn new(budget: &Arc<DentryBudget>) -> DirectoryBlockCache {
        DirectoryBlockCache {
            blocks: RwLock::new(&lock_classes::DIRECTORY_BLOCK_CACHE, Vec::new()),
            budget: Arc::clone(budget),
        }
    }

    /// The buffer of a block, and a record that may have room.
    #[inline]
    pub fn get(&self, block: LogicalBlock) -> Option<(Arc<Buffer>, Option<usize>)> {
        let blocks = self.blocks.try_read()?;
        let known = blocks.get(block.get() as usize)?;
        let buffer = known.buffer.upgrade()?;
        buffer.touch();
        let room = known.room.load(Ordering::Relaxed);
        Some((buffer, (room != NOWHERE).then_some(room as usize)))
    }

    /// Notes the buffer of a block. If it is a new one, its room is unknown.
    pub fn note(&self, block: LogicalBlock, buffer: &Arc<Buffer>) {
        let Some(mut blocks) = self.blocks.try_write() else { return };
        let index = block.get() as usize;
        if index >= blocks.len() && !self.grow(&mut blocks, index) {
            return;
        }
        if blocks[index].buffer.as_ptr() != Arc::as_ptr(buffer) {
            blocks[index] = CachedBlock::new(Arc::downgrade(buffer));
        }
    }

    /// Notes where a block may have room; `None` if unknown, as when its records are about to move.
    /// A name in the block is locked.
    #[inline]
    pub fn set_room(&self, block: LogicalBlock, room: Option<usize>) {
        if let Some(known) = self.blocks.read().get(block.get() as usize) {
            let room = room.and_then(|offset| u32::try_from(offset).ok()).unwrap_or(NOWHERE);
            known.room.store(room, Ordering::Relaxed);
        }
    }

    /// Drops the room at a record that is about to go. A name in the block is locked.
    #[inline]
    pub fn drop_room_at(&self, block: LogicalBlock, offset: usize) {
        if let Some(known) = self.blocks.read().get(block.get() as usize)
            && known.room.load(Ordering::Relaxed) as usize == offset
        {
            known.room.store(NOWHERE, Ordering::Relaxed);
        }
    }

    /// Forgets all blocks, because some of them are about to be freed. The content lock is held
    /// exclusively.
    pub fn clear(&self) {
        let mut blocks = self.blocks.write();
        self.budget.give(blocks.len() * BLOCK_BYTES);
        *blocks = Vec::new();
    }

    fn grow(&self, blocks: &mut Vec<CachedBlock>, index: usize) -> bool {
        let length = (index + 1).next_power_of_two().min(BLOCKS_MAX);
        if index >= length || !self.budget.take((length - blocks.len()) * BLOCK_BYTES) {
            return false;
        }
        blocks.reserve_exact(length - blocks.len());
        blocks.resize_with(length, || CachedBlock::new(Weak::new()));
        true
    }
}

impl Drop for DirectoryBlockCache {
    fn drop(&mut self) {
        let held = self.blocks.get_mut().len();
        self.budget.give(held * BLOCK_BYTES);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use drystone_blockdev::MemoryDevice;
    use drystone_cache::Cache;

    #[test]
    fn blocks_are_known_as_long_as_they_are_in_the_cache() {
        let cache = Cache::new(Arc::new(MemoryDevice::new(1 << 20)), 4096, 1 << 20);
        let budget = DentryBudget::new(1 << 20);
        let known = DirectoryBlockCache::new(&budget);
        let [first, far] = [0, 300].map(LogicalBlock::new);
        known.note(first, &cache.read(7).unwrap());
        known.set_room(first, Some(24));
        let (buffer, room) = known.get(first).unwrap();
        assert_eq!((buffer.number(), room), (7, Some(24)));
        known.drop_room_at(first, 12);
        assert_eq!(known.get(first).unwrap().1, Some(24));
        known.drop_room_at(first, 24);
        assert_eq!(known.get(first).unwrap().1, None);
        assert!(known.get(far).is_none());
        known.note(far, &cache.read(8).unwrap());
        assert_eq!(known.get(far).unwrap().0.number(), 8);
        drop(buffer);
        cache.invalidate(7);
        assert!(known.get(first).is_none(), "its buffer is gone");
        known.clear();
        assert!(known.get(far).is_none());
        assert_eq!(budget.bytes(), 0);
    }

    #[test]
    fn memory_is_bounded() {
        let cache = Cache::new(Arc::new(MemoryDevice::new(1 << 20)), 4096, 1 << 20);
        let budget = DentryBudget::new(100 * BLOCK_BYTES);
        let known = DirectoryBlockCache::new(&budget);
        for block in (0..1000).map(LogicalBlock::new) {
            known.note(block, &cache.read(3).unwrap());
        }
        assert!(known.get(LogicalBlock::new(63)).is_some());
        assert!(known.get(LogicalBlock::new(64)).is_none());
        known.note(LogicalBlock::new(u32::MAX), &cache.read(3).unwrap());
        drop(known);
        assert_eq!(budget.bytes(), 0);
    }
}
