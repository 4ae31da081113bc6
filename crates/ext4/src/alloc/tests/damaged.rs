//! Other groups stay usable when one is damaged.

use super::*;
use std::fs::File;
use std::os::unix::fs::FileExt;

#[test]
fn a_damaged_group_is_passed_over() {
    let Some(image) = image("-t ext4 -O ^has_journal", 600_000) else { return };
    let allocator = open(&image);
    let before = allocator.groups.free_counts().blocks;
    let bitmap_block = {
        let mut state = allocator.groups.at(GroupNumber::new(1)).state.lock();
        state.load(&allocator.groups.volume, GroupNumber::new(1)).unwrap().descriptor.block_bitmap
    };
    // Only an initialised bitmap can be damaged.
    let border = allocator.groups.volume.layout().group_first_block(GroupNumber::new(1)).get();
    let run = allocate(&allocator, &request(border + 20_000, 5)).unwrap();
    assert_eq!(run.start.get(), border + 20_000);
    close(&allocator);
    drop(allocator);

    let file = File::options().write(true).open(&image.path).unwrap();
    file.write_all_at(&[0x0f; 64], bitmap_block.get() * 4096 + 1000).unwrap();
    let allocator = open(&image);
    let group_free = u64::from(allocator.groups.at(GroupNumber::new(1)).counts().free_clusters);
    let runs = allocate_all(&allocator, Reach::All, 5);
    assert_eq!(allocator.groups.free_counts().blocks, 0);
    let taken: u64 = runs.iter().map(|run| u64::from(run.length)).sum();
    assert_eq!(taken, before - 5 - group_free);
    // Blocks freed there don't become available, and the free succeeds.
    free(&allocator, run, BlockKind::Data).unwrap();
    assert_eq!(allocator.groups.free_counts().blocks, 0);
}

#[test]
fn damaged_descriptors_do_not_keep_the_rest_from_working() {
    let Some(image) = image("-t ext4 -O ^has_journal", 600_000) else { return };
    let file = File::options().write(true).open(&image.path).unwrap();
    file.write_all_at(&[0xff; 16], 4096 + 64).unwrap();
    let allocator = open(&image);
    let inode = InodeNumber::new(allocator.groups.volume.layout().inodes_per_group() + 5);
    assert!(matches!(allocator.inodes.table_block(inode), Err(Error::Corrupt(_))));
    assert!(allocator.inodes.table_block(InodeNumber::ROOT).is_ok());
    allocate_all(&allocator, Reach::All, 5);
    assert_eq!(allocator.groups.free_counts().blocks, 0);
}
