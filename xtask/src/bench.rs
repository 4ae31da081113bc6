//! Benchmarks by instructions.
//!
//! A benchmark binary prepares a case and runs a given number of rounds; a round's cost is the
//! difference between a run of one round and a run of none. Instructions are counted by the
//! processor through `perf stat` where that works, else by `valgrind --tool=callgrind`, which works
//! everywhere, is fifty times slower and sees another choice of vector code.

use crate::process;
use anyhow::{Context, bail};
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Cases that take minutes under valgrind.
const LONG_CASES: [&str; 1] = ["htree-insert-at-1m"];

/// A benchmark binary's output for a run.
#[derive(Deserialize)]
struct Run {
    operations: u64,
    cpu_ns: u64,
    allocations: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Counter {
    Perf,
    Callgrind,
}

/// Prints the table for the cases whose name contains one of `filters`; all if there are none.
pub fn run(filters: &[String]) -> anyhow::Result<()> {
    let binary = build("drystone-ext4", "operations")?;
    let counter = Counter::find();
    let listed = process::output(Command::new(&binary).arg("--list"))?;
    eprintln!("counted by {}", counter.name());
    println!("{:<26}{:>14}{:>12}{:>13}", "operation", "instructions", "ns of CPU", "allocations");
    for case in listed.lines() {
        let is_wanted = filters.is_empty() || filters.iter().any(|filter| case.contains(filter));
        if !is_wanted || counter == Counter::Callgrind && LONG_CASES.contains(&case) {
            continue;
        }
        let (none, _) = counter.count(&binary, case, 0)?;
        let (one, run) = counter.count(&binary, case, 1)?;
        let each = |total: u64| total as f64 / run.operations as f64;
        println!(
            "{case:<26}{:>14.0}{:>12.0}{:>13.2}",
            each(one.saturating_sub(none)),
            each(run.cpu_ns),
            each(run.allocations)
        );
    }
    Ok(())
}

/// Long measurements, which check what they measure; arguments name some of them.
pub fn run_long(arguments: &[String]) -> anyhow::Result<()> {
    let binary = build("drystone-ext4", "long")?;
    process::run(Command::new(binary).args(arguments))
}

/// Builds a benchmark and says where it is.
fn build(package: &str, bench: &str) -> anyhow::Result<PathBuf> {
    #[derive(Deserialize)]
    struct Message {
        executable: Option<PathBuf>,
    }
    let mut cargo =
        process::cargo(["bench", "--no-run", "--quiet", "--message-format=json", "--package"]);
    let built = cargo.args([package, "--bench", bench]).stderr(Stdio::inherit()).output()?;
    if !built.status.success() {
        bail!("the benchmark {bench} of {package} can't be built");
    }
    String::from_utf8_lossy(&built.stdout)
        .lines()
        .filter_map(|line| serde_json::from_str::<Message>(line).ok()?.executable)
        .next_back()
        .with_context(|| format!("cargo did not say where the benchmark {bench} is"))
}

impl Counter {
    /// The first that works on this machine.
    fn find() -> Counter {
        let mut probe = Command::new("perf");
        probe.args(["stat", "-x,", "-e", "instructions:u", "true"]);
        let counts = probe.output().is_ok_and(|output| {
            output.status.success()
                && parse_perf(&String::from_utf8_lossy(&output.stderr)).is_some()
        });
        if counts { Counter::Perf } else { Counter::Callgrind }
    }

    fn name(self) -> &'static str {
        match self {
            Counter::Perf => "the processor (perf stat)",
            Counter::Callgrind => "valgrind --tool=callgrind",
        }
    }

    /// Runs a case and returns the instructions of the whole process.
    fn count(self, binary: &Path, case: &str, rounds: u64) -> anyhow::Result<(u64, Run)> {
        let mut command = match self {
            Counter::Perf => {
                let mut command = Command::new("perf");
                command.args(["stat", "-x,", "-e", "instructions:u"]);
                command
            }
            Counter::Callgrind => {
                let mut command = Command::new("valgrind");
                command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
                command
            }
        };
        let output = command.arg(binary).arg(case).arg(rounds.to_string()).output()?;
        if !output.status.success() {
            bail!("{}: {}", process::describe(&command), String::from_utf8_lossy(&output.stderr));
        }
        let run = serde_json::from_slice(&output.stdout)?;
        let report = String::from_utf8_lossy(&output.stderr);
        let instructions = match self {
            Counter::Perf => parse_perf(&report),
            Counter::Callgrind => parse_callgrind(&report),
        };
        Ok((instructions.with_context(|| format!("no count in: {report}"))?, run))
    }
}

/// The count in a line like `112641,,instructions:u,...`.
fn parse_perf(report: &str) -> Option<u64> {
    let line = report.lines().find(|line| line.contains("instructions:u"))?;
    line.split(',').next()?.parse().ok()
}

/// The count in a line like `==3837== Collected : 4967296`.
fn parse_callgrind(report: &str) -> Option<u64> {
    let line = report.lines().find(|line| line.contains("Collected :"))?;
    line.rsplit(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_counts() {
        assert_eq!(parse_perf("112641,,instructions:u,9811,100.00,,\n"), Some(112_641));
        assert_eq!(parse_perf("<not supported>,,instructions:u,0,100.00,,\n"), None);
        assert_eq!(parse_callgrind("==1== Collected : 4967296\n==1== \n"), Some(4_967_296));
    }
}
