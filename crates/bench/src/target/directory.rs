//! A directory of the machine, through system calls: a process for each worker.
//!
//! Threads of one process would share its descriptor table and the lock of that, which isn't to be
//! measured. So this program starts itself once for each worker, with one JSON line on standard
//! input that says what to do, and takes the workers through the phases: a worker writes `ready`,
//! waits for a line, does its part, and writes its report as a line of JSON.

use super::worker::{PhaseReport, run_phase};
use super::{Job, RunOutcome, Target, add_phase};
use crate::files::SystemFiles;
use crate::policy::PolicyChoice;
use crate::workload::{self, PhaseKind, Sizes};
use anyhow::{Context, Result, anyhow, bail};
use drystone_sync::atomic::Ordering;
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// How a worker is started: a program that calls [`serve_worker`].
#[derive(Clone, Debug)]
pub struct WorkerProgram {
    /// The program.
    pub path: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
}

/// A directory.
pub struct DirectoryTarget {
    name: String,
    path: PathBuf,
    program: WorkerProgram,
}

/// The order to a worker.
#[derive(Serialize, Deserialize)]
struct Order {
    workload: String,
    sizes: Sizes,
    directory: PathBuf,
    index: u64,
    workers: u64,
}

/// A worker's answer.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Ready,
    Done(PhaseReport),
    Failed(String),
}

impl DirectoryTarget {
    /// Works in a new directory in the one at `path`, which is removed in the end.
    ///
    /// # Errors
    /// `path` isn't a directory.
    pub fn new(path: &Path, program: WorkerProgram) -> Result<DirectoryTarget> {
        let path = path.canonicalize().with_context(|| path.display().to_string())?;
        anyhow::ensure!(path.is_dir(), "{} isn't a directory", path.display());
        let name = path.display().to_string();
        Ok(DirectoryTarget { name, path, program })
    }
}

impl Target for DirectoryTarget {
    fn name(&self) -> &str {
        &self.name
    }

    fn has_policies(&self) -> bool {
        false
    }

    fn run(&mut self, job: Job<'_>, _: Option<&PolicyChoice>) -> Result<RunOutcome> {
        let directory = WorkDirectory::make(&self.path)?;
        let mut workers = (0..job.workers)
            .map(|index| Process::start(&self.program, job, &directory.0, index))
            .collect::<Result<Vec<_>>>()?;
        let files = SystemFiles::new(&directory.0)?;
        let mut outcome = RunOutcome::default();
        for phase in job.workload.phases() {
            for worker in &mut workers {
                worker.expect_ready()?;
            }
            if job.stop.load(Ordering::Relaxed) {
                bail!("interrupted");
            }
            if phase.kind != PhaseKind::Aside && phase.kind != PhaseKind::Shared {
                // Earlier changes must not be written during the measurement.
                files.sync()?;
            }
            for worker in &mut workers {
                worker.go()?;
            }
            let reports = workers.iter_mut().map(Process::report).collect::<Result<Vec<_>>>()?;
            add_phase(&mut outcome, phase.kind, &reports);
        }
        for worker in &mut workers {
            worker.child.wait()?;
        }
        Ok(outcome)
    }
}

/// The directory of one run.
struct WorkDirectory(PathBuf);

impl WorkDirectory {
    fn make(parent: &Path) -> Result<WorkDirectory> {
        let path = parent.join(format!("drystone-bench-{}", std::process::id()));
        std::fs::create_dir(&path).with_context(|| format!("can't make {}", path.display()))?;
        Ok(WorkDirectory(path))
    }
}

impl Drop for WorkDirectory {
    fn drop(&mut self) {
        // After a workload that ended well it is empty.
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            eprintln!("drystone bench: can't remove {}: {error}", self.0.display());
        }
    }
}

/// A worker's process.
struct Process {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Process {
    fn start(
        program: &WorkerProgram,
        job: Job<'_>,
        directory: &Path,
        index: u64,
    ) -> Result<Process> {
        let mut child = Command::new(&program.path)
            .args(&program.arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("can't start {}", program.path.display()))?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (input, output) = pipes.context("a worker has no pipes")?;
        let mut process = Process { child, input, output: BufReader::new(output) };
        let order = Order {
            workload: job.workload.name().to_string(),
            sizes: job.sizes.clone(),
            directory: directory.to_path_buf(),
            index,
            workers: job.workers,
        };
        process.tell(&serde_json::to_string(&order)?)?;
        Ok(process)
    }

    fn tell(&mut self, line: &str) -> Result<()> {
        self.input.write_all(format!("{line}\n").as_bytes()).context("a worker has ended")
    }

    fn hear(&mut self) -> Result<Answer> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        if line.is_empty() {
            bail!("a worker ended before its work was done");
        }
        match serde_json::from_str(&line).with_context(|| format!("a worker said '{line}'"))? {
            Answer::Failed(why) => Err(anyhow!(why)),
            answer => Ok(answer),
        }
    }

    fn expect_ready(&mut self) -> Result<()> {
        match self.hear()? {
            Answer::Ready => Ok(()),
            _ => bail!("a worker is out of step"),
        }
    }

    fn go(&mut self) -> Result<()> {
        self.tell("go")
    }

    fn report(&mut self) -> Result<PhaseReport> {
        match self.hear()? {
            Answer::Done(report) => Ok(report),
            _ => bail!("a worker is out of step"),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Killing fails only if it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Works as a worker of a [`DirectoryTarget`], with orders from standard input. Failures go to
/// standard output like reports.
///
/// # Errors
/// Standard output is closed.
pub fn serve_worker() -> Result<()> {
    let mut input = std::io::stdin().lock();
    if let Err(error) = serve(&mut input) {
        answer(&Answer::Failed(format!("{error:#}")))?;
    }
    Ok(())
}

fn serve(input: &mut impl BufRead) -> Result<()> {
    let mut line = String::new();
    input.read_line(&mut line)?;
    let order: Order = serde_json::from_str(&line).context("this command is not for people")?;
    let workload = workload::find(&order.workload).context("unknown workload")?;
    let mut worker = workload.worker(&order.sizes, order.index, order.workers);
    let mut files = SystemFiles::new(&order.directory)?;
    for &phase in workload.phases() {
        answer(&Answer::Ready)?;
        line.clear();
        if input.read_line(&mut line)? == 0 {
            // The parent process has ended.
            return Ok(());
        }
        let report = run_phase(&mut *worker, phase, order.index, &mut files)?;
        answer(&Answer::Done(report))?;
    }
    Ok(())
}

fn answer(answer: &Answer) -> Result<()> {
    let mut line = serde_json::to_string(answer)?;
    line.push('\n');
    let mut output = std::io::stdout().lock();
    output.write_all(line.as_bytes())?;
    Ok(output.flush()?)
}
