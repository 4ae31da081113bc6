//! A directory of a million files costs a million times what one costs.

use crate::image::{Image, directory, file};
use crate::process::cpu_ns;
use drystone_vfs::{FileSystem, RequestContext};

const FILES: u64 = 1_000_000;
const STEP: u64 = 100_000;
/// How much dearer the last files may be than those after the first step. The index gets one level
/// more on the way.
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
    let growth = costs[costs.len() - 1] / costs[1];
    if growth > GROWTH_MAX {
        return Err(format!("the last {STEP} files cost {growth:.2} times the second {STEP}"));
    }
    Ok(())
}
