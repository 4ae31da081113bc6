//! The ext4 engine: many threads create, allocate, truncate and delete at once, and a crash at any
//! instant leaves an image that Linux accepts.
//!
//! [`Ext4`] is a mounted image. It implements [`drystone_vfs::FileSystem`]; everything else here
//! is how.
//!
//! # Structure
//! `vfs_impl` → `file`, `dir`, `xattr` → `inode` → `mapping`, `orphan`, `quota` → `alloc` → `volume`;
//! nothing points up. What is only in memory stands in front of what it spares: `known_names` and
//! `known_blocks` of directories, `extent_status` of mappings, `write_behind` of allocations. `mount`
//! puts the parts together and takes them apart; `engine` is all of them.
//!
//! # Locking
//! The order of all locks is in `lock_classes`.
//!
//! # Crash
//! An operation is one journal handle, or a chain of handles on an inode that the orphan record
//! names, so that the next mount finishes what a crash cut off. File data reaches the device
//! before the transaction that maps it.
#![forbid(unsafe_code)]

mod access_time;
mod alloc;
mod credits;
mod dir;
mod engine;
mod error;
mod extent_status;
mod file;
mod inode;
mod known_blocks;
mod known_names;
mod lock_classes;
mod mapping;
mod mount;
mod number_map;
mod orphan;
mod permission;
mod policy;
mod quota;
mod statistics;
#[cfg(test)]
mod testing;
mod vfs_impl;
mod volume;
mod write_behind;
mod xattr;

pub use access_time::AccessTimes;
pub use alloc::AllocationStatistics;
pub use engine::MemoryUse;
pub use error::{Error, Result};
pub use extent_status::ExtentStatusStatistics;
pub use mount::{Ext4, MountOptions, recovered};
pub use policy::{
    BlockGoal, ExtentReclaim, GroupLock, GroupScan, InodeClaim, InodeSearch, OrphanPolicy, Policy,
    UnknownPolicy,
};
pub use quota::{QuotaLimits, QuotaReport};
pub use statistics::Statistics;
