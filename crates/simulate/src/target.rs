//! The engine on virtual cores, as a target of the benchmark.

use anyhow::Result;
use drystone_bench::policy::PolicyChoice;
use drystone_bench::target::{EngineTarget, ImageMedium, Job, RunOutcome, Target};
use drystone_sync::sim::{self, MachineModel, Schedule, SimulationSettings};
use std::time::Duration;

/// Cores for the engine's own threads, beside those of the workers.
const OTHER_CORES: usize = 4;

/// The engine on a virtual machine.
pub struct SimulatedTarget {
    machine: MachineModel,
}

impl SimulatedTarget {
    /// The engine on a machine.
    pub fn new(machine: MachineModel) -> SimulatedTarget {
        SimulatedTarget { machine }
    }
}

impl Target for SimulatedTarget {
    fn name(&self) -> &str {
        "simulated"
    }

    fn has_policies(&self) -> bool {
        true
    }

    fn run(&mut self, job: Job<'_>, policy: Option<&PolicyChoice>) -> Result<RunOutcome> {
        let cores = usize::try_from(job.workers)? + OTHER_CORES;
        let settings = SimulationSettings {
            machine: self.machine.clone(),
            cores,
            seed: u64::from(job.round),
            schedule: Schedule::SmallestClock,
            time_max: Duration::MAX,
            planted: None,
        };
        let (outcome, report) =
            sim::run(&settings, || EngineTarget::new(ImageMedium::Memory, true).run(job, policy));
        let mut outcome = outcome?;
        outcome.figures.insert("events".into(), report.events as f64);
        Ok(outcome)
    }
}
