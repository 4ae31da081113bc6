//! `check --repair`: repairs an image.

use crate::failure::{Failure, Outcome};
use crate::global::Global;
use crate::image::unless_interrupted;
use crate::interrupt::Interrupt;
use crate::messages::tell;
use crate::output::{Escaped, counted};
use crate::progress::Steps;
use crate::terminal::Output;
use drystone::fsck::{
    CheckOptions, Decision, Issue, Problem, RepairOutcome, RepairReport, RepairedProblem, Severity,
    SuperblockIssue,
};
use drystone::{ChangeOptions, ErrorCause};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};

/// Exit codes, as `e2fsck` has them.
const CORRECTED: u8 = 1;
const LEFT: u8 = 4;
const USAGE: u8 = 16;
const CANCELLED: u8 = 32;

/// What decides about problems.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Consent {
    /// Only what is safe is repaired.
    Safe,
    /// Everything is.
    All,
    /// The person at the terminal decides about each.
    Ask,
}

/// Whether and how an image is repaired.
#[derive(Debug, clap::Args)]
pub struct RepairArguments {
    /// Repair the image, and ask about each problem.
    #[arg(long)]
    repair: bool,
    /// Repair only what is safe: counts, bitmaps and other values that the rest determines.
    #[arg(short = 'p', long, conflicts_with_all = ["yes", "dry_run"])]
    safe: bool,
    /// Repair everything that can be, except an image that an interrupted change has left half changed.
    #[arg(short, long, conflicts_with = "dry_run")]
    yes: bool,
    /// Say what -y would do, and change nothing.
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// With -y: repair also an image that an interrupted change has left half changed and whose undo log is lost.
    /// Files can be lost.
    #[arg(long)]
    without_undo_log: bool,
    /// Keep the old bytes in this file, so that 'drystone undo' can take the repair back.
    #[arg(long, value_name = "FILE")]
    undo: Option<PathBuf>,
}

impl RepairArguments {
    /// Whether a repair was asked for.
    pub const fn is_wanted(&self) -> bool {
        self.repair
            || self.safe
            || self.yes
            || self.dry_run
            || self.without_undo_log
            || self.undo.is_some()
    }
}

pub fn run(
    path: &Path,
    arguments: &RepairArguments,
    options: &CheckOptions,
    global: &Global,
) -> Outcome {
    let is_plan = arguments.dry_run;
    if global.read_only && !is_plan {
        return usage("a repair changes the image: with --read-only, only -n can be used");
    }
    if !options.replay {
        return usage("a repair replays the journal: --no-replay can't be used with it");
    }
    let mut consent = match (arguments.safe, arguments.yes || is_plan) {
        (true, _) => Consent::Safe,
        (_, true) => Consent::All,
        _ if std::io::stdin().is_terminal() => Consent::Ask,
        _ => return usage("there is no terminal to ask: use -p, -y or -n"),
    };
    let interrupt = Interrupt::install()?;
    if is_plan {
        // It changes nothing.
        interrupt.end_at_next();
    }
    let steps = Steps::new(global.quiet || consent == Consent::Ask);
    let is_half_changed =
        |problem: &Problem| problem.issue == Issue::Superblock(SuperblockIssue::HalfChanged);
    let mut choose = |problem: &Problem, is_safe: bool| match consent {
        // The log may still be where the image was before.
        Consent::All if is_half_changed(problem) && !arguments.without_undo_log => Decision::Leave,
        Consent::All => Decision::Repair,
        Consent::Safe if is_safe => Decision::Repair,
        Consent::Safe => Decision::Leave,
        Consent::Ask => ask(problem, &mut consent, &interrupt),
    };
    let repaired = if is_plan {
        drystone::plan_repair(path, options, &mut choose, &mut |progress| steps.follow(&progress))
    } else {
        let change =
            ChangeOptions::default().undo(arguments.undo.clone()).cancelled(interrupt.flag());
        drystone::repair_image(path, &change, options, &mut choose, &mut |progress| {
            steps.follow(&progress);
        })
    };
    steps.end();
    let report = match repaired {
        Err(error) if matches!(error.cause(), ErrorCause::Cancelled) && !interrupt.is_asked() => {
            tell(format_args!("{}: {}", path.display(), error.cause()));
            return Err(Failure::Code(CANCELLED));
        }
        repaired => unless_interrupted(path, repaired, &interrupt, "nothing has changed")?,
    };
    let printed = Output::with_stdout(global.json, |output| {
        if output.json {
            output.json(&report)?;
            return Ok(());
        }
        show(path, &report, is_plan, global, output)
    });
    let had_errors =
        report.problems.iter().any(|problem| problem.problem.severity() == Severity::Error);
    let code = match (report.is_clean(), is_plan) {
        (false, _) => LEFT,
        (true, true) if had_errors => LEFT,
        (true, false) if report.repaired > 0 => CORRECTED,
        _ => return printed,
    };
    if let Err(failure) = printed {
        failure.report();
    }
    Err(Failure::Code(code))
}

fn usage(message: &str) -> Outcome {
    tell(format_args!("{message}"));
    Err(Failure::Code(USAGE))
}

/// Asks about a problem on the terminal.
fn ask(problem: &Problem, consent: &mut Consent, interrupt: &Interrupt) -> Decision {
    let mut error = std::io::stderr().lock();
    let text = problem.to_string();
    loop {
        // If the question can't be printed, there is no answer.
        let asked =
            write!(error, "{}\nRepair it? [y]es, [n]o, [a]ll, [q]uit: ", Escaped(text.as_bytes()));
        let mut answer = String::new();
        if asked.is_err()
            || !has_input(interrupt)
            || !matches!(std::io::stdin().lock().read_line(&mut answer), Ok(1..))
        {
            return Decision::Cancel;
        }
        match answer.trim() {
            "y" | "yes" => return Decision::Repair,
            "n" | "no" => return Decision::Leave,
            "a" | "all" => {
                *consent = Consent::All;
                return Decision::Repair;
            }
            "q" | "quit" => return Decision::Cancel,
            _ => {}
        }
    }
}

/// Waits for a line on the terminal; false after an interrupt. A terminal gives one line at a time, so that none is
/// waiting in the buffer of standard input.
fn has_input(interrupt: &Interrupt) -> bool {
    const LOOKS_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
    let stdin = std::io::stdin();
    while !interrupt.is_asked() {
        let mut input = [PollFd::new(&stdin, PollFlags::IN)];
        match poll(&mut input, Some(&LOOKS_EVERY)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            // An error shows in the read.
            _ => return true,
        }
    }
    false
}

fn show(
    path: &Path,
    report: &RepairReport,
    is_plan: bool,
    global: &Global,
    output: &mut Output<'_>,
) -> Outcome {
    for problem in &report.problems {
        let line = problem.problem.to_string();
        writeln!(output, "{}: {}", Escaped(line.as_bytes()), fate(problem))?;
    }
    let all = report.repaired + report.planned + report.errors + report.warnings;
    let left_out = all.saturating_sub(report.problems.len() as u64);
    if left_out > 0 {
        writeln!(output, "… and {left_out} more")?;
    }
    if !global.quiet {
        let path = path.display();
        match report.summary.transactions_replayed {
            0 => {}
            1 => writeln!(output, "{path}: one transaction of the journal was replayed")?,
            n => writeln!(output, "{path}: {n} transactions of the journal were replayed")?,
        }
        let (repaired, left, count) = match is_plan {
            true => ("would be repaired", "would be left", report.planned),
            false => ("repaired", "left", report.repaired),
        };
        let problems = counted(count, "problem");
        let errors = counted(report.errors, "error");
        writeln!(output, "{path}: {problems} {repaired}, {errors} {left}, {}", report.summary)?;
    }
    Ok(())
}

fn fate(problem: &RepairedProblem) -> &'static str {
    match (problem.repair, problem.done) {
        (RepairOutcome::Planned, _) => "would be repaired",
        (RepairOutcome::Repaired, done) => done.unwrap_or("repaired"),
        (RepairOutcome::Declined, _) => "left as it is",
        (RepairOutcome::Impossible, _) => "can't be repaired yet",
        (RepairOutcome::Waiting, _) => "left, as it may depend on what is left above",
    }
}
