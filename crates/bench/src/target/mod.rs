//! Where a workload runs: an engine in this process, or a directory through system calls.
//!
//! A target takes a workload through its phases with all its workers in step, and says how long
//! each phase took from the first worker's start to the last one's end, and what was counted
//! meanwhile.

mod directory;
mod engine;
mod image;
mod in_process;
mod nilfs2;
mod resident;
mod verify;
mod worker;

pub use directory::{DirectoryTarget, WorkerProgram, serve_worker};
pub use engine::{EngineTarget, WrapDevice};
pub use image::ImageMedium;
pub use nilfs2::Nilfs2Target;
pub use verify::Verify;

use crate::policy::PolicyChoice;
use crate::workload::{PhaseKind, Sizes, Workload};
use anyhow::Result;
use drystone_sync::atomic::AtomicBool;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use worker::PhaseReport;

/// One run of a workload.
#[derive(Clone, Copy)]
pub struct Job<'j> {
    /// The workload.
    pub workload: &'j dyn Workload,
    /// Its size.
    pub sizes: &'j Sizes,
    /// With how many workers.
    pub workers: u64,
    /// The number of the round; 0 warms up.
    pub round: u32,
    /// How the image is checked afterwards.
    pub verify: Verify,
    /// Set when the user wants to stop.
    pub stop: &'j AtomicBool,
}

/// The result of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunOutcome {
    /// Operations of all workers in the main phase.
    pub operations: u64,
    /// How long the main phase took.
    pub seconds: f64,
    /// Further figures.
    pub figures: BTreeMap<String, f64>,
    /// What was counted in the main phase.
    pub counters: serde_json::Value,
    /// Whether the image was consistent; `None` if it was not checked.
    pub clean: Option<bool>,
}

/// Where a workload runs.
pub trait Target {
    /// Its name in results.
    fn name(&self) -> &str;

    /// Whether policies can be chosen for it.
    fn has_policies(&self) -> bool;

    /// Runs a workload from beginning to end.
    ///
    /// # Errors
    /// A worker's call failed, or the target can't be made.
    fn run(&mut self, job: Job<'_>, policy: Option<&PolicyChoice>) -> Result<RunOutcome>;
}

/// Sums up what the workers report of a phase.
fn add_phase(outcome: &mut RunOutcome, kind: PhaseKind, reports: &[PhaseReport]) {
    let start = reports.iter().map(|report| report.start_ns).min().unwrap_or(0);
    let end = reports.iter().map(|report| report.end_ns).max().unwrap_or(0);
    // If the clock hasn't moved, the rate would be infinite, which JSON can't express.
    let seconds = end.saturating_sub(start).max(1) as f64 / 1e9;
    let operations: u64 = reports.iter().map(|report| report.tally.operations).sum();
    match kind {
        PhaseKind::Main => {
            outcome.operations = operations;
            outcome.seconds = seconds;
            let cpu_ns: u64 = reports.iter().map(|report| report.cpu_ns).sum();
            let each = cpu_ns as f64 / operations.max(1) as f64;
            outcome.figures.insert("cpu_ns_per_operation".into(), each);
        }
        PhaseKind::Rate(name) => {
            outcome.figures.insert(name.into(), operations as f64 / seconds);
        }
        PhaseKind::Seconds(name) if operations > 0 => {
            outcome.figures.insert(name.into(), seconds);
        }
        PhaseKind::Seconds(_) | PhaseKind::Shared | PhaseKind::Aside => {}
    }
    let mut given: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for (name, value) in reports.iter().flat_map(|report| &report.tally.figures) {
        given.entry(name).or_default().push(*value);
    }
    for (name, values) in given {
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        outcome.figures.insert(name.to_string(), mean);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Tally;

    #[test]
    fn a_phase_lasts_from_the_first_start_to_the_last_end() {
        let report = |start_ns, end_ns, extents: f64| PhaseReport {
            start_ns,
            end_ns,
            cpu_ns: 500_000_000,
            tally: Tally {
                operations: 10,
                figures: BTreeMap::from([("extents_per_file".to_string(), extents)]),
            },
        };
        let reports =
            [report(1_000_000_000, 3_000_000_000, 4.0), report(2_000_000_000, 5_000_000_000, 6.0)];
        let mut outcome = RunOutcome::default();
        add_phase(&mut outcome, PhaseKind::Main, &reports);
        assert_eq!((outcome.operations, outcome.seconds), (20, 4.0));
        assert_eq!(outcome.figures["cpu_ns_per_operation"], 50_000_000.0);
        assert_eq!(outcome.figures["extents_per_file"], 5.0);
        add_phase(&mut outcome, PhaseKind::Rate("removes_per_second"), &reports);
        assert_eq!(outcome.figures["removes_per_second"], 5.0);
        assert_eq!(outcome.seconds, 4.0);
    }
}
