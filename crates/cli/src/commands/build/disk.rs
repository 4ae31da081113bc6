//! Makes the disk around an image: a partition table, an EFI system partition, and the root partition.
//!
//! The root comes last, so that it can grow with the disk; with `--verity-hash`, only the hash tree follows it.
//!
//! # Crash
//! The table is written when the partitions are complete and durable.

use super::machine;
use crate::failure::{Failure, Outcome};
use crate::messages::tell;
use crate::size;
use drystone::{BlockDevice, Partition, PartitionTable, PartitionType, Region, TableKind};
use drystone_blockdev::erase_signatures;
use drystone_mkfs::build::BuildMonitor;
use drystone_mkfs::fat::{FatBuilder, FatOptions};
use drystone_mkfs::tree::FileTree;
use drystone_sync::Arc;
use serde::Serialize;
use std::ffi::OsString;
use uuid::Uuid;

const SECTOR_BYTES: u64 = 512;
/// Partitions begin at multiples of this, and the first one here.
const ALIGNMENT: u64 = 1 << 20;
/// The copy of the table at the end of the disk: 32 sectors of entries and the header.
const TABLE_COPY_BYTES: u64 = 33 * SECTOR_BYTES;
/// The alignment of the hash tree, after an image with smaller blocks.
const HASH_BLOCK_BYTES: u64 = 4096;
const ESP_LABEL: [u8; 11] = *b"ESP        ";

/// The disk around the image.
#[derive(Debug, Default, clap::Args)]
pub struct DiskArguments {
    /// Make a disk with a partition table, in which the image is the root.
    #[arg(long, value_enum, value_name = "TABLE")]
    disk: Option<DiskTable>,
    /// Give the disk an EFI system partition with these files; later sources are laid over earlier ones.
    #[arg(long, value_name = "[KIND:]SOURCE", requires = "disk")]
    pub esp: Vec<OsString>,
    /// The size of the EFI system partition. [default: what the files need, and at least 33M]
    #[arg(long, value_name = "SIZE", value_parser = size::parse, requires = "esp")]
    esp_size: Option<u64>,
    /// The type of the root partition: a name as in systemd-repart(8), or a UUID. [default: that of the
    /// machine that the programs are for]
    #[arg(long, value_name = "TYPE", value_parser = parse_type, requires = "disk")]
    root_type: Option<PartitionType>,
}

/// A kind of partition table that can be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum DiskTable {
    /// A GUID partition table.
    Gpt,
}

/// A disk that is going to be made.
pub struct DiskLayout<'t> {
    esp: Option<FatBuilder<'t>>,
    root_type: PartitionType,
}

/// The content of the root partition.
#[derive(Clone, Copy, Debug)]
pub struct RootContent<'a> {
    /// The identity of the file system.
    pub uuid: Uuid,
    /// Its bytes.
    pub image_bytes: u64,
    /// Its bytes with the hash tree after it.
    pub all_bytes: u64,
    /// The root hash, if there are hashes.
    pub hash: Option<&'a [u8; 32]>,
}

impl DiskArguments {
    /// Lays out the disk, if one is asked for.
    pub fn layout<'t>(
        &self,
        esp: &'t FileTree,
        root: &FileTree,
        is_quiet: bool,
    ) -> Outcome<Option<DiskLayout<'t>>> {
        if self.disk.is_none() {
            return Ok(None);
        }
        let options =
            FatOptions::default().size_bytes(self.esp_size).label(ESP_LABEL).disk_offset(ALIGNMENT);
        let esp = match self.esp.is_empty() {
            true => None,
            false => Some(
                FatBuilder::new(esp, options)
                    .map_err(|error| anyhow::Error::new(error).context("EFI system partition"))?,
            ),
        };
        let found = || machine::root_type(root).and_then(PartitionType::in_gpt);
        let root_type = match self.root_type.or_else(found) {
            Some(found) => found,
            None => {
                if !is_quiet {
                    tell(
                        "no program says which machine the root is for, so its partition is of type \
                         linux-generic; --root-type sets it",
                    );
                }
                named_type("linux-generic")
            }
        };
        Ok(Some(DiskLayout { esp, root_type }))
    }
}

impl DiskLayout<'_> {
    fn esp_bytes(&self) -> u64 {
        self.esp.as_ref().map_or(0, FatBuilder::size_bytes)
    }

    /// Where the root begins, in bytes.
    fn root_offset(&self) -> u64 {
        ALIGNMENT + self.esp_bytes()
    }

    /// Files and bytes of the EFI system partition.
    pub fn files_and_bytes(&self) -> (u64, u64) {
        self.esp.as_ref().map_or((0, 0), |esp| (esp.files(), esp.data_bytes()))
    }

    /// Bytes of a disk whose root has so many; those of a device that is there, if it has fewer.
    pub fn size_bytes(&self, root_bytes: u64, device_bytes: Option<u64>) -> u64 {
        let needed = self.root_offset() + root_bytes + TABLE_COPY_BYTES;
        needed.next_multiple_of(ALIGNMENT).min(device_bytes.unwrap_or(u64::MAX))
    }

    /// Refuses a device on which nothing would find the partitions.
    pub fn check_sectors(&self, sector_bytes: Option<u64>) -> Outcome {
        match sector_bytes {
            None | Some(SECTOR_BYTES) => Ok(()),
            Some(other) => Err(Failure::Usage(format!(
                "the device has sectors of {other} bytes; disks are made with sectors of {SECTOR_BYTES}"
            ))),
        }
    }

    /// Bytes that the root may have on a disk of so many.
    pub fn room(&self, disk_bytes: u64) -> Outcome<u64> {
        let end = disk_bytes.saturating_sub(TABLE_COPY_BYTES) / ALIGNMENT * ALIGNMENT;
        match end.checked_sub(self.root_offset()) {
            Some(room) if room > 0 => Ok(room),
            _ => {
                let message = format!(
                    "the disk has {disk_bytes} bytes; more than {} are needed before the root",
                    self.root_offset()
                );
                Err(Failure::Usage(message))
            }
        }
    }

    /// The part of the disk that the root is written to. What the disk has at its ends is erased before.
    pub fn begin(
        &self,
        disk: &Arc<dyn BlockDevice>,
        root_bytes: u64,
        is_zeroed: bool,
    ) -> anyhow::Result<Arc<dyn BlockDevice>> {
        // The copy of the table must not be where the root ends.
        let needed = self.root_offset() + root_bytes + TABLE_COPY_BYTES;
        let room = disk.size_bytes();
        anyhow::ensure!(needed <= room, "{needed} bytes are needed, the device has {room}");
        if !is_zeroed {
            erase_signatures(disk)?;
        }
        Ok(Arc::new(Region::new(Arc::clone(disk), self.root_offset(), root_bytes)?))
    }

    /// Writes the EFI system partition and the table, once the root is written.
    pub fn finish(
        &self,
        disk: &Arc<dyn BlockDevice>,
        root: RootContent<'_>,
        is_zeroed: bool,
        monitor: &dyn BuildMonitor,
    ) -> anyhow::Result<MadeDisk> {
        let derived = |purpose: &[u8]| Uuid::new_v5(&root.uuid, purpose);
        if let Some(esp) = &self.esp {
            let region = Region::new(disk, ALIGNMENT, esp.size_bytes())?;
            let serial = derived(b"volume of the EFI system partition").as_fields().0;
            esp.write(&region, serial, is_zeroed, monitor)?;
        }
        disk.flush()?;
        let mut partitions = Vec::new();
        let mut add = |offset, length, kind, uuid, name: &str| {
            let number = partitions.len() as u32 + 1;
            let name = name.to_owned();
            partitions.push(Partition { number, offset, length, kind, uuid: Some(uuid), name });
        };
        if self.esp.is_some() {
            let uuid = derived(b"EFI system partition");
            add(ALIGNMENT, self.esp_bytes(), named_type("esp"), uuid, "esp");
        }
        let offset = self.root_offset();
        match root.hash.map(|hash| hash.as_chunks().0) {
            // The halves of the root hash are the UUIDs, by which systemd finds both.
            Some([first, second]) => {
                let bytes = root.image_bytes.next_multiple_of(HASH_BLOCK_BYTES);
                add(offset, bytes, self.root_type, Uuid::from_bytes(*first), "root");
                let kind = self.root_type.name().map(|name| format!("{name}-verity"));
                let kind = kind.and_then(|name| PartitionType::in_gpt(&name));
                let kind = kind.unwrap_or_else(|| named_type("linux-generic"));
                let uuid = Uuid::from_bytes(*second);
                add(offset + bytes, root.all_bytes - bytes, kind, uuid, "root-verity");
            }
            _ => add(offset, root.all_bytes, self.root_type, derived(b"root partition"), "root"),
        }
        let table = PartitionTable {
            kind: TableKind::Gpt,
            identity: derived(b"disk").to_string(),
            sector_bytes: SECTOR_BYTES,
            partitions,
        };
        table.write_gpt(disk)?;
        Ok(MadeDisk::from(table))
    }
}

/// The disk that was made, in JSON.
#[derive(Clone, Debug, Serialize)]
pub struct MadeDisk {
    uuid: String,
    partitions: Vec<MadePartition>,
}

#[derive(Clone, Debug, Serialize)]
struct MadePartition {
    number: u32,
    name: String,
    #[serde(rename = "type")]
    kind: String,
    uuid: Option<String>,
    offset: u64,
    size: u64,
}

impl From<PartitionTable> for MadeDisk {
    fn from(table: PartitionTable) -> MadeDisk {
        let made = |partition: &Partition| MadePartition {
            number: partition.number,
            name: partition.name.clone(),
            kind: partition.kind.name().map_or_else(|| partition.kind.to_string(), str::to_owned),
            uuid: partition.uuid.map(|uuid| uuid.to_string()),
            offset: partition.offset,
            size: partition.length,
        };
        MadeDisk { partitions: table.partitions.iter().map(made).collect(), uuid: table.identity }
    }
}

impl MadeDisk {
    /// A line for each partition.
    pub fn text(&self) -> String {
        let lines = self.partitions.iter().map(|made| {
            let (number, name, kind) = (made.number, &made.name, &made.kind);
            let uuid = made.uuid.as_deref().unwrap_or_default();
            format!("\n#{number} {name}: {}, type {kind}, PARTUUID {uuid}", size::bytes(made.size))
        });
        lines.collect()
    }
}

fn named_type(name: &str) -> PartitionType {
    // The names that are written here are in the list.
    PartitionType::in_gpt(name).expect("a type that is known")
}

fn parse_type(text: &str) -> Result<PartitionType, String> {
    let problem = "a name as in systemd-repart(8), such as root-x86-64 or home, or a UUID";
    PartitionType::in_gpt(text).ok_or_else(|| problem.to_owned())
}
