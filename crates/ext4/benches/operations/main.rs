//! The cost of single operations of the engine, on an image in memory and in one thread.
//!
//! `operations --list` prints the names of the benchmarks. `operations NAME ROUNDS` prepares one, runs
//! so many rounds of it and prints, as one line of JSON, the number of operations, the thread's CPU time
//! and what was allocated. Instructions are counted from outside (`./dev bench`): those of a process
//! with one round, less those of one with none, divided by the operations of the round. The process ends
//! without closing the image, so that no commit is counted where none was asked for.
#![forbid(unsafe_code)]

mod cases;
mod image;

use cases::CASES;
use rustix::time::{ClockId, clock_gettime};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use std::alloc::System;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

fn main() -> ExitCode {
    let arguments: Vec<String> =
        std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["--list"] => {
            for case in CASES {
                println!("{}", case.name);
            }
            ExitCode::SUCCESS
        }
        [name, rounds] => match (CASES.iter().find(|case| case.name == name), rounds.parse()) {
            (Some(case), Ok(rounds)) => run(case, rounds),
            _ => usage(),
        },
        _ => usage(),
    }
}

fn usage() -> ExitCode {
    eprintln!("operations --list | operations NAME ROUNDS; ./dev bench runs them all");
    // `cargo test --benches` and `cargo bench` start this without arguments.
    ExitCode::SUCCESS
}

fn run(case: &cases::Case, rounds: u64) -> ExitCode {
    let mut operate = (case.prepare)();
    let region = Region::new(ALLOCATOR);
    let start_ns = thread_cpu_ns();
    let mut operations = 0;
    for _ in 0..rounds {
        operations += operate();
    }
    let cpu_ns = thread_cpu_ns() - start_ns;
    let change = region.change();
    println!(
        "{{\"operations\":{operations},\"cpu_ns\":{cpu_ns},\"allocations\":{},\"bytes\":{}}}",
        change.allocations + change.reallocations,
        change.bytes_allocated
    );
    // Without destructors, which would be measured.
    std::process::exit(0)
}

fn thread_cpu_ns() -> u64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
