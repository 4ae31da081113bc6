//! Quota files: how much each user, group or project uses and may use.
//!
//! A quota file is a hidden file of 1 KiB blocks, whatever the block size of the filesystem.
//! Block 0 holds header and information, block 1 the root of a radix tree over the id: four
//! levels of 256 references, one byte of the id each, the most significant first. The last level
//! refers to a data block, which is searched for the id. Data blocks with room are in one list,
//! unused blocks in another.
//!
//! [`QuotaFile`] works over any [`QuotaBlocks`]; [`build`] makes a fresh file in memory.
//!
//! # Reference
//! quota(8)'s description of the `vfsv1` format; `mke2fs -O quota` for what a fresh file holds.

mod blocks;
mod file;
mod raw;
mod salvage;
#[cfg(test)]
mod tests;

pub use crate::ids::QuotaKind;
pub use blocks::{MemoryQuotaBlocks, QuotaBlocks};
pub use file::{QuotaFile, build};
pub use raw::{RawDataBlockHeader, RawQuotaEntry, RawQuotaHeader, RawQuotaInfo};

/// Bytes of a block of a quota file.
pub const BLOCK_LENGTH: usize = 1024;

/// One block of a quota file.
pub type QuotaBlock = [u8; BLOCK_LENGTH];

/// The version of the format.
pub const VERSION: u32 = 1;

/// Seconds of grace that a fresh file gives: a week.
pub const GRACE_SECONDS_DEFAULT: u32 = 7 * 24 * 60 * 60;

/// Bytes of one unit of the space limits.
pub const SPACE_LIMIT_UNIT: u64 = 1024;

/// Usage and limits of one id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QuotaEntry {
    /// The user, group or project.
    pub id: u32,
    /// Space in use, in bytes.
    pub space_bytes: u64,
    /// Inodes in use.
    pub inodes: u64,
    /// Space that can't be exceeded, in units of 1 KiB; 0 means no limit.
    pub space_hard_limit: u64,
    /// Space that can be exceeded for the grace time, in units of 1 KiB; 0 means no limit.
    pub space_soft_limit: u64,
    /// Inodes that can't be exceeded; 0 means no limit.
    pub inode_hard_limit: u64,
    /// Inodes that can be exceeded for the grace time; 0 means no limit.
    pub inode_soft_limit: u64,
    /// When the grace for space ends, in seconds since 1970; 0 if it does not run.
    pub space_grace_end_seconds: u64,
    /// When the grace for inodes ends, in seconds since 1970; 0 if it does not run.
    pub inode_grace_end_seconds: u64,
}

/// What the head of a quota file says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuotaInfo {
    /// Seconds for which a soft limit of space may be exceeded.
    pub space_grace_seconds: u32,
    /// Seconds for which a soft limit of inodes may be exceeded.
    pub inode_grace_seconds: u32,
    /// Flags, of which the format defines none that are stored.
    pub flags: u32,
    /// Blocks of the file.
    pub blocks: u32,
    /// First unused block, or 0.
    pub free_block: u32,
    /// First data block with room, or 0.
    pub free_entry_block: u32,
}

impl QuotaInfo {
    /// Of a file with so many blocks, none of them unused.
    const fn with_blocks(blocks: u32) -> Self {
        Self {
            space_grace_seconds: GRACE_SECONDS_DEFAULT,
            inode_grace_seconds: GRACE_SECONDS_DEFAULT,
            flags: 0,
            blocks,
            free_block: 0,
            free_entry_block: 0,
        }
    }
}
