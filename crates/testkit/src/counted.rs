//! Benchmarks whose instructions are counted from outside (`./dev bench`).
//!
//! `BENCHMARK --list` prints the names of the cases. `BENCHMARK NAME ROUNDS` prepares one, runs so many
//! rounds of it and prints, as one line of JSON, the number of operations, the thread's CPU time and what was
//! allocated. The cost of an operation is that of a process with one round, less that of one with none,
//! divided by the operations of the round. The process ends without closing the image, so that no commit
//! is counted where none was asked for.

use rustix::time::{ClockId, clock_gettime};
use stats_alloc::{Region, StatsAlloc};
use std::alloc::System;
use std::process::ExitCode;

/// Runs one round and returns how many operations it was.
pub type Operate = Box<dyn FnMut() -> u64>;

/// A benchmark.
pub struct Case {
    /// What the command line calls it.
    pub name: &'static str,
    /// Makes what it works on.
    pub prepare: fn() -> Operate,
}

/// The main function of a benchmark with these cases, whose global allocator is `allocator`.
pub fn main(cases: &[Case], allocator: &'static StatsAlloc<System>) -> ExitCode {
    let arguments: Vec<String> =
        std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["--list"] => {
            for case in cases {
                println!("{}", case.name);
            }
            ExitCode::SUCCESS
        }
        [name, rounds] => match (cases.iter().find(|case| case.name == name), rounds.parse()) {
            (Some(case), Ok(rounds)) => run(case, rounds, allocator),
            _ => usage(),
        },
        _ => usage(),
    }
}

fn usage() -> ExitCode {
    eprintln!("BENCHMARK --list | BENCHMARK NAME ROUNDS; ./dev bench runs them all");
    // `cargo test --benches` and `cargo bench` start this without arguments.
    ExitCode::SUCCESS
}

fn run(case: &Case, rounds: u64, allocator: &'static StatsAlloc<System>) -> ExitCode {
    let mut operate = (case.prepare)();
    let region = Region::new(allocator);
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
