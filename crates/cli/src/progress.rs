//! A progress line for what lasts: what was done so far and how fast, or how much of a pass.

use crate::interrupt::Interrupt;
use crate::output::Escaped;
use drystone::fsck;
use drystone::transfer::{Monitor, Problem, Side};
use drystone_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use drystone_sync::clock;
use drystone_sync::clock::Instant;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

/// Nothing is shown of what takes less.
const SHOWN_AFTER: Duration = Duration::from_secs(1);
/// How often the line is drawn.
const DRAWN_EVERY: Duration = Duration::from_millis(100);

/// Follows a copy, counts, and says what went wrong.
pub struct Progress {
    entries: AtomicU64,
    bytes: AtomicU64,
    unkept: AtomicU64,
    is_done: AtomicBool,
    verbose: bool,
    /// What is put before paths of the source and of the target: `IMAGE:` or nothing.
    prefixes: [String; 2],
    /// None where nobody can ask for an early end.
    interrupt: Option<Interrupt>,
    bar: ProgressBar,
}

impl Progress {
    /// Shows progress on standard error unless that is no terminal or nothing is wanted.
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
            unkept: AtomicU64::new(0),
            is_done: AtomicBool::new(false),
            verbose,
            prefixes,
            interrupt,
            bar,
        }
    }

    /// Runs `body` and draws the line meanwhile, from another thread.
    pub fn during<T>(&self, body: impl FnOnce() -> T) -> T {
        if self.bar.is_hidden() {
            return body();
        }
        drystone_sync::thread::scope(|scope| {
            scope.spawn(|| self.draw());
            let result = body();
            self.is_done.store(true, Ordering::Relaxed);
            result
        })
    }

    fn draw(&self) {
        let start = clock::now();
        while !self.is_done.load(Ordering::Relaxed) {
            drystone_sync::thread::sleep(DRAWN_EVERY);
            let elapsed = start.elapsed();
            if elapsed < SHOWN_AFTER {
                continue;
            }
            let entries = self.entries.load(Ordering::Relaxed);
            let bytes = self.bytes.load(Ordering::Relaxed);
            let rate = (bytes as f64 / elapsed.as_secs_f64()) as u64;
            self.bar.set_message(format!(
                "{entries} entries, {}B, {}B/s",
                crate::size::human(bytes),
                crate::size::human(rate)
            ));
            self.bar.tick();
        }
        self.bar.finish_and_clear();
    }

    /// Attributes that could not be kept.
    pub fn unkept(&self) -> u64 {
        self.unkept.load(Ordering::Relaxed)
    }
}

impl Monitor for Progress {
    fn is_cancelled(&self) -> bool {
        self.interrupt.as_ref().is_some_and(Interrupt::is_asked)
    }

    fn bytes(&self, count: u64) {
        self.bytes.fetch_add(count, Ordering::Relaxed);
    }

    fn entry(&self, path: &Path) {
        self.entries.fetch_add(1, Ordering::Relaxed);
        tracing::info!(path = %path.display(), "copied");
    }

    fn problem(&self, problem: &Problem) {
        if problem.is_warning && problem.side == Side::Target {
            self.unkept.fetch_add(1, Ordering::Relaxed);
            if !self.verbose {
                return;
            }
        }
        let prefix = &self.prefixes[if problem.side == Side::Source { 0 } else { 1 }];
        let Problem { action, path, cause, .. } = problem;
        let path = Escaped(path.as_os_str().as_bytes());
        self.bar.suspend(|| eprintln!("drystone: can't {action} {prefix}{path}: {cause}"));
    }
}

/// Follows a check through its passes.
pub struct Steps {
    start: Instant,
    bar: ProgressBar,
}

impl Steps {
    /// Shows progress on standard error unless that is no terminal or nothing is wanted.
    pub fn new(quiet: bool) -> Steps {
        let bar = match std::io::stderr().is_terminal() && !quiet {
            true => ProgressBar::new(1),
            false => ProgressBar::hidden(),
        };
        let template = "checking {msg:24} {bar:32} {percent:>3} %  {elapsed_precise}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("=> "));
        }
        Steps { start: clock::now(), bar }
    }

    /// Takes a step.
    pub fn follow(&self, progress: &fsck::Progress<'_>) {
        let &fsck::Progress::Step { pass, done, total } = progress else { return };
        if self.bar.is_hidden() || self.start.elapsed() < SHOWN_AFTER {
            return;
        }
        self.bar.set_length(total.max(1));
        self.bar.set_position(done);
        self.bar.set_message(pass.to_string());
    }

    /// Takes the line away.
    pub fn end(&self) {
        self.bar.finish_and_clear();
    }
}
