//! What `wipefs` of util-linux finds on a device is not written over unasked, and nothing of it is
//! left once an image was made.
#![allow(clippy::unwrap_used, reason = "a test")]

use drystone_blockdev::{FileDevice, OpenMode, holds_data};
use drystone_mkfs::{MkfsOptions, make};
use drystone_nilfs2::mkfs::MakeOptions;
use drystone_testkit::judges::run;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use uuid::Uuid;

/// Some formats aren't looked for on less than 64 MiB.
const SIZE: u64 = 80 << 20;
const SECTOR: u64 = 512;

/// What something is recognised by: bytes, and where they are, from the end if negative.
type Parts = Vec<(i64, Vec<u8>)>;

fn samples() -> Vec<(&'static str, Parts)> {
    let simple: &[(&str, i64, &[u8])] = &[
        ("btrfs", 0x10040, b"_BHRfS_M"),
        ("reiser4", 0x10000, b"ReIsEr4"),
        ("ufs", 0x255c, &[0x54, 0x19, 1, 0]),
        ("ufs", 0x4055c, &[0x54, 0x19, 1, 0]),
        ("VMFS_volume_member", 1 << 20, &[0x0d, 0xd0, 0x01, 0xc0]),
        ("VMFS", 2 << 20, &[0x5e, 0xf1, 0xab, 0x2f]),
        ("iso9660", 0x8000, b"\x01CD001\x01"),
        ("f2fs", 0x400, &[0x10, 0x20, 0xf5, 0xf2, 1, 0, 14, 0]),
        ("ocfs2", 0x2000, b"OCFSV2"),
        ("exfat", 3, b"EXFAT   "),
        ("crypto_LUKS", 0, b"LUKS\xba\xbe\x00\x01"),
        ("ddf_raid_member", -512, &[0xde, 0x11, 0xde, 0x11]),
        ("isw_raid_member", -1024, b"Intel Raid ISM Cfg Sig. 1.0.00"),
        ("promise_fasttrack_raid_member", -63 * 512, b"Promise Technology, Inc."),
        ("promise_fasttrack_raid_member", -3087 * 512, b"Promise Technology, Inc."),
        ("drbd", -4096 + 60, &[0x83, 0x74, 0x02, 0x6b]),
    ];
    let mut samples: Vec<(&str, Parts)> = simple
        .iter()
        .map(|&(name, offset, bytes)| (name, vec![(offset, bytes.to_vec())]))
        .collect();
    let raid = |version: u32| words(&[0xa92b_4efc, version]);
    let end = (SIZE - 8192) / SECTOR;
    // The hidden header of LUKS2 says itself where it is; so do the headers of RAIDs since 1.0.
    let hidden = [&0x40_0000_u64.to_be_bytes()[..]].concat();
    let uberblock = [0x00ba_b10c_u64.to_le_bytes(), 5000_u64.to_le_bytes()].concat();
    let uberblocks = |label: i64| {
        (0..8).map(|index| (label + 0x20000 + index * 1024, uberblock.clone())).collect()
    };
    let swap = words(&[1, 100]);
    samples.extend([
        (
            "reiserfs",
            vec![(0x10034, b"ReIsEr2Fs".to_vec()), (0x1002c, vec![0, 16]), (0x1000c, words(&[18]))],
        ),
        (
            "gfs2",
            vec![
                (0x10000, vec![1, 0x16, 0x19, 0x70]),
                (0x10018, [1801_u32.to_be_bytes(), 1900_u32.to_be_bytes()].concat()),
            ],
        ),
        ("xfs", xfs()),
        ("ntfs", ntfs()),
        ("hfs", vec![(0x400, b"BD".to_vec()), (0x414, vec![0, 0, 0x10, 0])]),
        ("hfsplus", vec![(0x400, b"H+\0\x04".to_vec()), (0x428, vec![0, 0, 0x10, 0])]),
        (
            "udf",
            vec![
                (0x8000, b"\0BEA01\x01".to_vec()),
                (0x8800, b"\0NSR02\x01".to_vec()),
                (0x9000, b"\0TEA01\x01".to_vec()),
                // The tag of the anchor, which says where it is.
                (256 * 2048, words(&[0x2_0002, 0, 0, 256])),
            ],
        ),
        (
            "bcache",
            vec![
                (0x1008, vec![8]),
                (
                    0x1018,
                    [0xc685_73f6_4e1a_45ca_u64, 0x8265_f57f_48ba_6d81]
                        .map(u64::to_be_bytes)
                        .concat(),
                ),
            ],
        ),
        (
            "jfs",
            vec![(0x8000, b"JFS1\x01".to_vec()), (0x8010, words(&[4096, 3 << 16 | 12, 512, 9]))],
        ),
        (
            "crypto_LUKS",
            vec![(4 << 20, b"SKUL\xba\xbe\x00\x02".to_vec()), ((4 << 20) + 256, hidden)],
        ),
        ("linux_raid_member", vec![(-65536, words(&[0xa92b_4efc, 0, 90]))]),
        ("linux_raid_member", vec![(-8192, raid(1)), (-8192 + 0x90, end.to_le_bytes().to_vec())]),
        ("linux_raid_member", vec![(0, raid(1))]),
        ("linux_raid_member", vec![(4096, raid(1)), (4096 + 0x90, vec![8])]),
        ("swap", vec![(1024, swap.clone()), (4096 - 10, b"SWAPSPACE2".to_vec())]),
        ("swap", vec![(1024, swap), (65536 - 10, b"SWAPSPACE2".to_vec())]),
        ("squashfs", vec![(0, b"hsqs".to_vec()), (28, vec![4])]),
        ("zfs_member", uberblocks(0)),
        ("zfs_member", uberblocks(-(512 << 10))),
        ("LVM2_member", logical_volumes()),
        ("gpt", partition_table()),
        // Only the copy at the end is left.
        ("gpt", partition_table().into_iter().filter(|part| part.0 < 512).collect()),
    ]);
    samples
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// 4096-byte blocks in one allocation group.
fn xfs() -> Parts {
    let blocks = (SIZE / 4096) as u32;
    let big = |words: &[u32]| words.iter().flat_map(|word| word.to_be_bytes()).collect();
    vec![
        (0, b"XFSB".to_vec()),
        (4, big(&[4096, 0, blocks])),
        (80, big(&[1, blocks, 1])),
        // Version, bytes of a sector and of an inode, inodes of a block; later their logarithms.
        (100, big(&[0x4_0200, 0x100_0010])),
        (120, vec![12, 9, 8, 4, 15, 0, 0, 25]),
    ]
}

/// Its file table is in the fourth cluster of 4 KiB.
fn ntfs() -> Parts {
    vec![
        (3, b"NTFS    ".to_vec()),
        (11, vec![0, 2, 8]),
        (40, (SIZE / SECTOR - 1).to_le_bytes().to_vec()),
        (48, [4_u64, 2].map(u64::to_le_bytes).concat()),
        (64, vec![0xf6, 0, 0, 0, 1]),
        (4 * 4096, b"FILE".to_vec()),
        (4 * 4096 + 3 * 1024, b"FILE".to_vec()),
    ]
}

/// The CRC of Ethernet, without the last inversion.
fn crc(bytes: &[u8], initial: u32) -> u32 {
    bytes.iter().fold(initial, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| crc >> 1 ^ (0xedb8_8320 * (crc & 1)))
    })
}

fn logical_volumes() -> Parts {
    let mut label = vec![b'a'; 512];
    label[..16].copy_from_slice(b"LABELONE\x01\0\0\0\0\0\0\0");
    label[20..32].copy_from_slice(b"\x20\0\0\0LVM2 001");
    let sum = crc(&label[20..], 0xf597_a6cf);
    label[16..20].copy_from_slice(&sum.to_le_bytes());
    vec![(512, label)]
}

fn partition_table() -> Parts {
    let last = SIZE / SECTOR - 1;
    let mut entries = vec![0; 128 * 128];
    entries[..32].fill(0xab);
    for (at, sector) in [(32, 2048_u64), (40, 4095)] {
        entries[at..at + 8].copy_from_slice(&sector.to_le_bytes());
    }
    let header = |own: u64, other: u64, first_entry: u64| {
        let mut header = [b"EFI PART".to_vec(), words(&[0x10000, 92, 0, 0])].concat();
        header.extend([own, other, 34, last - 33].iter().flat_map(|sector| sector.to_le_bytes()));
        header.extend([0xcd; 16]);
        header.extend(first_entry.to_le_bytes());
        header.extend(words(&[128, 128, !crc(&entries, !0)]));
        let sum = !crc(&header, !0);
        header[16..20].copy_from_slice(&sum.to_le_bytes());
        header
    };
    vec![
        (446, [words(&[0, 0xee, 1, last as u32]), vec![0; 48], vec![0x55, 0xaa]].concat()),
        (512, header(1, last, 2)),
        (1024, entries.clone()),
        (-512, header(last, 1, last - 32)),
        (-33 * 512, entries.clone()),
    ]
}

/// Types, and programs that make them.
const MADE: [(&str, &str, &[&str]); 4] = [
    ("ext4", "mke2fs", &["-q", "-t", "ext4"]),
    ("vfat", "mkfs.fat", &[]),
    ("nilfs2", "mkfs.nilfs2", &["-q", "-B", "256"]),
    ("swap", "mkswap", &[]),
];

/// A file of [`SIZE`] with these bytes.
fn write(path: &Path, parts: &Parts) {
    let file = File::create(path).unwrap();
    file.set_len(SIZE).unwrap();
    for (offset, bytes) in parts {
        let offset = if *offset < 0 { SIZE.strict_add_signed(*offset) } else { *offset as u64 };
        file.write_all_at(bytes, offset).unwrap();
    }
}

/// The types that `wipefs` finds; a system that has `mount` has it too.
fn found(path: &Path) -> Vec<String> {
    let output =
        Command::new("wipefs").args(["-n", "-i", "-O", "TYPE"]).arg(path).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_string).collect()
}

#[test]
fn what_wipefs_finds_is_seen_and_erased() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("device");
    type Make<'o> = &'o dyn Fn(&FileDevice);
    let ext4 = MkfsOptions::new(SIZE, [7; 16], [1; 4], 1_700_000_000);
    let mut nilfs2 = MakeOptions::new(Uuid::from_bytes([7; 16]), 1, 1_700_000_000);
    // The device is small.
    nilfs2.blocks_per_segment = 256;
    // Both kinds of images by the same rule.
    let kinds: [(&str, Make<'_>); 2] = [
        ("ext4", &|device| drop(make(device, &ext4, false).unwrap())),
        ("nilfs2", &|device| drystone_nilfs2::mkfs::make(device, &nilfs2).unwrap()),
    ];
    for (kind, make) in kinds {
        let judge = |name: &str, place: &str| {
            assert!(found(&path).iter().any(|found| found == name), "{name}: {:?}", found(&path));
            let device = FileDevice::open(&path, OpenMode::ReadWrite).unwrap();
            assert!(holds_data(&device).unwrap(), "{name} {place}");
            make(&device);
            drop(device);
            let mut found = found(&path);
            // NILFS2 has a second superblock at the end.
            found.dedup();
            assert_eq!(found, [kind], "{name} {place}");
        };
        for (name, parts) in samples() {
            write(&path, &parts);
            judge(name, &format!("at {}", parts[0].0));
        }
        for (name, program, arguments) in MADE {
            write(&path, &vec![]);
            let arguments = arguments.iter().map(OsStr::new).chain([path.as_os_str()]);
            run(program, arguments).unwrap().expect_clean(program);
            judge(name, "by its program");
        }
    }
}

/// An image that is smaller than its device leaves nothing at the end of that.
#[test]
fn the_end_of_the_device_counts() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("device");
    write(&path, &vec![(-65536, words(&[0xa92b_4efc, 0, 90]))]);
    let device = FileDevice::open(&path, OpenMode::ReadWrite).unwrap();
    make(&device, &MkfsOptions::new(16 << 20, [7; 16], [1; 4], 0), false).unwrap();
    drop(device);
    let mut end = vec![1; 65536];
    File::open(&path).unwrap().read_exact_at(&mut end, SIZE - 65536).unwrap();
    assert!(end.iter().all(|&byte| byte == 0));
    assert_eq!(found(&path), ["ext4"]);
}

/// Data in the middle of a file count, for all of it can be looked at; holes and zeros don't.
#[test]
fn a_file_is_looked_at_as_a_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    let holds = |parts: Parts| {
        write(&path, &parts);
        holds_data(&FileDevice::open(&path, OpenMode::ReadOnly).unwrap()).unwrap()
    };
    assert!(!holds(vec![]));
    assert!(!holds(vec![(0, vec![0; 4096]), (30 << 20, vec![0; 3 << 20])]));
    assert!(holds(vec![(30 << 20, [vec![0; 2 << 20], vec![1]].concat())]));
    assert!(holds(vec![(-1, vec![1])]));
}
