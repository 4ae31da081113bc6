//! What a mount has done so far: the counts of its parts in one value.

use crate::alloc::AllocationStatistics;
use crate::engine::Engine;
use crate::extent_status::ExtentStatusStatistics;
use drystone_sync::ClassStatistics;
use serde::Serialize;

/// Counts of a mount. All grow from the mount on, but for those that say what is held now and
/// those that are extremes (`longest…`, `largest…`).
#[derive(Clone, Debug, Serialize)]
pub struct Statistics {
    /// Handles, commits and checkpoints.
    pub journal: drystone_jbd2::Statistics,
    /// The cache of metadata blocks.
    pub cache: drystone_cache::Statistics,
    /// The allocation of inodes and blocks.
    pub allocation: AllocationStatistics,
    /// The cache of extents.
    pub extent_status: ExtentStatusStatistics,
    /// Takes, contended takes and waits of every class of locks, of the whole process.
    pub locks: Vec<ClassStatistics>,
}

impl Engine {
    /// What this mount has done so far.
    #[must_use]
    pub fn engine_statistics(&self) -> Statistics {
        Statistics {
            journal: self.volume.journal.statistics(),
            cache: self.volume.cache.statistics(),
            allocation: self.allocation_statistics(),
            extent_status: self.extent_status.statistics(),
            locks: drystone_sync::lock_statistics(),
        }
    }
}
