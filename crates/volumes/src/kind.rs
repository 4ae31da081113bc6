//! Which kind of file system an image holds.

use drystone_blockdev::{BlockDevice, DeviceError};
use drystone_ext4_format::superblock as ext4;
use drystone_nilfs2_format::geometry as nilfs2;
use drystone_nilfs2_format::superblock::{Superblock as Nilfs2Superblock, is_claimed};
use std::fmt;

/// Where an ext4 superblock has its magic number, and what it is.
const EXT4_MAGIC: (usize, [u8; 2]) = (56, [0x53, 0xef]);

/// A kind of file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FileSystemKind {
    /// ext4, with ext2 and ext3.
    #[default]
    Ext4,
    /// NILFS2: a log of checkpoints, each of which can be kept as a snapshot.
    Nilfs2,
}

impl FileSystemKind {
    /// The name, as mount(8) and blkid(8) have it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Nilfs2 => "nilfs2",
        }
    }

    /// What a device holds; `None` if its superblock is neither. A damaged superblock still says which kind
    /// it is.
    ///
    /// # Errors
    ///
    /// What the device says.
    pub fn of(device: &dyn BlockDevice) -> Result<Option<Self>, DeviceError> {
        let mut bytes = [0; ext4::SUPERBLOCK_BYTES];
        if read_if_there(device, ext4::SUPERBLOCK_OFFSET_BYTES, &mut bytes)? {
            let (at, magic) = EXT4_MAGIC;
            if bytes[at..at + magic.len()] == magic {
                return Ok(Some(Self::Ext4));
            }
        }
        // Both kinds have their superblocks at the same place.
        let is_nilfs2 = is_claimed(&bytes) || nilfs2_superblock(device)?.is_some();
        Ok(is_nilfs2.then_some(Self::Nilfs2))
    }
}

impl fmt::Display for FileSystemKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The superblock of NILFS2 that counts: of two usable ones the one that knows the newer checkpoint, the
/// first if both know the same.
///
/// # Errors
///
/// What the device says.
pub fn nilfs2_superblock(
    device: &dyn BlockDevice,
) -> Result<Option<Nilfs2Superblock>, DeviceError> {
    let size = device.size_bytes();
    let read = |offset| -> Result<Option<Nilfs2Superblock>, DeviceError> {
        let mut bytes = [0; nilfs2::SUPERBLOCK_BYTES];
        let is_there = read_if_there(device, offset, &mut bytes)?;
        Ok(is_there.then(|| Nilfs2Superblock::check(&bytes, size).ok()).flatten())
    };
    let first = read(nilfs2::SUPERBLOCK_OFFSET_BYTES)?;
    let second_offset = nilfs2::second_superblock_offset(size);
    // On a disk whose last partition is NILFS2, this place has the second superblock of the partition.
    let is_own =
        |found: &Nilfs2Superblock| found.geometry().second_superblock_offset() == second_offset;
    let second = read(second_offset)?.filter(is_own);
    // The last of several largest counts.
    Ok([second, first].into_iter().flatten().max_by_key(|found| found.cursor().checkpoint))
}

/// Reads a range, unless the device ends before it does.
pub(crate) fn read_if_there(
    device: &dyn BlockDevice,
    offset: u64,
    bytes: &mut [u8],
) -> Result<bool, DeviceError> {
    let end = offset.saturating_add(bytes.len() as u64);
    if end > device.size_bytes() {
        return Ok(false);
    }
    device.read_at(offset, bytes)?;
    Ok(true)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use drystone_blockdev::{MemoryDevice, Region};
    use drystone_nilfs2_format::ids::{CheckpointNumber, PhysicalBlock};
    use drystone_nilfs2_format::superblock::{LABEL_BYTES, LogCursor, NewVolume};

    /// The second superblock of a last partition is at the place where the disk would have one.
    #[test]
    fn the_superblock_of_a_partition_is_not_that_of_the_disk() {
        let (disk_bytes, volume_bytes) = (65 << 20, 64 << 20);
        let mut superblock = Nilfs2Superblock::create(&NewVolume {
            geometry: nilfs2::Geometry::new(1024, 256, 250, 5, volume_bytes).unwrap(),
            seed: 1,
            uuid: uuid::Uuid::from_u128(7),
            label: [0; LABEL_BYTES],
            created_s: 1000,
        });
        superblock.set_cursor(LogCursor {
            checkpoint: CheckpointNumber(1),
            block: PhysicalBlock(4),
            sequence: 0,
        });
        let disk = MemoryDevice::new(disk_bytes);
        let second = nilfs2::second_superblock_offset(disk_bytes);
        disk.write_at(second, &superblock.encode()).unwrap();
        assert_eq!(FileSystemKind::of(&disk).unwrap(), None);
        let partition = Region::new(&disk, disk_bytes - volume_bytes, volume_bytes).unwrap();
        assert_eq!(FileSystemKind::of(&partition).unwrap(), Some(FileSystemKind::Nilfs2));
    }
}
