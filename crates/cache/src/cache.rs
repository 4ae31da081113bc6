//! The table of buffers.

use crate::lock_classes::SHARD;
use crate::shard::{CacheShard, CacheSlot, Loading};
use crate::{Buffer, CacheStatistics};
use drystone_blockdev::{BlockDevice, DeviceError, DeviceResult};
use drystone_ondisk::spread;
use drystone_sync::{Arc, Mutex, MutexGuard};

/// More shards would not lower contention further on any machine we know of.
const SHARDS_MAX: usize = 256;

/// A shard of fewer blocks than this makes the clock's choice a lottery.
const SHARD_BLOCKS_MIN: usize = 32;

/// All metadata buffers of a device, by block number.
#[derive(Debug)]
pub struct Cache {
    device: Arc<dyn BlockDevice>,
    block_size_bytes: usize,
    budget_bytes: usize,
    /// A power of two of them.
    shards: Box<[Mutex<CacheShard>]>,
}

impl Cache {
    /// An empty cache over `device` that tries to hold no more than `budget_bytes`.
    ///
    /// # Panics
    /// If the block size is zero.
    #[must_use]
    pub fn new(device: Arc<dyn BlockDevice>, block_size_bytes: usize, budget_bytes: usize) -> Self {
        assert!(block_size_bytes > 0, "a cache of empty blocks is made");
        let budget_blocks = (budget_bytes / block_size_bytes).max(SHARD_BLOCKS_MIN);
        let shard_count = (budget_blocks / SHARD_BLOCKS_MIN).clamp(1, SHARDS_MAX);
        // Rounded down to a power of two.
        let shard_count = 1 << shard_count.ilog2();
        let shards = (0..shard_count)
            .map(|_| Mutex::new(&SHARD, CacheShard::new(budget_blocks / shard_count)))
            .collect();
        Self { device, block_size_bytes, budget_bytes, shards }
    }

    /// The device that the blocks are on.
    #[must_use]
    pub fn device(&self) -> &Arc<dyn BlockDevice> {
        &self.device
    }

    /// Bytes in a block.
    #[must_use]
    pub fn block_size_bytes(&self) -> usize {
        self.block_size_bytes
    }

    /// Bytes that the cache tries not to exceed.
    #[must_use]
    pub fn budget_bytes(&self) -> usize {
        self.budget_bytes
    }

    /// Buffer number `block`, read from the device if it isn't in the cache.
    ///
    /// # Errors
    /// The device's, for every thread that waited for the same read.
    pub fn read(&self, block: u64) -> DeviceResult<Arc<Buffer>> {
        let loading = {
            let mut shard = self.shard(block);
            match shard.get(block).cloned() {
                Some(CacheSlot::Ready(buffer)) => {
                    shard.statistics.hits += 1;
                    return Ok(buffer);
                }
                Some(CacheSlot::Loading(loading)) => {
                    shard.statistics.hits += 1;
                    drop(shard);
                    return loading.wait();
                }
                None => {
                    shard.statistics.misses += 1;
                    let loading = Arc::new(Loading::new());
                    shard.insert(block, CacheSlot::Loading(loading.clone()));
                    loading
                }
            }
        };
        let mut bytes = zeros(self.block_size_bytes);
        let outcome = self.offset(block).and_then(|offset| self.device.read_at(offset, &mut bytes));
        self.finish_load(block, &loading, outcome.map(|()| bytes))
    }

    /// Buffer number `block` for a block that is being put to a new use, without reading it.
    ///
    /// The content is undefined until a journal handle's `create` has zeroed it.
    pub fn zeroed(&self, block: u64) -> Arc<Buffer> {
        loop {
            let mut shard = self.shard(block);
            match shard.get(block).cloned() {
                Some(CacheSlot::Ready(buffer)) => return buffer,
                Some(CacheSlot::Loading(loading)) => {
                    drop(shard);
                    // The read may fail: its bytes aren't needed.
                    let _ = loading.wait();
                }
                None => {
                    let bytes = zeros(self.block_size_bytes);
                    let buffer = Arc::new(Buffer::new(block, Arc::new(bytes), true));
                    shard.insert(block, CacheSlot::Ready(buffer.clone()));
                    return buffer;
                }
            }
        }
    }

    /// Buffer number `block` if it is in the cache.
    #[must_use]
    pub fn peek(&self, block: u64) -> Option<Arc<Buffer>> {
        match self.shard(block).get(block) {
            Some(CacheSlot::Ready(buffer)) => Some(buffer.clone()),
            _ => None,
        }
    }

    /// Drops block number `block`, whatever its content, because the block is freed. A thread that still
    /// refers to the buffer keeps bytes that are no longer the block's.
    pub fn invalidate(&self, block: u64) {
        loop {
            let mut shard = self.shard(block);
            match shard.get(block).cloned() {
                Some(CacheSlot::Loading(loading)) => {
                    drop(shard);
                    let _ = loading.wait();
                }
                Some(CacheSlot::Ready(_)) => {
                    shard.remove(block);
                    return;
                }
                None => return,
            }
        }
    }

    /// What the cache has done and what it holds.
    #[must_use]
    pub fn statistics(&self) -> CacheStatistics {
        let mut total = CacheStatistics {
            budget_bytes: self.budget_bytes as u64,
            ..CacheStatistics::default()
        };
        for shard in &self.shards {
            let shard = shard.lock();
            total.hits += shard.statistics.hits;
            total.misses += shard.statistics.misses;
            total.evictions += shard.statistics.evictions;
            total.cached_bytes += (shard.len() * self.block_size_bytes) as u64;
        }
        total
    }

    /// Turns a placeholder into a buffer, or removes it, and wakes the threads that wait.
    fn finish_load(
        &self,
        block: u64,
        loading: &Loading,
        outcome: DeviceResult<Box<[u8]>>,
    ) -> DeviceResult<Arc<Buffer>> {
        let outcome = outcome.map(|bytes| Arc::new(Buffer::new(block, Arc::new(bytes), false)));
        match &outcome {
            Ok(buffer) => self.shard(block).set_ready(block, buffer.clone()),
            Err(_) => drop(self.shard(block).remove(block)),
        }
        loading.finish(outcome.clone());
        outcome
    }

    /// Byte offset of a block. The device checks that it is in range.
    fn offset(&self, block: u64) -> DeviceResult<u64> {
        block.checked_mul(self.block_size_bytes as u64).ok_or(DeviceError::OutOfRange {
            offset: u64::MAX,
            length: self.block_size_bytes as u64,
            size: self.device.size_bytes(),
        })
    }

    fn shard(&self, block: u64) -> MutexGuard<'_, CacheShard> {
        // The table's hash uses the low bits of the same value, the shard number the high ones.
        let index = (spread(block) >> 48) as usize & (self.shards.len() - 1);
        self.shards[index].lock()
    }
}

fn zeros(bytes: usize) -> Box<[u8]> {
    vec![0; bytes].into_boxed_slice()
}
