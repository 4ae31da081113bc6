//! Geometry: numbers that fit, and those that must be refused.

use super::*;
use crate::error::GeometryProblem;
use crate::features::ReadOnlyCompat;
use crate::ids::PhysicalBlock;
use crate::testing;

fn problem_of(change: impl Fn(&mut Geometry)) -> GeometryProblem {
    let mut geometry = testing::geometry();
    change(&mut geometry);
    match Layout::new(&geometry).unwrap_err() {
        FormatError::Corrupt(Corrupt::SuperblockGeometry { problem }) => problem,
        other => panic!("{other}"),
    }
}

#[test]
fn impossible_numbers_are_named() {
    assert_eq!(problem_of(|g| g.log_block_size = 7), GeometryProblem::BlockSize { log: 7 });
    assert_eq!(problem_of(|g| g.log_cluster_size = 3), GeometryProblem::ClusterSize { log: 3 });
    assert_eq!(problem_of(|g| g.inode_size = 200), GeometryProblem::InodeSize { bytes: 200 });
    assert_eq!(
        problem_of(|g| g.inodes_per_group = 32_776),
        GeometryProblem::InodesPerGroup { inodes: 32_776 }
    );
    assert_eq!(
        problem_of(|g| g.descriptor_size = 32),
        GeometryProblem::DescriptorSize { bytes: 32 }
    );
    assert_eq!(problem_of(|g| g.blocks_count = 0), GeometryProblem::BlocksCount { blocks: 0 });
    assert_eq!(
        problem_of(|g| g.blocks_count = u64::MAX),
        GeometryProblem::BlocksCount { blocks: u64::MAX }
    );
    assert_eq!(
        problem_of(|g| g.blocks_count = 1 << 47),
        GeometryProblem::GroupCount { groups: 1 << 32 }
    );
    assert_eq!(
        problem_of(|g| g.blocks_count = 32_768 + 50),
        GeometryProblem::GroupTooSmall { group: GroupNumber::new(1) }
    );
    assert_eq!(problem_of(|g| g.first_inode = 10), GeometryProblem::FirstInode { inode: 10 });
}

#[test]
fn sparse_groups_are_powers_of_three_five_and_seven() {
    let layout = testing::layout();
    let groups: Vec<u32> =
        (0..400).filter(|&group| layout.has_superblock(GroupNumber::new(group))).collect();
    assert_eq!(groups, [0, 1, 3, 5, 7, 9, 25, 27, 49, 81, 125, 243, 343]);
}

#[test]
fn the_last_group_is_shorter() {
    let layout = testing::layout();
    assert_eq!(layout.group_count(), 10);
    let last = layout.last_group();
    assert_eq!(layout.group_block_count(last), 300_000 - 9 * 32_768);
    assert_eq!(layout.group_of_block(PhysicalBlock::new(299_999)), Some(last));
    assert_eq!(layout.group_of_block(PhysicalBlock::new(300_000)), None);
    assert_eq!(layout.group_block_count(GroupNumber::new(10)), 0);
    assert!(layout.contains_blocks(PhysicalBlock::new(299_999), 1));
    assert!(!layout.contains_blocks(PhysicalBlock::new(299_999), 2));
    assert!(!layout.contains_blocks(PhysicalBlock::new(u64::MAX), 1));
}

#[test]
fn inodes_are_located() {
    let layout = testing::layout();
    let start = PhysicalBlock::new(1000);
    let locate = |inode| layout.inode_location(InodeNumber::new(inode), start);
    assert_eq!(locate(1), Ok((start, 0)));
    assert_eq!(locate(17), Ok((PhysicalBlock::new(1001), 0)));
    assert_eq!(locate(8192), Ok((PhysicalBlock::new(1511), 15 * 256)));
    assert_eq!(locate(8193), Ok((start, 0)));
    assert!(locate(0).is_err());
    assert!(locate(81_921).is_err());
    assert_eq!(layout.inode_of_bit(GroupNumber::new(1), 0), Some(InodeNumber::new(8193)));
    assert_eq!(layout.inode_of_bit(GroupNumber::new(10), 0), None);
}

#[test]
fn files_are_limited_as_on_linux() {
    // Known from the kernel's documentation of 4 KiB blocks: 16 TiB, and 4 TiB and a bit.
    let layout = testing::layout();
    assert_eq!(layout.extent_file_bytes_max(), (1 << 44) - 4096);
    assert_eq!(layout.mapped_file_bytes_max(), 4_402_345_721_856);
    // Found by cutting files on images of Linux without huge_file.
    let mut geometry = testing::geometry();
    geometry.features.read_only_compat -= ReadOnlyCompat::HUGE_FILE;
    let layout = Layout::new(&geometry).unwrap();
    assert_eq!(layout.extent_file_bytes_max(), 2_199_023_251_456);
    assert_eq!(layout.mapped_file_bytes_max(), 2_196_873_666_560);
}
