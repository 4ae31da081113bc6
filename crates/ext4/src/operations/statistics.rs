//! What a mount has done so far: the counts of its parts in one value.

use super::Engine;
use crate::alloc::AllocationStatistics;
use crate::extent_status::ExtentStatusStatistics;
use drystone_ext4_format::layout::Layout;
use drystone_ext4_format::superblock::Superblock;
use drystone_sync::ClassStatistics;

/// Counts of a mount. All of them only grow, except those that say what is held now and extremes
/// (`longest…`, `largest…`).
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct EngineStatistics {
    /// Handles, commits and checkpoints.
    pub journal: drystone_jbd2::JournalStatistics,
    /// The cache of metadata blocks.
    pub cache: drystone_cache::CacheStatistics,
    /// The allocation of inodes and blocks.
    pub allocation: AllocationStatistics,
    /// The cache of extents.
    pub extent_status: ExtentStatusStatistics,
    /// Takes, contended takes and waits of every class of locks, of the whole process.
    pub locks: Vec<ClassStatistics>,
}

/// The memory that a mount holds, as far as the budget counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryUse {
    /// Bytes of metadata blocks.
    pub buffer_bytes: u64,
    /// Inodes.
    pub inodes: u64,
    /// Bytes of dentry caches.
    pub dentry_bytes: u64,
    /// Bytes of data that waits for blocks.
    pub waiting_bytes: u64,
}

impl Engine {
    /// Where everything is in the image, as of now.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        self.volume.layout()
    }

    /// What is in memory now.
    pub fn memory_use(&self) -> MemoryUse {
        MemoryUse {
            buffer_bytes: self.volume.cache.statistics().cached_bytes,
            inodes: self.inodes.len() as u64,
            dentry_bytes: self.dentry_budget.bytes() as u64,
            waiting_bytes: self.delayed_allocation.blocks().max(0) as u64
                * self.volume.block_size() as u64,
        }
    }

    /// What allocation has done since the mount.
    #[must_use]
    pub fn allocation_statistics(&self) -> AllocationStatistics {
        self.allocator.groups.statistics()
    }

    /// What the journal has done since the mount, if there is one.
    #[must_use]
    pub fn journal_statistics(&self) -> Option<drystone_jbd2::JournalStatistics> {
        self.volume.journal.is_logged().then(|| self.volume.journal.statistics())
    }

    /// The error that has stopped the journal, and with it all changes.
    #[must_use]
    pub fn stopped_by(&self) -> Option<drystone_jbd2::JournalError> {
        self.volume.journal.error()
    }

    /// What this mount has done so far.
    #[must_use]
    pub fn engine_statistics(&self) -> EngineStatistics {
        EngineStatistics {
            journal: self.volume.journal.statistics(),
            cache: self.volume.cache.statistics(),
            allocation: self.allocation_statistics(),
            extent_status: self.extent_status.statistics(),
            locks: drystone_sync::lock_statistics(),
        }
    }

    /// Metadata blocks of the image that `statfs` doesn't count: superblocks, descriptors, bitmaps,
    /// inode tables and the journal.
    pub(crate) fn overhead(&self, superblock: &Superblock) -> u64 {
        let layout = self.volume.layout();
        let stored = superblock.overhead_clusters();
        if stored > 0 {
            return u64::from(stored) * u64::from(layout.blocks_per_cluster());
        }
        // Older tools don't store it.
        let journal = match superblock.journal_inode().and(superblock.journal_backup()) {
            Some(journal) => journal.size_bytes / layout.block_size() as u64,
            None => 0,
        };
        let tables = u64::from(layout.inode_table_blocks()) + 2;
        let groups: u64 =
            layout.groups().map(|group| u64::from(layout.group_base(group).blocks) + tables).sum();
        groups + u64::from(layout.first_data_block()) + journal
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::testing::TestImage;

    #[test]
    fn what_is_stored_is_what_is_computed() {
        for name in ["default", "ext3-1k", "meta-bg", "no-journal"] {
            let Some(image) = TestImage::new(name, 64) else { return };
            let fs = image.open();
            fs.volume.with_superblock(|superblock| {
                let stored = fs.overhead(superblock);
                assert!(superblock.overhead_clusters() > 0, "mke2fs stores it");
                let mut without = superblock.clone();
                without.set_overhead_clusters(0);
                assert_eq!(fs.overhead(&without), stored, "{name}");
            });
            fs.close().expect("a clean end");
        }
    }
}
