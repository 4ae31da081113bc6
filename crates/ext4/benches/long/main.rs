//! Measurements of the engine at scale: a large directory, many inodes, memory, threads.
//!
//! `long [NAME...]` runs the measurements named, or all of them; each fails if it misses what the
//! project promises. Several run one after the other, each in a process of its own: memory that an
//! allocator keeps from one measurement would hide what the next one takes. Images are files in
//! `DRYSTONE_BENCH_DIRECTORY`, or in memory at `/dev/shm`, and `e2fsck -fn` judges them at the end.
#![forbid(unsafe_code)]

mod extent_reclaim;
mod image;
mod large_directory;
mod many_creates;
mod many_inodes;
mod memory;
mod process;
mod threads;

use std::process::{Command, ExitCode};

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
    let is_wanted = |name: &str| arguments.is_empty() || arguments.iter().any(|it| it == name);
    let known = |argument: &String| MEASUREMENTS.iter().any(|(name, _)| name == argument);
    if let Some(unknown) = arguments.iter().find(|argument| !known(argument)) {
        let names = MEASUREMENTS.map(|(name, _)| name).join(", ");
        eprintln!("long: no measurement '{unknown}'; there are: {names}");
        return ExitCode::FAILURE;
    }
    let wanted: Vec<Measurement> =
        MEASUREMENTS.into_iter().filter(|(name, _)| is_wanted(name)).collect();
    let succeeded = match wanted[..] {
        [(name, run)] => measure(name, run),
        // All of them, also after one has failed.
        _ => wanted.iter().fold(true, |succeeded, (name, _)| in_a_process(name) && succeeded),
    };
    if succeeded { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn measure(name: &str, run: fn() -> Result<(), String>) -> bool {
    println!("{name}");
    run().inspect_err(|problem| println!("  MISSED: {problem}")).is_ok()
}

fn in_a_process(name: &str) -> bool {
    let program = std::env::current_exe().expect("the kernel knows the running program");
    let status = Command::new(program).arg(name).status().expect("what runs can be started again");
    status.success()
}
