//! Whole images with one to five damages: repaired until they are clean for the checker and for e2fsck,
//! and what is saved beside what `e2fsck -fy` saves of the same image.
//!
//! An ordinary run takes a few of each set. `DRYSTONE_DAMAGED_IMAGES=n` damages so many images,
//! `DRYSTONE_SEED=n` others; `DRYSTONE_DAMAGE_CASE=n` does only the image of this number, and says all.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod edited;
mod patient;
mod repairing;
mod table;
mod targeted;

use drystone_testkit::environment::number;
use drystone_testkit::judges::{SMALL_IMAGES, Scratch, have};
use patient::{Patient, Verdict};
use table::Table;

/// Images in an ordinary run.
const IMAGES: u64 = 140;

/// Files of each image beside those that it has for its features.
const MORE_FILES: usize = 60;

/// A share of the images of which ours may save less than e2fsck: one in so many.
const LESS_SHARE: u64 = 100;

/// What a process may have taken at its largest: the images are of at most 8 MiB.
const RESIDENT_MAX_KIB: u64 = 512 << 10;

#[test]
fn damaged_images_are_repaired_until_they_are_clean() {
    if !have("mke2fs") {
        return;
    }
    let scratch = Scratch::new("fsck-damaged").unwrap();
    let seed = number("DRYSTONE_SEED").unwrap_or(1);
    let only = number("DRYSTONE_DAMAGE_CASE");
    let count = number("DRYSTONE_DAMAGED_IMAGES").unwrap_or(IMAGES);
    let sets = SMALL_IMAGES.len() as u64;
    let (mut table, mut failures) = (Table::default(), Vec::new());
    for (place, set) in (0..).zip(&SMALL_IMAGES) {
        let patient = Patient::new(&scratch, set, MORE_FILES);
        for case in (0..count).filter(|case| case % sets == place) {
            if only.is_some_and(|only| only != case) {
                continue;
            }
            let treated = patient.treat(seed.wrapping_mul(1 << 32) + case, only.is_some());
            table.add(set.name, &treated);
            if let Verdict::Failed(why) = &treated.verdict {
                eprintln!("FAILED {case} {}: {}\n{why}", set.name, treated.faults.join(", "));
                failures.push(format!("{case} {}", set.name));
            }
            if treated.is_less() {
                let (ours, theirs) = (&treated.ours, &treated.theirs);
                let faults = treated.faults.join(", ");
                eprintln!("LESS {case} {}: {ours:?}, not {theirs:?}: {faults}", set.name);
            }
        }
    }
    eprint!("{table}");
    assert!(failures.is_empty(), "DRYSTONE_SEED={seed}: {failures:#?}");
    let less = table.less();
    assert!(less <= count.div_ceil(LESS_SHARE), "DRYSTONE_SEED={seed}: less is saved of {less}");
    let resident = table::resident_max_kib();
    assert!(resident < RESIDENT_MAX_KIB, "{resident} KiB");
}
