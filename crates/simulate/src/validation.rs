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

/// A published table, and how it is simulated.
struct ValidatedTable {
    workload: &'static str,
    machine: &'static str,
    /// Those of the kernel then.
    spin_locks: SpinLocks,
    operations: u64,
    files: u64,
}

/// Spinlocks are queued since Linux 4.2.
const TABLES: [ValidatedTable; 5] = [
    ValidatedTable {
        workload: "orphan",
        machine: "xeon-80",
        spin_locks: SpinLocks::Ticket,
        operations: 200,
        files: 0,
    },
    ValidatedTable {
        workload: "creat-clo",
        machine: "xeon-80",
        spin_locks: SpinLocks::Ticket,
        operations: 200,
        files: 0,
    },
    ValidatedTable {
        workload: "fallocate2",
        machine: "kunpeng-920",
        spin_locks: SpinLocks::Queued,
        operations: 512,
        files: 0,
    },
    ValidatedTable {
        workload: "inodes",
        machine: "phenom-6",
        spin_locks: SpinLocks::Ticket,
        operations: 0,
        files: 5000,
    },
    ValidatedTable {
        workload: "mdtest",
        machine: "haswell-48",
        spin_locks: SpinLocks::Queued,
        operations: 0,
        files: 300,
    },
];

/// Differences between variants that are larger must have the same sign in the prediction.
const ORDER_FROM: f64 = 0.1;
/// Factors on all costs but the work.
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
        print!("{}", Comparison::new(&published, &results).text());
        print!(
            "With {changed_at} workers the fastest is {}",
            fastest(&published, &results, changed_at)
        );
        for (factor, target) in changed {
            let results = self.run(target, vec![changed_at], machine.model.cpus())?;
            print!(
                "; with all costs times {factor}: {}",
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
        let (kept, pairs) = self.orders();
        text += &format!(
            "\nRates as multiples of the first row's. Of {pairs} pairs of variants that differ by more than \
             10 %, {kept} are predicted in the right order. The ratio to the first variant is off by {:.0} % \
             (geometric mean).\n\n",
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

    /// How many orders are right, of how many.
    fn orders(&self) -> (usize, usize) {
        let differ = self.pairs().filter(|(one, other)| {
            (one.published / other.published).ln().abs() > (1.0 + ORDER_FROM).ln()
        });
        differ.fold((0, 0), |(kept, all), (one, other)| {
            let is_same = (one.published > other.published) == (one.predicted > other.predicted);
            (kept + usize::from(is_same), all + 1)
        })
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
            ],
        };
        // A difference of 5 % says nothing; a < b is right; a < c and c < b aren't both.
        assert_eq!(comparison.orders(), (2, 3));
        let expected = ((1.05_f64 / 0.9).ln() + 2_f64.ln() + 3_f64.ln()) / 3.0;
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
