//! The command line.

use crate::calibrate::calibrate;
use crate::faults;
use crate::machine::{self, DEFAULT_MACHINE, SimulatedMachine};
use crate::screen::Screen;
use crate::target::{SimulatedTarget, describe};
use crate::validation;
use crate::work_file::CalibratedWork;
use anyhow::{Context, Result, ensure};
use clap::{Parser, Subcommand, ValueEnum};
use drystone_bench::machine::Machine as Described;
use drystone_bench::policy::PolicyChoice;
use drystone_bench::published::{Published, compared_policies};
use drystone_bench::report;
use drystone_bench::results::Results;
use drystone_bench::runner::{self, Plan};
use drystone_bench::target::Target;
use drystone_bench::workload::{self, Sizes, Workload};
use drystone_sync::atomic::AtomicBool;
use drystone_sync::sim::{self, SpinLocks};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Runs workloads of `drystone bench` on up to 256 virtual processors in virtual time.
#[derive(Parser)]
#[command(args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(subcommand)]
    task: Option<Task>,
    #[command(flatten)]
    benchmark: Benchmark,
}

#[derive(Subcommand)]
enum Task {
    Faults(faults::FaultArguments),
    Validation(validation::ValidationArguments),
}

#[derive(clap::Args)]
struct Benchmark {
    /// Workloads by name; 'all', 'published' (those with a published table), 'fxmark'.
    #[arg(
        value_name = "WORKLOAD",
        required_unless_present_any = ["machines", "measure", "calibrate"]
    )]
    workloads: Vec<String>,
    /// Numbers of workers: N,N,… or 'published', those of the workload's published table. [default: powers
    /// of two up to the machine's processors]
    #[arg(long, value_name = "N,…", value_parser = parse_counts)]
    cores: Option<WorkerCounts>,
    /// A machine by name, or a file that describes one.
    #[arg(long, value_name = "NAME|FILE", default_value = DEFAULT_MACHINE)]
    machine: String,
    /// List the machines that have names.
    #[arg(long)]
    machines: bool,
    /// Measure this machine, and print its machine file; what can't be measured is marked there.
    #[arg(long)]
    measure: bool,
    /// Measure the work between events with one worker, and write its table.
    #[arg(long, value_name = "FILE")]
    calibrate: Option<String>,
    /// Scale the table that is calibrated, so that one worker takes as long as in these results of
    /// 'drystone bench --json', measured on this machine, which --machine describes.
    #[arg(long, value_name = "FILE", requires = "calibrate")]
    against: Option<PathBuf>,
    /// The table of work between events. [default: the one in the program]
    #[arg(long, value_name = "FILE")]
    work: Option<String>,
    /// How the engine's spinlocks go from one thread to the next. Mutexes, such as those of block groups, stay
    /// as they are.
    #[arg(long, value_name = "KIND", default_value = "engine")]
    spin_locks: SpinLockKind,
    /// A policy for the engine: baseline, scalable, KEY=VALUE,…; several are compared. [default: those
    /// that the workload's published table compares]
    #[arg(short, long = "policy", value_name = "POLICY")]
    policies: Vec<String>,
    #[command(flatten)]
    sizes: Sizes,
    /// Runs of each, whose workers are shifted against each other in another way.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seeds: u32,
    /// Say which lines of memory and which locks cost what share of the workers' time.
    #[arg(long)]
    explain: bool,
    /// Write all results to a file, as one JSON object.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write a page with tables and plots, DIR/index.html, and the plots as SVG files.
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
}

/// How spinlocks go from one thread to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SpinLockKind {
    /// As the engine's: a waiter that has spun for a while sleeps.
    Engine,
    /// In the order of arrival, as in Linux before 4.2; each hand-over costs more the more threads wait.
    Ticket,
    /// In the order of arrival, as in Linux since; a hand-over costs the same with any number of waiters.
    Queued,
}

impl SpinLockKind {
    /// As the simulation names it.
    pub fn kind(self) -> SpinLocks {
        match self {
            SpinLockKind::Engine => SpinLocks::Sleeping,
            SpinLockKind::Ticket => SpinLocks::Ticket,
            SpinLockKind::Queued => SpinLocks::Queued,
        }
    }
}

/// Numbers of workers.
#[derive(Clone, Debug, PartialEq, Eq)]
enum WorkerCounts {
    Published,
    Given(Vec<u64>),
}

fn parse_counts(text: &str) -> Result<WorkerCounts> {
    if text == "published" {
        return Ok(WorkerCounts::Published);
    }
    let counts = text.split(',').map(|count| {
        let count = count.trim().parse().with_context(|| format!("'{count}' isn't a number"))?;
        ensure!((1..=1024).contains(&count), "there are 1 to 1024 workers");
        Ok(count)
    });
    Ok(WorkerCounts::Given(counts.collect::<Result<_>>()?))
}

impl WorkerCounts {
    fn of(counts: Option<&WorkerCounts>, workload: &str, cpus: usize) -> Vec<u64> {
        match (counts, Published::of(workload)) {
            (Some(WorkerCounts::Given(counts)), _) => counts.clone(),
            (Some(WorkerCounts::Published), Some(published)) => published.worker_counts(),
            _ => (0..).map(|power| 1 << power).take_while(|&count| count <= cpus as u64).collect(),
        }
    }
}

pub fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = match &arguments.task {
        Some(Task::Faults(arguments)) => faults::main(arguments),
        Some(Task::Validation(arguments)) => validation::main(arguments),
        None => run(&arguments.benchmark),
    };
    match done {
        Ok(code) => code,
        Err(error) => {
            eprintln!("simulate: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Benchmark) -> Result<ExitCode> {
    if arguments.machines {
        print!("{}", machine::list());
        return Ok(ExitCode::SUCCESS);
    }
    if arguments.measure {
        let measured = sim::measure().context("can't measure this machine")?;
        print!("{}", machine::file_of(&measured, &Described::this().processor));
        return Ok(ExitCode::SUCCESS);
    }
    let machine = SimulatedMachine::load(&arguments.machine)?;
    if let Some(path) = &arguments.calibrate {
        let all = ["all".to_string()];
        let names = if arguments.workloads.is_empty() { &all[..] } else { &arguments.workloads };
        let against = arguments.against.as_deref().map(read_results).transpose()?;
        let workloads = workload::select(names)?;
        calibrate(path, &workloads, &machine, &arguments.sizes, against.as_ref())?;
        return Ok(ExitCode::SUCCESS);
    }
    let work = CalibratedWork::load(arguments.work.as_deref())?;
    let target = SimulatedTarget::new(&machine, work, arguments.spin_locks.kind());
    let uses = target.uses();
    let (results, has_failed) = run_all(arguments, &machine, target)?;
    println!("machine: {}", machine.description);
    println!("{}", describe(uses.get()));
    if let Some(path) = &arguments.json {
        let text = serde_json::to_string_pretty(&results)?;
        std::fs::write(path, text + "\n").with_context(|| path.display().to_string())?;
    }
    if let Some(directory) = &arguments.report {
        let page = report::write(&results, directory)?;
        eprintln!("wrote {}", page.display());
    }
    Ok(if has_failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn read_results(path: &Path) -> Result<Results> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    serde_json::from_str(&text)
        .with_context(|| format!("{}: not of drystone bench", path.display()))
}

fn run_all(
    arguments: &Benchmark,
    machine: &SimulatedMachine,
    target: SimulatedTarget,
) -> Result<(Results, bool)> {
    let cpus = machine.model.cpus();
    let policies: Vec<PolicyChoice> =
        arguments.policies.iter().map(|text| PolicyChoice::parse(text)).collect::<Result<_>>()?;
    let workloads = workload::select(&arguments.workloads)?;
    let counts =
        |workload: &dyn Workload| WorkerCounts::of(arguments.cores.as_ref(), workload.name(), cpus);
    let runs = workloads.iter().map(|workload| {
        let compared = compared_policies(workload.name()).len();
        let policies = if policies.is_empty() { compared } else { policies.len() };
        (policies * counts(&**workload).len()) as u64 * u64::from(arguments.seeds)
    });
    let screen = Screen::new(runs.sum(), true, arguments.explain);
    let mut targets: Vec<Box<dyn Target>> = vec![Box::new(target)];
    let stop = AtomicBool::new(false);
    let described = describe_machine(arguments, machine);
    let mut results = Results { machine: described.clone(), rows: Vec::new() };
    for workload in workloads {
        let plan = Plan {
            workers: counts(&*workload),
            workloads: vec![workload],
            policies: policies.clone(),
            sizes: arguments.sizes.clone(),
            rounds: arguments.seeds,
            warms_up: false,
            verify: false,
            machine: described.clone(),
        };
        results.rows.extend(runner::run(&plan, &mut targets, &screen, &stop).rows);
    }
    Ok((results, screen.finish()))
}

/// What results are of: the simulated machine, and what they depend on besides.
fn describe_machine(arguments: &Benchmark, machine: &SimulatedMachine) -> Described {
    let spin_locks = arguments.spin_locks.to_possible_value();
    let processor = format!(
        "simulated: {} ({}), spin locks: {}, work table: {}",
        arguments.machine,
        machine.description,
        spin_locks.as_ref().map_or("", |kind| kind.get_name()),
        arguments.work.as_deref().unwrap_or("built in"),
    );
    Described {
        processor,
        cores: machine.model.cpus(),
        memory_mib: 0,
        kernel: String::new(),
        ..Described::this()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_name_the_simulated_machine() {
        let line = ["simulate", "orphan", "--machine", "phenom-6", "--spin-locks", "ticket"];
        let arguments = Arguments::parse_from(line).benchmark;
        let machine = SimulatedMachine::load(&arguments.machine).unwrap();
        let described = describe_machine(&arguments, &machine);
        assert!(described.processor.starts_with("simulated: phenom-6 (Phenom"), "{described:?}");
        let expected = "spin locks: ticket, work table: built in";
        assert!(described.processor.ends_with(expected), "{described:?}");
        assert_eq!((described.cores, described.memory_mib), (6, 0));
    }

    #[test]
    fn numbers_of_workers() {
        assert_eq!(parse_counts("1, 8").unwrap(), WorkerCounts::Given(vec![1, 8]));
        assert_eq!(parse_counts("published").unwrap(), WorkerCounts::Published);
        assert!(parse_counts("0").is_err() && parse_counts("many").is_err());
        let published = Some(&WorkerCounts::Published);
        assert_eq!(WorkerCounts::of(published, "inodes", 6), [1, 3]);
        assert_eq!(WorkerCounts::of(published, "append", 6), [1, 2, 4]);
        assert_eq!(WorkerCounts::of(None, "orphan", 80), [1, 2, 4, 8, 16, 32, 64]);
    }
}
