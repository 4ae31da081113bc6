//! The GUID partition table.
//!
//! # Reference
//! UEFI Specification, 5.3 "GUID Partition Table (GPT) Disk Layout".

use super::{Partition, PartitionTable, PartitionType, TableError, TableKind, read_if_there};
use crc_fast::{CrcAlgorithm, checksum};
use drystone_blockdev::BlockDevice;
use uuid::Uuid;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Sizes that sectors have.
const SECTOR_SIZES: [u64; 2] = [512, 4096];
pub(super) const SIGNATURE: [u8; 8] = *b"EFI PART";
pub(super) const HEADER_BYTES: usize = size_of::<RawGptHeader>();
/// Bytes of entries that are read: more than any tool makes.
const ENTRIES_BYTES_MAX: u64 = 1 << 20;

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct RawGptHeader {
    pub signature: [u8; 8],
    pub revision: U32,
    pub header_size: U32,
    pub checksum: U32,
    pub reserved: U32,
    /// Where this header is, in sectors.
    pub own_sector: U64,
    pub other_sector: U64,
    pub first_usable: U64,
    pub last_usable: U64,
    pub disk: [u8; 16],
    pub entries_sector: U64,
    pub entries: U32,
    pub entry_size: U32,
    pub entries_checksum: U32,
}
const _: () = assert!(size_of::<RawGptHeader>() == 92);

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct RawGptEntry {
    pub kind: [u8; 16],
    pub uuid: [u8; 16],
    pub first_sector: U64,
    /// Inclusive.
    pub last_sector: U64,
    pub attributes: U64,
    /// UTF-16.
    pub name: [U16; 36],
}
const _: () = assert!(size_of::<RawGptEntry>() == 128);

/// Reads the table of a disk that says that it has one.
pub fn read(device: &dyn BlockDevice) -> Result<PartitionTable, TableError> {
    let mut problems = None;
    // An image in a file may be that of a disk with other sectors, so all sizes are tried.
    let mut sizes = SECTOR_SIZES;
    sizes.sort_by_key(|size| *size != device.sector_bytes());
    for sector_bytes in sizes {
        let first = match read_copy(device, sector_bytes, 1) {
            Ok(table) => return Ok(table),
            Err(problem) => problem,
        };
        let last = (device.size_bytes() / sector_bytes).saturating_sub(1);
        let second = match read_copy(device, sector_bytes, last) {
            Ok(table) => {
                tracing::warn!("the copy at the end of the disk stands in for its GPT: {first}");
                return Ok(table);
            }
            Err(problem) => problem,
        };
        // The error is about the sector size for which there is a header.
        let is_about_one =
            |(first, second): &(String, String)| first != NO_HEADER || second != NO_HEADER;
        if !problems.as_ref().is_some_and(is_about_one) {
            problems = Some((first, second));
        }
    }
    let (first, second) = problems.unwrap_or((NO_HEADER.to_owned(), NO_HEADER.to_owned()));
    Err(TableError::Gpt { first, second })
}

const NO_HEADER: &str = "there is no header";

/// Reads the copy whose header is in a sector, or says what is wrong with it: also that it can't be read, since
/// the other is there for that.
fn read_copy(
    device: &dyn BlockDevice,
    sector_bytes: u64,
    sector: u64,
) -> Result<PartitionTable, String> {
    let header = read_header(device, sector_bytes, sector)?;
    let entry_bytes = u64::from(header.entry_size.get());
    let bytes = entry_bytes * u64::from(header.entries.get());
    if entry_bytes < size_of::<RawGptEntry>() as u64 || bytes > ENTRIES_BYTES_MAX {
        return Err("entries of an impossible number or size".to_owned());
    }
    let mut entries = vec![0; bytes as usize];
    let offset = header.entries_sector.get().saturating_mul(sector_bytes);
    if !read_if_there(device, offset, &mut entries).map_err(|error| error.to_string())? {
        return Err("its entries are beyond the end of the disk".to_owned());
    }
    if crc32(&entries) != header.entries_checksum.get() {
        return Err("wrong checksum of the entries".to_owned());
    }
    let mut partitions = Vec::new();
    for (number, bytes) in (1..).zip(entries.chunks_exact(entry_bytes as usize)) {
        let Ok((entry, _)) = RawGptEntry::read_from_prefix(bytes) else { continue };
        if entry.kind != [0; 16] {
            match entry.partition(number, sector_bytes) {
                Some(partition) => partitions.push(partition),
                // Linux leaves out just this one, too.
                None => tracing::warn!("partition {number} is left out: it ends before it begins"),
            }
        }
    }
    Ok(PartitionTable {
        kind: TableKind::Gpt,
        identity: Uuid::from_bytes_le(header.disk).to_string(),
        sector_bytes,
        partitions,
    })
}

fn read_header(
    device: &dyn BlockDevice,
    sector_bytes: u64,
    sector: u64,
) -> Result<RawGptHeader, String> {
    let mut bytes = vec![0; sector_bytes as usize];
    let offset = sector.saturating_mul(sector_bytes);
    let is_there = read_if_there(device, offset, &mut bytes).map_err(|error| error.to_string())?;
    let header = RawGptHeader::read_from_prefix(&bytes).ok().filter(|_| is_there);
    let Some((header, _)) = header else { return Err("the disk is too small".to_owned()) };
    if header.signature != SIGNATURE {
        return Err(NO_HEADER.to_owned());
    }
    let size = header.header_size.get() as usize;
    if !(HEADER_BYTES..=bytes.len()).contains(&size) {
        return Err("a header of an impossible size".to_owned());
    }
    // The checksum counts as zero in itself.
    let checksum_at = std::mem::offset_of!(RawGptHeader, checksum);
    bytes[checksum_at..checksum_at + size_of::<U32>()].fill(0);
    if crc32(&bytes[..size]) != header.checksum.get() {
        return Err("wrong checksum of the header".to_owned());
    }
    if header.own_sector.get() != sector {
        return Err("a header that belongs elsewhere".to_owned());
    }
    Ok(header)
}

impl RawGptEntry {
    fn partition(&self, number: u32, sector_bytes: u64) -> Option<Partition> {
        let (first, last) = (self.first_sector.get(), self.last_sector.get());
        let sectors = last.checked_sub(first)?.checked_add(1)?;
        let name = self.name.iter().map(|unit| unit.get()).take_while(|unit| *unit != 0);
        let name = char::decode_utf16(name).map(|found| found.unwrap_or('\u{fffd}')).collect();
        Some(Partition {
            number,
            offset: first.checked_mul(sector_bytes)?,
            length: sectors.checked_mul(sector_bytes)?,
            kind: PartitionType::Gpt(Uuid::from_bytes_le(self.kind)),
            uuid: Some(Uuid::from_bytes_le(self.uuid)),
            name,
        })
    }
}

pub(super) fn crc32(bytes: &[u8]) -> u32 {
    // The upper half is zero.
    checksum(CrcAlgorithm::Crc32IsoHdlc, bytes) as u32
}
