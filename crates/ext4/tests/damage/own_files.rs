//! Damage to the file system's own files: too long, with a block twice, or on the orphan record, which
//! may name only ordinary files.

use crate::image::{Kind, make, options};
use crate::targeted::{KIND, change_inode};
use crate::watch::Watch;
use drystone_blockdev::{BlockDevice, MemoryDevice};
use drystone_ext4::{Error, Ext4};
use drystone_ext4_format::error::MappedBlockProblem;
use drystone_ext4_format::features::Features;
use drystone_ext4_format::{Corrupt, InodeNumber};
use drystone_mkfs::{MkfsOptions, default_features};
use drystone_sync::Arc;
use drystone_testkit::metadata_map::MetadataMap as Map;

/// The head of the orphan list, in the superblock at byte 1024.
const LAST_ORPHAN: u64 = 1024 + 0xe8;

fn image() -> Option<(Watch, Map)> {
    let watch = Watch::start();
    let arguments = "-t ext4 -b 1024 -N 64 -O ^metadata_csum,^uninit_bg,^dir_index,orphan_file,\
                     quota,project -E quotatype=usrquota:grpquota:prjquota";
    Some((watch, Map::of(make(&Kind { arguments, ..KIND })?)))
}

/// The damage that a mount finds.
fn problem(device: &MemoryDevice) -> Corrupt {
    match Ext4::open(Arc::new(device.snapshot()), options(false)) {
        Err(Error::Corrupt(corrupt)) => corrupt,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("the image was mounted"),
    }
}

#[test]
fn a_long_orphan_file_is_refused_and_one_that_has_a_block_twice() {
    let Some((_watch, map)) = image() else { return };
    let number = map.superblock.orphan_file_inode().unwrap();
    let mut length = 0;
    change_inode(&map, number, |inode| length = inode.size_bytes / 1024);
    change_inode(&map, number, |inode| inode.size_bytes = 513 * 1024);
    let found = problem(&map.device);
    assert!(matches!(found, Corrupt::Inode { inode, .. } if inode == number), "{found}");
    change_inode(&map, number, |inode| {
        let area = &mut inode.block_area;
        assert_eq!(area[2], 1, "the orphan file is in one piece");
        // A second piece with the same blocks.
        area[2] = 2;
        area.copy_within(12..24, 24);
        area[24..28].copy_from_slice(&(length as u32).to_le_bytes());
        inode.size_bytes = length * 2 * 1024;
    });
    let found = problem(&map.device);
    assert!(
        matches!(found, Corrupt::MappedBlock { inode, problem: MappedBlockProblem::Twice, .. } if inode == number),
        "{found}"
    );
}

/// Otherwise the numbers of all its blocks would be kept in memory.
#[test]
fn a_quota_file_beyond_two_gigabytes_is_refused() {
    const SIZE: u64 = 4 << 30;
    let device = MemoryDevice::new(SIZE);
    let mut new = MkfsOptions::new(SIZE, [7; 16], [1, 2, 3, 4], 1_700_000_000);
    new.features = default_features().apply(&Features::parse("quota").unwrap());
    new.inodes = Some(1000);
    drystone_mkfs::make(&device, &new, true).unwrap();
    let map = Map::of(device);
    let number = map.superblock.user_quota_inode().unwrap();
    change_inode(&map, number, |inode| inode.size_bytes = (2 << 30) + 4096);
    let found = problem(&map.device);
    assert!(matches!(found, Corrupt::Inode { inode, .. } if inode == number), "{found}");
}

/// Otherwise they would be truncated or deleted.
#[test]
fn files_of_its_own_are_no_orphans() {
    let Some((_watch, map)) = image() else { return };
    let superblock = &map.superblock;
    let own = [
        superblock.orphan_file_inode(),
        superblock.user_quota_inode(),
        superblock.project_quota_inode(),
        superblock.journal_inode(),
        Some(InodeNumber::ROOT),
    ];
    for number in own.into_iter().flatten() {
        map.device.write_at(LAST_ORPHAN, &number.get().to_le_bytes()).unwrap();
        let found = problem(&map.device);
        assert!(matches!(found, Corrupt::OrphanInode { inode } if inode == number), "{found}");
    }
}
