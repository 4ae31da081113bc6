//! How an image is mounted.

use crate::operations::{AccessTimeRules, AccessTimes};
use crate::policy::Policy;
use drystone_blockdev::BlockDevice;
use drystone_ext4_format::PhysicalBlock;
use drystone_ext4_format::superblock::{ErrorPolicy, Superblock};
use drystone_sync::Arc;
use std::time::Duration;

/// Bytes that an inode in memory counts as: its record, its locks, its table entry.
const INODE_BYTES: usize = 1024;

/// What knows how an image of some size is laid out.
#[derive(Clone, Copy, Debug)]
pub struct GrowthPlanner {
    /// How many blocks an image can use of a size in bytes, at least as many as it has.
    pub usable_blocks: fn(&Superblock, u64) -> drystone_vfs::Result<u64>,
    /// Plans how an image takes as much of a size in bytes as it can use. It gets the device as it is, and a
    /// superblock that is marked as that of a closed image. It may write beyond the end of the image only. `None`: the
    /// image can't use more than it has.
    pub plan: fn(&dyn BlockDevice, &Superblock, u64) -> drystone_vfs::Result<Option<PlannedGrowth>>,
}

/// What makes an image larger, beside what lies beyond its old end.
#[derive(Clone, Debug)]
pub struct PlannedGrowth {
    /// The superblock of the larger image.
    pub superblock: Superblock,
    /// The other blocks that change inside the old end.
    pub blocks: Vec<(PhysicalBlock, Vec<u8>)>,
    /// Copies of superblock and descriptors that change there.
    pub copies: Vec<(PhysicalBlock, Vec<u8>)>,
}

/// How an image is mounted.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MountOptions {
    /// Nothing is changed, not even by recovery: a dirty journal is replayed into memory.
    pub read_only: bool,
    /// A dirty journal is ignored: the image is read as a crash left it. Only with `read_only`.
    pub ignore_journal: bool,
    /// Bytes of memory for metadata.
    pub memory_budget_bytes: usize,
    /// Of these, bytes for cached extents; an extent counts as 32. `None`: a thirty-second part.
    pub extent_status_bytes: Option<usize>,
    /// Small writes to holes wait in memory for their blocks, so that these lie together. They wait
    /// until a sync of the file or the image, for the commit interval, or until much waits. Not used for
    /// files with block maps, on images with clusters, or when little space is left.
    pub delayed_allocation: bool,
    /// Which reads change times of last access, of those that callers report
    /// ([`accessed`](drystone_vfs::FileSystem::accessed)). None do on a read-only mount.
    pub access_times: AccessTimes,
    /// Whether reads of directories count as well.
    pub directory_access_times: bool,
    /// Changes are committed after this time, even without a sync.
    pub commit_interval: Duration,
    /// How long the journal waits for room on the medium of the image before it stops for good.
    pub full_medium_wait: Duration,
    /// The mount point, to be noted in the superblock.
    pub last_mounted: Vec<u8>,
    /// Which variant of each mechanism is used.
    pub policy: Policy,
    /// What happens when the image is found damaged; `None`: what its superblock says.
    pub error_policy: Option<ErrorPolicy>,
    /// The journal's device, for images whose journal isn't inside.
    pub journal_device: Option<Arc<dyn BlockDevice>>,
    /// Plans how the image grows; `None`: it can't.
    pub growth_planner: Option<GrowthPlanner>,
}

drystone_options::setters! {
    MountOptions {
        read_only: bool,
        ignore_journal: bool,
        memory_budget_bytes: usize,
        extent_status_bytes: impl Into<Option<usize>>,
        delayed_allocation: bool,
        access_times: AccessTimes,
        directory_access_times: bool,
        commit_interval: Duration,
        full_medium_wait: Duration,
        last_mounted: impl Into<Vec<u8>>,
        policy: Policy,
        error_policy: impl Into<Option<ErrorPolicy>>,
        journal_device: impl Into<Option<Arc<dyn BlockDevice>>>,
        growth_planner: impl Into<Option<GrowthPlanner>>,
    }
}

impl Default for MountOptions {
    fn default() -> MountOptions {
        MountOptions {
            read_only: false,
            ignore_journal: false,
            memory_budget_bytes: 256 << 20,
            extent_status_bytes: None,
            delayed_allocation: true,
            access_times: AccessTimes::default(),
            directory_access_times: true,
            commit_interval: Duration::from_secs(5),
            full_medium_wait: Duration::ZERO,
            last_mounted: Vec::new(),
            policy: Policy::default(),
            error_policy: None,
            journal_device: None,
            growth_planner: None,
        }
    }
}

impl MountOptions {
    /// The part of the budget that is for buffers.
    pub(crate) fn buffer_bytes(&self) -> usize {
        let waiting = if self.delayed_allocation { self.delayed_data_bytes() } else { 0 };
        self.memory_budget_bytes / 4 * 3 - waiting
    }

    /// The part of the budget that is for dentry caches.
    pub(crate) fn dentry_bytes(&self) -> usize {
        self.memory_budget_bytes / 16
    }

    /// The part for data that waits for blocks: an eighth of the budget, taken from the buffers' part.
    pub(crate) fn delayed_data_bytes(&self) -> usize {
        self.memory_budget_bytes / 8
    }

    /// Which reads change times of last access.
    pub(crate) fn access_time_rules(&self, is_read_only: bool) -> AccessTimeRules {
        let times = if is_read_only { AccessTimes::Never } else { self.access_times };
        AccessTimeRules::new(times, self.directory_access_times)
    }

    /// The part that is for cached extents.
    pub(crate) fn extent_status_share(&self) -> usize {
        self.extent_status_bytes.unwrap_or(self.memory_budget_bytes / 32)
    }

    /// How many unused inodes the rest of the budget has room for.
    pub(crate) fn inodes_cached_max(&self) -> usize {
        let rest = self.memory_budget_bytes / 16 * 3;
        rest.saturating_sub(self.extent_status_share()) / INODE_BYTES
    }
}
