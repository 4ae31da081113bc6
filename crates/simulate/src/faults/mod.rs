//! Random calls of several threads on the engine, in random interleavings, on a device that fails and loses
//! power (`./dev simulate-faults`).
//!
//! A run follows from its seed. What callers saw must be linearizable: there is one order of all calls in
//! which the model answers as the engine did (`linear`). What a crash leaves must recover, be clean, and be
//! what some calls of such an order leave, among them all that were synced (`durable`).

mod children;
mod disk;
mod durable;
mod history;
mod image;
mod linear;
mod planted;
mod replica;
mod run;
mod seed;
mod verdict;
mod workload;

use anyhow::{Result, bail};
use children::Children;
use clap::Args;
use drystone_testkit::comparison::shrink;
use image::Images;
use nix::time::{ClockId, clock_gettime};
use nix::unistd::{SysconfVar, sysconf};
use run::Finished;
use seed::SeededRun;
use serde_json::{Value, json};
use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;
use verdict::Verdict;

/// Attempts to make a failing run shorter, and how long they may take.
const SHRINK_ATTEMPTS_MAX: usize = 300;
const SHRINK_TIME_MAX: Duration = Duration::from_secs(60);
/// Orders of events that are tried for each shorter run.
const SCHEDULES_TRIED: u64 = 6;

/// Runs random calls of several threads in random interleavings, with faults and a crash each.
#[derive(Args)]
pub struct FaultArguments {
    /// How many seeds.
    #[arg(long, value_name = "N", default_value_t = 300)]
    seeds: u64,
    /// The first of them.
    #[arg(long, value_name = "N", default_value_t = 0)]
    from: u64,
    /// Replay one seed.
    #[arg(long, value_name = "N", conflicts_with_all = ["seeds", "from"])]
    seed: Option<u64>,
    /// With these of its operations only.
    #[arg(long, value_name = "N,…", value_delimiter = ',', requires = "seed")]
    keep: Option<Vec<usize>>,
    /// In the order of events of another seed.
    #[arg(long, value_name = "N", requires = "seed")]
    schedule: Option<u64>,
    /// Plant a defect, which has to be found: a name, or 'all'.
    #[arg(long, value_name = "NAME")]
    plant: Option<String>,
    /// Processes at the same time. [default: one for each core]
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
}

/// One run: a seed, as it is or changed.
#[derive(Clone, Debug, Default)]
struct Job {
    seed: u64,
    keep: Option<Vec<usize>>,
    schedule: Option<u64>,
    planted: Option<String>,
}

impl Job {
    fn plan(&self) -> SeededRun {
        let mut plan = SeededRun::new(self.seed);
        if let Some(keep) = &self.keep {
            plan.keep(keep);
        }
        plan.schedule_seed = self.schedule.unwrap_or(plan.schedule_seed);
        plan.planted.clone_from(&self.planted);
        plan
    }

    /// Runs it, and says what came of it as JSON.
    fn run(&self, images: &Images) -> String {
        let plan = self.plan();
        let Finished { report, judged, calls } = plan.run(images.of(plan.shape));
        let is_undecided = matches!(judged, Err(Verdict::Undecided));
        let problem = match judged {
            Err(Verdict::Wrong(what)) => {
                Some(calls.iter().fold(what, |text, call| format!("{text}\n    {call}")))
            }
            Ok(()) | Err(Verdict::Undecided) => None,
        };
        json!({
            "events": report.events, "trace": report.trace, "calls": plan.count(),
            "undecided": is_undecided, "problem": problem,
        })
        .to_string()
    }

    /// The command that repeats it.
    fn command(&self) -> String {
        let mut command = format!("./dev simulate-faults --seed {}", self.seed);
        if let Some(schedule) = self.schedule {
            command.push_str(&format!(" --schedule {schedule}"));
        }
        if let Some(keep) = &self.keep {
            let keep: Vec<String> = keep.iter().map(usize::to_string).collect();
            command.push_str(&format!(" --keep {}", keep.join(",")));
        }
        if let Some(planted) = &self.planted {
            command.push_str(&format!(" --plant {planted}"));
        }
        command
    }
}

/// What came of a run.
#[derive(Default)]
struct Outcome {
    events: u64,
    calls: u64,
    trace: u64,
    is_undecided: bool,
    problem: Option<String>,
}

impl Outcome {
    fn read(said: std::result::Result<String, String>) -> Outcome {
        let broken = |what: String| Outcome { problem: Some(what), ..Outcome::default() };
        let said = match said {
            Ok(said) => said,
            Err(died) => return broken(died),
        };
        // What the engine panicked with, and caught, comes before what the run says, which is one line.
        let (panics, line) = said.rsplit_once('\n').unwrap_or(("", &said));
        let Ok(value) = serde_json::from_str::<Value>(line) else { return broken(said) };
        let problems =
            [Some(panics).filter(|panics| !panics.is_empty()), value["problem"].as_str()];
        let problems: Vec<&str> = problems.into_iter().flatten().collect();
        Outcome {
            events: value["events"].as_u64().unwrap_or(0),
            calls: value["calls"].as_u64().unwrap_or(0),
            trace: value["trace"].as_u64().unwrap_or(0),
            is_undecided: value["undecided"] == true,
            problem: (!problems.is_empty()).then(|| problems.join("\n")),
        }
    }
}

/// Runs a job alone.
fn alone(images: &Images, job: &Job) -> Result<Outcome> {
    let mut children = Children::new(1);
    children.start(job.seed, || job.run(images))?;
    match children.wait()? {
        Some(ended) => Ok(Outcome::read(ended.said)),
        None => bail!("seed {} didn't run", job.seed),
    }
}

pub fn main(arguments: &FaultArguments) -> Result<ExitCode> {
    let images = Images::make()?;
    let planted = arguments.plant.as_deref();
    let names: Vec<Option<&str>> = match planted {
        Some("all") if arguments.seed.is_none() => planted::NAMES.map(Some).to_vec(),
        Some(name) if !planted::NAMES.contains(&name) => {
            bail!("no defect is called '{name}'; there are {}", planted::NAMES.join(", "))
        }
        name => vec![name],
    };
    if let Some(seed) = arguments.seed {
        let (keep, schedule) = (arguments.keep.clone(), arguments.schedule);
        let planted = arguments.plant.clone();
        return replay(&images, &Job { seed, keep, schedule, planted });
    }
    let mut is_good = true;
    for name in names {
        let searched = Search::new(arguments, name)?.run(&images)?;
        is_good &= searched.report(&images)?;
    }
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn replay(images: &Images, job: &Job) -> Result<ExitCode> {
    let outcome = alone(images, job)?;
    println!("{} events, trace {:016x}", outcome.events, outcome.trace);
    match outcome.problem {
        Some(problem) => {
            println!("{problem}");
            Ok(ExitCode::FAILURE)
        }
        None => {
            println!("nothing is wrong");
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Real time: that of the simulation stands still between runs.
fn now() -> Result<Duration> {
    Ok(clock_gettime(ClockId::CLOCK_MONOTONIC)?.into())
}

/// Many seeds; with a planted defect only up to the first that finds it.
struct Search<'a> {
    seeds: std::ops::Range<u64>,
    jobs: usize,
    planted: Option<&'a str>,
}

/// What they have shown.
struct Searched<'a> {
    planted: Option<&'a str>,
    seeds: u64,
    calls: u64,
    events: u64,
    undecided: u64,
    failed: Vec<(u64, String)>,
    took: Duration,
}

impl<'a> Search<'a> {
    fn new(arguments: &FaultArguments, planted: Option<&'a str>) -> Result<Search<'a>> {
        // Threads of the simulation would be told of virtual cores.
        let cores = sysconf(SysconfVar::_NPROCESSORS_ONLN)?.unwrap_or(1);
        Ok(Search {
            seeds: arguments.from..arguments.from + arguments.seeds,
            jobs: arguments.jobs.unwrap_or(usize::try_from(cores)?),
            planted,
        })
    }

    fn run(self, images: &Images) -> Result<Searched<'a>> {
        let start = now()?;
        let shows_progress = std::io::stderr().is_terminal();
        let mut shown = start;
        let mut children = Children::new(self.jobs);
        let mut seeds = self.seeds;
        let mut done = Searched {
            planted: self.planted,
            seeds: 0,
            calls: 0,
            events: 0,
            undecided: 0,
            failed: Vec::new(),
            took: Duration::ZERO,
        };
        loop {
            let is_found = self.planted.is_some() && !done.failed.is_empty();
            while children.has_room() && !is_found {
                let Some(seed) = seeds.next() else { break };
                let planted = self.planted.map(str::to_owned);
                let job = Job { seed, planted, ..Job::default() };
                children.start(seed, || job.run(images))?;
            }
            let Some(ended) = children.wait()? else { break };
            let outcome = Outcome::read(ended.said);
            done.seeds += 1;
            done.calls += outcome.calls;
            done.events += outcome.events;
            done.undecided += u64::from(outcome.is_undecided);
            done.failed.extend(outcome.problem.map(|problem| (ended.job, problem)));
            if shows_progress && now()? > shown + Duration::from_secs(1) {
                shown = now()?;
                eprint!("\r{} seeds, {} failed ", done.seeds, done.failed.len());
            }
        }
        if shows_progress {
            eprint!("\r");
        }
        done.failed.sort();
        done.took = now()? - start;
        Ok(done)
    }
}

impl Searched<'_> {
    /// Says what was found; returns whether that is good.
    fn report(&self, images: &Images) -> Result<bool> {
        let Searched { seeds, calls, events, undecided, failed, took, .. } = self;
        if let Some(name) = self.planted {
            return Ok(match failed.first() {
                Some((seed, problem)) => {
                    let first = problem.lines().next().unwrap_or_default();
                    println!("{name}: found by seed {seed}: {first}");
                    true
                }
                None => {
                    println!("{name}: NOT found by {seeds} seeds");
                    false
                }
            });
        }
        for (seed, problem) in failed {
            let job = shortest(images, *seed)?;
            let shorter = alone(images, &job)?.problem;
            println!("seed {seed}: {}", shorter.as_ref().unwrap_or(problem));
            println!("  {}", job.command());
        }
        println!(
            "{seeds} seeds: {} failed, {undecided} undecided; {calls} calls, {events} events, \
             {:.1} seeds a second",
            failed.len(),
            *seeds as f64 / took.as_secs_f64()
        );
        Ok(failed.is_empty())
    }
}

/// The same failure, or another, with fewer operations.
fn shortest(images: &Images, seed: u64) -> Result<Job> {
    let mut found = Job { seed, ..Job::default() };
    let all: Vec<usize> = (0..found.plan().count()).collect();
    let end = now()? + SHRINK_TIME_MAX;
    shrink(&all, SHRINK_ATTEMPTS_MAX, |keep| {
        if now().is_ok_and(|now| now > end) {
            return false;
        }
        let schedules = std::iter::once(found.schedule).chain((0..SCHEDULES_TRIED).map(Some));
        let mut jobs = schedules.map(|schedule| Job {
            seed,
            keep: Some(keep.to_vec()),
            schedule,
            planted: None,
        });
        let failing = jobs.find(|job| alone(images, job).is_ok_and(|done| done.problem.is_some()));
        let fails = failing.is_some();
        found = failing.unwrap_or_else(|| found.clone());
        fails
    });
    Ok(found)
}
