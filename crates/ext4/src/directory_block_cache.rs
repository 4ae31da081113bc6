//! Directory block cache: the buffers of a directory's blocks, and where its leaves have room.
//!
//! # State
//! For each block of a directory in memory: a weak reference to its buffer, which doesn't keep the
//! buffer in the buffer cache, and the offset of a record that may have room. A directory's block
//! stays where it is until the directory is freed, so a live buffer is the block's. Memory comes
//! from the budget of the dentry cache; when that is used up, nothing is added. Entries are in segments
//! of rising size, which stay where they are.
//!
//! # Locking
//! Each reference has a lock, which is only tried: while another thread changes it, a thread falls back to
//! the mapping and the buffer cache. Buffers are noted under the directory's content lock. A room is used
//! and changed with a name in its block locked (`dir::lock_name`).
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
use drystone_sync::{Arc, OnceLock, RwLock, Weak};

/// Segments: of 1, 7, 56, 448 blocks and so on. Blocks after the last are not cached: a bound on the memory
/// of one directory.
const SEGMENTS: usize = 6;
/// With a segment, there are this power of 2 times as many blocks as without it.
const SEGMENT_SHIFT: u32 = 3;
/// The memory that one block takes: its entry, and the allocation that a weak reference keeps of a
/// buffer that has left the cache.
const BLOCK_BYTES: usize = size_of::<CachedBlock>() + size_of::<Buffer>() + 2 * size_of::<usize>();
/// No room is known.
const NOWHERE: u32 = u32::MAX;

/// The cached blocks of one directory.
#[derive(Debug)]
pub(crate) struct DirectoryBlockCache {
    segments: [OnceLock<Box<[CachedBlock]>>; SEGMENTS],
    budget: Arc<DentryBudget>,
}

#[derive(Debug)]
struct CachedBlock {
    buffer: RwLock<Weak<Buffer>>,
    room: AtomicU32,
}

impl DirectoryBlockCache {
    /// Nothing is known.
    pub fn new(budget: &Arc<DentryBudget>) -> DirectoryBlockCache {
        DirectoryBlockCache {
            segments: std::array::from_fn(|_| OnceLock::new()),
            budget: Arc::clone(budget),
        }
    }

    /// The buffer of a block, and a record that may have room.
    #[inline]
    pub fn get(&self, block: LogicalBlock) -> Option<(Arc<Buffer>, Option<usize>)> {
        let known = self.known(block)?;
        let buffer = known.buffer.try_read()?.upgrade()?;
        buffer.touch();
        let room = known.room.load(Ordering::Relaxed);
        Some((buffer, (room != NOWHERE).then_some(room as usize)))
    }

    /// Notes the buffer of a block. If it is a new one, its room is unknown.
    pub fn note(&self, block: LogicalBlock, buffer: &Arc<Buffer>) {
        let Some(known) = self.known_or_new(block) else { return };
        let Some(mut noted) = known.buffer.try_write() else { return };
        if noted.as_ptr() != Arc::as_ptr(buffer) {
            *noted = Arc::downgrade(buffer);
            known.room.store(NOWHERE, Ordering::Relaxed);
        }
    }

    /// Notes where a block may have room; `None` if unknown, as when its records are about to move.
    /// A name in the block is locked.
    #[inline]
    pub fn set_room(&self, block: LogicalBlock, room: Option<usize>) {
        if let Some(known) = self.known(block) {
            let room = room.and_then(|offset| u32::try_from(offset).ok()).unwrap_or(NOWHERE);
            known.room.store(room, Ordering::Relaxed);
        }
    }

    /// Drops the room at a record that is about to go. A name in the block is locked.
    #[inline]
    pub fn drop_room_at(&self, block: LogicalBlock, offset: usize) {
        if let Some(known) = self.known(block)
            && known.room.load(Ordering::Relaxed) as usize == offset
        {
            known.room.store(NOWHERE, Ordering::Relaxed);
        }
    }

    /// Forgets all blocks, because some of them are about to be freed. The content lock is held
    /// exclusively.
    pub fn clear(&self) {
        for known in self.segments.iter().filter_map(OnceLock::get).flatten() {
            *known.buffer.write() = Weak::new();
            known.room.store(NOWHERE, Ordering::Relaxed);
        }
    }

    #[inline]
    fn known(&self, block: LogicalBlock) -> Option<&CachedBlock> {
        let (segment, index) = place(block);
        self.segments.get(segment)?.get()?.get(index)
    }

    fn known_or_new(&self, block: LogicalBlock) -> Option<&CachedBlock> {
        let segment = place(block).0;
        let blocks = self.segments.get(segment)?;
        let bytes = segment_length(segment) * BLOCK_BYTES;
        if blocks.get().is_none() && self.budget.take(bytes) {
            let unknown = |_| CachedBlock {
                buffer: RwLock::new(&lock_classes::DIRECTORY_BLOCK_CACHE, Weak::new()),
                room: AtomicU32::new(NOWHERE),
            };
            if blocks.set((0..segment_length(segment)).map(unknown).collect()).is_err() {
                // Another thread was faster.
                self.budget.give(bytes);
            }
        }
        self.known(block)
    }
}

/// The segment of a block, and its index there.
#[inline]
fn place(block: LogicalBlock) -> (usize, usize) {
    let number = block.get();
    let segment = number.checked_ilog2().map_or(0, |power| power / SEGMENT_SHIFT + 1) as usize;
    (segment, number as usize - segment_start(segment))
}

/// The blocks before a segment.
fn segment_start(segment: usize) -> usize {
    match segment {
        0 => 0,
        segment => 1 << (SEGMENT_SHIFT as usize * (segment - 1)),
    }
}

fn segment_length(segment: usize) -> usize {
    segment_start(segment + 1) - segment_start(segment)
}

impl Drop for DirectoryBlockCache {
    fn drop(&mut self) {
        let held = self.segments.iter().filter_map(OnceLock::get).map(|blocks| blocks.len());
        self.budget.give(held.sum::<usize>() * BLOCK_BYTES);
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
        drop(known);
        assert_eq!(budget.bytes(), 0);
    }

    #[test]
    fn segments_have_each_block_once() {
        let mut expected = (0, 0);
        for number in 0..100_000 {
            let (segment, index) = place(LogicalBlock::new(number));
            assert_eq!((segment, index), expected);
            let is_last = index + 1 == segment_length(segment);
            expected = if is_last { (segment + 1, 0) } else { (segment, index + 1) };
        }
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
