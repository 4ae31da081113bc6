//! What kind of file an inode is, and what its block area holds because of that.

use super::{BLOCK_AREA_BYTES, Inode, InodeDevice, InodeFlags, ModeFileType};
use crate::error::{Corrupt, InodeProblem};

impl Inode {
    /// What kind of file it is.
    pub fn file_type(&self) -> Result<ModeFileType, Corrupt> {
        ModeFileType::from_mode(self.mode).ok_or(Corrupt::Inode {
            inode: self.number,
            problem: InodeProblem::FileType { mode: self.mode },
        })
    }

    /// Whether it is a directory.
    #[must_use]
    pub const fn is_directory(&self) -> bool {
        matches!(ModeFileType::from_mode(self.mode), Some(ModeFileType::Directory))
    }

    /// Whether it is a file with data.
    #[must_use]
    pub const fn is_regular(&self) -> bool {
        matches!(ModeFileType::from_mode(self.mode), Some(ModeFileType::Regular))
    }

    /// Whether it is a symbolic link.
    #[must_use]
    pub const fn is_symlink(&self) -> bool {
        matches!(ModeFileType::from_mode(self.mode), Some(ModeFileType::Symlink))
    }

    /// Whether it is a symbolic link whose target lies in the block area.
    #[must_use]
    pub const fn is_fast_symlink(&self) -> bool {
        self.is_symlink()
            && !self.flags.contains(InodeFlags::INLINE_DATA)
            && self.size_bytes != 0
            && self.size_bytes < BLOCK_AREA_BYTES as u64
    }

    /// The target of a fast symbolic link.
    #[must_use]
    pub fn fast_symlink_target(&self) -> Option<&[u8]> {
        // Checked above to be below the length of the area.
        self.is_fast_symlink().then(|| &self.block_area[..self.size_bytes as usize])
    }

    /// Whether the block area maps blocks, by extents or by a block map.
    #[must_use]
    pub const fn has_block_mapping(&self) -> bool {
        !self.flags.contains(InodeFlags::INLINE_DATA)
            && !self.is_fast_symlink()
            && matches!(
                ModeFileType::from_mode(self.mode),
                Some(ModeFileType::Regular | ModeFileType::Directory | ModeFileType::Symlink)
            )
    }

    /// The number of the device, if it is one.
    #[must_use]
    pub fn device(&self) -> Option<InodeDevice> {
        let kind = ModeFileType::from_mode(self.mode)?;
        kind.is_device().then(|| InodeDevice::decode(&self.block_area))
    }
}
