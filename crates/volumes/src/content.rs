//! What a device or partition holds.

use crate::kind::{nilfs2_superblock, read_if_there};
use crate::member::member_of;
use crate::{FileSystemKind, Partition};
use drystone_blockdev::{BlockDevice, DeviceError};
use drystone_ext4_format::superblock as ext4;
use uuid::Uuid;

/// What a device or partition holds, and how it is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeContent {
    /// The name of the format, as blkid(8) has it.
    pub name: &'static str,
    /// The kind of file system, if it is known here.
    pub kind: Option<FileSystemKind>,
    /// The label, if the kind is known; may be empty.
    pub label: String,
    /// The identity, if the kind is known and the superblock whole.
    pub uuid: Option<Uuid>,
}

/// A partition and what is in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundPartition {
    /// What the table says.
    pub partition: Partition,
    /// What it holds, if that is known.
    pub content: Option<VolumeContent>,
    /// Why it couldn't be looked at.
    pub problem: Option<PartitionProblem>,
}

/// Why a partition couldn't be looked at.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PartitionProblem {
    /// The disk says so.
    #[error("{0}")]
    Unreadable(String),
    /// The disk ends before the partition does.
    #[error("it reaches beyond the end of the disk, which has {disk_bytes} bytes")]
    CutOff {
        /// The size of the disk.
        disk_bytes: u64,
    },
}

impl PartitionProblem {
    /// In one or two words.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Unreadable(_) => "unreadable",
            Self::CutOff { .. } => "cut off",
        }
    }
}

/// Formats that are only recognised: name, offset and bytes.
const OTHERS: [(&str, u64, &[u8]); 13] = [
    ("vfat", 54, b"FAT12   "),
    ("vfat", 54, b"FAT16   "),
    ("vfat", 82, b"FAT32   "),
    ("exfat", 3, b"EXFAT   "),
    ("ntfs", 3, b"NTFS    "),
    ("swap", 4086, b"SWAPSPACE2"),
    ("xfs", 0, b"XFSB"),
    ("btrfs", 65_600, b"_BHRfS_M"),
    ("squashfs", 0, b"hsqs"),
    ("erofs", 1024, &0xe0f5_e1e2_u32.to_le_bytes()),
    ("f2fs", 1024, &0xf2f5_2010_u32.to_le_bytes()),
    ("DM_verity_hash", 0, b"verity\0\0"),
    ("iso9660", 32_769, b"CD001"),
];

impl VolumeContent {
    /// Finds out what a device holds; `None` if that isn't known.
    ///
    /// # Errors
    ///
    /// What the device says.
    pub fn of(device: &dyn BlockDevice) -> Result<Option<VolumeContent>, DeviceError> {
        if let Some(name) = member_of(device)? {
            return Ok(Some(unknown(name)));
        }
        let Some(kind) = FileSystemKind::of(device)? else { return other(device) };
        let (label, uuid) = match kind {
            FileSystemKind::Ext4 => ext4_name(device)?,
            FileSystemKind::Nilfs2 => nilfs2_name(device)?,
        }
        .unwrap_or_default();
        let label = String::from_utf8_lossy(&label).into_owned();
        Ok(Some(VolumeContent { name: kind.name(), kind: Some(kind), label, uuid }))
    }
}

type LabelAndUuid = (Vec<u8>, Option<Uuid>);

fn ext4_name(device: &dyn BlockDevice) -> Result<Option<LabelAndUuid>, DeviceError> {
    let mut bytes = [0; ext4::SUPERBLOCK_BYTES];
    device.read_at(ext4::SUPERBLOCK_OFFSET_BYTES, &mut bytes)?;
    // An image whose change was interrupted has to be found by its name, to be rolled back.
    let superblock = ext4::Superblock::check_unsealed(&bytes)
        .ok()
        .or_else(|| ext4::without_half_changed_mark(&bytes));
    Ok(superblock.map(|found| (found.volume_name().to_vec(), Some(Uuid::from_bytes(found.uuid())))))
}

fn nilfs2_name(device: &dyn BlockDevice) -> Result<Option<LabelAndUuid>, DeviceError> {
    let superblock = nilfs2_superblock(device)?;
    Ok(superblock.map(|found| (found.label().to_vec(), Some(found.uuid()))))
}

fn other(device: &dyn BlockDevice) -> Result<Option<VolumeContent>, DeviceError> {
    for (name, offset, expected) in OTHERS {
        let mut bytes = vec![0; expected.len()];
        if read_if_there(device, offset, &mut bytes)? && bytes == expected {
            return Ok(Some(unknown(name)));
        }
    }
    Ok(None)
}

fn unknown(name: &'static str) -> VolumeContent {
    VolumeContent { name, kind: None, label: String::new(), uuid: None }
}
