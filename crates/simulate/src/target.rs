//! The engine on virtual cores, as a target of the benchmark.

use crate::device::SimulatedDevice;
use crate::machine::SimulatedMachine;
use crate::work_file::CalibratedWork;
use anyhow::Result;
use drystone_bench::policy::PolicyChoice;
use drystone_bench::target::{EngineTarget, ImageMedium, Job, RunOutcome, Target};
use drystone_sync::Arc;
use drystone_sync::sim::{
    self, DeviceModel, MachineModel, SimulationSettings, SpinLocks, Work, WorkTable, WorkUse,
};
use std::cell::Cell;
use std::rc::Rc;

/// The engine on a virtual machine.
pub struct SimulatedTarget {
    model: MachineModel,
    device: DeviceModel,
    work: Rc<WorkTable>,
    spin_locks: SpinLocks,
    uses: Rc<Cell<WorkUse>>,
}

impl SimulatedTarget {
    /// The engine on a machine, whose cores do the work of a table by their clock.
    pub fn new(machine: &SimulatedMachine, work: CalibratedWork, spin_locks: SpinLocks) -> Self {
        let permille = (1000.0 * work.clock_ghz / machine.clock_ghz) as u64;
        SimulatedTarget {
            model: MachineModel { work_permille: permille, ..machine.model.clone() },
            device: machine.device,
            work: Rc::new(work.table),
            spin_locks,
            uses: Rc::default(),
        }
    }

    /// The same with all costs but the work multiplied.
    pub fn with_costs(&self, factor: f64) -> SimulatedTarget {
        SimulatedTarget {
            model: self.model.with_costs(factor),
            device: self.device,
            work: Rc::clone(&self.work),
            spin_locks: self.spin_locks,
            uses: Rc::clone(&self.uses),
        }
    }

    /// How the work before events was found, of all runs so far.
    pub fn uses(&self) -> Rc<Cell<WorkUse>> {
        Rc::clone(&self.uses)
    }
}

/// The engine on an image in memory behind a device that takes time.
pub fn engine_on(device: DeviceModel) -> EngineTarget {
    EngineTarget::new(ImageMedium::Memory, true)
        .on_device(Box::new(move |below| Arc::new(SimulatedDevice::new(below, device))))
}

impl Target for SimulatedTarget {
    fn name(&self) -> &str {
        "simulated"
    }

    fn has_policies(&self) -> bool {
        true
    }

    fn run(&mut self, job: Job<'_>, policy: Option<&PolicyChoice>) -> Result<RunOutcome> {
        let work = Work::Table(Rc::clone(&self.work));
        let settings = SimulationSettings {
            seed: u64::from(job.round),
            spin_locks: self.spin_locks,
            ..SimulationSettings::new(self.model.clone(), self.model.cpus(), work)
        };
        let device = self.device;
        let (outcome, report) = sim::run(&settings, || engine_on(device).run(job, policy));
        let uses = self.uses.get();
        self.uses.set(WorkUse {
            exact: uses.exact + report.work.exact,
            by_files: uses.by_files + report.work.by_files,
            unknown: uses.unknown + report.work.unknown,
        });
        let mut outcome = outcome?;
        outcome.figures.insert("events".into(), report.events as f64);
        Ok(outcome)
    }
}

/// With a smaller share of stretches found in the work table, it is out of date.
const EXACT_MIN: f64 = 0.9;

/// How the work before events was found.
pub fn describe(uses: WorkUse) -> String {
    let all = (uses.exact + uses.by_files + uses.unknown).max(1) as f64;
    let share = |events: u64| events as f64 / all;
    let warning = match share(uses.exact) < EXACT_MIN {
        true => "; the work table is out of date: make it again with --calibrate",
        false => "",
    };
    format!(
        "work before events: {:.1} % as measured, {:.1} % the median between the same files, {:.1} % \
         the median of all{warning}",
        100.0 * share(uses.exact),
        100.0 * share(uses.by_files),
        100.0 * share(uses.unknown)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up() {
        let text = describe(WorkUse { exact: 90, by_files: 9, unknown: 1 });
        assert!(
            text.contains("90.0 % as") && text.ends_with(", 1.0 % the median of all"),
            "{text}"
        );
    }

    #[test]
    fn a_table_that_misses_stretches_is_out_of_date() {
        let text = describe(WorkUse { exact: 89, by_files: 10, unknown: 1 });
        assert!(text.contains("the work table is out of date"), "{text}");
    }
}
