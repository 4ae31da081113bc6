//! Partition tables that are damaged in part, and odd ones, judged by partx(8).
#![allow(clippy::unwrap_used, reason = "a test")]

use drystone_blockdev::{
    BlockDevice, DeviceOperation, Effect, Fault, Faulty, MemoryDevice, OpenMode,
};
use drystone_testkit::judges::{Scratch, have};
use drystone_volumes::{
    Partition, PartitionTable, PartitionType, TableKind, VolumeError, VolumeName, open,
};
use std::path::{Path, PathBuf};
use std::process::Command;
use uuid::Uuid;

const DISK_BYTES: u64 = 64 << 20;
/// Sectors in a MiB.
const M: u32 = 2048;

type Entry = (u8, u32, u32);

/// A disk with tables of an MBR in these sectors.
fn mbr(tables: &[(u32, &[Entry])]) -> MemoryDevice {
    let disk = MemoryDevice::new(DISK_BYTES);
    for (sector, entries) in tables {
        let mut bytes = [0; 512];
        for (index, (kind, first, sectors)) in entries.iter().enumerate() {
            let entry = &mut bytes[446 + 16 * index..][..16];
            entry[4] = *kind;
            entry[8..12].copy_from_slice(&first.to_le_bytes());
            entry[12..].copy_from_slice(&sectors.to_le_bytes());
        }
        bytes[510..].copy_from_slice(&[0x55, 0xaa]);
        disk.write_at(u64::from(*sector) * 512, &bytes).unwrap();
    }
    disk
}

fn numbers_and_sectors(disk: &dyn BlockDevice) -> Vec<(u32, u64, u64)> {
    let table = PartitionTable::read(disk).unwrap().unwrap();
    let found = table.partitions.iter();
    found.map(|found| (found.number, found.offset / 512, found.length / 512)).collect()
}

fn written(path: &Path, disk: &MemoryDevice) {
    let mut bytes = vec![0; DISK_BYTES as usize];
    disk.read_at(0, &mut bytes).unwrap();
    std::fs::write(path, bytes).unwrap();
}

/// What partx(8) says, which has libblkid's numbers.
fn judged(path: &Path) -> Vec<(u32, u64, u64)> {
    let partx = Command::new("partx").args(["-g", "-o", "NR,START,SECTORS"]).arg(path).output();
    let text = String::from_utf8(partx.unwrap().stdout).unwrap();
    let number = |word: Option<&str>| word.unwrap().parse::<u64>().unwrap();
    text.lines()
        .map(|line| {
            let mut words = line.split_whitespace();
            let mut next = || number(words.next());
            (next() as u32, next(), next())
        })
        .collect()
}

#[test]
fn logical_partitions_have_the_numbers_that_linux_gives_them() {
    if !have("partx") {
        return;
    }
    let scratch = Scratch::new("odd-logical").unwrap();
    let main: &[Entry] = &[(0x83, M, 8 * M), (5, 10 * M, 50 * M)];
    let last: &[Entry] = &[(0x83, M, 8 * M)];
    let unused = mbr(&[
        (0, main),
        (10 * M, &[(0, M, 8 * M), (5, 10 * M, 20 * M)]),
        (20 * M, &[(0x83, M, 8 * M), (5, 20 * M, 20 * M)]),
        (30 * M, last),
    ]);
    let circle = mbr(&[
        (0, main),
        (10 * M, &[(0x83, M, 8 * M), (5, 10 * M, 20 * M)]),
        (20 * M, &[(0x83, M, 8 * M), (5, 0, 20 * M)]),
    ]);
    let two_extended = mbr(&[
        (0, &[(0x83, M, 8 * M), (5, 10 * M, 20 * M), (0xf, 40 * M, 20 * M)]),
        (10 * M, last),
        (40 * M, last),
    ]);
    let other_entries = mbr(&[
        (0, main),
        (10 * M, &[(0x83, M, 8 * M), (5, 10 * M, 20 * M), (0x83, 900 * M, M), (0x83, M / 2, 4)]),
        (20 * M, last),
    ]);
    let flags =
        mbr(&[(0, main), (10 * M, &[(0x83, M, 8 * M), (5, 10 * M, 20 * M)]), (20 * M, last)]);
    flags.write_at(u64::from(10 * M) * 512 + 446 + 32, &[0x6f; 32]).unwrap();
    let names = ["unused", "circle", "two extended", "other entries", "flags"];
    for (name, disk) in names.iter().zip([unused, circle, two_extended, other_entries, flags]) {
        let path = scratch.join(name);
        written(&path, &disk);
        assert_eq!(numbers_and_sectors(&disk), judged(&path), "{name}");
    }
}

fn fails_to_read(disk: MemoryDevice, bytes: std::ops::Range<u64>) -> Faulty<MemoryDevice> {
    let disk = Faulty::new(disk);
    disk.inject(Fault::of(DeviceOperation::Read, Effect::InputOutputError).in_range(bytes));
    disk
}

/// A dying disk still gives its other partitions.
#[test]
fn a_chain_that_can_not_be_read_takes_no_other_partitions_along() {
    let disk = mbr(&[
        (0, &[(0x83, M, 8 * M), (5, 10 * M, 50 * M)]),
        (10 * M, &[(0x83, M, 8 * M), (5, 10 * M, 20 * M)]),
        (20 * M, &[(0x83, M, 8 * M)]),
    ]);
    let second = u64::from(20 * M) * 512;
    let disk = fails_to_read(disk, second..second + 512);
    let numbers: Vec<u32> = numbers_and_sectors(&disk).iter().map(|found| found.0).collect();
    assert_eq!(numbers, [1, 2, 5]);
}

fn gpt() -> (MemoryDevice, PartitionTable) {
    let disk = MemoryDevice::new(DISK_BYTES);
    let partition = |number: u32| Partition {
        number,
        offset: u64::from(number) * (8 << 20),
        length: 8 << 20,
        kind: PartitionType::in_gpt("home").unwrap(),
        uuid: Some(Uuid::from_u128(number.into())),
        name: format!("p{number}"),
    };
    let table = PartitionTable {
        kind: TableKind::Gpt,
        identity: Uuid::from_u128(7).to_string(),
        sector_bytes: 512,
        partitions: (1..=3).map(partition).collect(),
    };
    table.write_gpt(&disk).unwrap();
    (disk, table)
}

#[test]
fn a_gpt_that_can_not_be_read_has_a_copy() {
    for bad in [512..1024, 1024..1536] {
        let (disk, table) = gpt();
        let disk = fails_to_read(disk, bad);
        assert_eq!(PartitionTable::read(&disk).unwrap(), Some(table));
    }
    let (disk, _) = gpt();
    let disk = fails_to_read(disk, 512..1024);
    let last = DISK_BYTES - 512..DISK_BYTES;
    disk.inject(Fault::of(DeviceOperation::Read, Effect::InputOutputError).in_range(last));
    let error = PartitionTable::read(&disk).unwrap_err().to_string();
    assert!(error.contains("at byte 512 failed"), "{error}");
}

/// Linux leaves out just that one.
#[test]
fn an_entry_that_ends_before_it_begins_hides_no_others() {
    let (disk, table) = gpt();
    for (header, entries) in [(512, 1024), (DISK_BYTES - 512, DISK_BYTES - 512 - 16_384)] {
        let entry_at = entries + 128;
        disk.write_at(entry_at + 40, &5_u64.to_le_bytes()).unwrap();
        let crc = |bytes: &[u8]| {
            let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32IsoHdlc, bytes) as u32;
            crc.to_le_bytes()
        };
        let mut bytes = vec![0; 16_384];
        disk.read_at(entries, &mut bytes).unwrap();
        disk.write_at(header + 88, &crc(&bytes)).unwrap();
        let mut bytes = [0; 92];
        disk.read_at(header, &mut bytes).unwrap();
        bytes[16..20].fill(0);
        disk.write_at(header + 16, &crc(&bytes)).unwrap();
    }
    let mut expected = table;
    expected.partitions.remove(1);
    assert_eq!(PartitionTable::read(&disk).unwrap(), Some(expected));
}

/// What was copied only in part may have had its file system in the part that is missing.
#[test]
fn a_disk_that_is_cut_off_has_nothing_chosen_of_it() {
    let scratch = Scratch::new("odd-cut").unwrap();
    let path = scratch.join("disk");
    let disk = gpt().0;
    let first = drystone_blockdev::Region::new(&disk, 8 << 20, 8 << 20).unwrap();
    let options = drystone_mkfs::MkfsOptions::new(8 << 20, [9; 16], [2; 4], 1_000_000_000);
    drystone_mkfs::make(&first, &options, true).unwrap();
    written(&path, &disk);
    let opened = |suffix: &str| {
        let name = PathBuf::from(format!("{}{suffix}", path.display()));
        open(&VolumeName::find(&name).unwrap(), OpenMode::ReadOnly)
    };
    assert_eq!(opened("").unwrap().size_bytes(), 8 << 20);
    std::fs::File::options().write(true).open(&path).unwrap().set_len(28 << 20).unwrap();
    let error = opened("").unwrap_err();
    assert!(matches!(error, VolumeError::UnreadablePartitions { .. }), "{error}");
    assert!(error.to_string().contains("#3 (cut off, 'p3')"), "{error}");
    opened("#1").unwrap();
    assert!(matches!(opened("#3").unwrap_err(), VolumeError::BeyondEnd { .. }));
}
