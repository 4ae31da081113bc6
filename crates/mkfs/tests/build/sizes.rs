//! Image sizes, which are never too small.

use crate::trees::{Pattern, meta, time, whole};
use crate::{build, judge};
use drystone_blockdev::{BlockDevice, MemoryDevice};
use drystone_mkfs::Error;
use drystone_mkfs::build::{Builder, Ext4BuildOptions, Size, SpareRoom};
use drystone_mkfs::tree::{FileTree, NodeContent, NodeToInsert, Segment};
use drystone_testkit::environment::number;

const MIB: u64 = 1 << 20;

/// This many files of this size, in directories of a hundred.
fn files(count: u64, size: u64) -> FileTree {
    let mut tree = FileTree::new();
    let source = tree.add_source(Box::new(Pattern)).unwrap();
    for number in 0..count {
        let path = format!("{}/{number}", number / 100);
        tree.insert(path.as_bytes(), whole(source, size, 0), &meta(0o644), time()).unwrap();
    }
    tree
}

fn free_blocks(device: &MemoryDevice) -> (u64, u64) {
    let mut bytes = vec![0; 1024];
    device.read_at(1024, &mut bytes).unwrap();
    let superblock = drystone_ext4_format::superblock::Superblock::check(&bytes).unwrap();
    (superblock.free_blocks_count(), superblock.layout().blocks_count())
}

#[test]
fn an_automatic_size_is_exact() {
    for (count, size) in [(3000, 5000), (1, 200 * MIB), (20_000, 0)] {
        let mut options = Ext4BuildOptions::default().threads(2);
        options.set_read_only();
        let device = build(&mut files(count, size), &options);
        let (free, blocks) = free_blocks(&device);
        assert!(free <= 64 || free * 200 < blocks, "{count} of {size}: {free} of {blocks} free");
        judge(&device);
    }
}

#[test]
fn room_is_left_as_asked() {
    for (room, least, most) in
        [(SpareRoom::Percent(20.0), 0.2, 0.205), (SpareRoom::Bytes(100 * MIB), 0.7, 0.95)]
    {
        let options = Ext4BuildOptions::default().size(Size::Auto(room));
        let (free, blocks) = free_blocks(&build(&mut files(1000, 9000), &options));
        let share = free as f64 / blocks as f64;
        assert!((least..most).contains(&share), "{room:?}: {share}");
    }
}

#[test]
fn a_size_that_is_too_small_is_refused_with_one_that_does() {
    let with = |size| Ext4BuildOptions::default().size(Size::Fixed(size));
    let mut tree = files(100, MIB);
    let Err(Error::DoesNotFit { missing_bytes, needed_bytes }) =
        Builder::new(&mut tree, &with(50 * MIB)).map(drop)
    else {
        panic!("100 MiB in 50");
    };
    assert_eq!(needed_bytes, 50 * MIB + missing_bytes);
    assert!((100 * MIB..130 * MIB).contains(&needed_bytes), "{needed_bytes}");
    judge(&build(&mut tree, &with(needed_bytes)));
    judge(&build(&mut tree, &with(300 * MIB + 12_345)));
}

#[test]
fn many_empty_files_take_small_groups() {
    let device = build(&mut files(70_000, 0), &Ext4BuildOptions::default());
    assert!(device.size_bytes() < 40 * MIB, "{}", device.size_bytes());
    judge(&device);
}

/// Here dozens of sizes miss by one block, because the last group would be too small to be one.
#[test]
fn a_size_that_a_few_blocks_do_not_change_is_passed() {
    let mut tree = FileTree::new();
    let source = tree.add_source(Box::new(Pattern)).unwrap();
    for number in 0..2_000_000 {
        let path = format!("d{:04}/some-file-{:04}", number / 1000, number % 1000);
        let size = if number % 4 == 0 { 100 } else { 0 };
        tree.insert(path.as_bytes(), whole(source, size, 0), &meta(0o644), time()).unwrap();
    }
    let size = Size::Auto(SpareRoom::Percent(5.0));
    let builder = Builder::new(&mut tree, &Ext4BuildOptions::default().size(size)).unwrap();
    assert!(builder.size_bytes() < 691_500 * 4096, "{}", builder.size_bytes());
}

#[test]
fn inodes_are_at_least_as_many_as_asked() {
    let options = Ext4BuildOptions::default().inodes_min(50_000);
    let builder_tree = &mut files(10, 10);
    let builder = Builder::new(builder_tree, &options).unwrap();
    let device = MemoryDevice::new(builder.size_bytes());
    assert!(builder.write(&device, true, &()).unwrap().inodes >= 50_000);
    judge(&device);
}

#[test]
fn a_sparse_file_of_20_gib_takes_what_its_data_take() {
    let mut tree = FileTree::new();
    let source = tree.add_source(Box::new(Pattern)).unwrap();
    let pieces = (0..20_u64)
        .map(|number| Segment {
            logical: (number << 30) + 77,
            length: 10_000,
            source,
            object: 0,
            offset: 0,
        })
        .collect();
    let content = NodeContent::Pieces { size: 20 << 30, pieces };
    tree.insert(b"sparse", NodeToInsert::File(content), &meta(0o644), time()).unwrap();
    let device = build(&mut tree, &Ext4BuildOptions::default());
    assert!(device.size_bytes() < 16 * MIB);
    judge(&device);
}

/// The bytes of directory blocks aren't kept, and nothing is searched.
#[test]
fn a_directory_of_many_names() {
    let count = number("DRYSTONE_NAMES").unwrap_or(20_000);
    let mut tree = FileTree::new();
    for number in 0..count {
        let path = format!("d/{number}");
        let new = NodeToInsert::File(NodeContent::Bytes(Vec::new()));
        tree.insert(path.as_bytes(), new, &meta(0o644), time()).unwrap();
    }
    let device = build(&mut tree, &Ext4BuildOptions::default());
    judge(&device);
}

#[test]
fn more_subdirectories_than_links_can_count() {
    let mut tree = FileTree::new();
    for number in 0..66_000 {
        let path = format!("d/{number}");
        tree.insert(path.as_bytes(), NodeToInsert::Directory, &meta(0o755), time()).unwrap();
    }
    // Keeps directories small.
    let options = Ext4BuildOptions::default().block_size(1024);
    judge(&build(&mut tree, &options));
}
