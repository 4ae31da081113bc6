//! Allocation on images of many shapes, judged by e2fsck.

mod journaled;
mod policies;
mod streams;

use super::*;
use crate::known_names::NameBudget;
use crate::policy::Policy;
use crate::volume::Volume;
use drystone_blockdev::{BlockDevice, DeviceError, FileDevice, OpenMode};
use drystone_cache::Cache;
use drystone_jbd2::{Handle, Journal, Options};
use drystone_sync::{Mutex, thread};
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const CREDITS: u32 = 8;
const THREADS: u64 = 8;
/// More garbage than this says no more, and takes time to write.
const GARBAGE_MIB_MAX: u64 = 64;

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

struct Image {
    _directory: tempfile::TempDir,
    path: PathBuf,
}

impl Image {
    /// An image from mke2fs over a device that holds garbage, so that what isn't initialised shows.
    fn new(arguments: &str, size_kib: u64) -> Option<Image> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("image");
        let mut file = File::create(&path).unwrap();
        let garbage = vec![0xa5; 1 << 20];
        for _ in 0..size_kib.div_ceil(1024).min(GARBAGE_MIB_MAX) {
            file.write_all(&garbage).unwrap();
        }
        file.set_len(size_kib * 1024).unwrap();
        let output = Command::new("mke2fs")
            .args(["-q", "-F", "-E", "lazy_itable_init=1,nodiscard"])
            .args(arguments.split(' '))
            .arg(&path)
            .output();
        match output {
            Ok(output) => {
                assert!(output.status.success(), "mke2fs {arguments}: {output:?}");
                Some(Image { _directory: directory, path })
            }
            Err(error) => {
                eprintln!("SKIPPED: mke2fs can't be run: {error}");
                None
            }
        }
    }

    fn check(&self, context: &str) {
        let output = Command::new("e2fsck").arg("-fn").arg(&self.path).output().unwrap();
        assert!(output.status.success(), "{context}: {}", String::from_utf8_lossy(&output.stdout));
    }
}

/// The image as a device. The one that was just closed may seem in use for a moment: a process that
/// another test is starting has a copy of the descriptor until it runs its program.
fn device(path: &Path) -> Arc<dyn BlockDevice> {
    for _ in 0..500 {
        match FileDevice::open(path, OpenMode::ReadWrite) {
            Err(DeviceError::InUse { .. }) => thread::sleep(Duration::from_millis(10)),
            opened => return Arc::new(opened.unwrap()),
        }
    }
    panic!("{} stays in use", path.display());
}

fn open(path: &Path) -> Arc<Allocator> {
    open_with(path, Policy::SCALABLE)
}

fn open_with(path: &Path, policy: Policy) -> Arc<Allocator> {
    let device = device(path);
    let mut bytes = [0; 1024];
    device.read_at(1024, &mut bytes).unwrap();
    let superblock = Superblock::check(&bytes).unwrap();
    let layout = *superblock.layout();
    let cache = Arc::new(Cache::new(device.clone(), layout.block_size(), 64 << 20));
    let journal = Journal::unlogged(cache.clone(), Options::default()).unwrap();
    let volume =
        Volume::new(device, cache, journal, superblock, layout, None, NameBudget::new(0)).unwrap();
    Allocator::open(Arc::new(volume), policy).unwrap()
}

fn close(allocator: &Allocator) {
    let volume = &allocator.volume;
    let mut handle = volume.start(1).unwrap();
    volume.update_superblock(&mut handle, |superblock| allocator.store_counts(superblock)).unwrap();
    handle.stop().unwrap();
    volume.journal.close().unwrap();
}

fn request(goal: u64, length: u32) -> BlockRequest<'static> {
    BlockRequest {
        is_promised: false,
        goal: PhysicalBlock::new(goal),
        length,
        kind: BlockKind::Data,
        below_32_bits: false,
        may_use_reserved: true,
        file: None,
    }
}

fn allocate(allocator: &Allocator, request: &BlockRequest<'_>) -> Result<BlockRun> {
    let mut handle = allocator.volume.start(CREDITS).unwrap();
    let result = allocator.allocate_blocks(&mut handle, request);
    handle.stop().unwrap();
    result
}

fn free(allocator: &Allocator, run: BlockRun, kind: BlockKind) -> Result<()> {
    let mut handle = allocator.volume.start(CREDITS).unwrap();
    let result = allocator.free_blocks(&mut handle, run.start, u64::from(run.length), kind);
    handle.stop().unwrap();
    result
}

/// Takes everything, with many threads.
fn allocate_all(allocator: &Allocator, may_use_reserved: bool, seed: u64) -> Vec<BlockRun> {
    let blocks = allocator.volume.layout.blocks_count();
    thread::scope(|scope| {
        let takers: Vec<_> = (0..THREADS)
            .map(|taker| {
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(seed * 100 + taker);
                    let mut runs = Vec::new();
                    // A number that stands for a file.
                    let mut logical = 0;
                    let space = FileSpace::new(InodeNumber::new(taker as u32 + 20));
                    loop {
                        let most = [1, 3, 64, 1000, 20_000][random.usize(0..5)];
                        let length = random.u32(1..=most);
                        let goal = random.u64(0..blocks + 10);
                        let file = (most > 1).then_some(FileRequest {
                            space: &space,
                            logical,
                            size_bytes: u64::from(most) << 14,
                            is_large: most > 3,
                        });
                        logical += u64::from(length) & !63;
                        let request =
                            BlockRequest { may_use_reserved, file, ..request(goal, length) };
                        match allocate(allocator, &request) {
                            Ok(run) => runs.push(run),
                            Err(Error::NoSpace | Error::CommitFirst) => return runs,
                            Err(error) => panic!("{error}"),
                        }
                    }
                })
            })
            .collect();
        takers.into_iter().flat_map(|taker| taker.join().unwrap()).collect()
    })
}

fn free_all(allocator: &Allocator, mut runs: Vec<BlockRun>, seed: u64) {
    fastrand::Rng::with_seed(seed).shuffle(&mut runs);
    thread::scope(|scope| {
        for part in runs.chunks(runs.len().div_ceil(THREADS as usize).max(1)) {
            scope.spawn(move || {
                for (place, &run) in part.iter().enumerate() {
                    let kind = if place % 7 == 0 && run.length < 10 {
                        BlockKind::Metadata
                    } else {
                        BlockKind::Data
                    };
                    free(allocator, run, kind).unwrap();
                }
            });
        }
    });
}

fn assert_disjoint(allocator: &Allocator, runs: &[BlockRun]) {
    let mut sorted: Vec<_> =
        runs.iter().map(|run| run.start.get()..run.start.get() + u64::from(run.length)).collect();
    sorted.sort_unstable_by_key(|run| run.start);
    assert!(sorted.windows(2).all(|pair| pair[0].end <= pair[1].start), "given out twice");
    for run in sorted {
        assert_eq!(allocator.metadata.first_in(run), None);
    }
}

#[test]
fn all_blocks_can_be_taken_and_given_back() {
    for (shape, &(arguments, size)) in SHAPES.iter().enumerate() {
        let Some(image) = Image::new(arguments, size) else { return };
        image.check(arguments);
        take_and_free_all_blocks(&image, shape as u64, Policy::SCALABLE, arguments);
    }
}

fn take_and_free_all_blocks(image: &Image, seed: u64, policy: Policy, arguments: &str) {
    let allocator = open_with(&image.path, policy);
    let before = allocator.free_counts();

    let runs = allocate_all(&allocator, true, seed);
    assert_eq!(allocator.free_counts().blocks, 0, "{arguments}");
    assert!(allocator.groups.iter().all(|group| group.counts().free_clusters == 0));
    let ratio = allocator.volume.layout.log_cluster_ratio();
    let clusters: u64 = runs.iter().map(|run| u64::from(run.length.div_ceil(1 << ratio))).sum();
    assert_eq!(clusters << ratio, before.blocks, "{arguments}");
    assert_disjoint(&allocator, &runs);

    let keep = runs[0];
    free_all(&allocator, runs, seed);
    assert_eq!(allocator.free_counts(), before, "{arguments}");
    assert!(
        matches!(free(&allocator, keep, BlockKind::Data), Err(Error::Corrupt(_))),
        "{arguments}: freed twice"
    );
    // Everything waits for a commit, or was released by one that happened by itself.
    let run = with_space_retry(&allocator.volume, || allocate(&allocator, &request(0, 1))).unwrap();
    free(&allocator, run, BlockKind::Data).unwrap();
    close(&allocator);
    image.check(arguments);
}

#[test]
fn all_inodes_can_be_taken_and_given_back() {
    for (shape, &(arguments, size)) in SHAPES.iter().enumerate() {
        let Some(image) = Image::new(arguments, size) else { return };
        take_and_free_all_inodes(&image, shape as u64, Policy::SCALABLE, arguments);
    }
}

fn take_and_free_all_inodes(image: &Image, seed: u64, policy: Policy, arguments: &str) {
    let allocator = open_with(&image.path, policy);
    let before = allocator.free_counts();
    let inodes: Vec<(InodeNumber, bool)> = thread::scope(|scope| {
        let takers: Vec<_> = (0..THREADS)
            .map(|taker| {
                let allocator = &allocator;
                scope.spawn(move || take_inodes(allocator, seed * 100 + taker))
            })
            .collect();
        takers.into_iter().flat_map(|taker| taker.join().unwrap()).collect()
    });
    let after = allocator.free_counts();
    assert_eq!(after.inodes, 0, "{arguments}");
    let directories = inodes.iter().filter(|(_, directory)| *directory).count() as u64;
    assert_eq!(after.directories - before.directories, directories);
    let mut numbers: Vec<_> = inodes.iter().map(|(inode, _)| *inode).collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len() as u64, before.inodes, "{arguments}");
    assert!(numbers[0] >= allocator.volume.layout.first_inode());

    let mut handle = allocator.volume.start(CREDITS).unwrap();
    for (inode, directory) in inodes {
        assert!(allocator.inode_is_allocated(inode).unwrap());
        if handle.credits() < 4 {
            handle.restart(CREDITS).unwrap();
        }
        allocator.free_inode(&mut handle, inode, directory).unwrap();
        assert!(!allocator.inode_is_allocated(inode).unwrap());
        assert!(allocator.free_inode(&mut handle, inode, false).is_err());
    }
    handle.stop().unwrap();
    assert_eq!(allocator.free_counts(), before, "{arguments}");
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
        let mut handle = allocator.volume.start(CREDITS).unwrap();
        let result = allocator.allocate_inode(&mut handle, &request);
        handle.stop().unwrap();
        match result {
            Ok(inode) => inodes.push((inode, directory)),
            Err(Error::NoSpace) => return inodes,
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn the_reserve_is_kept_to_the_block() {
    let Some(image) = Image::new("-t ext4 -m 10 -O ^has_journal", 100_000) else { return };
    let allocator = open(&image.path);
    allocate_all(&allocator, false, 1);
    let counts = allocator.free_counts();
    assert_eq!(counts.blocks, counts.reserved_blocks);
    let run = allocate(&allocator, &request(0, 3)).unwrap();
    free(&allocator, run, BlockKind::Data).unwrap();
    let unprivileged = BlockRequest { may_use_reserved: false, ..request(0, 1) };
    assert!(matches!(allocate(&allocator, &unprivileged), Err(Error::NoSpace)));
    allocate_all(&allocator, true, 2);
    assert!(allocator.free_counts().blocks <= 3, "the freed run may still wait");
}

#[test]
fn freed_blocks_wait_for_the_commit() {
    let Some(image) = Image::new("-t ext4 -O ^has_journal", 100_000) else { return };
    let allocator = open(&image.path);
    let run = allocate(&allocator, &request(12_000, 10)).unwrap();
    assert_eq!(run, BlockRun { start: PhysicalBlock::new(12_000), length: 10 });
    free(&allocator, run, BlockKind::Metadata).unwrap();
    let other = allocate(&allocator, &request(12_000, 10)).unwrap();
    let overlaps = (11_991..12_010).contains(&other.start.get());
    assert!(!overlaps, "{other:?}");
    allocator.volume.journal.commit_and_wait().unwrap();
    assert_eq!(allocate(&allocator, &request(12_000, 10)).unwrap(), run);
}

#[test]
fn a_freed_inode_waits_without_a_journal_unless_nothing_else_is_left() {
    for policy in [Policy::BASELINE, Policy::SCALABLE] {
        let Some(image) = Image::new("-t ext4 -O ^has_journal -N 2000", 50_000) else { return };
        let allocator = open_with(&image.path, policy);
        let take = || {
            let parent = InodeNumber::ROOT;
            let wish = InodeRequest { parent, directory: false, top_level: false, goal: None };
            let mut handle = allocator.volume.start(CREDITS).unwrap();
            let inode = allocator.allocate_inode(&mut handle, &wish);
            handle.stop().unwrap();
            inode
        };
        let give_back = |inode| {
            let mut handle = allocator.volume.start(CREDITS).unwrap();
            allocator.free_inode(&mut handle, inode, false).unwrap();
            handle.stop().unwrap();
        };
        let first = take().unwrap();
        give_back(first);
        for _ in 0..100 {
            assert_ne!(take().unwrap(), first, "{policy}");
        }
        while allocator.free_counts().inodes > 1 {
            take().unwrap();
        }
        assert_eq!(take().unwrap(), first, "{policy}");
        assert!(matches!(take(), Err(Error::NoSpace)));
        give_back(first);
        allocator.volume.journal.commit_and_wait().unwrap();
        assert_eq!(take().unwrap(), first, "{policy}");
    }
}

#[test]
fn a_run_over_two_groups_is_freed_whole_or_not_at_all() {
    let Some(image) = Image::new("-t ext4 -O ^has_journal -b 1024", 60_000) else { return };
    let allocator = open(&image.path);
    let before = allocator.free_counts();
    // Group 2 holds no fixed metadata, and neither does the end of group 1.
    let border = allocator.volume.layout.group_first_block(GroupNumber::new(2)).get();
    let head = allocate(&allocator, &request(border - 8, 8)).unwrap();
    let tail = allocate(&allocator, &request(border, 8)).unwrap();
    assert_eq!((head.start.get(), head.length), (border - 8, 8));
    assert_eq!((tail.start.get(), tail.length), (border, 8));
    let too_long = BlockRun { start: head.start, length: 17 };
    assert!(free(&allocator, too_long, BlockKind::Data).is_err());
    assert_eq!(allocator.free_counts().blocks, before.blocks - 16);
    free(&allocator, BlockRun { start: head.start, length: 16 }, BlockKind::Data).unwrap();
    assert_eq!(allocator.free_counts(), before);
    close(&allocator);
    image.check("after a free over two groups");
}

#[test]
fn fixed_metadata_and_the_outside_are_not_freed() {
    let Some(image) = Image::new("-t ext4 -O ^has_journal", 300_000) else { return };
    let allocator = open(&image.path);
    let before = allocator.free_counts();
    let blocks = allocator.volume.layout.blocks_count();
    let table = allocator.groups[1].inode_table;
    for (start, length) in
        [(0, 1), (1, 1), (table.get(), 1), (blocks - 1, 2), (blocks, 1), (u64::MAX, 9)]
    {
        let run = BlockRun { start: PhysicalBlock::new(start), length };
        let result = free(&allocator, run, BlockKind::Data);
        assert!(matches!(result, Err(Error::Corrupt(_))), "{start}");
    }
    let mut handle = allocator.volume.start(CREDITS).unwrap();
    for inode in [0, 1, 2, 8, 10, 12, u32::MAX] {
        assert!(allocator.free_inode(&mut handle, InodeNumber::new(inode), false).is_err());
    }
    handle.stop().unwrap();
    assert_eq!(allocator.free_counts(), before);
    close(&allocator);
    image.check("after frees that were refused");
}

#[test]
fn a_damaged_group_is_passed_over() {
    let Some(image) = Image::new("-t ext4 -O ^has_journal", 600_000) else { return };
    let allocator = open(&image.path);
    let before = allocator.free_counts().blocks;
    let bitmap_block = {
        let mut state = allocator.groups[1].state.lock();
        state.load(&allocator.volume, GroupNumber::new(1)).unwrap().descriptor.block_bitmap
    };
    // A bitmap that was in use is one that can be damaged.
    let border = allocator.volume.layout.group_first_block(GroupNumber::new(1)).get();
    let run = allocate(&allocator, &request(border + 20_000, 5)).unwrap();
    assert_eq!(run.start.get(), border + 20_000);
    close(&allocator);
    drop(allocator);

    let file = File::options().write(true).open(&image.path).unwrap();
    file.write_all_at(&[0x0f; 64], bitmap_block.get() * 4096 + 1000).unwrap();
    let allocator = open(&image.path);
    let group_free = u64::from(allocator.groups[1].counts().free_clusters);
    let runs = allocate_all(&allocator, true, 5);
    assert_eq!(allocator.free_counts().blocks, 0);
    let taken: u64 = runs.iter().map(|run| u64::from(run.length)).sum();
    assert_eq!(taken, before - 5 - group_free);
    assert!(matches!(free(&allocator, run, BlockKind::Data), Err(Error::Corrupt(_))));
}

#[test]
fn damaged_descriptors_do_not_keep_the_rest_from_working() {
    let Some(image) = Image::new("-t ext4 -O ^has_journal", 600_000) else { return };
    let file = File::options().write(true).open(&image.path).unwrap();
    file.write_all_at(&[0xff; 16], 4096 + 64).unwrap();
    let allocator = open(&image.path);
    let inode = InodeNumber::new(allocator.volume.layout.inodes_per_group() + 5);
    assert!(matches!(allocator.inode_table_block(inode), Err(Error::Corrupt(_))));
    assert!(allocator.inode_table_block(InodeNumber::ROOT).is_ok());
    allocate_all(&allocator, true, 5);
    assert_eq!(allocator.free_counts().blocks, 0);
}

#[test]
fn long_runs_are_preferred_to_near_ones() {
    let Some(image) = Image::new("-t ext4 -O ^has_journal", 700_000) else { return };
    let allocator = open(&image.path);
    // Leave holes of four blocks in the group of the goal.
    let border = allocator.volume.layout.group_first_block(GroupNumber::new(2)).get();
    let mut runs = Vec::new();
    for start in (border..border + 32768).step_by(8) {
        runs.push(allocate(&allocator, &request(start, 4)).unwrap());
    }
    let run = allocate(&allocator, &request(border, 1000)).unwrap();
    assert_eq!(run.length, 1000);
    let run = allocate(&allocator, &request(border + 4, 1000)).unwrap();
    assert_eq!((run.start.get(), run.length), (border + 4, 4), "a free goal is taken");
}

#[test]
fn concurrent_frees_and_allocations_keep_the_bitmaps_right() {
    let Some(image) = Image::new("-t ext4 -O ^has_journal -b 1024", 40_000) else { return };
    let allocator = open(&image.path);
    let before = allocator.free_counts();
    let held = Mutex::new(&HELD, Vec::new());
    thread::scope(|scope| {
        for worker in 0..THREADS {
            let (allocator, held) = (&allocator, &held);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(worker);
                for _ in 0..2000 {
                    if random.u8(0..5) < 3 {
                        let length = random.u32(1..300);
                        let wish = request(random.u64(1..40_000), length);
                        match with_space_retry(&allocator.volume, || allocate(allocator, &wish)) {
                            Ok(run) => held.lock().push(run),
                            Err(Error::NoSpace) => {}
                            Err(error) => panic!("{error}"),
                        }
                    } else {
                        let mut list = held.lock();
                        let count = list.len();
                        let run = (count > 0).then(|| list.swap_remove(random.usize(0..count)));
                        drop(list);
                        if let Some(run) = run {
                            free(allocator, run, BlockKind::Data).unwrap();
                        }
                    }
                }
            });
        }
    });
    let runs = held.into_inner();
    assert_disjoint(&allocator, &runs);
    let used: u64 = runs.iter().map(|run| u64::from(run.length)).sum();
    assert_eq!(allocator.free_counts().blocks, before.blocks - used);
    free_all(&allocator, runs, 1);
    assert_eq!(allocator.free_counts(), before);
    close(&allocator);
    image.check("after frees and allocations at once");
}

static HELD: drystone_sync::LockClass = drystone_sync::LockClass::new("test runs", 10);
