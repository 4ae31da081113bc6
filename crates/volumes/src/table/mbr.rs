//! The table of the master boot record, with logical partitions.
//!
//! # Reference
//! UEFI Specification, 5.2 "LBA 0 Format". Logical partitions are in a chain of such tables: the first
//! entry of each is a partition, relative to that table; the second is the next table, relative to the
//! extended partition.

use super::{Partition, PartitionTable, PartitionType, TableError, TableKind, read_if_there};
use drystone_blockdev::{BlockDevice, DeviceError};
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

/// Logical partitions that are read of a disk. Linux shows fewer.
pub const LOGICAL_MAX: u32 = 256;
/// The number of the first logical partition.
const LOGICAL_FIRST: u32 = 5;
pub(super) const SIGNATURE: [u8; 2] = [0x55, 0xaa];
/// The type that says that the disk has a GPT.
pub(super) const PROTECTIVE: u8 = 0xee;
/// Types of partitions that only hold logical ones.
pub(super) const EXTENDED: [u8; 3] = [0x05, 0x0f, 0x85];
/// File systems whose first sector has the same signature, and where they have their name.
const BOOT_SECTORS: [(usize, &[u8]); 5] =
    [(54, b"FAT"), (82, b"FAT32"), (3, b"NTFS    "), (3, b"EXFAT   "), (3, b"-FVE-FS-")];

#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawMbrEntry {
    boot_flag: u8,
    _first_chs: [u8; 3],
    kind: u8,
    _last_chs: [u8; 3],
    first_sector: U32,
    sectors: U32,
}
const _: () = assert!(size_of::<RawMbrEntry>() == 16);

/// The first sector of a disk.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct MasterBootRecord {
    code: [u8; 440],
    disk: U32,
    _reserved: [u8; 2],
    entries: [RawMbrEntry; 4],
    signature: [u8; 2],
}
const _: () = assert!(size_of::<MasterBootRecord>() == 512);

impl RawMbrEntry {
    fn is_used(&self) -> bool {
        self.kind != 0 && self.sectors.get() > 0
    }

    fn partition(&self, number: u32, base_sector: u64, sector_bytes: u64) -> Partition {
        Partition {
            number,
            offset: (base_sector + u64::from(self.first_sector.get())) * sector_bytes,
            length: u64::from(self.sectors.get()) * sector_bytes,
            kind: PartitionType::Mbr(self.kind),
            uuid: None,
            name: String::new(),
        }
    }
}

/// Reads the first sector, if it holds a table.
pub fn read(device: &dyn BlockDevice) -> Result<Option<MasterBootRecord>, DeviceError> {
    Ok(read_table(device, 0)?.filter(|found| !found.is_boot_sector()))
}

fn read_table(
    device: &dyn BlockDevice,
    sector: u64,
) -> Result<Option<MasterBootRecord>, DeviceError> {
    let mut bytes = [0; size_of::<MasterBootRecord>()];
    if !read_if_there(device, sector.saturating_mul(device.sector_bytes()), &mut bytes)? {
        return Ok(None);
    }
    let table: MasterBootRecord = zerocopy::transmute!(bytes);
    let has_flags = table.entries.iter().all(|entry| matches!(entry.boot_flag, 0 | 0x80));
    Ok((table.signature == SIGNATURE && has_flags).then_some(table))
}

impl MasterBootRecord {
    /// Whether it is the start of a file system, or describes no partition.
    fn is_boot_sector(&self) -> bool {
        let is_named = |(at, name): &(usize, &[u8])| self.code[*at..].starts_with(name);
        BOOT_SECTORS.iter().any(is_named) || !self.entries.iter().any(RawMbrEntry::is_used)
    }

    /// Whether it only says that there is a GPT.
    pub fn is_protective(&self) -> bool {
        self.entries.iter().any(|entry| entry.kind == PROTECTIVE)
    }

    /// The partitions, logical ones too.
    pub fn table(&self, device: &dyn BlockDevice) -> Result<PartitionTable, TableError> {
        let mut partitions = Vec::new();
        for (number, entry) in (1..).zip(&self.entries).filter(|(_, entry)| entry.is_used()) {
            partitions.push(entry.partition(number, 0, device.sector_bytes()));
        }
        let is_extended = |entry: &&RawMbrEntry| EXTENDED.contains(&entry.kind) && entry.is_used();
        if let Some(extended) = self.entries.iter().find(is_extended) {
            let start = u64::from(extended.first_sector.get());
            add_logical(device, start, &mut partitions)?;
        }
        Ok(PartitionTable {
            kind: TableKind::Mbr,
            identity: format!("{:08x}", self.disk.get()),
            sector_bytes: device.sector_bytes(),
            partitions,
        })
    }
}

/// Follows the chain of tables in an extended partition that begins at sector `start`.
fn add_logical(
    device: &dyn BlockDevice,
    start: u64,
    partitions: &mut Vec<Partition>,
) -> Result<(), TableError> {
    let mut sector = start;
    let mut number = LOGICAL_FIRST;
    for _ in 0..LOGICAL_MAX {
        // A chain that leads to no table ends there, as in Linux.
        let Some(table) = read_table(device, sector)? else { return Ok(()) };
        let mut next = None;
        for entry in table.entries.iter().filter(|entry| entry.is_used()) {
            if EXTENDED.contains(&entry.kind) {
                next.get_or_insert(start + u64::from(entry.first_sector.get()));
            } else {
                partitions.push(entry.partition(number, sector, device.sector_bytes()));
                number += 1;
            }
        }
        match next {
            Some(found) => sector = found,
            None => return Ok(()),
        }
    }
    Err(TableError::LogicalPartitions)
}
