//! Lists the partitions of a disk, and what they hold.

use crate::error::on_image;
use crate::{Error, VolumeName};
use drystone_blockdev::OpenMode;
use drystone_volumes::{FoundPartition, TableKind, disk_content};
use std::path::Path;

/// What is on a partitioned disk.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct DiskInformation {
    /// The format of the partition table.
    #[cfg_attr(feature = "serde", serde(rename = "type"))]
    pub kind: TableKind,
    /// The identity of the disk: a UUID, or eight digits in an MBR.
    pub identity: String,
    /// Bytes of the disk.
    pub size: u64,
    /// Bytes in a sector of the table.
    pub sector_size: u64,
    /// The partitions.
    pub partitions: Vec<PartitionInformation>,
}

/// What a partition is, and what is in it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct PartitionInformation {
    /// Its number.
    pub number: u32,
    /// Where it begins, in bytes.
    pub offset: u64,
    /// How long it is, in bytes.
    pub size: u64,
    /// The type, by its name in systemd-repart(8) if it has one.
    pub partition_type: String,
    /// Its UUID, in a GPT.
    pub partition_uuid: Option<String>,
    /// Its name, in a GPT.
    pub name: String,
    /// What it holds, by the name that blkid(8) has for it; `None` if that isn't known.
    pub content: Option<&'static str>,
    /// The label of the file system, if its kind is known here.
    pub label: Option<String>,
    /// The UUID of the file system, if its kind is known here.
    pub uuid: Option<String>,
    /// Whether it holds a file system that is known here.
    pub is_known: bool,
    /// Why it couldn't be looked at.
    pub problem: Option<String>,
}

impl DiskInformation {
    /// Reads the partition table of the disk that `name` stands for, and looks what the partitions hold.
    /// `None` if it isn't a disk: it has a file system of its own, or no partition table.
    ///
    /// # Errors
    ///
    /// It can't be read, or the table is damaged.
    pub fn read(name: &Path) -> Result<Option<DiskInformation>, Error> {
        on_image("read the partition table of", name, || {
            let Some(disk) = disk_content(&VolumeName::find_whole(name)?)? else { return Ok(None) };
            Ok(Some(DiskInformation {
                kind: disk.table.kind,
                identity: disk.table.identity,
                size: disk.size_bytes,
                sector_size: disk.table.sector_bytes,
                partitions: disk.partitions.iter().map(PartitionInformation::of).collect(),
            }))
        })
    }
}

impl PartitionInformation {
    fn of(found: &FoundPartition) -> PartitionInformation {
        let partition = &found.partition;
        let content = found.content.as_ref();
        let known = content.filter(|content| content.kind.is_some());
        let kind = &partition.kind;
        PartitionInformation {
            number: partition.number,
            offset: partition.offset,
            size: partition.length,
            partition_type: kind.name().map_or_else(|| kind.to_string(), str::to_owned),
            partition_uuid: partition.uuid.map(|uuid| uuid.to_string()),
            name: partition.name.clone(),
            content: content.map(|content| content.name),
            label: known.map(|content| content.label.clone()),
            uuid: known.and_then(|content| content.uuid).map(|uuid| uuid.to_string()),
            is_known: known.is_some(),
            problem: found.problem.as_ref().map(ToString::to_string),
        }
    }
}

/// The size of a file, device or partition that exists, in bytes.
///
/// # Errors
///
/// What the host says of it; [`ErrorCause::InUse`](crate::ErrorCause::InUse) if another process has it open to write.
pub fn size_of(name: &Path) -> Result<u64, Error> {
    on_image("find the size of", name, || {
        let name = VolumeName::find_whole(name)?;
        Ok(drystone_volumes::open_as_named(&name, OpenMode::ReadOnly)?.size_bytes())
    })
}
