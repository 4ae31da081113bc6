//! The ext4 engine: many threads create, allocate, truncate and delete at once, and a crash at any
//! instant leaves an image that Linux accepts.
//!
//! [`Ext4`] is a mounted image. It implements [`drystone_vfs::FileSystem`]; everything else here
//! is how.
//!
//! # Structure
//! `mount` → `operations` → `file`, `dir`, `xattr` → `mapping` → `content` → `orphan`, `quota` →
//! `inode` → `alloc` → `volume`; nothing points up, which `./dev tidy` checks. Each layer gets the
//! context that it needs: `InodeStore` up to `quota`, `ContentStore` up to `file`, `Engine` above.
//! Four parts exist only in memory and save work on the image: `dentry_cache` and
//! `directory_block_cache` for directories, `extent_status` for mappings,
//! `content::delayed_allocation` for allocations.
//!
//! # Locking
//! The order of all locks is in `lock_classes`.
//!
//! # Crash
//! An operation is one journal handle, or a chain of handles on an inode that is recorded as an
//! orphan, so that the next mount finishes what a crash interrupted. File data reaches the device
//! before the transaction that maps it commits.
#![forbid(unsafe_code)]

mod alloc;
mod block_use;
mod content;
mod credits;
mod deletion;
mod dentry_cache;
mod dir;
mod directory_block_cache;
mod directory_index_cache;
mod directory_index_lock;
mod error;
mod extent_status;
mod fast_commit;
mod file;
mod found_damage;
mod freeze_gate;
mod inode;
mod lock_classes;
mod mapping;
mod mmp;
mod mount;
mod number_map;
mod operations;
mod orphan;
mod permission;
mod policy;
mod quota;
mod sequence_count;
#[cfg(test)]
mod testing;
mod volume;
mod xattr;

pub use alloc::AllocationStatistics;
pub use drystone_jbd2::JournalStatistics;
pub use error::{Error, Result};
pub use extent_status::ExtentStatusStatistics;
pub use mmp::check_multi_mount;
#[cfg(not(loom))]
pub use mmp::while_claimed;
pub use mount::{Ext4, GrowthPlanner, MountOptions, PlannedGrowth, recovered};
pub use operations::{AccessTimes, EngineStatistics, MemoryUse, QuotaReport};
pub use policy::{
    BlockGoal, ExtentReclaim, GroupLock, GroupScan, InodeClaim, InodeSearch, OrphanPolicy, Policy,
    UnknownPolicy,
};
pub use quota::QuotaLimits;
