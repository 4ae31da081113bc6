//! Partition tables that sfdisk(8) makes, damaged ones, and those that are written here.
#![allow(clippy::unwrap_used, reason = "a test")]

use drystone_blockdev::{BlockDevice, MemoryDevice, OpenMode};
use drystone_testkit::judges::{Scratch, have};
use drystone_testkit::skip::{Prerequisite, skip};
use drystone_volumes::{
    PartitionTable, PartitionType, TableError, TableKind, VolumeError, VolumeName, disk_content,
    open, open_as_named,
};
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const DISK_BYTES: u64 = 64 << 20;

/// A disk of zeros with a table that a script of sfdisk(8) describes.
fn disk(scratch: &Scratch, name: &str, script: &str) -> PathBuf {
    let path = scratch.join(name);
    File::create(&path).unwrap().set_len(DISK_BYTES).unwrap();
    partition(&path, script);
    path
}

fn partition(path: &Path, script: &str) {
    let mut sfdisk = Command::new("sfdisk");
    sfdisk.env("PATH", paths()).args(["--quiet", "--no-tell-kernel"]).arg(path);
    let mut child = sfdisk.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success(), "{script}");
}

fn paths() -> String {
    format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default())
}

/// What sfdisk(8) says of the partitions: number, start and size in bytes.
fn judged(path: &Path) -> Vec<(u32, u64, u64)> {
    let mut sfdisk = Command::new("sfdisk");
    let output = sfdisk.env("PATH", paths()).arg("--dump").arg(path).output().unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    let lines = text.lines().filter(|line| line.contains(" start="));
    let number = |line: &str, key: &str| -> u64 {
        let rest = &line[line.find(key).unwrap() + key.len()..];
        rest.split(',').next().unwrap().trim().parse().unwrap()
    };
    lines
        .map(|line| {
            let device = line.split(" :").next().unwrap().trim();
            let digits = device.rfind(|c: char| !c.is_ascii_digit()).unwrap() + 1;
            let id = device[digits..].parse().unwrap();
            (id, number(line, "start=") * 512, number(line, "size=") * 512)
        })
        .collect()
}

fn memory(path: &Path) -> MemoryDevice {
    MemoryDevice::from_bytes(&std::fs::read(path).unwrap())
}

fn table(path: &Path) -> PartitionTable {
    PartitionTable::read(&memory(path)).unwrap().unwrap()
}

fn found(path: &Path) -> Vec<(u32, u64, u64)> {
    let partitions = table(path).partitions;
    partitions.iter().map(|found| (found.number, found.offset, found.length)).collect()
}

const GPT: &str = "label: gpt\nlabel-id: 11111111-2222-4333-8444-555555555555\n\
    size=4M, type=C12A7328-F81F-11D2-BA4B-00A0C93EC93B, name=EFI\n\
    size=20M, type=4F68BCE3-E8CD-4DB1-96E7-FBCAF984B709, name=system, uuid=AAAAAAAA-BBBB-4CCC-8DDD-EEEEEEEEEEEE\n\
    5: size=8M, type=933AC7E1-2EB4-4F13-B844-0E14E2AEF915, name=\"my näme @home\"\n";
const MBR: &str = "label: dos\nlabel-id: 0x12345678\n\
    size=4M, type=ef\nsize=8M, type=83, bootable\nsize=40M, type=5\n\
    size=6M, type=83\nsize=7M, type=82\nsize=5M, type=83\n";

#[test]
fn a_gpt_is_read_as_sfdisk_reads_it() {
    let scratch = Scratch::new("tables-gpt").unwrap();
    let path = disk(&scratch, "disk", GPT);
    let table = table(&path);
    assert_eq!((table.kind, table.sector_bytes), (TableKind::Gpt, 512));
    assert_eq!(table.identity, "11111111-2222-4333-8444-555555555555");
    assert_eq!(found(&path), judged(&path));
    let names: Vec<_> = table.partitions.iter().map(|found| found.name.as_str()).collect();
    assert_eq!(names, ["EFI", "system", "my näme @home"]);
    let kinds: Vec<_> = table.partitions.iter().map(|found| found.kind.name()).collect();
    assert_eq!(kinds, [Some("esp"), Some("root-x86-64"), Some("home")]);
    let uuid = table.partitions[1].uuid.unwrap().to_string();
    assert_eq!(uuid, "aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee");
}

/// What sfdisk(8) made is read, written to an empty disk, and judged again.
#[test]
fn a_gpt_is_written_as_sfdisk_writes_it() {
    let scratch = Scratch::new("tables-written").unwrap();
    let original = disk(&scratch, "original", GPT);
    let (table, path) = (table(&original), scratch.join("written"));
    let written = MemoryDevice::new(DISK_BYTES);
    table.write_gpt(&written).unwrap();
    assert_eq!(PartitionTable::read(&written).unwrap(), Some(table.clone()));
    let mut bytes = vec![0; DISK_BYTES as usize];
    written.read_at(0, &mut bytes).unwrap();
    std::fs::write(&path, &bytes).unwrap();
    assert_eq!(judged(&path), judged(&original));
    for (program, word) in [("sfdisk", "--verify"), ("sgdisk", "-v")] {
        if have(program) {
            let output =
                Command::new(program).env("PATH", paths()).arg(word).arg(&path).output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let is_good = output.status.success() && output.stderr.is_empty();
            assert!(is_good && !text.contains("Problem:"), "{program}: {text}");
        }
    }
    // With the other size of sectors too.
    let large = PartitionTable { sector_bytes: 4096, ..table };
    let written = MemoryDevice::new(DISK_BYTES);
    large.write_gpt(&written).unwrap();
    assert_eq!(PartitionTable::read(&written).unwrap(), Some(large));
}

#[test]
fn partitions_that_a_gpt_can_not_have_are_refused() {
    let scratch = Scratch::new("tables-refused").unwrap();
    let good = table(&disk(&scratch, "disk", GPT));
    let refused = |disk_bytes: u64, change: fn(&mut PartitionTable)| {
        let mut table = good.clone();
        change(&mut table);
        let device = MemoryDevice::new(disk_bytes);
        let error = table.write_gpt(&device).unwrap_err();
        assert!(matches!(error, TableError::NoGpt(_)), "{error}");
        assert_eq!(PartitionTable::read(&device).unwrap(), None);
        error.to_string()
    };
    assert!(refused(20_000, |_| {}).contains("too small"));
    assert!(refused(16 << 20, |_| {}).contains("partition 2: it isn't in the usable part"));
    assert!(refused(DISK_BYTES, |table| table.partitions[0].offset = 512).contains("usable"));
    assert!(refused(DISK_BYTES, |table| table.partitions[0].offset += 1).contains("sector"));
    assert!(refused(DISK_BYTES, |table| table.partitions[0].length = 0).contains("usable"));
    let twice = refused(DISK_BYTES, |table| table.partitions[0].length += 512);
    assert!(twice.contains("partitions 1 and 2 overlap"), "{twice}");
    assert!(refused(DISK_BYTES, |table| table.partitions[0].number = 5).contains("overlap"));
    assert!(refused(DISK_BYTES, |table| table.partitions[0].number = 129).contains("number"));
    assert!(refused(DISK_BYTES, |table| table.partitions[0].uuid = None).contains("UUID"));
    assert!(
        refused(DISK_BYTES, |table| table.partitions[0].name = "n".repeat(37)).contains("long")
    );
    assert!(refused(DISK_BYTES, |table| table.identity = "x".to_owned()).contains("identity"));
}

/// The other copy is taken if one is damaged, as Linux does.
#[test]
fn either_copy_of_a_gpt_is_enough() {
    let scratch = Scratch::new("tables-copies").unwrap();
    let path = disk(&scratch, "disk", GPT);
    let whole = table(&path);
    let bytes = std::fs::read(&path).unwrap();
    let last = bytes.len() - 512;
    // The header or the entries, of the first copy or of the other.
    for damaged in [512, 512 + 60, 1024 + 40, last + 16, last - 128 * 128 + 3] {
        let mut bytes = bytes.clone();
        bytes[damaged] ^= 0x41;
        let read = PartitionTable::read(&MemoryDevice::from_bytes(&bytes)).unwrap();
        assert_eq!(read.as_ref(), Some(&whole), "byte {damaged}");
    }
    let mut bytes = bytes;
    bytes[512 + 60] ^= 1;
    bytes[last + 60] ^= 1;
    let error = PartitionTable::read(&MemoryDevice::from_bytes(&bytes)).unwrap_err();
    assert!(matches!(error, TableError::Gpt { .. }), "{error}");
    assert!(error.to_string().contains("wrong checksum of the header"), "{error}");
}

#[test]
fn an_mbr_is_read_with_its_logical_partitions() {
    let scratch = Scratch::new("tables-mbr").unwrap();
    let path = disk(&scratch, "disk", MBR);
    let table = table(&path);
    assert_eq!((table.kind, table.identity.as_str()), (TableKind::Mbr, "12345678"));
    assert_eq!(found(&path), judged(&path));
    let kinds: Vec<_> = table.partitions.iter().map(|found| found.kind).collect();
    assert_eq!(kinds, [0xef, 0x83, 5, 0x83, 0x82, 0x83].map(PartitionType::Mbr));
    // A chain that leads back to itself.
    let extended = table.partitions[2].offset;
    let file = File::options().write(true).open(&path).unwrap();
    let entry = [0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0];
    file.write_all_at(&entry, extended + 446 + 16).unwrap();
    assert_eq!(
        PartitionTable::read(&memory(&path)).unwrap(),
        Some(PartitionTable { partitions: table.partitions[..5].to_vec(), ..table })
    );
}

#[test]
fn what_is_no_disk_has_no_table() {
    let read = |bytes: &[u8]| PartitionTable::read(&MemoryDevice::from_bytes(bytes)).unwrap();
    assert_eq!(read(&[]), None);
    assert_eq!(read(&[0; 511]), None);
    assert_eq!(read(&[0; 4096]), None);
    // The first sector of a FAT has the same signature.
    let mut fat = vec![0; 4096];
    fat[510..512].copy_from_slice(&[0x55, 0xaa]);
    fat[446 + 4] = 0x83;
    fat[446 + 12] = 8;
    assert!(read(&fat).is_some());
    fat[82..90].copy_from_slice(b"FAT32   ");
    assert_eq!(read(&fat), None);
}

/// Whatever a table says, reading it ends, without much memory and without a panic.
#[test]
fn damaged_tables_do_no_harm() {
    let seed: u64 = std::env::var("DRYSTONE_SEED").map_or(16, |seed| seed.parse().unwrap());
    let mut random = fastrand::Rng::with_seed(seed);
    let scratch = Scratch::new("tables-damage").unwrap();
    for (name, script) in [("gpt", GPT), ("mbr", MBR)] {
        let path = disk(&scratch, name, script);
        let bytes = std::fs::read(&path).unwrap();
        let device = MemoryDevice::from_bytes(&bytes);
        let tables = [0..2048, 2048..17_408, (bytes.len() as u64 - 17_000)..bytes.len() as u64];
        for case in 0..400 {
            let range = random.choice(&tables).unwrap().clone();
            let at = random.u64(range);
            let damage = [random.u8(..), 0xff, 0xff, 0x7f];
            let length = random.usize(1..=4).min(bytes.len() - at as usize);
            device.write_at(at, &damage[..length]).unwrap();
            // Half of them with a checksum that fits, so that the values are looked at.
            if random.bool() {
                seal(&device);
            }
            let told = PartitionTable::read(&device);
            if let Ok(Some(table)) = told {
                assert!(table.partitions.len() < 10_000, "case {case} of seed {seed}");
            }
            if case % 8 == 7 {
                for range in &tables {
                    let range = range.start as usize..range.end as usize;
                    device.write_at(range.start as u64, &bytes[range]).unwrap();
                }
            }
        }
    }
}

/// Makes the checksum of the first header of a GPT right.
fn seal(device: &MemoryDevice) {
    let mut header = [0; 92];
    device.read_at(512, &mut header).unwrap();
    header[16..20].fill(0);
    let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32IsoHdlc, &header) as u32;
    device.write_at(512 + 16, &crc.to_le_bytes()).unwrap();
}

/// Makes a small ext4 with a label in a part of a disk.
fn fill(path: &Path, part: &str, label: &str, uuid: u8) {
    let name = VolumeName::find(&with(path, part)).unwrap();
    let device = open_as_named(&name, OpenMode::ReadWrite).unwrap();
    let size = device.size_bytes();
    let mut options = drystone_mkfs::MkfsOptions::new(size, [uuid; 16], [2; 4], 1_000_000_000);
    options.label = label.as_bytes().to_vec();
    drystone_mkfs::make(&*device, &options, true).unwrap();
}

fn with(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// The size tells which partition was opened.
fn size_of(path: &Path, suffix: &str) -> Result<u64, VolumeError> {
    let name = VolumeName::find(&with(path, suffix))?;
    Ok(open(&name, OpenMode::ReadOnly)?.size_bytes())
}

#[test]
fn partitions_are_found_by_all_their_names() {
    let scratch = Scratch::new("tables-names").unwrap();
    let path = disk(&scratch, "disk", GPT);
    // No known file system yet.
    let error = size_of(&path, "").unwrap_err();
    assert!(matches!(error, VolumeError::NoFileSystem { .. }), "{error}");
    fill(&path, "#2", "label 2", 0x22);
    // The one that there is.
    assert_eq!(size_of(&path, "").unwrap(), 20 << 20);
    for (name, size) in [
        ("#1", 4 << 20),
        ("#2", 20 << 20),
        ("#system", 20 << 20),
        ("#label 2", 20 << 20),
        ("#root", 20 << 20),
        ("#root-x86-64", 20 << 20),
        ("#4F68BCE3-E8CD-4DB1-96E7-FBCAF984B709", 20 << 20),
        ("#aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee", 20 << 20),
        ("#22222222-2222-2222-2222-222222222222", 20 << 20),
        ("#esp", 4 << 20),
        ("#EFI", 4 << 20),
        ("#home", 8 << 20),
        ("#my näme @home", 8 << 20),
        ("@offset=1M,size=3M", 3 << 20),
        ("#2@offset=4M", 16 << 20),
    ] {
        assert_eq!(size_of(&path, name).unwrap(), size, "{name}");
    }
    let error = size_of(&path, "#9").unwrap_err().to_string();
    let expected = "no partition #9; there are #1 (unknown content, 'EFI'), #2 (ext4, 'label 2'), \
                    #5 (unknown content, 'my näme @home')";
    assert_eq!(error, expected);
    fill(&path, "#5", "label 2", 0x55);
    let error = size_of(&path, "").unwrap_err();
    assert!(matches!(error, VolumeError::SeveralFileSystems { .. }), "{error}");
    let error = size_of(&path, "#label 2").unwrap_err();
    assert!(matches!(error, VolumeError::Ambiguous { .. }), "{error}");
    for (name, problem) in [
        ("@offset=65M", "beyond the end"),
        ("@offset=1M,size=64M", "beyond the end"),
        ("#2#1", "no partition table"),
        ("@offset=2M#1", "no partition table"),
        ("@offset=0,size=0", "beyond the end"),
    ] {
        // Only a file system by itself is looked for in partitions.
        let error = VolumeName::find(&with(&path, name))
            .map_err(VolumeError::from)
            .and_then(|name| open_as_named(&name, OpenMode::ReadOnly))
            .unwrap_err()
            .to_string();
        assert!(error.contains(problem), "{name}: {error}");
    }
}

/// A disk that was formatted as a whole and partitioned later keeps its old superblock.
#[test]
fn an_old_superblock_does_not_hide_partitions() {
    let scratch = Scratch::new("tables-both").unwrap();
    let path = disk(&scratch, "disk", MBR);
    let table = std::fs::read(&path).unwrap()[..512].to_vec();
    fill(&path, "#2", "new", 0x22);
    let before = std::fs::read(&path).unwrap();
    fill(&path, "", "old", 0x11);
    // Without a table, the whole disk is meant.
    let file = File::options().write(true).open(&path).unwrap();
    file.write_all_at(&[0; 512], 0).unwrap();
    assert_eq!(size_of(&path, "").unwrap(), DISK_BYTES);
    let superblock = std::fs::read(&path).unwrap()[1024..2048].to_vec();
    file.write_all_at(&before, 0).unwrap();
    file.write_all_at(&table, 0).unwrap();
    file.write_all_at(&superblock, 1024).unwrap();
    let error = size_of(&path, "").unwrap_err();
    assert!(matches!(error, VolumeError::FileSystemAndPartitions { .. }), "{error}");
    assert!(error.to_string().contains("#2 (ext4, 'new')"), "{error}");
    let name = |suffix: &str| VolumeName::find(&with(&path, suffix)).unwrap();
    assert_eq!(disk_content(&name("")).unwrap().unwrap().partitions.len(), 6);
    assert_eq!(size_of(&path, "#2").unwrap(), 8 << 20);
    assert_eq!(size_of(&path, "@offset=0").unwrap(), DISK_BYTES);
    assert_eq!(disk_content(&name("@offset=0")).unwrap(), None);
    // Boot code, or the table of an image for CDs too, in which a partition is all of the disk.
    let entry = [0x80, 0, 0, 0, 0x17, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0];
    file.write_all_at(&[0; 64], 446).unwrap();
    assert_eq!(size_of(&path, "").unwrap(), DISK_BYTES);
    file.write_all_at(&entry, 446).unwrap();
    assert_eq!(size_of(&path, "").unwrap(), DISK_BYTES);
}

/// What an extended partition holds are the logical ones.
#[test]
fn an_extended_partition_is_not_opened() {
    let scratch = Scratch::new("tables-extended").unwrap();
    let path = disk(&scratch, "disk", MBR);
    for mode in [OpenMode::ReadOnly, OpenMode::ReadWrite] {
        let name = VolumeName::find(&with(&path, "#3")).unwrap();
        let error = open_as_named(&name, mode).unwrap_err();
        assert!(matches!(error, VolumeError::ExtendedPartition(_)), "{error}");
    }
    for (name, size) in [("#5", 7 << 20), ("#12345678-02", 8 << 20), ("#12345678-05", 7 << 20)] {
        assert_eq!(size_of(&path, name).unwrap(), size, "{name}");
    }
}

/// A loop device with sectors of 4,096 bytes, until this is dropped.
struct LargeSectors(PathBuf);

impl LargeSectors {
    /// `None`, after a note of the skip, where there are none.
    fn of(image: &Path) -> Option<LargeSectors> {
        let mut losetup = Command::new("losetup");
        let words = ["--find", "--show", "--sector-size", "4096"];
        let output = losetup.env("PATH", paths()).args(words).arg(image).output();
        let attached = output.ok().filter(|output| output.status.success());
        let path = attached.and_then(|output| String::from_utf8(output.stdout).ok());
        let path = path.map(|path| path.trim().into());
        if path.is_none() {
            skip(Prerequisite::LoopMounts, "a loop device with large sectors");
        }
        path.map(LargeSectors)
    }
}

impl Drop for LargeSectors {
    fn drop(&mut self) {
        let _ = Command::new("losetup").env("PATH", paths()).arg("--detach").arg(&self.0).status();
    }
}

/// Tables count in the sectors of the device, as Linux has it.
#[test]
fn tables_of_large_sectors_are_read_as_sfdisk_reads_them() {
    let scratch = Scratch::new("tables-large").unwrap();
    let path = scratch.join("disk");
    for script in [MBR, GPT] {
        std::fs::write(&path, "").unwrap();
        File::options().write(true).open(&path).unwrap().set_len(DISK_BYTES).unwrap();
        let Some(device) = LargeSectors::of(&path) else { return };
        partition(&device.0, script);
        let name = VolumeName::find(&device.0).unwrap();
        let disk = disk_content(&name).unwrap().unwrap();
        assert_eq!(disk.table.sector_bytes, 4096);
        let found = disk.partitions.iter().map(|found| &found.partition);
        let found = found.map(|found| (found.number, found.offset / 8, found.length / 8));
        assert_eq!(found.collect::<Vec<_>>(), judged(&device.0));
    }
}

/// Two partitions of a disk may be written at once; the same one may not.
#[test]
fn partitions_are_locked_one_by_one() {
    let scratch = Scratch::new("tables-locks").unwrap();
    let path = disk(&scratch, "disk", MBR);
    let open =
        |suffix: &str, mode| open_as_named(&VolumeName::find(&with(&path, suffix)).unwrap(), mode);
    let first = open("#2", OpenMode::ReadWrite).unwrap();
    let second = open("#6", OpenMode::ReadWrite).unwrap();
    first.write_at(0, b"first").unwrap();
    second.write_at(0, b"second").unwrap();
    let offset = table(&path).partitions[1].offset;
    for suffix in ["#2", "", &format!("@offset={offset},size=512"), "#2@offset=1M"] {
        for mode in [OpenMode::ReadOnly, OpenMode::ReadWrite] {
            let error = open(suffix, mode).unwrap_err().to_string();
            assert!(error.contains("in use by another process"), "{suffix} {mode:?}: {error}");
        }
    }
    drop((first, second));
    let mut bytes = [0; 5];
    open("", OpenMode::ReadWrite).unwrap().read_at(offset, &mut bytes).unwrap();
    assert_eq!(&bytes, b"first");
}
