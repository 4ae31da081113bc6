//! The image that is checked: a device and a superblock whose geometry is sound.

use drystone_blockdev::{BlockDevice, DeviceError};
use drystone_nilfs2_format::superblock::Superblock;
use drystone_nilfs2_format::{FormatError, Geometry, PhysicalBlock, Unsupported};
use thiserror::Error;

/// Why an image could not be checked.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CheckError {
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// There is no superblock, in neither place.
    #[error("not a NILFS2 image: {0}")]
    NotNilfs2(FormatError),
    /// The image uses something that the checker doesn't know.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
}

pub(crate) struct Image<'a> {
    pub device: &'a dyn BlockDevice,
    pub superblock: Superblock,
    pub geometry: Geometry,
}

impl<'a> Image<'a> {
    pub fn new(device: &'a dyn BlockDevice, superblock: Superblock) -> Self {
        let geometry = *superblock.geometry();
        Self { device, superblock, geometry }
    }

    pub fn block_bytes(&self) -> usize {
        self.geometry.block_bytes()
    }

    /// Reads bytes from `block` on, all of them in segments.
    pub fn read(&self, block: PhysicalBlock, bytes: usize) -> Result<Vec<u8>, DeviceError> {
        let mut buffer = vec![0; bytes];
        self.device.read_at(self.geometry.offset_of(block), &mut buffer)?;
        Ok(buffer)
    }

    /// Reads a block, which is in a segment.
    pub fn read_block(&self, block: PhysicalBlock) -> Result<Vec<u8>, DeviceError> {
        self.read(block, self.block_bytes())
    }
}
