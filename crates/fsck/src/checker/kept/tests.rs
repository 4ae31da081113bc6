//! An image that is examined again and again while it is damaged and mended: with what was kept, the report is that of
//! an examination from the start.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use super::Kept;
use crate::check::{Examined, examine, open};
use crate::report::{CheckOptions, CheckProgress, Report, Reporter};
use crate::watched::WatchedDevice;
use drystone_blockdev::{BlockDevice, MemoryDevice, Overlay};
use drystone_testkit::damage::{self, Damage};
use drystone_testkit::environment::number;
use drystone_testkit::judges::{SMALL_IMAGES, Scratch, SmallImage, have, make_small_image};
use drystone_testkit::metadata_map::MetadataMap;
use fastrand::Rng;

/// Images of a set in an ordinary run.
const IMAGES: u64 = 60;

/// Files of each image beside those that it has for its features.
const MORE_FILES: usize = 150;

/// How often an image is examined.
const EXAMINATIONS: usize = 5;

/// The report, and what is kept. Nothing if the image can't be examined.
fn examined(device: &dyn BlockDevice, kept: Option<Kept>) -> Option<(Report, Kept)> {
    let options = CheckOptions::default().threads(2);
    let mut ignore = |_: CheckProgress<'_>| {};
    let mut reporter = Reporter::new(&options, &mut ignore);
    let image = open(device, &mut reporter).ok()??;
    match examine(image, reporter, true, &options, kept, |_| true).ok()? {
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
    let (mut kept_inodes, mut kept_directories) = (0, 0);
    for name in ["modern", "attribute-inodes", "inline", "ext3", "bigalloc-quota"] {
        let set = SMALL_IMAGES.iter().find(|set| set.name == name).unwrap();
        // Many groups have many pieces of inodes.
        let arguments = format!("{} -g 512", set.arguments).leak();
        let set = SmallImage { name, arguments, size_mib: 16, names: set.names };
        let path = make_small_image(&scratch, &set, MORE_FILES);
        let map = MetadataMap::of(MemoryDevice::from_bytes(&std::fs::read(path).unwrap()));
        for number in 0..images {
            let mut random = Rng::with_seed(seed.wrapping_mul(1 << 32) + number);
            let overlay = Overlay::new(&map.device);
            let device = WatchedDevice::new(&overlay);
            let (mut kept, mut damaged) = (Kept::default(), Vec::new());
            for step in 0..EXAMINATIONS {
                kept.note_written(device.take_written());
                let again = examined(&device, Some(kept));
                let whole = examined(&device, None);
                let what = format!("{name} {number}, step {step}: DRYSTONE_SEED={seed}");
                let (Some((again, next)), Some((whole, _))) = (again, whole) else { break };
                assert_eq!(again, whole, "{what}");
                kept_inodes += next.inodes.len();
                kept_directories += next.directories.len();
                kept = next;
                for _ in 0..random.usize(1..4) {
                    change(&map, &device, &mut damaged, &mut random);
                }
            }
        }
    }
    assert!(kept_inodes > 0 && kept_directories > 0);
}
