//! One worker in one phase, with its clocks.

use crate::files::Files;
use crate::workload::{Phase, PhaseKind, Tally, Worker};
use anyhow::{Context, Result};
use drystone_sync::clock;
use serde::{Deserialize, Serialize};

/// What a worker reports of a phase.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PhaseReport {
    /// When it began, by the machine's monotonic clock, which processes share.
    pub start_ns: u64,
    /// When it ended.
    pub end_ns: u64,
    /// Time that the worker's thread was computing, in user mode and in the kernel.
    pub cpu_ns: u64,
    /// What it did.
    pub tally: Tally,
}

/// Does a worker's part of a phase.
pub fn run_phase(
    worker: &mut dyn Worker,
    phase: Phase,
    index: u64,
    files: &mut dyn Files,
) -> Result<PhaseReport> {
    let mut tally = Tally::default();
    let start_ns = clock::now_ns();
    let cpu_start_ns = clock::thread_cpu_ns();
    if phase.kind != PhaseKind::Shared || index == 0 {
        worker
            .run(phase.name, files, &mut tally)
            .with_context(|| format!("worker {index}, phase '{}'", phase.name))?;
    }
    let cpu_ns = clock::thread_cpu_ns() - cpu_start_ns;
    Ok(PhaseReport { start_ns, end_ns: clock::now_ns(), cpu_ns, tally })
}
