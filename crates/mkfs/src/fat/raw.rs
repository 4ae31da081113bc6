//! Structures of FAT32 on disk.
//!
//! # Reference
//! Microsoft FAT Specification, 3 "Boot Sector and BPB", 5 "FAT32 FSInfo" and 6 "Directory Structure".

use super::names::{FatName, UNITS_PER_ENTRY};
use crate::tree::InodeTimestamp;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{Immutable, IntoBytes, Unaligned};

pub const DIRECTORY: u8 = 0x10;
pub const ARCHIVE: u8 = 0x20;
pub const VOLUME_LABEL: u8 = 0x08;
const LONG_NAME: u8 = 0x0f;
/// Marks the entry with the end of a long name, which comes first.
const LAST: u8 = 0x40;

/// The first and last time that can be stored: 1980-01-01 and 2107-12-31, in seconds since 1970.
const SECONDS_MIN: i64 = 315_532_800;
const SECONDS_MAX: i64 = 4_354_819_199;

#[derive(Clone, Copy, Debug, IntoBytes, Immutable, Unaligned)]
#[repr(C)]
pub struct BootSector {
    pub jump: [u8; 3],
    pub maker: [u8; 8],
    pub sector_bytes: U16,
    pub cluster_sectors: u8,
    pub reserved_sectors: U16,
    pub tables: u8,
    pub root_entries: U16,
    pub sectors_16: U16,
    pub media: u8,
    pub table_sectors_16: U16,
    pub track_sectors: U16,
    pub heads: U16,
    pub hidden_sectors: U32,
    pub sectors: U32,
    pub table_sectors: U32,
    pub flags: U16,
    pub version: U16,
    pub root_cluster: U32,
    pub information_sector: U16,
    pub backup_sector: U16,
    pub reserved: [u8; 12],
    pub drive: u8,
    pub reserved_too: u8,
    pub extended_signature: u8,
    pub serial: U32,
    pub label: [u8; 11],
    pub kind: [u8; 8],
    pub code: [u8; 420],
    pub signature: [u8; 2],
}
const _: () = assert!(size_of::<BootSector>() == 512);

#[derive(Clone, Copy, Debug, IntoBytes, Immutable, Unaligned)]
#[repr(C)]
pub struct InformationSector {
    pub lead: [u8; 4],
    pub reserved: [u8; 480],
    pub signature: [u8; 4],
    pub free_clusters: U32,
    pub next_free: U32,
    pub reserved_too: [u8; 12],
    pub trail: [u8; 4],
}
const _: () = assert!(size_of::<InformationSector>() == 512);

#[derive(Clone, Copy, Debug, IntoBytes, Immutable, Unaligned)]
#[repr(C)]
pub struct FatDirectoryEntry {
    pub name: [u8; 11],
    pub attributes: u8,
    pub reserved: u8,
    pub created_centiseconds: u8,
    pub created_time: U16,
    pub created_date: U16,
    pub accessed_date: U16,
    pub cluster_high: U16,
    pub modified_time: U16,
    pub modified_date: U16,
    pub cluster_low: U16,
    pub size: U32,
}
const _: () = assert!(size_of::<FatDirectoryEntry>() == 32);

impl FatDirectoryEntry {
    /// An entry with the modification time for all its times.
    pub fn new(
        name: [u8; 11],
        attributes: u8,
        modified: InodeTimestamp,
        cluster: u32,
        size: u32,
    ) -> Self {
        let (date, time) = date_and_time(modified);
        FatDirectoryEntry {
            name,
            attributes,
            reserved: 0,
            created_centiseconds: 0,
            created_time: U16::new(time),
            created_date: U16::new(date),
            accessed_date: U16::new(date),
            cluster_high: U16::new((cluster >> 16) as u16),
            modified_time: U16::new(time),
            modified_date: U16::new(date),
            cluster_low: U16::new(cluster as u16),
            size: U32::new(size),
        }
    }
}

/// The entries of a long name, which precede the one with the short name.
pub fn long_name_entries(name: &FatName) -> Vec<[u8; 32]> {
    let pieces: Vec<&[u16]> = name.long.chunks(UNITS_PER_ENTRY).collect();
    let entry = |(index, piece): (usize, &&[u16])| {
        let last = if index + 1 == pieces.len() { LAST } else { 0 };
        let mut bytes = [0; 32];
        // At most 20 pieces: a name is checked to have no more than 255 units.
        bytes[0] = (index + 1) as u8 | last;
        bytes[11] = LONG_NAME;
        bytes[13] = name.checksum();
        // A zero ends a name that leaves room, and the rest is filled up.
        let rest = std::iter::once(0).chain(std::iter::repeat(0xffff));
        let places = [1, 3, 5, 7, 9, 14, 16, 18, 20, 22, 24, 28, 30];
        for (place, unit) in places.into_iter().zip(piece.iter().copied().chain(rest)) {
            bytes[place..place + 2].copy_from_slice(&u16::to_le_bytes(unit));
        }
        bytes
    };
    pieces.iter().enumerate().map(entry).rev().collect()
}

/// Date and time in UTC, to two seconds.
fn date_and_time(time: InodeTimestamp) -> (u16, u16) {
    let seconds = time.seconds.clamp(SECONDS_MIN, SECONDS_MAX);
    let (mut day, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let mut year = 1970;
    let is_leap = |year: i64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    while day >= 365 + i64::from(is_leap(year)) {
        day -= 365 + i64::from(is_leap(year));
        year += 1;
    }
    let mut month = 1;
    for length in [31, 28 + i64::from(is_leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if day < length {
            break;
        }
        day -= length;
        month += 1;
    }
    let date = (year - 1980) << 9 | month << 5 | (day + 1);
    let clock = (second / 3600) << 11 | (second / 60 % 60) << 5 | (second % 60 / 2);
    (date as u16, clock as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        let told = |seconds| {
            let (date, time) = date_and_time(InodeTimestamp::from_seconds(seconds));
            let date = (1980 + (date >> 9), date >> 5 & 15, date & 31);
            (date, (time >> 11, time >> 5 & 63, (time & 31) * 2))
        };
        assert_eq!(told(0), ((1980, 1, 1), (0, 0, 0)));
        assert_eq!(told(951_827_696), ((2000, 2, 29), (12, 34, 56)));
        assert_eq!(told(1_735_689_599), ((2024, 12, 31), (23, 59, 58)));
        assert_eq!(told(4_107_542_400), ((2100, 3, 1), (0, 0, 0)));
        assert_eq!(told(i64::MAX), ((2107, 12, 31), (23, 59, 58)));
    }
}
