//! Why a volume can't be used.

use crate::{
    ContainerError, FileSystemKind, FoundPartition, NameError, PartitionChoice, PartitionProblem,
    TableError,
};
use drystone_blockdev::DeviceError;
use std::fmt;

/// Why a volume can't be opened. Says nothing of its name, which the caller knows.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VolumeError {
    /// The file or device can't be opened or read.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The name can't be understood.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The partition table can't be used.
    #[error(transparent)]
    Table(TableError),
    /// A disk image of a virtual machine can't be used.
    #[error(transparent)]
    Container(ContainerError),
    /// A partition was named where there is no partition table.
    #[error("there is no partition table, so there is no partition {0}")]
    NotPartitioned(PartitionChoice),
    /// There is no such partition.
    #[error("no partition {choice}; there are {partitions}")]
    NoPartition {
        /// What was asked for.
        choice: PartitionChoice,
        /// What there is.
        partitions: PartitionList,
    },
    /// A partition was named that only holds others.
    #[error("partition {0} is extended: what it holds are the logical partitions, #5 and so on")]
    ExtendedPartition(PartitionChoice),
    /// Several partitions are called so.
    #[error("several partitions are {choice}: {partitions}; name one by its number")]
    Ambiguous {
        /// What was asked for.
        choice: PartitionChoice,
        /// Which ones.
        partitions: PartitionList,
    },
    /// A disk was named, and several of its partitions hold a file system.
    #[error("a disk with several file systems, {partitions}: name one, as in IMAGE#NUMBER")]
    SeveralFileSystems {
        /// Which ones.
        partitions: PartitionList,
    },
    /// A disk was named that has a file system as a whole, and partitions.
    #[error(
        "a disk with partitions, {partitions}, and with the superblock of {kind} for all of it, which may be \
         old: name a partition, as in IMAGE#NUMBER, or IMAGE@offset=0 for the file system"
    )]
    FileSystemAndPartitions {
        /// The file system of the whole disk.
        kind: FileSystemKind,
        /// What there is besides.
        partitions: PartitionList,
    },
    /// A disk was named, and none of its partitions holds a file system that is known here.
    #[error("a disk without a file system that is known here; there are {partitions}")]
    NoFileSystem {
        /// What there is.
        partitions: PartitionList,
    },
    /// A disk was named, and not all of its partitions could be looked at.
    #[error(
        "a disk with partitions that can't be read in full, {partitions}: name one, as in IMAGE#NUMBER"
    )]
    UnreadablePartitions {
        /// What there is.
        partitions: PartitionList,
    },
    /// A part of something larger was named, to be written.
    #[error(
        "a part of something larger ({name}), of which only a part would be changed: open that, or name \
         IMAGE@offset=0 to change just this part"
    )]
    Member {
        /// The format, as blkid(8) has it.
        name: &'static str,
    },
    /// A part of a disk reaches beyond its end.
    #[error(
        "{length} bytes at byte {offset} reach beyond the end of the disk, which has {size} bytes"
    )]
    BeyondEnd {
        /// Where the part begins.
        offset: u64,
        /// How long it is.
        length: u64,
        /// The size of the disk.
        size: u64,
    },
}

impl From<ContainerError> for VolumeError {
    fn from(error: ContainerError) -> VolumeError {
        match error {
            ContainerError::Device(error) => VolumeError::Device(error),
            other => VolumeError::Container(other),
        }
    }
}

impl From<TableError> for VolumeError {
    fn from(error: TableError) -> VolumeError {
        match error {
            TableError::Device(error) => VolumeError::Device(error),
            other => VolumeError::Table(other),
        }
    }
}

/// Partitions in a message: `#1 (vfat, 'EFI'), #2 (ext4, 'root')`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionList(pub Vec<FoundPartition>);

/// Partitions that are listed in a message.
const LISTED_MAX: usize = 16;

impl fmt::Display for PartitionList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("none");
        }
        for (index, found) in self.0.iter().take(LISTED_MAX).enumerate() {
            let comma = if index > 0 { ", " } else { "" };
            let without = found.problem.as_ref().map_or("unknown content", PartitionProblem::name);
            let content = found.content.as_ref().map_or(without, |content| content.name);
            write!(f, "{comma}#{} ({content}", found.partition.number)?;
            let label = found.content.as_ref().map_or("", |content| content.label.as_str());
            let name = if label.is_empty() { &found.partition.name } else { label };
            if !name.is_empty() {
                write!(f, ", '{}'", name.escape_debug())?;
            }
            f.write_str(")")?;
        }
        match self.0.len().checked_sub(LISTED_MAX) {
            None | Some(0) => Ok(()),
            Some(more) => write!(f, " and {more} more"),
        }
    }
}
