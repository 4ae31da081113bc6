//! Whole images with one to five damages: repaired until they are clean for the checker and for e2fsck,
//! with all that the damage has left alone, and what is saved beside what `e2fsck -fy` saves of the same
//! image.
//!
//! An ordinary run takes a few of each set; `./dev judge-damage` takes many. `DRYSTONE_DAMAGED_IMAGES=n`
//! damages so many images, `DRYSTONE_SEED=n` others; `DRYSTONE_DAMAGE_CASE=n` does only the image of this
//! number, and says all.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod crowd;
mod edited;
mod faults;
mod patient;
mod quotas;
mod repairing;
mod sets;
mod table;
mod targeted;
#[path = "../fields/targets.rs"]
mod targets;
mod untouched;

use crowd::Crowd;
use drystone_testkit::environment::number;
use drystone_testkit::judges::{Scratch, have};
use patient::Patient;

/// Images in an ordinary run.
const IMAGES: u64 = 144;

/// The seed of an ordinary run.
const SEED: u64 = 3;

/// Files of each image beside those that it has for its features.
const MORE_FILES: usize = 150;

/// A share of the images of which ours may save less than e2fsck: one in so many.
const LESS_SHARE: u64 = 100;

#[test]
fn damaged_images_are_repaired_until_they_are_clean() {
    if !have("mke2fs") {
        return;
    }
    let scratch = Scratch::new("fsck-damaged").unwrap();
    let seed = number("DRYSTONE_SEED").unwrap_or(SEED);
    let only = number("DRYSTONE_DAMAGE_CASE");
    let count = number("DRYSTONE_DAMAGED_IMAGES").unwrap_or(IMAGES);
    let patients: Vec<(&str, Patient)> =
        sets::all().iter().map(|set| (set.name, Patient::new(&scratch, set, MORE_FILES))).collect();
    let cases = only.map_or(0..count, |only| only..only + 1);
    let crowd = Crowd::new(&patients, seed, cases, only.is_some());
    let (table, failures) = crowd.treat();
    eprint!("{table}");
    assert!(failures.is_empty(), "DRYSTONE_SEED={seed}: {failures:#?}");
    let less = table.less();
    assert!(less <= count.div_ceil(LESS_SHARE), "DRYSTONE_SEED={seed}: less is saved of {less}");
}
