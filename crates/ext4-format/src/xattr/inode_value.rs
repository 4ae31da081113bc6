//! Values in inodes of their own (the `ea_inode` feature).
//!
//! Such an inode is a regular file with the EA_INODE flag whose content is the value. Equal values
//! share one inode; its times are never read, so those fields hold the count of entries that point
//! to it and a hash of the value.

use crate::checksum::ChecksumSeed;

/// The hash of a value: stored in the inode, and mixed into the hash of every entry that points
/// there. Images without checksums use the seed of their UUID.
#[must_use]
pub fn inode_value_hash(seed: ChecksumSeed, value: &[u8]) -> u32 {
    seed.append(value)
}

/// The meaning of a value inode's time fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InodeValueFields {
    /// Entries that point to the inode.
    pub reference_count: u64,
    /// Hash of the value.
    pub hash: u32,
}

impl InodeValueFields {
    /// Reads them from the inode's `i_ctime`, the low 32 bits of its version, and `i_atime`.
    #[must_use]
    pub fn from_inode(change_time: u32, version_low: u32, access_time: u32) -> Self {
        let reference_count = u64::from(change_time) << 32 | u64::from(version_low);
        Self { reference_count, hash: access_time }
    }

    /// The values to store in `i_ctime`, the low 32 bits of the version, and `i_atime`.
    #[must_use]
    pub fn to_inode(self) -> (u32, u32, u32) {
        ((self.reference_count >> 32) as u32, self.reference_count as u32, self.hash)
    }
}
