//! The tables that compare the variants of the mechanisms, and the engine with the kernel.
//!
//! Each table is one or two runs of `drystone bench`, which alternates between the published baseline, its
//! published improvement, and our variant. Variants of one table differ in that mechanism alone: everything
//! else is as in `scalable`. The end of the output is Markdown for docs/src/performance.md: the medians, and
//! every ratio beside its target. The kernel's ext4 is an image in memory on a loop device, for which this
//! has to run as root; elsewhere that table is skipped with a line that says so.

mod markdown;
mod tables;

use crate::process;
use anyhow::{Context, bail};
use markdown::{medians, ratios};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use tables::{KERNEL, Measure, TABLES, Table};

/// Which tables, and how long.
#[derive(clap::Args)]
pub struct Options {
    /// Names of tables; all if there are none.
    tables: Vec<String>,
    /// Measured rounds of each combination [default: 5; 2 for inodes, 3 for extents].
    #[arg(long)]
    rounds: Option<u32>,
    /// Keep what was measured here, a file for each run.
    #[arg(long)]
    json: Option<std::path::PathBuf>,
    /// Where the image of the kernel's ext4 goes.
    #[arg(long, default_value = "/dev/shm")]
    memory: std::path::PathBuf,
}

#[derive(Deserialize)]
struct Results {
    rows: Vec<Row>,
}

#[derive(Deserialize)]
struct Row {
    workload: String,
    target: String,
    policy: String,
    workers: u64,
    oversubscribed: bool,
    operations_per_second: f64,
    spread: f64,
    clean: Option<bool>,
    #[serde(default)]
    figures: BTreeMap<String, f64>,
}

impl Row {
    fn is(&self, workload: &str, policy: &str) -> bool {
        let is_policy = match policy {
            KERNEL => self.target != "engine",
            policy => self.policy == policy,
        };
        self.workload == workload && is_policy
    }

    /// As it was measured.
    fn value(&self, measure: Measure) -> Option<f64> {
        match measure {
            Measure::Rate => Some(self.operations_per_second),
            Measure::Gain(name) | Measure::Cost(name) => self.figures.get(name).copied(),
        }
    }

    fn workers(&self) -> String {
        format!("{}{}", self.workers, if self.oversubscribed { "*" } else { "" })
    }
}

/// Runs the tables and prints what they say. A target that is missed isn't an error: on a machine with other
/// work a ratio says little. A table that fails doesn't keep the others from running.
pub fn run(options: &Options) -> anyhow::Result<()> {
    if let Some(unknown) =
        options.tables.iter().find(|name| TABLES.iter().all(|table| table.name != **name))
    {
        let names: Vec<&str> = TABLES.iter().map(|table| table.name).collect();
        bail!("no table '{unknown}'; there are: {}", names.join(", "));
    }
    let mut build = process::cargo(["build", "--quiet", "--release", "--package", "drystone-cli"]);
    process::run(&mut build)?;
    let drystone = process::target_directory().join("release/drystone");
    let is_wanted = |table: &&Table| {
        options.tables.is_empty() || options.tables.iter().any(|name| name == table.name)
    };
    let mut text = String::new();
    let mut failed = Vec::new();
    for table in TABLES.iter().filter(is_wanted) {
        let start = drystone_sync::clock::now();
        match measure(&drystone, table, options) {
            Ok(Some(rows)) => {
                text += &medians(table, &rows);
                text += &ratios(table, &rows);
            }
            Ok(None) => {}
            Err(error) => {
                eprintln!("{}: {error:#}", table.name);
                failed.push(table.name);
            }
        }
        eprintln!("{}: {} s", table.name, start.elapsed().as_secs());
    }
    println!("\n{text}");
    if !failed.is_empty() {
        bail!("tables that failed: {}", failed.join(", "));
    }
    Ok(())
}

/// The rows of a table; none if this machine can't have it.
fn measure(drystone: &Path, table: &Table, options: &Options) -> anyhow::Result<Option<Vec<Row>>> {
    let kernel = match table.needs_kernel().then(|| KernelMount::new(&options.memory)) {
        Some(Err(error)) => {
            println!("{}: skipped: {error:#}", table.name);
            return Ok(None);
        }
        Some(Ok(kernel)) => Some(kernel),
        None => None,
    };
    let scratch = std::env::temp_dir().join(format!("drystone-table-{}", std::process::id()));
    let mut rows = Vec::new();
    for (number, arguments) in table.runs.iter().enumerate() {
        let file = match &options.json {
            Some(directory) => {
                std::fs::create_dir_all(directory)?;
                directory.join(format!("{}-{}.json", table.name, number + 1))
            }
            None => scratch.clone(),
        };
        let mut command = Command::new(drystone);
        command.arg("bench").args(arguments.split_whitespace());
        match &kernel {
            Some(kernel) => {
                command.arg("--target").arg(&kernel.directory).args(["--target", "engine"]);
            }
            None => {
                let policies = table.variants.iter().flat_map(|(_, policy)| ["--policy", policy]);
                command.args(policies);
            }
        }
        command.args(["--rounds", &options.rounds.unwrap_or(table.rounds).to_string()]);
        process::run(command.arg("--json").arg(&file))?;
        let text = std::fs::read_to_string(&file);
        let _ = std::fs::remove_file(&scratch);
        let results: Results = serde_json::from_str(&text?).context("what drystone bench wrote")?;
        rows.extend(results.rows);
    }
    if rows.iter().any(|row| row.clean == Some(false)) {
        bail!("an image is not clean");
    }
    Ok(Some(rows))
}

/// The kernel's ext4 on an image in memory; unmounted and removed when dropped.
struct KernelMount {
    image: std::path::PathBuf,
    directory: std::path::PathBuf,
}

impl KernelMount {
    fn new(memory: &Path) -> anyhow::Result<KernelMount> {
        let name = format!("drystone-tables-{}", std::process::id());
        let (image, directory) = (memory.join(format!("{name}.img")), memory.join(name));
        std::fs::File::create(&image)?.set_len(8 << 30)?;
        std::fs::create_dir_all(&directory)?;
        let kernel = KernelMount { image, directory };
        process::output(
            Command::new("mke2fs").args(["-q", "-F", "-t", "ext4"]).arg(&kernel.image),
        )?;
        let mut mount = Command::new("mount");
        process::output(mount.args(["-o", "loop"]).args([&kernel.image, &kernel.directory]))?;
        Ok(kernel)
    }
}

impl Drop for KernelMount {
    fn drop(&mut self) {
        // Nothing is to be left, whether it was mounted or not.
        let _ = Command::new("umount").arg("-q").arg(&self.directory).status();
        let _ = std::fs::remove_dir(&self.directory);
        let _ = std::fs::remove_file(&self.image);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::bench_tables) fn row(policy: &str, target: &str, workers: u64, rate: f64) -> Row {
        Row {
            workload: "orphan".into(),
            target: target.into(),
            policy: policy.into(),
            workers,
            oversubscribed: workers > 2,
            operations_per_second: rate,
            spread: 0.1,
            clean: None,
            figures: BTreeMap::from([("pass".to_string(), rate)]),
        }
    }

    #[test]
    fn rows_are_told_apart() {
        assert!(row("-", "/mnt", 1, 1.0).is("orphan", KERNEL));
        assert!(!row("scalable", "engine", 1, 1.0).is("orphan", KERNEL));
        assert!(row("scalable", "engine", 1, 1.0).is("orphan", "scalable"));
        assert!(!row("scalable", "engine", 1, 1.0).is("mdtest", "scalable"));
        assert_eq!(row("a", "engine", 1, 4.0).value(Measure::Cost("pass")), Some(4.0));
        assert_eq!(row("a", "engine", 1, 4.0).value(Measure::Gain("none")), None);
    }
}
