//! Crashes and faults: after a crash at any write, an error of the device at any step or a full disk,
//! the image is sound and holds everything that was acknowledged.
//!
//! Workloads run on a recorded device and in the model at once. Each crash image is recovered. It has to
//! be in one of the states that the model went through, no older than the last sync. Files hold bytes
//! that they once held at that place, never another file's.
//!
//! - `DRYSTONE_CRASH_IMAGES=n` makes about n images; `./dev crash --images n` sets it.
//! - `DRYSTONE_SEED=n` repeats a run, as far as the journal's threads allow.
//! - `DRYSTONE_CRASH_KEEP=directory` keeps the first image that fails, before recovery.
#![allow(clippy::unwrap_used)]

mod cold;
mod crashes;
mod errors;
mod faults;
mod full;
mod images;
mod judge;
mod nameless;
mod panics;
mod record;
mod settings;
mod short;
mod watch;
mod without_journal;
mod workloads;

use drystone_testkit::environment::number;

/// Images made in the ordinary test run.
const IMAGES_DEFAULT: usize = 1_100;

/// How many images to make, in all tests together.
fn images() -> usize {
    number("DRYSTONE_CRASH_IMAGES").map_or(IMAGES_DEFAULT, |count| count as usize)
}

/// True in a long run, which tries every step instead of some.
fn is_long() -> bool {
    images() > IMAGES_DEFAULT
}

fn seed() -> u64 {
    number("DRYSTONE_SEED").unwrap_or(0x5eed)
}
