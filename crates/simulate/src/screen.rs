//! What a run shows: tables, and on a terminal how far it is.

use crate::explain;
use drystone_bench::results::Results;
use drystone_bench::runner::Watch;
use drystone_bench::table;
use drystone_bench::workload::Workload;
use indicatif::{ProgressBar, ProgressStyle};
use std::cell::Cell;
use std::io::IsTerminal;

/// Standard output and standard error.
pub struct Screen {
    bar: ProgressBar,
    /// Whether tables are shown.
    shows_tables: bool,
    /// Whether what costs most is shown under them.
    explains: bool,
    has_failed: Cell<bool>,
}

impl Screen {
    /// For so many runs.
    pub fn new(runs: u64, shows_tables: bool, explains: bool) -> Screen {
        let bar = match std::io::stderr().is_terminal() {
            true => ProgressBar::new(runs),
            false => ProgressBar::hidden(),
        };
        let template = "{bar:24} {pos}/{len}  {elapsed_precise}, {eta} left  {wide_msg}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        Screen { bar, shows_tables, explains, has_failed: Cell::new(false) }
    }

    /// A run begins; the one before it has ended.
    pub fn begin(&self, what: &str) {
        if self.bar.is_hidden() {
            eprintln!("{what}");
        } else {
            if !self.bar.message().is_empty() {
                self.bar.inc(1);
            }
            self.bar.set_message(what.to_string());
        }
    }

    /// All runs have ended. Returns whether one has failed.
    pub fn finish(&self) -> bool {
        self.bar.finish_and_clear();
        self.has_failed.get()
    }
}

impl Watch for Screen {
    fn running(&self, what: &str) {
        self.begin(what);
    }

    fn finished(&self, results: &Results, workload: &dyn Workload) {
        if !self.shows_tables {
            return;
        }
        self.bar.suspend(|| {
            println!("{}", table::text(results, workload));
            let rows = results.rows.iter().filter(|_| self.explains);
            for row in rows.filter(|row| row.workload == workload.name()) {
                println!("{} {}, {} workers:", row.workload, row.policy, row.workers);
                for line in explain::lines(row) {
                    println!("    {line}");
                }
            }
        });
    }

    fn failed(&self, what: &str, error: &anyhow::Error) {
        self.has_failed.set(true);
        self.bar.suspend(|| eprintln!("{what}: {error:#}"));
    }
}
