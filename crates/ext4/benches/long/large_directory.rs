//! The cost of a directory is linear in its files: files of the second half of a million cost hardly
//! more than those of the first half.
//!
//! A larger directory has more leaves, so a commit holds more blocks for as many creates, up to one
//! block for each create. There the growth of the cost per file ends. If the cost grew with the files,
//! it would double from the middle to the end.

use crate::image::{Image, directory, file};
use crate::process::cpu_ns;
use drystone_vfs::{FileSystem, RequestContext};

const FILES: u64 = 1_000_000;
const STEP: u64 = 100_000;
/// How many times the cost of those in the middle the last files may cost.
const GROWTH_MAX: f64 = 1.5;

pub fn run() -> Result<(), String> {
    let image = Image::new("large-directory", 8 << 30, FILES as u32 + 100_000);
    let fs = image.open();
    let context = RequestContext::superuser();
    let parent = directory(&fs, fs.root(), "large");
    let mut costs = Vec::new();
    for step in 0..FILES / STEP {
        let start_ns = cpu_ns();
        for number in step * STEP..(step + 1) * STEP {
            file(&fs, &context, parent, number);
        }
        costs.push((cpu_ns() - start_ns) as f64 / STEP as f64 / 1000.0);
        println!("  {:>8} files: {:.2} us of CPU each", (step + 1) * STEP, costs[step as usize]);
    }
    let start_ns = cpu_ns();
    fs.close().map_err(|error| error.to_string())?;
    println!("  close: {:.2} s of CPU", (cpu_ns() - start_ns) as f64 / 1e9);
    image.check()?;
    let growth = costs[costs.len() - 1] / costs[costs.len() / 2 - 1];
    println!(
        "  last against middle: {growth:.2}, against first: {:.2}",
        costs.last().unwrap_or(&0.0) / costs[0]
    );
    if growth > GROWTH_MAX {
        return Err(format!("the last {STEP} files cost {growth:.2} times those in the middle"));
    }
    Ok(())
}
