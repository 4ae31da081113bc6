//! What an open image is made of.

use crate::access_time::AccessTimeRules;
use crate::alloc::{AllocationStatistics, Allocator};
use crate::dir::Names;
use crate::error::Result;
use crate::extent_status::ExtentStatus;
use crate::file::Tails;
use crate::inode::InodeTable;
use crate::lock_classes;
use crate::mount::{Heartbeat, MountOptions};
use crate::orphan::Orphans;
use crate::quota::Quotas;
use crate::volume::Volume;
use crate::write_behind::WriteBehind;
use crate::xattr::BlockIndex;
use drystone_ext4_format::inode::Timestamp;
use drystone_ext4_format::superblock::{ErrorPolicy, Superblock};
use drystone_jbd2::Handle;
use drystone_sync::atomic::AtomicBool;
use drystone_sync::{Arc, Mutex};

/// The engine over one image. [`Ext4`](crate::mount::Ext4) is this, with the thread that works for it.
#[derive(Debug)]
pub struct Engine {
    /// Device, cache, journal and superblock.
    pub(crate) volume: Arc<Volume>,
    /// Who gives out blocks and inodes.
    pub(crate) allocator: Arc<Allocator>,
    /// Inodes in memory.
    pub(crate) inodes: InodeTable,
    /// What is known about the extents of inodes.
    pub(crate) extent_status: Arc<ExtentStatus>,
    /// The data that waits for blocks.
    pub(crate) write_behind: WriteBehind,
    /// What a crash would leave to be cleaned up.
    pub(crate) orphans: Orphans,
    /// Who uses how much.
    pub(crate) quotas: Quotas,
    /// Blocks of extended attributes that several inodes may share.
    pub(crate) xattr_blocks: BlockIndex,
    /// Files whose last block waits to be cleared behind their end.
    pub(crate) tails: Tails,
    /// Which reads change times of last access.
    pub(crate) access_times: AccessTimeRules,
    /// How names are compared and hashed.
    pub(crate) names: Names,
    /// Held by a rename that gives a directory another parent.
    pub(crate) rename: Mutex<()>,
    /// Keeps other mounts away, on images that ask for it.
    pub(crate) heartbeat: Option<Arc<Heartbeat>>,
    /// The mount has ended.
    pub(crate) closed: AtomicBool,
    /// What happens when damage is found; `None`: what the superblock says.
    pub(crate) error_policy: Option<ErrorPolicy>,
    /// Damage was found since the mount.
    pub(crate) damaged: AtomicBool,
}

/// What a mount holds in memory, of what the budget counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryUse {
    /// Bytes of metadata blocks.
    pub buffer_bytes: u64,
    /// Inodes.
    pub inodes: u64,
    /// Bytes of what is known of names.
    pub name_bytes: u64,
    /// Bytes of data that waits for blocks.
    pub waiting_bytes: u64,
}

impl Engine {
    /// What is in memory now.
    pub fn memory_use(&self) -> MemoryUse {
        MemoryUse {
            buffer_bytes: self.volume.cache.statistics().cached_bytes,
            inodes: self.inodes.len() as u64,
            name_bytes: self.volume.name_budget.bytes() as u64,
            waiting_bytes: self.write_behind.blocks().max(0) as u64
                * self.volume.block_size() as u64,
        }
    }

    pub(crate) fn assemble(
        volume: Arc<Volume>,
        allocator: Arc<Allocator>,
        orphans: Orphans,
        heartbeat: Option<Arc<Heartbeat>>,
        options: &MountOptions,
    ) -> Engine {
        Engine {
            inodes: InodeTable::new(options.inodes_cached_max()),
            extent_status: Arc::new(ExtentStatus::new(
                options.policy.extent_reclaim,
                options.extent_status_bytes(),
            )),
            write_behind: WriteBehind::new(
                options.delayed_allocation,
                options.write_behind_bytes() / volume.block_size(),
            ),
            quotas: Quotas::new(),
            xattr_blocks: BlockIndex::new(volume.seed),
            tails: Tails::new(),
            access_times: options.access_time_rules(volume.read_only.is_some()),
            names: volume.with_superblock(Names::new),
            rename: Mutex::new(&lock_classes::RENAME, ()),
            volume,
            allocator,
            orphans,
            heartbeat,
            closed: AtomicBool::new(false),
            error_policy: options.error_policy,
            damaged: AtomicBool::new(false),
        }
    }

    /// What allocation has done since the mount.
    #[must_use]
    pub fn allocation_statistics(&self) -> AllocationStatistics {
        self.allocator.statistics()
    }

    /// Ends the handle of an operation. An operation that changed something and then failed, other
    /// than by the rules, for want of space or because data could not be written, can't be taken back:
    /// the journal stops, so that what is half done is never committed.
    pub(crate) fn settle<T>(&self, handle: Handle<'_>, done: Result<T>) -> Result<T> {
        if let Err(error) = &done
            && handle.has_changed()
            && !error.leaves_no_trace()
        {
            tracing::error!(%error, "an operation failed half way: the journal is stopped");
            self.volume.journal.abort("an operation failed half way");
        }
        let stopped = handle.stop();
        let value = done?;
        stopped?;
        Ok(value)
    }

    /// Metadata blocks of the image that `statfs` doesn't count: superblocks, descriptors, bitmaps,
    /// inode tables and the journal.
    pub(crate) fn overhead(&self, superblock: &Superblock) -> u64 {
        let layout = &self.volume.layout;
        let stored = superblock.overhead_clusters();
        if stored > 0 {
            return u64::from(stored) * u64::from(layout.blocks_per_cluster());
        }
        // Not stored by older tools: all but the journal follows from the geometry.
        let tables = u64::from(layout.inode_table_blocks()) + 2;
        let groups: u64 =
            layout.groups().map(|group| u64::from(layout.group_base(group).blocks) + tables).sum();
        groups + u64::from(layout.first_data_block())
    }

    /// The time to stamp changes with.
    pub(crate) fn now(&self) -> Timestamp {
        let (seconds, nanoseconds) = drystone_sync::clock::wall_coarse();
        Timestamp { seconds, nanoseconds }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // Before the allocator goes: a commit without it would lack what it has given out.
        self.volume.journal.abandon();
    }
}
