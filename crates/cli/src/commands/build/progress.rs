//! Progress of a build: bytes, files, rate and time left.

use crate::interrupt::Interrupt;
use crate::size;
use drystone_mkfs::build::BuildMonitor;
use drystone_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use drystone_sync::{clock, thread};
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::time::Duration;

/// Nothing is shown of what takes less.
const SHOWN_AFTER: Duration = Duration::from_millis(500);
/// How often the line is drawn.
const DRAWN_EVERY: Duration = Duration::from_millis(100);

/// Follows a build.
pub struct BuildProgress {
    bytes: AtomicU64,
    files: AtomicU64,
    is_done: AtomicBool,
    files_total: u64,
    bytes_total: u64,
    interrupt: Interrupt,
    bar: ProgressBar,
}

impl BuildProgress {
    /// Shows progress on standard error unless that isn't a terminal or nothing is wanted.
    pub fn new(quiet: bool, files: u64, bytes: u64, interrupt: Interrupt) -> BuildProgress {
        let bar = match std::io::stderr().is_terminal() && !quiet {
            true => ProgressBar::new(bytes.max(1)),
            false => ProgressBar::hidden(),
        };
        if let Ok(style) = ProgressStyle::with_template("{bar:32} {percent:>3} %  {msg}") {
            bar.set_style(style.progress_chars("=> "));
        }
        BuildProgress {
            bytes: AtomicU64::new(0),
            files: AtomicU64::new(0),
            is_done: AtomicBool::new(false),
            files_total: files,
            bytes_total: bytes,
            interrupt,
            bar,
        }
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
            let (bytes, files) =
                (self.bytes.load(Ordering::Relaxed), self.files.load(Ordering::Relaxed));
            self.bar.set_position(bytes.min(self.bytes_total));
            self.bar.set_message(self.message(bytes, files, elapsed));
        }
        self.bar.finish_and_clear();
    }

    fn message(&self, bytes: u64, files: u64, elapsed: Duration) -> String {
        let rate = bytes as f64 / elapsed.as_secs_f64().max(1e-3);
        let left = self.bytes_total.saturating_sub(bytes) as f64 / rate.max(1.0);
        format!(
            "{} of {}, {files} of {} files, {}/s, {left:.0} s left",
            size::bytes(bytes),
            size::bytes(self.bytes_total),
            self.files_total,
            size::bytes(rate as u64),
        )
    }
}

impl BuildMonitor for BuildProgress {
    fn wrote(&self, bytes: u64, files: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.files.fetch_add(files, Ordering::Relaxed);
    }

    fn is_cancelled(&self) -> bool {
        self.interrupt.is_asked()
    }
}
