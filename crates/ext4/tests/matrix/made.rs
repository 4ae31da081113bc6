//! Images that `drystone_mkfs` made.

use crate::ours::{Fresh, judge_seeds};
use drystone_blockdev::MemoryDevice;
use drystone_mkfs::MkfsOptions;
use drystone_testkit::judges::{FeatureSet, Scratch, have};

for_sets! { check: modern modern_1k }

/// The default of `drystone_mkfs` is the set `modern`.
fn check(set: &'static FeatureSet) {
    if !have("e2fsck") {
        return;
    }
    let device = MemoryDevice::new(64 << 20);
    let options =
        MkfsOptions::new(64 << 20, [7; 16], [1, 2, 3, 4], 1_800_000_000).block_size(set.block_size);
    drystone_mkfs::make(&device, &options, true).unwrap();
    let scratch = Scratch::new(&format!("made-{}", set.name)).unwrap();
    judge_seeds(&Fresh { set, configuration: set.configuration(), device, scratch });
}
