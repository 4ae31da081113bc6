//! Attribute blocks by the hash of their content, so that equal ones are shared.
//!
//! # State
//! A bounded number of blocks, in shards by hash. A missing block only means less sharing.
//!
//! # Locking
//! An inode starts or stops sharing a block, or prepares to change a block that it alone uses,
//! under the lock of the hash's shard. So a block found here can't be freed or changed before the
//! new inode shares it.

use crate::lock_classes;
use drystone_cache::Seal;
use drystone_ext4_format::xattr::seal_block;
use drystone_ext4_format::{ChecksumSeed, PhysicalBlock};
use drystone_sync::{Arc, Mutex, MutexGuard};
use std::collections::HashMap;

const SHARDS: usize = 16;
/// Hashes per shard.
const SHARD_LENGTH_MAX: usize = 1024;
/// Blocks per hash. Older ones are dropped: most of them can't be shared any further.
const ALIKE_MAX: usize = 4;

/// Computes the checksum of an attribute block when a commit freezes it.
struct BlockSeal(ChecksumSeed);

impl Seal for BlockSeal {
    fn seal(&self, block: u64, bytes: &mut [u8], _: u64) {
        seal_block(bytes, Some(self.0), PhysicalBlock::new(block));
    }
}

/// The blocks of one shard.
#[derive(Debug, Default)]
pub(crate) struct XattrIndexShard {
    blocks: HashMap<u32, Vec<PhysicalBlock>>,
}

impl XattrIndexShard {
    /// Notes a block.
    pub fn insert(&mut self, hash: u32, block: PhysicalBlock) {
        if hash == 0 {
            return;
        }
        if self.blocks.len() >= SHARD_LENGTH_MAX && !self.blocks.contains_key(&hash) {
            // Any hash will do: the order of a hash map is as good as random.
            let victim = self.blocks.keys().next().copied();
            victim.map(|victim| self.blocks.remove(&victim));
        }
        let alike = self.blocks.entry(hash).or_default();
        if alike.contains(&block) {
            return;
        }
        if alike.len() >= ALIKE_MAX {
            alike.remove(0);
        }
        alike.push(block);
    }

    /// Forgets a block.
    pub fn remove(&mut self, hash: u32, block: PhysicalBlock) {
        if let Some(alike) = self.blocks.get_mut(&hash) {
            alike.retain(|&known| known != block);
            if alike.is_empty() {
                self.blocks.remove(&hash);
            }
        }
    }

    /// Whether a block is listed.
    pub fn contains(&self, hash: u32, block: PhysicalBlock) -> bool {
        self.blocks.get(&hash).is_some_and(|alike| alike.contains(&block))
    }
}

/// Attribute blocks that may be shared, and how their checksums are computed.
pub(crate) struct XattrBlockIndex {
    shards: [Mutex<XattrIndexShard>; SHARDS],
    seal: Option<Arc<dyn Seal>>,
}

impl std::fmt::Debug for XattrBlockIndex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("XattrBlockIndex").finish_non_exhaustive()
    }
}

impl XattrBlockIndex {
    /// An empty index for an image with these checksums.
    pub fn new(seed: Option<ChecksumSeed>) -> XattrBlockIndex {
        XattrBlockIndex {
            shards: std::array::from_fn(|_| {
                Mutex::new(&lock_classes::XATTR_INDEX, XattrIndexShard::default())
            }),
            seal: seed.map(|seed| Arc::new(BlockSeal(seed)) as Arc<dyn Seal>),
        }
    }

    /// The seal that computes the checksums of attribute blocks.
    pub fn seal(&self) -> Option<&Arc<dyn Seal>> {
        self.seal.as_ref()
    }

    /// Locks the shard of a hash.
    pub fn shard(&self, hash: u32) -> MutexGuard<'_, XattrIndexShard> {
        self.shards[hash as usize % SHARDS].lock()
    }

    /// Blocks that are listed with this hash; they may change once the lock is released.
    pub fn candidates(&self, hash: u32) -> Vec<PhysicalBlock> {
        self.shard(hash).blocks.get(&hash).cloned().unwrap_or_default()
    }
}
