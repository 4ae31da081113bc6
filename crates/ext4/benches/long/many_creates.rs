//! The cost of a create does not grow with the number of inodes.

use crate::image::{Image, directory, file};
use crate::process::{cpu_ns, resident_bytes};
use drystone_ext4::MountOptions;
use drystone_vfs::{FileSystem, RequestContext};

const DIRECTORIES: u64 = 2000;
const FILES: u64 = 10_000;
const DIRECTORIES_PER_MILLION: usize = 100;
/// After so many millions of inodes, the cost of the last million is taken. The first million is left
/// out: memory fills up during it.
const LOOKS: [usize; 4] = [2, 5, 10, 20];
/// Inodes of this size have all that a create writes.
const INODE_BYTES: u16 = 128;
/// Less than a million inodes take, so that memory is full at all compared creates.
const BUDGET_BYTES: usize = 128 << 20;
const RATIO_MAX: f64 = 1.1;

pub fn run() -> Result<(), String> {
    let inodes = (DIRECTORIES * (FILES + 1)) as u32 + 100_000;
    let image = Image::with_inode_size("many-creates", 86 << 30, inodes, INODE_BYTES);
    let context = RequestContext::superuser();
    let options = MountOptions::default().memory_budget_bytes(BUDGET_BYTES);
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
    let looks = LOOKS.map(|millions| {
        let end = millions * DIRECTORIES_PER_MILLION;
        median(&costs_ns[end - DIRECTORIES_PER_MILLION..end])
    });
    let ratio = looks[LOOKS.len() - 1] as f64 / looks[0] as f64;
    for (millions, cost_ns) in LOOKS.iter().zip(looks) {
        println!("  up to {millions} M inodes: {cost_ns} ns of CPU a create, commits included");
    }
    println!("  {ratio:.2} times (promise: {RATIO_MAX})");
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
