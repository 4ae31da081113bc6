//! The table of the master boot record, with logical partitions.
//!
//! # Reference
//! UEFI Specification, 5.2 "LBA 0 Format". Logical partitions are in a chain of such tables: the first
//! entry of each is a partition, relative to that table; the second is the next table, relative to the
//! extended partition. Partitions are numbered as Linux does (`block/partitions/msdos.c`), sfdisk(8) and blkid(8): of
//! a table in the chain each entry with a size counts, the last two only if they lie in that table's part of
//! the disk.

use super::{Partition, PartitionTable, PartitionType, TableKind, read_if_there};
use drystone_blockdev::{BlockDevice, DeviceError};
use std::collections::HashSet;
use std::ops::Range;
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

/// Logical partitions that are read of a disk. Linux shows fewer.
const LOGICAL_MAX: usize = 256;
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

    fn is_extended(&self) -> bool {
        self.sectors.get() > 0 && EXTENDED.contains(&self.kind)
    }

    /// Its sectors, relative to those of `base`.
    fn sectors_from(&self, base: u64) -> Range<u64> {
        let first = base + u64::from(self.first_sector.get());
        first..first + u64::from(self.sectors.get())
    }

    fn partition(&self, number: u32, base_sector: u64, sector_bytes: u64) -> Partition {
        let sectors = self.sectors_from(base_sector);
        Partition {
            number,
            offset: sectors.start * sector_bytes,
            length: (sectors.end - sectors.start) * sector_bytes,
            kind: PartitionType::Mbr(self.kind),
            uuid: None,
            name: String::new(),
        }
    }
}

/// Reads the first sector, if it holds a table.
pub fn read(device: &dyn BlockDevice) -> Result<Option<MasterBootRecord>, DeviceError> {
    let has_flags = |found: &MasterBootRecord| {
        found.entries.iter().all(|entry| matches!(entry.boot_flag, 0 | 0x80))
    };
    Ok(read_table(device, 0)?.filter(|found| has_flags(found) && !found.is_boot_sector()))
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
    Ok((table.signature == SIGNATURE).then_some(table))
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

    /// The partitions, logical ones too. What comes after a break in the chain of those is missing.
    pub fn table(&self, device: &dyn BlockDevice) -> PartitionTable {
        let sector_bytes = device.sector_bytes();
        let used = (1..).zip(&self.entries).filter(|(_, entry)| entry.is_used());
        let mut partitions: Vec<Partition> =
            used.map(|(number, entry)| entry.partition(number, 0, sector_bytes)).collect();
        let mut logical = Vec::new();
        for entry in self.entries.iter().filter(|entry| entry.is_extended()) {
            if let Err(problem) = add_logical(device, &entry.sectors_from(0), &mut logical) {
                tracing::warn!("logical partitions may be missing: {problem}");
            }
        }
        partitions.append(&mut logical);
        PartitionTable {
            kind: TableKind::Mbr,
            identity: format!("{:08x}", self.disk.get()),
            sector_bytes,
            partitions,
        }
    }
}

/// Follows the chain of tables in an extended partition. The error says where the chain breaks.
fn add_logical(
    device: &dyn BlockDevice,
    extended: &Range<u64>,
    partitions: &mut Vec<Partition>,
) -> Result<(), String> {
    // The part of the disk that each table is for begins with it.
    let mut part = extended.clone();
    let mut seen = HashSet::new();
    while seen.len() < LOGICAL_MAX && seen.insert(part.start) {
        let table = read_table(device, part.start).map_err(|error| error.to_string())?;
        // A chain that leads to no table ends there, as in Linux.
        let Some(table) = table else { return Ok(()) };
        let is_partition = |entry: &&RawMbrEntry| entry.sectors.get() > 0 && !entry.is_extended();
        let is_inside = |entry: &RawMbrEntry| {
            let sectors = entry.sectors_from(part.start);
            sectors.end <= part.end.min(extended.end)
        };
        let (first, last) = table.entries.split_at(2);
        let counted = first.iter().chain(last.iter().filter(|entry| is_inside(entry)));
        for entry in counted.filter(is_partition) {
            if partitions.len() == LOGICAL_MAX {
                return Err(format!("there are more than {LOGICAL_MAX}"));
            }
            let number = LOGICAL_FIRST + partitions.len() as u32;
            partitions.push(entry.partition(number, part.start, device.sector_bytes()));
        }
        match table.entries.iter().find(|entry| entry.is_extended()) {
            Some(next) => part = next.sectors_from(extended.start),
            None => return Ok(()),
        }
    }
    Err("their chain doesn't end".to_owned())
}
