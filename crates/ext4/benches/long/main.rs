//! Measurements of the engine at scale: a large directory, many inodes, memory, threads.
//!
//! `long [NAME...]` runs the measurements named, or all of them; each fails if it misses what the
//! project promises. Images are files in `DRYSTONE_BENCH_DIRECTORY`, or in memory at `/dev/shm`,
//! and `e2fsck -fn` judges them at the end.
#![forbid(unsafe_code)]

mod extent_reclaim;
mod image;
mod large_directory;
mod many_creates;
mod many_inodes;
mod memory;
mod process;
mod threads;

use std::process::ExitCode;

/// A measurement: prints its results, and fails with a description of a missed promise.
type Measurement = (&'static str, fn() -> Result<(), String>);

const MEASUREMENTS: [Measurement; 6] = [
    ("extent-reclaim", extent_reclaim::run),
    ("large-directory", large_directory::run),
    ("many-creates", many_creates::run),
    ("many-inodes", many_inodes::run),
    ("memory", memory::run),
    ("threads", threads::run),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // `cargo test --benches` and a bare `cargo bench` must not take minutes.
    if arguments.iter().any(|argument| argument == "--bench" || argument == "--test") {
        return ExitCode::SUCCESS;
    }
    let mut failed = false;
    for (name, run) in MEASUREMENTS {
        if arguments.is_empty() || arguments.iter().any(|argument| argument == name) {
            println!("{name}");
            if let Err(problem) = run() {
                println!("  MISSED: {problem}");
                failed = true;
            }
        }
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
