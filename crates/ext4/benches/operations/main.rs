//! The cost of single operations of the engine, on an image in memory and in one thread.
#![forbid(unsafe_code)]

mod cases;
mod image;

use drystone_testkit::counted;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use std::alloc::System;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

fn main() -> ExitCode {
    counted::main(cases::CASES, ALLOCATOR)
}
