//! Allocates and frees all blocks and inodes of images of many shapes.

use super::*;

/// Shapes of images: arguments for mke2fs and the size in KiB, which leaves the last group short.
const SHAPES: &[(&str, u64)] = &[
    ("-t ext4", 300_000),
    ("-t ext4 -O ^has_journal,^flex_bg -g 8192", 100_000),
    ("-t ext4 -O ^has_journal,^flex_bg,^resize_inode,^64bit -g 4096", 100_000),
    ("-t ext4 -O ^has_journal,meta_bg,^resize_inode -b 1024", 50_003),
    ("-t ext4 -O ^has_journal -b 1024 -N 3000", 50_003),
    ("-t ext4 -O ^has_journal -b 1024 -G 4 -I 128 -N 20000", 70_001),
    ("-t ext4 -O ^has_journal,^metadata_csum,uninit_bg -g 8192", 150_000),
    ("-t ext4 -O ^has_journal,^metadata_csum,uninit_bg,^64bit,^flex_bg -g 8192", 150_000),
    ("-t ext4 -O ^has_journal,bigalloc -C 65536", 200_000),
    ("-t ext4 -O ^has_journal,bigalloc -b 1024 -C 16384", 300_000),
    ("-t ext4 -O ^has_journal,sparse_super2,^resize_inode -g 8192", 150_000),
    ("-t ext4 -O ^has_journal -b 65536 -g 512", 100_032),
    ("-t ext2 -g 8192", 100_000),
    ("-t ext2 -b 1024 -r 0 -O none", 30_001),
    ("-t ext3 -b 2048", 50_002),
];

#[test]
fn all_blocks_can_be_taken_and_given_back() {
    for (shape, &(arguments, size)) in SHAPES.iter().enumerate() {
        let Some(image) = image(arguments, size) else { return };
        image.check(arguments);
        take_and_free_all_blocks(&image, shape as u64, Policy::SCALABLE, arguments);
    }
}

pub(super) fn take_and_free_all_blocks(
    image: &ImageFile,
    seed: u64,
    policy: Policy,
    arguments: &str,
) {
    let allocator = open_with(image, policy);
    let before = allocator.groups.free_counts();

    let runs = allocate_all(&allocator, Reach::All, seed);
    assert_eq!(allocator.groups.free_counts().blocks, 0, "{arguments}");
    assert!(allocator.groups.iter().all(|group| group.counts().free_clusters == 0));
    let ratio = allocator.groups.volume.layout().log_cluster_ratio();
    let clusters: u64 = runs.iter().map(|run| u64::from(run.length.div_ceil(1 << ratio))).sum();
    assert_eq!(clusters << ratio, before.blocks, "{arguments}");
    assert_disjoint(&allocator, &runs);

    let keep = runs[0];
    free_all(&allocator, runs, seed);
    assert_eq!(allocator.groups.free_counts(), before, "{arguments}");
    assert!(
        matches!(free(&allocator, keep, BlockKind::Data), Err(Error::Corrupt(_))),
        "{arguments}: freed twice"
    );
    // All blocks wait for a commit, or one that came by itself has released them.
    let run = with_space_retry(&allocator.groups.volume, || allocate(&allocator, &request(0, 1)))
        .unwrap();
    free(&allocator, run, BlockKind::Data).unwrap();
    close(&allocator);
    image.check(arguments);
}

#[test]
fn all_inodes_can_be_taken_and_given_back() {
    for (shape, &(arguments, size)) in SHAPES.iter().enumerate() {
        let Some(image) = image(arguments, size) else { return };
        take_and_free_all_inodes(&image, shape as u64, Policy::SCALABLE, arguments);
    }
}

pub(super) fn take_and_free_all_inodes(
    image: &ImageFile,
    seed: u64,
    policy: Policy,
    arguments: &str,
) {
    let allocator = open_with(image, policy);
    let before = allocator.groups.free_counts();
    let inodes: Vec<(InodeNumber, bool)> = thread::scope(|scope| {
        let takers: Vec<_> = (0..THREADS)
            .map(|taker| {
                let allocator = &allocator;
                scope.spawn(move || take_inodes(allocator, seed * 100 + taker))
            })
            .collect();
        takers.into_iter().flat_map(|taker| taker.join().unwrap()).collect()
    });
    let after = allocator.groups.free_counts();
    assert_eq!(after.inodes, 0, "{arguments}");
    let directories = inodes.iter().filter(|(_, directory)| *directory).count() as u64;
    assert_eq!(after.directories - before.directories, directories);
    let mut numbers: Vec<_> = inodes.iter().map(|(inode, _)| *inode).collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len() as u64, before.inodes, "{arguments}");
    assert!(numbers[0] >= allocator.groups.volume.layout().first_inode());

    let mut handle = allocator.groups.volume.start(CREDITS).unwrap();
    for (inode, directory) in inodes {
        assert!(allocator.inodes.is_allocated(inode).unwrap());
        if handle.credits() < 4 {
            handle.stop().unwrap();
            handle = allocator.groups.volume.start(CREDITS).unwrap();
        }
        allocator.inodes.free(&mut handle, inode, directory).unwrap();
        assert!(!allocator.inodes.is_allocated(inode).unwrap());
        assert!(allocator.inodes.free(&mut handle, inode, false).is_err());
    }
    handle.stop().unwrap();
    assert_eq!(allocator.groups.free_counts(), before, "{arguments}");
    close(&allocator);
    image.check(arguments);
}

fn take_inodes(allocator: &Allocator, seed: u64) -> Vec<(InodeNumber, bool)> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut inodes: Vec<(InodeNumber, bool)> = Vec::new();
    loop {
        let directory = random.u8(0..8) == 0;
        let parent = match inodes.len() {
            0 => InodeNumber::ROOT,
            count => inodes[random.usize(0..count)].0,
        };
        let goal = (random.u8(0..20) == 0).then_some(parent);
        let request = InodeRequest { parent, directory, top_level: random.bool(), goal };
        let mut handle = allocator.groups.volume.start(CREDITS).unwrap();
        let result = allocator.inodes.allocate(&mut handle, &request);
        handle.stop().unwrap();
        match result {
            Ok(inode) => inodes.push((inode, directory)),
            Err(Error::NoSpace) => return inodes,
            Err(error) => panic!("{error}"),
        }
    }
}
