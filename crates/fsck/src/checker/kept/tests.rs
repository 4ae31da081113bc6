//! An image that is examined again and again while it is damaged and mended: with what was kept, the report is that of
//! an examination from the start.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use super::Kept;
use crate::check::{Examined, examine, open};
use crate::report::{CheckOptions, CheckProgress, Report, Reporter};
use crate::watched::WatchedDevice;
use drystone_blockdev::{BlockDevice, DeviceResult, MemoryDevice, Overlay};
use drystone_sync::atomic::{AtomicU64, Ordering};
use drystone_testkit::damage::{self, Damage};
use drystone_testkit::environment::number;
use drystone_testkit::judges::{SMALL_IMAGES, Scratch, SmallImage, have, make_small_image};
use drystone_testkit::metadata_map::{BlockContent, MetadataMap};
use fastrand::Rng;
use std::collections::BTreeMap;
use std::ops::AddAssign;

/// Images of a set in an ordinary run.
const IMAGES: u64 = 60;

/// Files of each image beside those that it has for its features.
const MORE_FILES: usize = 150;

/// How often an image is examined.
const EXAMINATIONS: usize = 5;

/// Blocks that were read.
#[derive(Clone, Copy, Debug, Default)]
struct Reads {
    inodes: u64,
    directories: u64,
}

impl AddAssign for Reads {
    fn add_assign(&mut self, other: Self) {
        self.inodes += other.inodes;
        self.directories += other.directories;
    }
}

/// A device that counts which blocks are read.
#[derive(Debug)]
struct CountedReads<'a> {
    below: &'a dyn BlockDevice,
    blocks: &'a BTreeMap<u64, BlockContent>,
    block_size: u64,
    inodes: AtomicU64,
    directories: AtomicU64,
}

impl<'a> CountedReads<'a> {
    fn new(below: &'a dyn BlockDevice, map: &'a MetadataMap) -> Self {
        let block_size = map.layout().block_size() as u64;
        let (inodes, directories) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { below, blocks: &map.blocks, block_size, inodes, directories }
    }

    fn reads(&self) -> Reads {
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Reads { inodes: count(&self.inodes), directories: count(&self.directories) }
    }
}

impl BlockDevice for CountedReads<'_> {
    fn size_bytes(&self) -> u64 {
        self.below.size_bytes()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> DeviceResult {
        let end = (offset + buffer.len() as u64).div_ceil(self.block_size);
        for (_, content) in self.blocks.range(offset / self.block_size..end) {
            match content {
                BlockContent::InodeTable(_) => self.inodes.fetch_add(1, Ordering::Relaxed),
                BlockContent::Directory(..) => self.directories.fetch_add(1, Ordering::Relaxed),
                _ => 0,
            };
        }
        self.below.read_at(offset, buffer)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> DeviceResult {
        self.below.write_at(offset, data)
    }

    fn flush(&self) -> DeviceResult {
        self.below.flush()
    }
}

/// The report, and what is kept. Nothing if the image can't be examined.
fn examined(device: &dyn BlockDevice, kept: Option<Kept>) -> Option<(Report, Kept)> {
    let options = CheckOptions::default().threads(2);
    let mut ignore = |_: CheckProgress<'_>| {};
    let mut reporter = Reporter::new(&options, &mut ignore);
    let image = open(device, &mut reporter).ok()??;
    match examine(image, reporter, true, &options, kept, |_, _| true).ok()? {
        Examined::Hopeless(_) => None,
        Examined::Whole(mut checker) => {
            let report = std::mem::take(&mut checker.reporter.report);
            Some((report, checker.into_kept()))
        }
    }
}

/// Damages an image, or takes some of the damage back.
fn change(map: &MetadataMap, device: &dyn BlockDevice, damaged: &mut Vec<u64>, random: &mut Rng) {
    if !damaged.is_empty() && random.bool() {
        let block = damaged.swap_remove(random.usize(..damaged.len()));
        let bytes = map.block(block);
        device.write_at(block * bytes.len() as u64, &bytes).unwrap();
        return;
    }
    let blocks: Vec<u64> = map.blocks.keys().copied().collect();
    let block = blocks[random.usize(..blocks.len())];
    damage::apply(map, device, block, Damage::ALL[random.usize(..Damage::ALL.len())], random);
    damaged.push(block);
}

#[test]
fn what_is_kept_changes_no_report() {
    if !have("mke2fs") {
        return;
    }
    let scratch = Scratch::new("fsck-kept").unwrap();
    let seed = number("DRYSTONE_SEED").unwrap_or(1);
    let images = number("DRYSTONE_DAMAGED_IMAGES").unwrap_or(IMAGES);
    for name in ["modern", "attribute-inodes", "inline", "ext3", "bigalloc-quota"] {
        let set = SMALL_IMAGES.iter().find(|set| set.name == name).unwrap();
        // Many groups have many pieces of inodes.
        let arguments = format!("{} -g 512", set.arguments).leak();
        let set = SmallImage { name, arguments, size_mib: 16, names: set.names };
        let path = make_small_image(&scratch, &set, MORE_FILES);
        let map = MetadataMap::of(MemoryDevice::from_bytes(&std::fs::read(path).unwrap()));
        let (mut reads_again, mut reads_whole) = (Reads::default(), Reads::default());
        for number in 0..images {
            let mut random = Rng::with_seed(seed.wrapping_mul(1 << 32) + number);
            let overlay = Overlay::new(&map.device);
            let device = WatchedDevice::new(&overlay);
            let (mut kept, mut damaged) = (Kept::default(), Vec::new());
            for step in 0..EXAMINATIONS {
                kept.note_written(device.take_written());
                let counted = [(); 2].map(|()| CountedReads::new(&device, &map));
                let again = examined(&counted[0], Some(kept));
                let whole = examined(&counted[1], None);
                let what = format!("{name} {number}, step {step}: DRYSTONE_SEED={seed}");
                let (Some((again, next)), Some((whole, _))) = (again, whole) else { break };
                assert_eq!(again, whole, "{what}");
                if step > 0 {
                    reads_again += counted[0].reads();
                    reads_whole += counted[1].reads();
                }
                kept = next;
                for _ in 0..random.usize(1..4) {
                    change(&map, &device, &mut damaged, &mut random);
                }
            }
        }
        // Some damage concerns all pieces, and each some.
        let has_reused = reads_again.inodes < reads_whole.inodes * 9 / 10
            && reads_again.directories < reads_whole.directories * 9 / 10;
        assert!(has_reused, "{name}: {reads_again:?}, from the start {reads_whole:?}");
    }
}
