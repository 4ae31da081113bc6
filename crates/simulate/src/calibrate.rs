//! Measures the work between events, for the table that simulations charge it from.
//!
//! Reading the clock at each event makes the processor finish what it would overlap, and the simulation's own
//! bookkeeping lies between events too. So medians are too long. What a stretch without code takes is subtracted;
//! the rest is scaled by one factor, so that one worker takes as long as in `drystone bench`.

use crate::machine::SimulatedMachine;
use crate::screen::Screen;
use crate::target::{SimulatedTarget, engine_on};
use crate::work_file::{Calibration, median, parse};
use anyhow::{Context, Result, ensure};
use drystone_bench::machine::Machine as Described;
use drystone_bench::policy::PolicyChoice;
use drystone_bench::published::compared_policies;
use drystone_bench::results::{Results, Row};
use drystone_bench::target::{Job, Target, Verify};
use drystone_bench::workload::{self, Sizes, Workload};
use drystone_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use drystone_sync::sim::{self, SimulationSettings, SpinLocks, Work};
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
    against: Option<&Results>,
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
    let (processor, clock_ghz) = (Described::this().processor, sim::clock_ghz());
    let empty_ps = empty_stretch_ps(machine);
    let unscaled = calibration.text(&processor, clock_ghz, empty_ps, 1.0);
    let scale = match against {
        Some(results) => scale(machine, &unscaled, &sizes, results)?,
        None => 1.0,
    };
    let text = calibration.text(&processor, clock_ghz, empty_ps, scale);
    fs::write(path, text).with_context(|| format!("can't write {path}"))?;
    println!("wrote {path}");
    Ok(())
}

/// What the stopwatch shows for nothing.
fn empty_stretch_ps(machine: &SimulatedMachine) -> u64 {
    const LOADS: u32 = 2000;
    let settings = SimulationSettings::new(machine.model.clone(), 1, Work::Measured);
    let (_, report) = sim::run(&settings, || {
        let word = AtomicU64::new(0);
        for _ in 0..LOADS {
            word.load(Ordering::Relaxed);
        }
    });
    let most = report.stretches.iter().max_by_key(|stretch| stretch.count);
    most.map_or(0, |stretch| median(&stretch.samples_ps))
}

/// The figure of results that other programs disturb least.
const CPU_TIME: &str = "cpu_ns_per_operation";

/// The factor on a table with which one worker takes as long as in results of the real engine: the geometric mean
/// over their rows.
fn scale(machine: &SimulatedMachine, table: &str, sizes: &Sizes, results: &Results) -> Result<f64> {
    let rows: Vec<&Row> = results
        .rows
        .iter()
        .filter(|row| row.workers == 1 && row.figures.contains_key(CPU_TIME))
        .collect();
    let mut logarithms = Vec::new();
    let mut times = Vec::new();
    for row in rows {
        let workload = workload::find(&row.workload);
        let workload = workload.with_context(|| format!("no workload {}", row.workload))?;
        let policy = PolicyChoice::parse(&row.policy)?;
        let simulated = |table: &str| -> Result<f64> {
            let mut target = SimulatedTarget::new(machine, parse(table)?, SpinLocks::Sleeping);
            let stop = AtomicBool::new(false);
            let (workers, round, verify) = (1, 1, Verify::Nothing);
            let job = Job { workload: &*workload, sizes, workers, round, verify, stop: &stop };
            let outcome = target.run(job, Some(&policy))?;
            Ok(outcome.figures.get(CPU_TIME).copied().unwrap_or(0.0))
        };
        let rounds = row.rounds.iter().filter_map(|round| round.figures.get(CPU_TIME));
        let real = rounds.copied().fold(f64::INFINITY, f64::min);
        // Without work only the events cost.
        let events = simulated(&format!("clock_ghz {}", machine.clock_ghz))?;
        let work = simulated(table)? - events;
        if real > events && work > 0.0 {
            logarithms.push(((real - events) / work).ln());
        }
        times.push((format!("{} {}", row.workload, row.policy), real, events, work));
    }
    ensure!(
        !logarithms.is_empty(),
        "no row of the results has one worker and says what its work takes"
    );
    let scale = (logarithms.iter().sum::<f64>() / logarithms.len() as f64).exp();
    println!("ns of an operation with one worker: real, simulated; of it for events");
    for (name, real, events, work) in times {
        println!("  {real:>8.0} {:>8.0} {events:>8.0}  {name}", events + scale * work);
    }
    Ok(scale)
}
