//! A progress line for long work: how much was done and how fast, or how much of a pass.

use crate::interrupt::Interrupt;
use crate::messages::tell;
use crate::output::Escaped;
use drystone::fsck;
use drystone::transfer::{CopyMonitor, CopyProblem, CopySummary, Side};
use drystone_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use drystone_sync::clock::Instant;
use drystone_sync::{LockClass, Mutex, clock, thread};
use indicatif::{ProgressBar, ProgressStyle};
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

/// Shorter work shows nothing.
const SHOWN_AFTER: Duration = Duration::from_secs(1);
/// How often the line is drawn.
const DRAWN_EVERY: Duration = Duration::from_millis(100);

static UNKEPT: LockClass = LockClass::new("what could not be kept", 100);

/// A kind of problem that many entries have for the same reason: reported once.
struct Unkept {
    first: String,
    count: u64,
}

/// How much there will be to do, as far as that is known.
#[derive(Clone, Copy, Debug, Default)]
pub struct ExpectedWork {
    pub entries: u64,
    pub bytes: u64,
}

/// Follows a copy, counts, and reports problems.
pub struct Progress {
    entries: AtomicU64,
    bytes: AtomicU64,
    expected: Option<ExpectedWork>,
    /// By what could not be kept, and why.
    unkept: Mutex<BTreeMap<(&'static str, String), Unkept>>,
    is_done: AtomicBool,
    verbose: bool,
    /// The prefixes of source and target paths: `IMAGE:` or nothing.
    prefixes: [String; 2],
    /// None where the work can't be interrupted.
    interrupt: Option<Interrupt>,
    bar: ProgressBar,
}

impl Progress {
    /// Shows progress on standard error unless that isn't a terminal or nothing is wanted.
    pub fn new(
        quiet: bool,
        verbose: bool,
        prefixes: [String; 2],
        interrupt: Option<Interrupt>,
    ) -> Progress {
        let bar = match std::io::stderr().is_terminal() && !quiet {
            true => ProgressBar::new_spinner(),
            false => ProgressBar::hidden(),
        };
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}  {elapsed_precise}") {
            bar.set_style(style);
        }
        Progress {
            entries: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            expected: None,
            unkept: Mutex::new(&UNKEPT, BTreeMap::new()),
            is_done: AtomicBool::new(false),
            verbose,
            prefixes,
            interrupt,
            bar,
        }
    }

    /// Sets the total, from which the remaining time is estimated.
    pub fn expecting(self, expected: Option<ExpectedWork>) -> Progress {
        Progress { expected, ..self }
    }

    /// Runs `body` and draws the line meanwhile, from another thread.
    pub fn during<T>(&self, body: impl FnOnce() -> T) -> T {
        if self.bar.is_hidden() {
            return body();
        }
        thread::scope(|scope| {
            // It can do without the line.
            let _ = thread::spawn_in(scope, "progress", || self.draw());
            let _end = thread::at_end(|| self.is_done.store(true, Ordering::Relaxed));
            body()
        })
    }

    fn draw(&self) {
        let start = clock::now();
        while !self.is_done.load(Ordering::Relaxed) {
            thread::sleep(DRAWN_EVERY);
            let elapsed = start.elapsed();
            if elapsed < SHOWN_AFTER {
                continue;
            }
            let entries = self.entries.load(Ordering::Relaxed);
            let bytes = self.bytes.load(Ordering::Relaxed);
            let rate = (bytes as f64 / elapsed.as_secs_f64()) as u64;
            let left = self.left(entries, bytes, elapsed);
            self.bar.set_message(format!(
                "{entries} entries, {}, {}/s{left}",
                crate::size::bytes(bytes),
                crate::size::bytes(rate)
            ));
            self.bar.tick();
        }
        self.bar.finish_and_clear();
    }

    /// The time that is left, in words. An entry costs as much as some of its content does: the
    /// slower of the two counts.
    fn left(&self, entries: u64, bytes: u64, elapsed: Duration) -> String {
        let Some(expected) = self.expected else { return String::new() };
        let share = |done: u64, all: u64| if all == 0 { 1.0 } else { done as f64 / all as f64 };
        let done = share(entries, expected.entries).min(share(bytes, expected.bytes)).min(1.0);
        // Earlier it would be a guess.
        if done < 0.02 {
            return String::new();
        }
        let seconds = (elapsed.as_secs_f64() * (1.0 - done) / done).ceil();
        format!(", {seconds} s left")
    }

    /// Reports a copy that stopped early: failures were reported, but not what was never tried.
    pub fn tell_stopped(&self, summary: &CopySummary) {
        if summary.is_stopped {
            tell(
                "the copy stopped there: what comes after is missing, and directories that had been \
                 begun have neither their permissions nor their times",
            );
        }
    }

    /// Reports what could not be kept, once for each kind.
    pub fn tell_unkept(&self, quiet: bool) {
        for ((action, cause), unkept) in &*self.unkept.lock() {
            let others = match unkept.count - 1 {
                0 => String::new(),
                count => format!(" (and {count} more; -v names them)"),
            };
            if !quiet && !self.verbose {
                tell(format_args!("can't {action} {}: {cause}{others}", unkept.first));
            }
        }
    }
}

impl CopyMonitor for Progress {
    fn is_cancelled(&self) -> bool {
        self.interrupt.as_ref().is_some_and(Interrupt::is_asked)
    }

    fn bytes(&self, count: u64) {
        self.bytes.fetch_add(count, Ordering::Relaxed);
    }

    fn entry(&self, path: &dyn Fn() -> PathBuf) {
        self.entries.fetch_add(1, Ordering::Relaxed);
        tracing::info!(path = %Escaped(path().as_os_str().as_bytes()), "copied");
    }

    fn problem(&self, problem: &CopyProblem) {
        let prefix = &self.prefixes[if problem.side == Side::Source { 0 } else { 1 }];
        let CopyProblem { action, path, cause, .. } = problem;
        let path = Escaped(path.as_os_str().as_bytes());
        if problem.side == Side::Target && (problem.is_warning || problem.is_not_made) {
            let mut unkept = self.unkept.lock();
            let first = || Unkept { first: format!("{prefix}{path}"), count: 0 };
            unkept.entry((*action, cause.to_string())).or_insert_with(first).count += 1;
            if !self.verbose {
                return;
            }
        }
        self.bar.suspend(|| tell(format_args!("can't {action} {prefix}{path}: {cause}")));
    }
}

/// Follows work through its steps.
pub struct Steps {
    start: Instant,
    bar: ProgressBar,
}

impl Steps {
    /// Shows progress on standard error unless that isn't a terminal or nothing is wanted.
    pub fn new(quiet: bool) -> Steps {
        let bar = match std::io::stderr().is_terminal() && !quiet {
            true => ProgressBar::new(1),
            false => ProgressBar::hidden(),
        };
        let template = "{msg:33} {bar:32} {percent:>3} %  {elapsed_precise}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("=> "));
        }
        Steps { start: clock::now(), bar }
    }

    /// Whether there is a line to show anything in.
    pub fn are_shown(&self) -> bool {
        !self.bar.is_hidden()
    }

    /// Takes a step.
    pub fn follow(&self, progress: &fsck::CheckProgress<'_>) {
        if let &fsck::CheckProgress::Step { pass, done, total } = progress {
            self.step(format_args!("checking {pass}"), done, total);
        }
    }

    /// Shows how much of a step is done.
    pub fn step(&self, step: impl std::fmt::Display, done: u64, total: u64) {
        if self.bar.is_hidden() || self.start.elapsed() < SHOWN_AFTER {
            return;
        }
        self.bar.set_length(total.max(1));
        self.bar.set_position(done);
        self.bar.set_message(step.to_string());
    }

    /// Takes the line away.
    pub fn end(&self) {
        self.bar.finish_and_clear();
    }
}
