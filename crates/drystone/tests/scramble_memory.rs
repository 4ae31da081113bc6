//! Scrambling takes little memory, however large a directory is.
//!
//! In a process of its own, because the memory of the process is measured.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use drystone::inspection::{InspectedImage, ScrambleKey, copy_scrambled};
use drystone::{CreateOptions, Image, check_image};
use drystone_blockdev::{Existing, FileDevice, OpenMode};
use drystone_testkit::judges::{Scratch, e2fsck_check, have};
use peak_alloc::PeakAlloc;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

const NAMES: usize = 100_000;

/// Names of a file; no file may have more than 65,000.
const NAMES_OF_FILE: usize = 50_000;

/// For pieces of 1 MiB, and for what is known of names and leaves.
const BYTES_MAX: usize = 4 << 20;

#[test]
fn a_large_directory_takes_little_memory() {
    let scratch = Scratch::new("scramble-memory").unwrap();
    let path = scratch.join("disk.img");
    let image = Image::create(&path, &CreateOptions::new(64 << 20)).unwrap();
    image.fs().create_dir("/large").unwrap();
    for number in 0..NAMES {
        let file = format!("/{}", number / NAMES_OF_FILE);
        if number % NAMES_OF_FILE == 0 {
            image.fs().write(&file, "x").unwrap();
        }
        let name = format!("/large/{number:0>width$}", width = 6 + number % 60);
        image.fs().hard_link(&file, name).unwrap();
    }
    image.close().unwrap();
    let device = FileDevice::open(&path, OpenMode::ReadOnly).unwrap();
    let target = scratch.join("copy.img");
    let copy = FileDevice::create(&target, 64 << 20, Existing::Refuse).unwrap();
    let image = InspectedImage::open(&device).unwrap();
    MEMORY.reset_peak_usage();
    let before = MEMORY.current_usage();
    let summary = copy_scrambled(&image, &copy, ScrambleKey::from_seed(1), &mut |_, _| {}).unwrap();
    let taken = MEMORY.peak_usage() - before;
    assert!(taken < BYTES_MAX, "{taken} bytes");
    let scrambled = summary.scrambled.unwrap();
    assert_eq!((scrambled.unclear_bytes, scrambled.misplaced_names), (0, 0));
    drop(copy);
    let report = check_image(&target, &drystone::fsck::CheckOptions::default(), &mut |_| {});
    assert!(report.unwrap().problems.is_empty());
    if have("e2fsck") {
        e2fsck_check(&target).unwrap().expect_clean("the copy");
    }
}
