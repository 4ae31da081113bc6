//! How large files and directories may become.

use super::Layout;
use crate::features::ReadOnlyCompat;

/// Most names that a file, or subdirectories that a directory, may have without `dir_nlink`.
pub const LINKS_MAX: u16 = 65_000;

impl Layout {
    /// Largest size in bytes of a file that extents map.
    #[must_use]
    pub fn extent_file_bytes_max(&self) -> u64 {
        let by_blocks = u64::from(u32::MAX) << self.log_block_size;
        by_blocks.min(self.counted_bytes_max())
    }

    /// Largest size in bytes of a file that a block map maps.
    #[must_use]
    pub fn mapped_file_bytes_max(&self) -> u64 {
        let pointers = 1u64 << (self.log_block_size - 2);
        let data = 12 + pointers + pointers.pow(2) + pointers.pow(3);
        // The map's own blocks count into the inode's sectors too.
        let counted = self.counted_bytes_max() >> self.log_block_size;
        let counted = counted - map_blocks(counted, pointers);
        data.min(counted).min(u64::from(u32::MAX)) << self.log_block_size
    }

    /// Bytes that an inode can count as in use.
    fn counted_bytes_max(&self) -> u64 {
        if self.features.read_only_compat.contains(ReadOnlyCompat::HUGE_FILE) {
            // 48 bits of blocks; sizes are signed elsewhere.
            i64::MAX as u64
        } else {
            (u64::from(u32::MAX) >> (self.log_block_size - 9)) << self.log_block_size
        }
    }

    /// Whether a directory may have more than [`LINKS_MAX`] subdirectories.
    #[must_use]
    pub const fn has_unlimited_subdirectories(&self) -> bool {
        self.features.read_only_compat.contains(ReadOnlyCompat::DIR_NLINK)
    }
}

/// Blocks that a block map for `data` blocks takes, with this many pointers to a block; at most
/// those of a full map.
fn map_blocks(data: u64, pointers: u64) -> u64 {
    let single = data.saturating_sub(12).min(1);
    let double = data.saturating_sub(12 + pointers).min(pointers.pow(2));
    let triple = data.saturating_sub(12 + pointers + pointers.pow(2)).min(pointers.pow(3));
    single
        + double.min(1)
        + double.div_ceil(pointers)
        + triple.min(1)
        + triple.div_ceil(pointers.pow(2))
        + triple.div_ceil(pointers)
}
