//! Guarantees to callers: the reserve, when freed blocks can be used again, what can't be freed.

use super::*;

#[test]
fn the_reserve_is_kept_to_the_block() {
    let Some(image) = image("-t ext4 -m 10 -O ^has_journal", 100_000) else { return };
    let allocator = open(&image);
    allocate_all(&allocator, Reach::Common, 1);
    let counts = allocator.groups.free_counts();
    assert_eq!(counts.blocks, counts.reserved_blocks);
    let run = allocate(&allocator, &request(0, 3)).unwrap();
    free(&allocator, run, BlockKind::Data).unwrap();
    let unprivileged = BlockRequest { reach: Reach::Common, ..request(0, 1) };
    assert!(matches!(allocate(&allocator, &unprivileged), Err(Error::NoSpace)));
    allocate_all(&allocator, Reach::All, 2);
    assert!(allocator.groups.free_counts().blocks <= 3, "the freed run may still wait");
}

#[test]
fn freed_blocks_wait_for_the_commit() {
    let Some(image) = image("-t ext4 -O ^has_journal", 100_000) else { return };
    let allocator = open(&image);
    let run = allocate(&allocator, &request(12_000, 10)).unwrap();
    assert_eq!(run, BlockRun { start: PhysicalBlock::new(12_000), length: 10 });
    free(&allocator, run, BlockKind::Metadata).unwrap();
    let other = allocate(&allocator, &request(12_000, 10)).unwrap();
    let overlaps = (11_991..12_010).contains(&other.start.get());
    assert!(!overlaps, "{other:?}");
    allocator.groups.volume.journal.commit_and_wait().unwrap();
    assert_eq!(allocate(&allocator, &request(12_000, 10)).unwrap(), run);
}

#[test]
fn a_freed_inode_waits_without_a_journal_unless_nothing_else_is_left() {
    for policy in [Policy::BASELINE, Policy::SCALABLE] {
        let Some(image) = image("-t ext4 -O ^has_journal -N 2000", 50_000) else { return };
        let allocator = open_with(&image, policy);
        let take = || {
            let parent = InodeNumber::ROOT;
            let wish = InodeRequest { parent, directory: false, top_level: false, goal: None };
            let mut handle = allocator.groups.volume.start(CREDITS).unwrap();
            let inode = allocator.inodes.allocate(&mut handle, &wish);
            handle.stop().unwrap();
            inode
        };
        let give_back = |inode| {
            let mut handle = allocator.groups.volume.start(CREDITS).unwrap();
            allocator.inodes.free(&mut handle, inode, false).unwrap();
            handle.stop().unwrap();
        };
        let first = take().unwrap();
        give_back(first);
        for _ in 0..100 {
            assert_ne!(take().unwrap(), first, "{policy}");
        }
        while allocator.groups.free_counts().inodes > 1 {
            take().unwrap();
        }
        assert_eq!(take().unwrap(), first, "{policy}");
        assert!(matches!(take(), Err(Error::NoSpace)));
        give_back(first);
        allocator.groups.volume.journal.commit_and_wait().unwrap();
        assert_eq!(take().unwrap(), first, "{policy}");
    }
}

#[test]
fn a_run_over_two_groups_is_freed_whole_or_not_at_all() {
    let Some(image) = image("-t ext4 -O ^has_journal -b 1024", 60_000) else { return };
    let allocator = open(&image);
    let before = allocator.groups.free_counts();
    // Group 2 holds no fixed metadata, and neither does the end of group 1.
    let border = allocator.groups.volume.layout().group_first_block(GroupNumber::new(2)).get();
    let head = allocate(&allocator, &request(border - 8, 8)).unwrap();
    let tail = allocate(&allocator, &request(border, 8)).unwrap();
    assert_eq!((head.start.get(), head.length), (border - 8, 8));
    assert_eq!((tail.start.get(), tail.length), (border, 8));
    let too_long = BlockRun { start: head.start, length: 17 };
    assert!(free(&allocator, too_long, BlockKind::Data).is_err());
    assert_eq!(allocator.groups.free_counts().blocks, before.blocks - 16);
    free(&allocator, BlockRun { start: head.start, length: 16 }, BlockKind::Data).unwrap();
    assert_eq!(allocator.groups.free_counts(), before);
    close(&allocator);
    image.check("after a free over two groups");
}

#[test]
fn fixed_metadata_and_the_outside_are_not_freed() {
    let Some(image) = image("-t ext4 -O ^has_journal", 300_000) else { return };
    let allocator = open(&image);
    let before = allocator.groups.free_counts();
    let blocks = allocator.groups.volume.layout().blocks_count();
    let table = allocator.groups.at(GroupNumber::new(1)).inode_table;
    for (start, length) in
        [(0, 1), (1, 1), (table.get(), 1), (blocks - 1, 2), (blocks, 1), (u64::MAX, 9)]
    {
        let run = BlockRun { start: PhysicalBlock::new(start), length };
        let result = free(&allocator, run, BlockKind::Data);
        assert!(matches!(result, Err(Error::Corrupt(_))), "{start}");
    }
    let mut handle = allocator.groups.volume.start(CREDITS).unwrap();
    for inode in [0, 1, 2, 8, 10, 12, u32::MAX] {
        assert!(allocator.inodes.free(&mut handle, InodeNumber::new(inode), false).is_err());
    }
    handle.stop().unwrap();
    assert_eq!(allocator.groups.free_counts(), before);
    close(&allocator);
    image.check("after frees that were refused");
}

#[test]
fn long_runs_are_preferred_to_near_ones() {
    let Some(image) = image("-t ext4 -O ^has_journal", 700_000) else { return };
    let allocator = open(&image);
    // Leave holes of four blocks in the group of the goal.
    let border = allocator.groups.volume.layout().group_first_block(GroupNumber::new(2)).get();
    let mut runs = Vec::new();
    for start in (border..border + 32768).step_by(8) {
        runs.push(allocate(&allocator, &request(start, 4)).unwrap());
    }
    let run = allocate(&allocator, &request(border, 1000)).unwrap();
    assert_eq!(run.length, 1000);
    let run = allocate(&allocator, &request(border + 4, 1000)).unwrap();
    assert_eq!((run.start.get(), run.length), (border + 4, 4), "a free goal is taken");
}
