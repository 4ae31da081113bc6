//! Runs benchmarks that count instructions.
//!
//! A benchmark binary prepares a case and runs a given number of rounds; a round's cost is the
//! difference between a run of one round and a run of none. Instructions are counted by the
//! processor through `perf stat` where that works, else by `valgrind --tool=callgrind`, which works
//! everywhere, is fifty times slower and sees another choice of vector code.
//!
//! A case `X-by-path` may take at most [`BY_PATH_MAX`] times the instructions of `X-by-inode`.

use crate::process;
use anyhow::{Context, bail};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The benchmarks, by package.
const BENCHMARKS: [(&str, &str); 3] =
    [("drystone-ext4", "operations"), ("drystone-nilfs2", "operations"), ("drystone", "paths")];
/// Instructions of a call by path for one of the same call by inode, at most. The aim is 1.15.
const BY_PATH_MAX: f64 = 1.2;
/// Valgrind would count every byte that one string instruction sets or copies.
const GLIBC_TUNABLES: &str =
    "glibc.cpu.x86_rep_stosb_threshold=1000000000:glibc.cpu.x86_rep_movsb_threshold=1000000000";
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
    let counter = Counter::find();
    eprintln!("counted by {}", counter.name());
    println!("{:<34}{:>14}{:>12}{:>13}", "operation", "instructions", "ns of CPU", "allocations");
    let mut counts = BTreeMap::new();
    for (package, benchmark) in BENCHMARKS {
        let binary = build(package, benchmark)?;
        for case in process::output(Command::new(&binary).arg("--list"))?.lines() {
            let is_wanted =
                filters.is_empty() || filters.iter().any(|filter| case.contains(filter));
            if !is_wanted || counter == Counter::Callgrind && LONG_CASES.contains(&case) {
                continue;
            }
            let (none, _) = counter.count(&binary, case, 0)?;
            let (one, run) = counter.count(&binary, case, 1)?;
            let each = |total: u64| total as f64 / run.operations as f64;
            let instructions = each(one.saturating_sub(none));
            println!(
                "{case:<34}{instructions:>14.0}{:>12.0}{:>13.2}",
                each(run.cpu_ns),
                each(run.allocations)
            );
            counts.insert(case.to_owned(), instructions);
        }
    }
    compare_paths(&counts)
}

/// Compares what was counted by path and by inode.
fn compare_paths(counts: &BTreeMap<String, f64>) -> anyhow::Result<()> {
    let mut dear = Vec::new();
    for (case, by_inode) in counts {
        let Some(what) = case.strip_suffix("-by-inode") else { continue };
        let Some(by_path) = counts.get(&format!("{what}-by-path")) else { continue };
        let ratio = by_path / by_inode;
        println!("{what} by path: {ratio:.2} times the instructions by inode");
        if ratio > BY_PATH_MAX {
            dear.push(what);
        }
    }
    if !dear.is_empty() {
        bail!("more than {BY_PATH_MAX} times the instructions by inode: {}", dear.join(", "));
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
                command.env("GLIBC_TUNABLES", GLIBC_TUNABLES);
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
    fn paths_may_cost_a_little_more() {
        let counts = |by_path| {
            let counts = [("read-by-path", by_path), ("read-by-inode", 1000.0), ("create", 1.0)];
            counts.map(|(case, count)| (case.to_owned(), count)).into()
        };
        compare_paths(&counts(1200.0)).unwrap();
        let error = compare_paths(&counts(1201.0)).unwrap_err();
        assert!(error.to_string().ends_with(": read"), "{error}");
    }

    #[test]
    fn reads_the_counts() {
        assert_eq!(parse_perf("112641,,instructions:u,9811,100.00,,\n"), Some(112_641));
        assert_eq!(parse_perf("<not supported>,,instructions:u,0,100.00,,\n"), None);
        assert_eq!(parse_callgrind("==1== Collected : 4967296\n==1== \n"), Some(4_967_296));
    }
}
