//! Published tables beside what the simulation predicts (`./dev simulate validation`), as Markdown for the
//! documentation.
//!
//! A table's only free figure is the speed of its machine: the prediction is scaled so that the first variant
//! with the fewest workers is as fast as published. Everything else is predicted.

use crate::machine::SimulatedMachine;
use crate::screen::Screen;
use crate::target::{SimulatedTarget, describe};
use crate::work_file::CalibratedWork;
use anyhow::{Context, Result, bail};
use drystone_bench::machine::Machine as Described;
use drystone_bench::published::{Published, compared_policies};
use drystone_bench::results::{Results, Row};
use drystone_bench::runner::{self, Plan};
use drystone_bench::target::Target;
use drystone_bench::workload::{self, Sizes};
use drystone_sync::atomic::AtomicBool;
use drystone_sync::sim::SpinLocks;
use std::process::ExitCode;

/// A published table, and how it is simulated: on a machine that is as near to the measured one as its source says.
struct ValidatedTable {
    workload: &'static str,
    machine: &'static str,
    /// Those of the kernel then. Only the engine's spinlocks follow it, not its mutexes.
    spin_locks: SpinLocks,
    /// Its variants differ in the length of a search, which the simulation doesn't know: between two events each
    /// stretch takes its one median.
    compares_searches: bool,
    operations: u64,
    files: u64,
}

/// Spinlocks are queued since Linux 4.2.
const TABLES: [ValidatedTable; 5] = [
    ValidatedTable {
        workload: "orphan",
        machine: "xeon-80",
        spin_locks: SpinLocks::Ticket,
        compares_searches: false,
        operations: 200,
        files: 0,
    },
    ValidatedTable {
        workload: "creat-clo",
        machine: "xeon-80",
        spin_locks: SpinLocks::Ticket,
        compares_searches: false,
        operations: 200,
        files: 0,
    },
    ValidatedTable {
        workload: "fallocate2",
        machine: "kunpeng-920",
        spin_locks: SpinLocks::Queued,
        compares_searches: false,
        operations: 512,
        files: 0,
    },
    ValidatedTable {
        workload: "inodes",
        machine: "phenom-6",
        spin_locks: SpinLocks::Ticket,
        compares_searches: true,
        operations: 0,
        files: 5000,
    },
    ValidatedTable {
        workload: "mdtest",
        machine: "haswell-48",
        spin_locks: SpinLocks::Queued,
        compares_searches: true,
        operations: 0,
        files: 300,
    },
];

/// Variants that differ by less are tied.
const TIED_BELOW: f64 = 0.1;
/// Factors on the costs of lines, loads, atomics, waking and switching.
const FACTORS: [f64; 2] = [0.5, 2.0];
/// The number of workers, or the highest in a table, for which costs are changed.
const CHANGED_AT: u64 = 64;

/// Compares published tables with predictions, as Markdown.
#[derive(clap::Args)]
pub struct ValidationArguments {
    /// Only these tables: orphan, creat-clo, fallocate2, inodes, mdtest.
    #[arg(value_name = "TABLE")]
    tables: Vec<String>,
    /// The table of work between events. [default: the one in the program]
    #[arg(long, value_name = "FILE")]
    work: Option<String>,
}

pub fn main(arguments: &ValidationArguments) -> Result<ExitCode> {
    for name in &arguments.tables {
        if TABLES.iter().all(|table| table.workload != name) {
            bail!(
                "no table '{name}'; there are: {}",
                TABLES.map(|table| table.workload).join(", ")
            );
        }
    }
    let is_meant = |table: &&ValidatedTable| {
        arguments.tables.is_empty() || arguments.tables.iter().any(|name| name == table.workload)
    };
    for table in TABLES.iter().filter(is_meant) {
        table.print(arguments.work.as_deref()).with_context(|| table.workload.to_string())?;
    }
    Ok(ExitCode::SUCCESS)
}

impl ValidatedTable {
    fn print(&self, work: Option<&str>) -> Result<()> {
        let machine = SimulatedMachine::load(self.machine)?;
        let target = SimulatedTarget::new(&machine, CalibratedWork::load(work)?, self.spin_locks);
        let uses = target.uses();
        let published = Published::of(self.workload).context("it isn't published")?;
        let counts = published.worker_counts();
        let highest = counts.iter().copied().max().unwrap_or(1);
        let changed_at = counts.iter().copied().find(|&n| n == CHANGED_AT).unwrap_or(highest);
        let changed = FACTORS.map(|factor| (factor, target.with_costs(factor)));
        let results = self.run(target, counts, machine.model.cpus())?;
        println!("### {}\n", self.workload);
        println!("{} on {}.\n", published.source, machine.description);
        if self.compares_searches {
            println!("Not predicted: the variants differ in the length of a search.\n");
        }
        print!("{}", Comparison::new(&published, &results).text());
        print!(
            "With {changed_at} workers the fastest is {}",
            fastest(&published, &results, changed_at)
        );
        for (factor, target) in changed {
            let results = self.run(target, vec![changed_at], machine.model.cpus())?;
            print!(
                "; with those costs times {factor}: {}",
                fastest(&published, &results, changed_at)
            );
        }
        println!(".\n\n{}.\n", describe(uses.get()));
        Ok(())
    }

    fn run(&self, target: SimulatedTarget, workers: Vec<u64>, cpus: usize) -> Result<Results> {
        let sizes = Sizes {
            operations: Some(self.operations).filter(|&count| count > 0),
            files: Some(self.files).filter(|&count| count > 0),
            directories: Some(8),
            roots: Some(1),
            ..Sizes::default()
        };
        let runs = (workers.len() * compared_policies(self.workload).len()) as u64;
        let plan = Plan {
            workloads: workload::select(&[self.workload.to_string()])?,
            policies: Vec::new(),
            workers,
            sizes,
            rounds: 1,
            warms_up: false,
            verify: false,
            machine: Described { cores: cpus, ..Described::this() },
        };
        let screen = Screen::new(runs, false, false);
        let mut targets: Vec<Box<dyn Target>> = vec![Box::new(target)];
        let results = runner::run(&plan, &mut targets, &screen, &AtomicBool::new(false));
        if screen.finish() {
            bail!("a run has failed");
        }
        Ok(results)
    }
}

/// The published variant that is predicted to be the fastest.
fn fastest(published: &Published, results: &Results, workers: u64) -> String {
    let rows = results.rows.iter().filter(|row| row.workers == workers);
    let known = rows.filter_map(|row| Some((row, published.series_for(&row.policy)?.name)));
    let best = known.max_by(|(one, _), (other, _)| {
        one.operations_per_second.total_cmp(&other.operations_per_second)
    });
    best.map_or("unknown".to_string(), |(_, name)| name.replace('_', "-"))
}

/// A row of a table.
struct ComparedRow {
    workers: u64,
    variant: &'static str,
    published: f64,
    predicted: f64,
}

/// How many pairs are predicted in which order.
#[derive(Debug, Default, PartialEq, Eq)]
struct Orders {
    right: usize,
    /// No order is predicted.
    tied: usize,
    wrong: usize,
}

/// A table beside its prediction; rates of all workers.
struct Comparison {
    rows: Vec<ComparedRow>,
}

impl Comparison {
    fn new(published: &Published, results: &Results) -> Comparison {
        let known = |row: &Row| {
            let series = published.series_for(&row.policy)?;
            Some((series.name, series.at(row.workers)?.rate))
        };
        let first = results.rows.iter().find_map(|row| Some((row, known(row)?)));
        let scale = first.map_or(1.0, |(row, (_, rate))| rate / row.operations_per_second);
        let rows = results.rows.iter().filter_map(|row| {
            let (variant, published) = known(row)?;
            let predicted = scale * row.operations_per_second;
            Some(ComparedRow { workers: row.workers, variant, published, predicted })
        });
        Comparison { rows: rows.collect() }
    }

    fn text(&self) -> String {
        let mut text = String::from(
            "| workers | variant | published | predicted | predicted / published |\n\
             | ---: | --- | ---: | ---: | ---: |\n",
        );
        let unit = self.rows.first().map_or(1.0, |row| row.published);
        for row in &self.rows {
            text += &format!(
                "| {} | {} | {:.2} | {:.2} | {:.2} |\n",
                row.workers,
                row.variant.replace('_', "-"),
                row.published / unit,
                row.predicted / unit,
                row.predicted / row.published
            );
        }
        let Orders { right, tied, wrong } = self.orders();
        text += &format!(
            "\nRates as multiples of the first row's. Of {} pairs of variants that differ by more than 10 %, \
             {right} are predicted in the right order and {wrong} in the wrong one; in {tied} the \
             predictions differ by less than 10 %. The ratio to the first variant is off by {:.0} % \
             (geometric mean).\n\n",
            right + tied + wrong,
            100.0 * (self.ratio_error() - 1.0)
        );
        text
    }

    /// Pairs of variants with the same number of workers.
    fn pairs(&self) -> impl Iterator<Item = (&ComparedRow, &ComparedRow)> {
        self.rows.iter().enumerate().flat_map(|(place, one)| {
            let others = self.rows[place + 1..].iter();
            others.filter(|other| other.workers == one.workers).map(move |other| (one, other))
        })
    }

    /// The orders of pairs whose published figures aren't tied.
    fn orders(&self) -> Orders {
        let is_tied = |one: f64, other: f64| (one / other).ln().abs() <= (1.0 + TIED_BELOW).ln();
        let mut orders = Orders::default();
        for (one, other) in
            self.pairs().filter(|(one, other)| !is_tied(one.published, other.published))
        {
            if is_tied(one.predicted, other.predicted) {
                orders.tied += 1;
            } else if (one.published > other.published) == (one.predicted > other.predicted) {
                orders.right += 1;
            } else {
                orders.wrong += 1;
            }
        }
        orders
    }

    /// The geometric mean of the factors between predicted and published ratios to the first variant.
    fn ratio_error(&self) -> f64 {
        let is_first = |row: &ComparedRow| {
            self.rows.iter().find(|other| other.workers == row.workers).map(|row| row.variant)
                == Some(row.variant)
        };
        let errors: Vec<f64> = self
            .pairs()
            .filter(|(one, _)| is_first(one))
            .map(|(one, other)| {
                let predicted = other.predicted / one.predicted;
                (predicted * one.published / other.published).ln().abs()
            })
            .collect();
        (errors.iter().sum::<f64>() / errors.len().max(1) as f64).exp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(workers: u64, variant: &'static str, published: f64, predicted: f64) -> ComparedRow {
        ComparedRow { workers, variant, published, predicted }
    }

    #[test]
    fn orders_and_ratios_are_compared() {
        let comparison = Comparison {
            rows: vec![
                row(1, "a", 1.0, 1.0),
                row(1, "b", 1.05, 0.9),
                row(4, "a", 2.0, 2.0),
                row(4, "b", 4.0, 8.0),
                row(4, "c", 3.0, 1.0),
                row(8, "a", 2.0, 3.0),
                row(8, "b", 4.0, 3.1),
            ],
        };
        // With 1 worker the published difference is too small. With 4, a < b and c < b are right, a < c is wrong.
        assert_eq!(comparison.orders(), Orders { right: 2, tied: 1, wrong: 1 });
        let at_8 = (2.0 * 3.0 / 3.1_f64).ln();
        let at_4 = 2_f64.ln() + 3_f64.ln();
        let expected = ((1.05_f64 / 0.9).ln() + at_4 + at_8) / 4.0;
        assert!((comparison.ratio_error().ln() - expected).abs() < 1e-9);
        let text = comparison.text();
        assert!(text.contains("| 4 | b | 4.00 | 8.00 | 2.00 |"), "{text}");
    }

    #[test]
    fn tables_are_published_and_have_machines() {
        for table in &TABLES {
            assert!(Published::of(table.workload).is_some());
            assert!(SimulatedMachine::load(table.machine).is_ok());
        }
    }
}
