//! `bench`: measures workloads on the engine and on mounted directories.

use crate::commands::mkfs::MadeKind;
use crate::failure::{Failure, Outcome};
use crate::global::Global;
use crate::interrupt::Interrupt;
use crate::messages::tell;
use crate::size;
use crate::terminal::print_line;
use anyhow::Context;
use drystone_bench::machine::Machine;
use drystone_bench::policy::PolicyChoice;
use drystone_bench::results::Results;
use drystone_bench::runner::{self, Plan, Watch};
use drystone_bench::target::{
    DirectoryTarget, EngineTarget, ImageMedium, Nilfs2Target, Target, WorkerProgram, serve_worker,
};
use drystone_bench::workload::{self, Sizes, Workload};
use drystone_bench::{report, table};
use drystone_sync::atomic::AtomicBool;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::Duration;

/// How often the line of progress is drawn.
const DRAWN_EVERY: Duration = Duration::from_millis(100);

/// Measure workloads on the engine and on mounted directories, side by side
#[derive(Debug, Default, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Arguments {
    /// Workloads by name; 'all', 'published' (those with a published table), 'fxmark' (all fourteen).
    #[arg(value_name = "WORKLOAD", required_unless_present_any = ["list", "worker"])]
    workloads: Vec<String>,
    /// List the workloads and what they do.
    #[arg(long)]
    list: bool,
    /// 'engine' (the default), or a directory of any mounted file system; several take turns.
    #[arg(short, long = "target", value_name = "engine|DIR")]
    targets: Vec<String>,
    /// The file systems of the engine; several take turns, each on an image of its own. NILFS2 has the
    /// policy inode-search alone.
    #[arg(long = "type", value_enum, value_delimiter = ',', default_value = "ext4")]
    kinds: Vec<MadeKind>,
    /// The engine's image; made if it doesn't exist. [default: a new image in memory for every run]
    #[arg(long, value_name = "FILE")]
    image: Option<PathBuf>,
    /// A policy for the engine: baseline, scalable, KEY=VALUE,…; several take turns and are compared
    /// with the first. [default: the published baseline of the mechanism that the workload is about,
    /// its published improvements, and ours; with a directory as a target, scalable]
    #[arg(short, long = "policy", value_name = "POLICY")]
    policies: Vec<String>,
    /// Give every write of the engine its blocks at once.
    #[arg(long)]
    nodelalloc: bool,
    /// The engine's memory budget for metadata: 512M, 2G, … [default: enough for everything that the
    /// workload touches]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    memory: Option<u64>,
    /// Numbers of workers: threads in the engine, processes in a directory.
    #[arg(short = 'P', long, value_delimiter = ',', default_value = "1,2",
        value_parser = clap::value_parser!(u64).range(1..=1024))]
    procs: Vec<u64>,
    /// Measured rounds of each combination.
    #[arg(short, long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    #[command(flatten)]
    sizes: Sizes,
    /// Write all results to a file, as one JSON object.
    // The type and the name in `Global`.
    #[arg(id = "json", long, value_name = "FILE", num_args = 1)]
    json: Option<PathBuf>,
    /// Write a page with tables and plots, DIR/index.html, and the plots as SVG files.
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
    /// Don't check the images after the runs.
    #[arg(long)]
    no_verify: bool,
    /// Be a worker on a directory, told through standard input.
    #[arg(long, hide = true)]
    worker: bool,
}

const AFTER_HELP: &str = "\
Every workload makes the same calls in the same order on every target. For each number of workers, \
all combinations of target and policy run once unmeasured and then take turns (A B A B …). The table \
has medians. Ratios compare with the first combination, and stand beside those of the published table. \
On a shared machine, trust ratios within one run and not absolute times. The engine's image is checked \
after each run, and by e2fsck after the last. Ctrl-C prints the results so far.

Examples:
  drystone bench mdtest
  drystone bench orphan --policy orphans=list --policy orphans=file --policy orphans=per-core
  drystone bench published --report report --json results.json
  drystone bench mdtest orphan fallocate2 stat --target /mnt/ext4 --target engine
  drystone bench append --size 16M --nodelalloc
  drystone bench inodes --roots 1 --dirs 100 --files 20000 --rounds 1
  drystone bench inodes --type nilfs2 --dirs 100 --files 20000 --procs 1,3 --rounds 3
  drystone bench mdtest stat --type ext4,nilfs2
  drystone bench inodes --dirs 2000 --files 10000 --procs 1 --rounds 1 --memory 2G

To compare with the kernel's ext4 in memory:
  truncate -s 16G /dev/shm/ext4.img && mke2fs -q -t ext4 /dev/shm/ext4.img
  mount -o loop /dev/shm/ext4.img /mnt/ext4";

pub fn run(arguments: &Arguments, global: &Global) -> Outcome {
    if arguments.worker {
        return Ok(serve_worker()?);
    }
    if arguments.list {
        for workload in workload::all() {
            print_line(&format!("{:20} {}", workload.name(), workload.summary()))?;
        }
        return Ok(());
    }
    if arguments.image.is_some() {
        global.check_may_change()?;
    }
    let plan = plan(arguments).map_err(|error| Failure::Usage(format!("{error:#}")))?;
    let mut targets = targets(arguments)?;
    let stop = Interrupt::install()?.flag();
    if cfg!(debug_assertions) && !global.quiet {
        tell(format_args!("this build isn't optimised: its figures mean nothing"));
    }
    let screen = Screen::new(global.quiet);
    let results = runner::run(&plan, &mut targets, &screen, &stop);
    screen.bar.finish_and_clear();
    if let Some(path) = &arguments.json {
        let text = serde_json::to_string_pretty(&results)?;
        std::fs::write(path, text + "\n").with_context(|| path.display().to_string())?;
    }
    if let Some(directory) = &arguments.report {
        let page = report::write(&results, directory)?;
        if !global.quiet {
            tell(format_args!("wrote {}", page.display()));
        }
    }
    let is_damaged = results.rows.iter().any(|row| row.clean == Some(false));
    if is_damaged || screen.has_failed() || results.rows.is_empty() {
        return Err(Failure::Reported);
    }
    Ok(())
}

fn plan(arguments: &Arguments) -> anyhow::Result<Plan> {
    let has_directory = arguments.targets.iter().any(|target| target != "engine");
    let mut policies = arguments
        .policies
        .iter()
        .map(|text| PolicyChoice::parse(text))
        .collect::<Result<Vec<_>, _>>()?;
    let workloads = workload::select(&arguments.workloads)?;
    // The other tables compare policies that NILFS2 hasn't got.
    let has_nilfs2 = arguments.kinds.contains(&MadeKind::Nilfs2);
    let compares_others = workloads.iter().any(|workload| workload.name() != "inodes");
    if policies.is_empty() && (has_directory || has_nilfs2 && compares_others) {
        policies.push(PolicyChoice::parse("scalable")?);
    }
    Ok(Plan {
        workloads,
        policies,
        workers: arguments.procs.clone(),
        sizes: arguments.sizes.clone(),
        rounds: arguments.rounds,
        warms_up: true,
        verify: !arguments.no_verify,
        machine: Machine::this(),
    })
}

fn targets(arguments: &Arguments) -> anyhow::Result<Vec<Box<dyn Target>>> {
    anyhow::ensure!(
        arguments.image.is_none() || arguments.kinds.len() == 1,
        "--image is of one file system: give one --type"
    );
    let engine = |kind: &MadeKind| -> Box<dyn Target> {
        let place = arguments.image.clone().map_or(ImageMedium::Memory, ImageMedium::File);
        if *kind == MadeKind::Nilfs2 {
            return Box::new(Nilfs2Target::new(place));
        }
        // More than the address space bounds nothing.
        let memory_bytes =
            arguments.memory.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
        let target = EngineTarget::new(place, !arguments.nodelalloc);
        Box::new(target.with_memory_budget(memory_bytes))
    };
    let engines = || arguments.kinds.iter().map(engine);
    if arguments.targets.is_empty() {
        return Ok(engines().collect());
    }
    let mut targets = Vec::new();
    for text in &arguments.targets {
        if text == "engine" {
            targets.extend(engines());
            continue;
        }
        let program = WorkerProgram {
            path: std::env::current_exe().context("this program can't find itself")?,
            arguments: vec!["bench".into(), "--worker".into()],
        };
        targets.push(Box::new(DirectoryTarget::new(text.as_ref(), program)?));
    }
    Ok(targets)
}

/// Shows progress, and each workload's table when it is done.
struct Screen {
    bar: ProgressBar,
    failed: AtomicBool,
}

impl Screen {
    fn new(quiet: bool) -> Screen {
        let bar = match std::io::stderr().is_terminal() && !quiet {
            true => ProgressBar::new_spinner(),
            false => ProgressBar::hidden(),
        };
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}  {elapsed_precise}") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(DRAWN_EVERY);
        Screen { bar, failed: AtomicBool::new(false) }
    }

    fn has_failed(&self) -> bool {
        self.failed.load(drystone_sync::atomic::Ordering::Relaxed)
    }
}

impl Watch for Screen {
    fn running(&self, what: &str) {
        self.bar.set_message(what.to_string());
    }

    fn finished(&self, results: &Results, workload: &dyn Workload) {
        let printed = self.bar.suspend(|| print_line(&table::text(results, workload)));
        if printed.is_err() {
            self.failed.store(true, drystone_sync::atomic::Ordering::Relaxed);
        }
    }

    fn failed(&self, what: &str, error: &anyhow::Error) {
        self.failed.store(true, drystone_sync::atomic::Ordering::Relaxed);
        self.bar.suspend(|| tell(format_args!("{what}: {error:#}")));
    }
}
