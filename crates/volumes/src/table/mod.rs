//! Partition tables: GPT and MBR are read, GPT is written.
//!
//! Tables are read here because the libraries for it (`gpt`, `gptman`) panic on some tables, or allocate as
//! much memory as a table claims to need.

mod gpt;
mod kinds;
mod mbr;
mod new_gpt;

use crate::kind::read_if_there;
use drystone_blockdev::{BlockDevice, DeviceError};
use std::fmt;
use std::ops::Range;
use uuid::Uuid;

/// A table of partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionTable {
    /// Its format.
    pub kind: TableKind,
    /// The identity of the disk: a UUID, or the number in an MBR.
    pub identity: String,
    /// Bytes in a sector, which the table counts in.
    pub sector_bytes: u64,
    /// Its partitions, by number.
    pub partitions: Vec<Partition>,
}

/// The format of a partition table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
pub enum TableKind {
    /// The GUID partition table.
    Gpt,
    /// That of the master boot record.
    Mbr,
}

/// A partition, as its table describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Its number; the first is 1, and logical ones of an MBR begin at 5.
    pub number: u32,
    /// Where it begins, in bytes.
    pub offset: u64,
    /// How long it is, in bytes.
    pub length: u64,
    /// What it is meant for.
    pub kind: PartitionType,
    /// Its UUID, in a GPT.
    pub uuid: Option<Uuid>,
    /// Its name, in a GPT; may be empty.
    pub name: String,
}

/// What a partition is meant for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartitionType {
    /// In a GPT.
    Gpt(Uuid),
    /// In an MBR.
    Mbr(u8),
}

/// Why a partition table can't be used.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    /// The disk can't be read.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The disk says that it has a GPT, and neither copy of it is whole.
    #[error("damaged GPT: {first}; the copy at the end of the disk: {second}")]
    Gpt {
        /// What is wrong with the copy at the start.
        first: String,
        /// What is wrong with the other.
        second: String,
    },
    /// Partitions that a GPT can't have.
    #[error("no GPT can be made: {0}")]
    NoGpt(String),
}

impl PartitionTable {
    /// Reads the table of a disk, if it has one. If only a part of it can be used, that is read, with a warning.
    ///
    /// # Errors
    ///
    /// As [`TableError`] says.
    pub fn read(device: &dyn BlockDevice) -> Result<Option<PartitionTable>, TableError> {
        let Some(mbr) = mbr::read(device)? else { return Ok(None) };
        match mbr.is_protective() {
            true => gpt::read(device).map(Some),
            false => Ok(Some(mbr.table(device))),
        }
    }

    /// Writes a GPT with these partitions, its copy and a protective MBR to a disk, over what is in their
    /// place, and makes it durable. The MBR comes last, so the disk has no table before it is whole.
    ///
    /// # Errors
    ///
    /// [`TableError::NoGpt`] if the disk is too small for the table, or a partition isn't in its usable
    /// part, has no UUID, or overlaps another; errors of the device.
    pub fn write_gpt(&self, device: &dyn BlockDevice) -> Result<(), TableError> {
        new_gpt::write(self, device)
    }
}

impl Partition {
    /// Its bytes in the disk.
    #[must_use]
    pub fn range(&self) -> Range<u64> {
        self.offset..self.offset.saturating_add(self.length)
    }
}

impl PartitionType {
    /// The type in a GPT with this name of systemd-repart(8), or with this UUID.
    #[must_use]
    pub fn in_gpt(name: &str) -> Option<PartitionType> {
        let uuid = kinds::uuid_of(name).or_else(|| Uuid::parse_str(name).ok())?;
        Some(PartitionType::Gpt(uuid))
    }

    /// Whether it only holds logical partitions.
    #[must_use]
    pub fn is_extended(&self) -> bool {
        matches!(self, Self::Mbr(kind) if mbr::EXTENDED.contains(kind))
    }

    /// Whether it may hold a file system: it has a type, and doesn't only hold logical partitions.
    pub(crate) fn is_for_files(&self) -> bool {
        !self.is_extended() && *self != Self::Mbr(0)
    }

    /// The name, as systemd-repart(8) has it, or what stands for one.
    #[must_use]
    pub fn name(&self) -> Option<&'static str> {
        kinds::name_of(self)
    }
}

impl fmt::Display for PartitionType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gpt(uuid) => write!(f, "{uuid}"),
            Self::Mbr(number) => write!(f, "{number:#04x}"),
        }
    }
}
