//! Dropping cached extents of a million inodes in memory: how long does one pass take?

use crate::image::{Image, directory, file, write_name};
use drystone_ext4::{Ext4, ExtentReclaim, MountOptions, Policy};
use drystone_vfs::{FallocateMode, FileSystem, InodeNumber, RequestContext};
use std::time::Duration;

const DIRECTORIES: u64 = 1000;
const FILES: u64 = 1000;
const BLOCK_BYTES: u64 = 4096;
/// Two extents of each file and the hole between them are looked up; half of these may stay.
const EXTENTS_MAX: u64 = DIRECTORIES * FILES * 3 / 2;
const EXTENT_BYTES: u64 = 32;
/// Enough that all inodes stay.
const MEMORY_BYTES: usize = 8 << 30;
/// The promised maximum for round robin.
const PASS_US_MAX: f64 = 1000.0;
/// A walk ends after this time: the baseline's passes take very long.
const SECONDS_MAX: u64 = 60;

pub fn run() -> Result<(), String> {
    let image = Image::new("reclaim", 16 << 30, (DIRECTORIES * FILES) as u32 + 100_000);
    make(&image.open());
    let mut missed = None;
    for &extent_reclaim in ExtentReclaim::VALUES {
        let fs = image.open_with(
            MountOptions::default()
                .memory_budget_bytes(MEMORY_BYTES)
                .extent_status_bytes((EXTENTS_MAX * EXTENT_BYTES) as usize)
                .policy(Policy { extent_reclaim, ..Policy::SCALABLE }),
        );
        // The first walk brings them into memory.
        let start = drystone_sync::clock::now();
        for _ in 0..2 {
            walk(&fs, || start.elapsed() < Duration::from_secs(SECONDS_MAX));
        }
        let found = fs.engine_statistics().extent_status;
        println!(
            "  {}: {} inodes, {} passes of {} extents; mean {:.2} us ({:.2} us of CPU), longest {:.0} us \
             ({:.0} us of CPU)",
            extent_reclaim.name(),
            fs.memory_use().inodes,
            found.passes,
            found.scanned / found.passes.max(1),
            found.mean_pass_us,
            found.mean_pass_cpu_us,
            found.longest_pass_us,
            found.longest_pass_cpu_us,
        );
        if extent_reclaim == ExtentReclaim::RoundRobin && found.longest_pass_cpu_us > PASS_US_MAX {
            missed = Some(format!("a pass of the ring took more than {PASS_US_MAX} us of CPU"));
        }
        fs.close().map_err(|error| error.to_string())?;
    }
    missed.map_or_else(|| image.check(), Err)
}

/// Makes the files, each of two blocks with a hole of one block between them.
fn make(fs: &Ext4) {
    let context = RequestContext::superuser();
    for number in 0..DIRECTORIES {
        let parent = directory(fs, fs.root(), &format!("d{number}"));
        for number in 0..FILES {
            file(fs, &context, parent, number);
            with_file(fs, parent, number, |file| {
                for block in [0, 2] {
                    let mode = FallocateMode::Allocate { keep_size: false };
                    fs.fallocate(&context, file, mode, block * BLOCK_BYTES, BLOCK_BYTES)
                        .expect("there is room");
                }
            });
        }
        fs.forget(parent, 1);
    }
    fs.close().expect("the image is closed");
}

/// Reads a byte of each block of each file, as long as `goes_on`.
fn walk(fs: &Ext4, goes_on: impl Fn() -> bool) {
    let context = RequestContext::superuser();
    for number in 0..DIRECTORIES {
        if !goes_on() {
            return;
        }
        let name = format!("d{number}");
        let parent = fs.lookup(&context, fs.root(), name.as_bytes()).expect("it was made").inode;
        for number in 0..FILES {
            with_file(fs, parent, number, |file| {
                for block in 0..3 {
                    fs.read(file, block * BLOCK_BYTES, &mut [0]).expect("a sound file");
                }
            });
        }
        fs.forget(parent, 1);
    }
}

fn with_file(fs: &Ext4, parent: InodeNumber, number: u64, work: impl FnOnce(InodeNumber)) {
    let mut name = [0; 16];
    let context = RequestContext::superuser();
    let found = fs.lookup(&context, parent, write_name(&mut name, number)).expect("it was made");
    work(found.inode);
    fs.forget(found.inode, 1);
}
