//! Measures the work between events, for the table that simulations charge it from.

use crate::machine::SimulatedMachine;
use crate::screen::Screen;
use crate::target::engine_on;
use crate::work_file::Calibration;
use anyhow::{Context, Result};
use drystone_bench::machine::Machine as Described;
use drystone_bench::policy::PolicyChoice;
use drystone_bench::published::compared_policies;
use drystone_bench::target::{Job, Target, Verify};
use drystone_bench::workload::{Sizes, Workload};
use drystone_sync::atomic::AtomicBool;
use drystone_sync::sim::{self, SimulationSettings, Work};
use std::fs;

/// Rounds of each; what the first one meets is new to caches and memory.
const ROUNDS: u32 = 2;

/// So much that the usual stretches are met hundreds of times.
fn sizes(given: &Sizes) -> Sizes {
    Sizes {
        operations: given.operations.or(Some(1000)),
        files: given.files.or(Some(600)),
        directories: given.directories.or(Some(4)),
        roots: given.roots.or(Some(1)),
        deleted_directories: given.deleted_directories.or(Some(1)),
        bytes: given.bytes.or(Some(1 << 20)),
    }
}

/// Runs workloads with one worker and the policies that their tables compare, and writes the table.
pub fn calibrate(
    path: &str,
    workloads: &[Box<dyn Workload>],
    machine: &SimulatedMachine,
    given: &Sizes,
) -> Result<()> {
    let sizes = sizes(given);
    let policies = |workload: &dyn Workload| compared_policies(workload.name()).iter();
    let runs: usize = workloads.iter().map(|workload| policies(&**workload).len()).sum();
    let screen = Screen::new(runs as u64, false, false);
    let mut calibration = Calibration::default();
    for workload in workloads {
        for text in policies(&**workload) {
            let what = format!("{} {text}", workload.name());
            screen.begin(&what);
            let policy = PolicyChoice::parse(text)?;
            let mut engine = engine_on(machine.device);
            for round in 1..=ROUNDS {
                let stop = AtomicBool::new(false);
                let job = Job {
                    workload: &**workload,
                    sizes: &sizes,
                    workers: 1,
                    round,
                    verify: Verify::Nothing,
                    stop: &stop,
                };
                let cpus = machine.model.cpus();
                let settings = SimulationSettings::new(machine.model.clone(), cpus, Work::Measured);
                let (outcome, report) = sim::run(&settings, || engine.run(job, Some(&policy)));
                outcome.with_context(|| what.clone())?;
                if round == ROUNDS {
                    calibration.add(report.stretches);
                }
            }
        }
    }
    screen.finish();
    let text = calibration.text(&Described::this().processor, sim::clock_ghz());
    fs::write(path, text).with_context(|| format!("can't write {path}"))?;
    println!("wrote {path}");
    Ok(())
}
