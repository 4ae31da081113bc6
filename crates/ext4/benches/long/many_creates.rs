//! The cost of a create does not grow with the inodes that there are.

use crate::image::{Image, directory, file};
use crate::process::{cpu_ns, resident_bytes};
use drystone_ext4::MountOptions;
use drystone_vfs::{FileSystem, RequestContext};

const DIRECTORIES: u64 = 2000;
const FILES: u64 = 10_000;
/// Directories whose median is compared: with a million files.
const COMPARED: usize = 100;
/// Inodes of this size have all that a create writes.
const INODE_BYTES: u16 = 128;
/// Little enough that nearly all inodes have left memory at the end.
const BUDGET_BYTES: usize = 1 << 30;
const RATIO_MAX: f64 = 1.1;

pub fn run() -> Result<(), String> {
    let inodes = (DIRECTORIES * (FILES + 1)) as u32 + 100_000;
    let image = Image::with_inode_size("many-creates", 86 << 30, inodes, INODE_BYTES);
    let context = RequestContext::superuser();
    let options = MountOptions { memory_budget_bytes: BUDGET_BYTES, ..MountOptions::default() };
    let fs = image.open_with(options);
    let mut costs_ns = Vec::new();
    let mut resident_bytes_max = 0;
    for number in 0..DIRECTORIES {
        let start_ns = cpu_ns();
        let parent = directory(&fs, fs.root(), &format!("d{number}"));
        for number in 0..FILES {
            file(&fs, &context, parent, number);
        }
        fs.forget(parent, 1);
        costs_ns.push((cpu_ns() - start_ns) / FILES);
        resident_bytes_max = resident_bytes_max.max(resident_bytes());
    }
    fs.close().map_err(|error| error.to_string())?;
    let first_ns = median(&costs_ns[..COMPARED]);
    let last_ns = median(&costs_ns[costs_ns.len() - COMPARED..]);
    let ratio = last_ns as f64 / first_ns as f64;
    println!("  up to 1 M inodes: {first_ns} ns of CPU a create, commits included");
    println!("  up to 20 M: {last_ns} ns, {ratio:.2} times (promise: {RATIO_MAX})");
    println!("  memory: {} MiB resident at most, without the image", resident_bytes_max >> 20);
    image.check()?;
    if ratio > RATIO_MAX {
        return Err("a create costs more where there are many inodes".to_owned());
    }
    Ok(())
}

fn median(costs: &[u64]) -> u64 {
    let mut sorted = costs.to_vec();
    sorted.sort_unstable();
    sorted[sorted.len() / 2]
}
