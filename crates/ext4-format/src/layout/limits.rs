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
        let map = 1 + (1 + pointers) + (1 + pointers + pointers.pow(2));
        let counted = (self.counted_bytes_max() >> self.log_block_size).saturating_sub(map);
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
