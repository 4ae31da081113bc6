//! Writing a GUID partition table.
//!
//! # Crash
//! The copy at the end of the disk comes first, then the table, then the protective MBR, each made durable
//! before the next. Without the MBR nothing takes the disk for a partitioned one.
//!
//! # Reference
//! UEFI Specification, 5.2.3 "Protective MBR" and 5.3 "GUID Partition Table (GPT) Disk Layout".

use super::gpt::{HEADER_BYTES, RawGptEntry, RawGptHeader, SIGNATURE, crc32};
use super::mbr;
use super::{Partition, PartitionTable, PartitionType, TableError};
use drystone_blockdev::BlockDevice;
use std::ops::RangeInclusive;
use uuid::Uuid;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromZeros, IntoBytes};

/// Entries of a table: the fewest that firmware expects, and what every tool makes.
const ENTRIES: u32 = 128;
const ENTRY_BYTES: u32 = size_of::<RawGptEntry>() as u32;
const REVISION: u32 = 0x0001_0000;
/// The protective MBR and the header, before the entries.
const SECTORS_BEFORE_ENTRIES: u64 = 2;
/// Where an MBR has its first entry, and its signature.
const MBR_ENTRY_AT: usize = 446;
const MBR_SIGNATURE_AT: usize = 510;

/// Writes a table and its copy.
pub fn write(table: &PartitionTable, device: &dyn BlockDevice) -> Result<(), TableError> {
    let new = NewGpt::of(table, device.size_bytes())?;
    let sector = new.sector_bytes;
    let copy_at = new.sectors - 1 - new.entries_sectors();
    device.write_at(copy_at * sector, &new.entries)?;
    device.write_at((new.sectors - 1) * sector, &new.header(new.sectors - 1, 1, copy_at))?;
    device.flush()?;
    device.write_at(SECTORS_BEFORE_ENTRIES * sector, &new.entries)?;
    device.write_at(sector, &new.header(1, new.sectors - 1, SECTORS_BEFORE_ENTRIES))?;
    device.flush()?;
    device.write_at(0, &new.protective_mbr())?;
    device.flush()?;
    Ok(())
}

/// A table that is to be written.
struct NewGpt {
    sector_bytes: u64,
    /// Sectors of the disk.
    sectors: u64,
    disk: Uuid,
    entries: Vec<u8>,
}

impl NewGpt {
    fn of(table: &PartitionTable, disk_bytes: u64) -> Result<NewGpt, TableError> {
        let wrong = |problem: &str| TableError::NoGpt(problem.to_owned());
        let disk = Uuid::parse_str(&table.identity);
        let disk = disk.map_err(|_| wrong("the identity of the disk isn't a UUID"))?;
        if ![512, 4096].contains(&table.sector_bytes) {
            return Err(wrong("sectors have 512 or 4096 bytes"));
        }
        let entries = vec![0; (ENTRIES * ENTRY_BYTES) as usize];
        let sectors = disk_bytes / table.sector_bytes;
        let mut new = NewGpt { sector_bytes: table.sector_bytes, sectors, disk, entries };
        if sectors <= 2 * (SECTORS_BEFORE_ENTRIES + new.entries_sectors()) {
            return Err(wrong("the disk is too small"));
        }
        for (index, partition) in table.partitions.iter().enumerate() {
            let entry = new.entry(partition).map_err(|problem| {
                TableError::NoGpt(format!("partition {}: {problem}", partition.number))
            })?;
            let at = ((partition.number - 1) * ENTRY_BYTES) as usize;
            new.entries[at..at + entry.len()].copy_from_slice(&entry);
            for other in &table.partitions[..index] {
                let (one, two) = (partition.range(), other.range());
                if partition.number == other.number || one.start < two.end && two.start < one.end {
                    let (one, two) = (other.number, partition.number);
                    return Err(TableError::NoGpt(format!("partitions {one} and {two} overlap")));
                }
            }
        }
        Ok(new)
    }

    fn entries_sectors(&self) -> u64 {
        (self.entries.len() as u64).div_ceil(self.sector_bytes)
    }

    /// The sectors that partitions may have.
    fn usable(&self) -> RangeInclusive<u64> {
        let entries = self.entries_sectors();
        SECTORS_BEFORE_ENTRIES + entries..=self.sectors - 2 - entries
    }

    /// The entry of a partition, or what is wrong with it.
    fn entry(&self, partition: &Partition) -> Result<[u8; ENTRY_BYTES as usize], &'static str> {
        if !(1..=ENTRIES).contains(&partition.number) {
            return Err("a number that the table has no room for");
        }
        let (PartitionType::Gpt(kind), Some(uuid)) = (partition.kind, partition.uuid) else {
            return Err("the type isn't one of a GPT, or the UUID is missing");
        };
        let range = partition.range();
        let sector = self.sector_bytes;
        if !range.start.is_multiple_of(sector) || !range.end.is_multiple_of(sector) {
            return Err("it doesn't begin and end with a sector");
        }
        let (first, end) = (range.start / sector, range.end / sector);
        let usable = self.usable();
        if first >= end || !usable.contains(&first) || !usable.contains(&(end - 1)) {
            return Err("it isn't in the usable part of the disk");
        }
        let mut entry = RawGptEntry::new_zeroed();
        let mut units = partition.name.encode_utf16();
        for (place, unit) in entry.name.iter_mut().zip(units.by_ref()) {
            *place = U16::new(unit);
        }
        if units.next().is_some() {
            return Err("its name is too long");
        }
        entry.kind = kind.to_bytes_le();
        entry.uuid = uuid.to_bytes_le();
        entry.first_sector = U64::new(first);
        entry.last_sector = U64::new(end - 1);
        Ok(zerocopy::transmute!(entry))
    }

    /// The sector with a header.
    fn header(&self, own_sector: u64, other_sector: u64, entries_sector: u64) -> Vec<u8> {
        let mut header = RawGptHeader {
            signature: SIGNATURE,
            revision: U32::new(REVISION),
            header_size: U32::new(HEADER_BYTES as u32),
            checksum: U32::ZERO,
            reserved: U32::ZERO,
            own_sector: U64::new(own_sector),
            other_sector: U64::new(other_sector),
            first_usable: U64::new(*self.usable().start()),
            last_usable: U64::new(*self.usable().end()),
            disk: self.disk.to_bytes_le(),
            entries_sector: U64::new(entries_sector),
            entries: U32::new(ENTRIES),
            entry_size: U32::new(ENTRY_BYTES),
            entries_checksum: U32::new(crc32(&self.entries)),
        };
        header.checksum = U32::new(crc32(header.as_bytes()));
        let mut sector = vec![0; self.sector_bytes as usize];
        sector[..HEADER_BYTES].copy_from_slice(header.as_bytes());
        sector
    }

    /// The first sector: one partition over the whole disk, for tools that know no GPT.
    fn protective_mbr(&self) -> Vec<u8> {
        let mut sector = vec![0; self.sector_bytes as usize];
        let length = u32::try_from(self.sectors - 1).unwrap_or(u32::MAX).to_le_bytes();
        // The first sector in cylinders, heads and sectors is (0, 0, 2); the last can't be told so.
        let entry = [0, 0, 2, 0, mbr::PROTECTIVE, 0xff, 0xff, 0xff, 1, 0, 0, 0];
        sector[MBR_ENTRY_AT..MBR_ENTRY_AT + entry.len()].copy_from_slice(&entry);
        sector[MBR_ENTRY_AT + entry.len()..][..length.len()].copy_from_slice(&length);
        sector[MBR_SIGNATURE_AT..][..2].copy_from_slice(&mbr::SIGNATURE);
        sector
    }
}
