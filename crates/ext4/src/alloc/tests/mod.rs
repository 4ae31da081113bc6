//! Allocation on images of many shapes, judged by e2fsck.

mod concurrent;
mod damaged;
mod everything;
mod journaled;
mod policies;
mod promises;
mod streams;

use super::request::BlockRun;
use super::*;
use crate::policy::Policy;
use crate::testing::ImageFile;
use crate::volume::Volume;
use drystone_blockdev::{BlockDevice, GroupFlush};
use drystone_cache::Cache;
use drystone_ext4_format::superblock::Superblock;
use drystone_jbd2::{Handle, Journal, JournalOptions};
use drystone_sync::thread;
use std::time::Duration;

pub(in crate::alloc) const CREDITS: u32 = 8;
const THREADS: u64 = 8;

/// An image of `size_kib` KiB, made over garbage.
pub(in crate::alloc) fn image(arguments: &str, size_kib: u64) -> Option<ImageFile> {
    ImageFile::over_garbage(arguments, size_kib << 10)
}

fn open(image: &ImageFile) -> Arc<Allocator> {
    open_with(image, Policy::SCALABLE)
}

pub(in crate::alloc) fn open_with(image: &ImageFile, policy: Policy) -> Arc<Allocator> {
    let device = image.device();
    let mut bytes = [0; 1024];
    device.read_at(1024, &mut bytes).unwrap();
    let superblock = Superblock::check(&bytes).unwrap();
    let block_size = superblock.layout().block_size();
    let cache = Arc::new(Cache::new(device.clone(), block_size, 64 << 20));
    let journal = Journal::unlogged(cache.clone(), JournalOptions::default()).unwrap();
    let device = Arc::new(GroupFlush::new(device));
    let volume = Volume::new(device, cache, journal, superblock, None, None).unwrap();
    Allocator::open(Arc::new(volume), policy, &[]).unwrap()
}

fn close(allocator: &Allocator) {
    let volume = &allocator.groups.volume;
    let mut handle = volume.start(1).unwrap();
    volume
        .update_superblock(&mut handle, |superblock| allocator.groups.store_counts(superblock))
        .unwrap();
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
        reach: Reach::All,
        file: None,
    }
}

fn allocate(allocator: &Allocator, request: &BlockRequest<'_>) -> Result<BlockRun> {
    let mut handle = allocator.groups.volume.start(CREDITS).unwrap();
    let result = allocator.blocks.allocate(&mut handle, request);
    handle.stop().unwrap();
    result
}

fn free(allocator: &Allocator, run: BlockRun, kind: BlockKind) -> Result<()> {
    let mut handle = allocator.groups.volume.start(CREDITS).unwrap();
    let result = allocator.blocks.free(&mut handle, run.start, u64::from(run.length), kind);
    handle.stop().unwrap();
    result
}

/// Allocates all blocks, with many threads.
fn allocate_all(allocator: &Allocator, reach: Reach, seed: u64) -> Vec<BlockRun> {
    let blocks = allocator.groups.volume.layout().blocks_count();
    thread::scope(|scope| {
        let takers: Vec<_> = (0..THREADS)
            .map(|taker| {
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(seed * 100 + taker);
                    let mut runs = Vec::new();
                    // The next logical block of the file that `space` stands for.
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
                        let request = BlockRequest { reach, file, ..request(goal, length) };
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
        assert_eq!(allocator.groups.metadata.get().first_in(run), None);
    }
}
