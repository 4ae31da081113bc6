//! The command line.

use crate::target::SimulatedTarget;
use crate::{explain, faults};
use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use drystone_bench::machine::Machine as Described;
use drystone_bench::policy::PolicyChoice;
use drystone_bench::results::Results;
use drystone_bench::runner::{self, Plan, Watch};
use drystone_bench::target::Target;
use drystone_bench::workload::{self, Sizes, Workload};
use drystone_bench::{report, table};
use drystone_sync::atomic::{AtomicBool, Ordering};
use drystone_sync::sim::MachineModel;
use std::path::PathBuf;
use std::process::ExitCode;

/// Runs workloads of `drystone bench` on virtual cores in virtual time.
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
}

#[derive(clap::Args)]
struct Benchmark {
    /// Workloads by name; 'all', 'seeds' (those with a published table), 'fxmark'.
    #[arg(value_name = "WORKLOAD", required = true)]
    workloads: Vec<String>,
    /// Numbers of workers, each on a core of its own.
    #[arg(long, value_delimiter = ',', default_value = "1,2,4,8,16,32,64,128")]
    cores: Vec<u64>,
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
    /// Write a page with tables and plots, DIR/index.html.
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
}

pub fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = match &arguments.task {
        Some(Task::Faults(arguments)) => faults::main(arguments),
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
    let machine = MachineModel::two_sockets_128();
    let policies = arguments.policies.iter().map(|text| PolicyChoice::parse(text));
    let plan = Plan {
        workloads: workload::select(&arguments.workloads)?,
        policies: policies.collect::<Result<_>>()?,
        workers: arguments.cores.clone(),
        sizes: arguments.sizes.clone(),
        rounds: arguments.seeds,
        warms_up: false,
        verify: false,
        machine: Described { cores: machine.cores(), ..Described::this() },
    };
    let mut targets: Vec<Box<dyn Target>> = vec![Box::new(SimulatedTarget::new(machine))];
    let screen = Screen { explain: arguments.explain, has_failed: AtomicBool::new(false) };
    let stop = AtomicBool::new(false);
    let results = runner::run(&plan, &mut targets, &screen, &stop);
    if let Some(path) = &arguments.json {
        let text = serde_json::to_string_pretty(&results)?;
        std::fs::write(path, text + "\n").with_context(|| path.display().to_string())?;
    }
    if let Some(directory) = &arguments.report {
        let page = report::write(&results, directory)?;
        eprintln!("wrote {}", page.display());
    }
    let has_failed = screen.has_failed.load(Ordering::Relaxed);
    Ok(if has_failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

struct Screen {
    explain: bool,
    has_failed: AtomicBool,
}

impl Watch for Screen {
    fn running(&self, what: &str) {
        eprintln!("{what}");
    }

    fn finished(&self, results: &Results, workload: &dyn Workload) {
        println!("{}", table::text(results, workload));
        if self.explain {
            let rows = results.rows.iter().filter(|row| row.workload == workload.name());
            for row in rows {
                println!("{} {}, {} workers:", row.workload, row.policy, row.workers);
                for line in explain::lines(row) {
                    println!("    {line}");
                }
            }
        }
    }

    fn failed(&self, what: &str, error: &anyhow::Error) {
        self.has_failed.store(true, Ordering::Relaxed);
        eprintln!("{what}: {error:#}");
    }
}
