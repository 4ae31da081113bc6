//! The tables that compare the forms of the mechanisms, and the engine with the kernel: every figure
//! that has a bar, beside it.
//!
//! Each table is one run of `drystone bench`, which alternates what it compares. The kernel's ext4 is
//! an image in memory on a loop device, for which this has to run as root; elsewhere that table is
//! skipped with a line that says so.

use crate::process;
use anyhow::{Context, bail};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// Which tables, and how long.
#[derive(clap::Args)]
pub struct Options {
    /// Names of tables; all if there are none.
    tables: Vec<String>,
    /// Measured rounds of each combination.
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Keep what was measured here, a file for each table.
    #[arg(long)]
    json: Option<std::path::PathBuf>,
    /// Where the image of the kernel's ext4 goes.
    #[arg(long, default_value = "/dev/shm")]
    memory: std::path::PathBuf,
}

/// What is compared with what: by rate, or by a figure of which less is better.
#[derive(Clone, Copy)]
enum Measure {
    Rate,
    Figure(&'static str),
    /// A figure of which more is better.
    Gain(&'static str),
}

/// A bar: how much better the second must be than the first.
struct Bar {
    workload: &'static str,
    measure: Measure,
    than: &'static str,
    is: &'static str,
    ratio: f64,
}

/// One run.
struct Table {
    name: &'static str,
    /// What `drystone bench` is told.
    arguments: &'static str,
    bars: &'static [Bar],
    needs_kernel: bool,
}

const KERNEL: &str = "kernel";

const fn bar(
    workload: &'static str,
    measure: Measure,
    is: &'static str,
    than: &'static str,
    ratio: f64,
) -> Bar {
    Bar { workload, measure, than, is, ratio }
}

const TABLES: &[Table] = &[
    Table {
        name: "kernel",
        arguments: "mdtest orphan fallocate2 stat --procs 1,2",
        bars: &[
            bar("mdtest", Measure::Rate, "scalable", KERNEL, 4.0),
            bar("mdtest", Measure::Gain("removes_per_second"), "scalable", KERNEL, 3.0),
            bar("orphan", Measure::Rate, "scalable", KERNEL, 3.0),
            bar("fallocate2", Measure::Rate, "scalable", KERNEL, 3.0),
            bar("stat", Measure::Rate, "scalable", KERNEL, 3.0),
        ],
        needs_kernel: true,
    },
    Table {
        name: "orphan",
        arguments: "orphan --procs 1,2,8,64 --policy orphans=none --policy orphans=file --policy \
            orphans=file-locked --policy orphans=list",
        bars: &[
            bar("orphan", Measure::Rate, "orphans=file", "orphans=none", 0.98),
            bar("orphan", Measure::Rate, "orphans=file", "orphans=list", 1.0),
            bar("orphan", Measure::Rate, "orphans=file-locked", "orphans=list", 1.0),
        ],
        needs_kernel: false,
    },
    Table {
        name: "creat-clo",
        arguments: "creat-clo --procs 1,2,8,31 --policy orphans=list --policy orphans=file",
        bars: &[bar("creat-clo", Measure::Rate, "orphans=file", "orphans=list", 1.0)],
        needs_kernel: false,
    },
    Table {
        name: "fallocate2",
        arguments: "fallocate2 --procs 1,2,8,64 --policy baseline --policy scalable --policy \
            group-scan=linear",
        bars: &[
            bar("fallocate2", Measure::Rate, "scalable", "baseline", 0.98),
            bar("fallocate2", Measure::Rate, "scalable", "group-scan=linear", 1.0),
        ],
        needs_kernel: false,
    },
    Table {
        name: "mdtest",
        arguments: "mdtest --procs 1,2,8 --policy baseline --policy scalable",
        bars: &[bar("mdtest", Measure::Rate, "scalable", "baseline", 1.0)],
        needs_kernel: false,
    },
    Table {
        name: "inodes",
        arguments: "inodes --roots 1 --dirs 200 --files 10000 --procs 1,3 --policy \
            inode-search=first --policy inode-search=next-hint --policy \
            inode-search=per-core",
        bars: &[
            bar("inodes", Measure::Rate, "inode-search=next-hint", "inode-search=first", 1.4),
            bar("inodes", Measure::Rate, "inode-search=per-core", "inode-search=first", 1.4),
            bar(
                "inodes",
                Measure::Figure("find_seconds"),
                "inode-search=next-hint",
                "inode-search=first",
                0.9,
            ),
        ],
        needs_kernel: false,
    },
    Table {
        name: "extents",
        arguments: "extents-fragmented extents-many --procs 2 --policy extent-reclaim=lru-sorted \
            --policy extent-reclaim=lru-reclaimable --policy extent-reclaim=round-robin",
        bars: &[
            bar(
                "extents-fragmented",
                Measure::Figure("mean_pass_us"),
                "extent-reclaim=lru-reclaimable",
                "extent-reclaim=lru-sorted",
                20.0,
            ),
            bar(
                "extents-fragmented",
                Measure::Figure("longest_pass_us"),
                "extent-reclaim=round-robin",
                "extent-reclaim=lru-sorted",
                20.0,
            ),
            bar(
                "extents-many",
                Measure::Figure("mean_pass_us"),
                "extent-reclaim=round-robin",
                "extent-reclaim=lru-sorted",
                10.0,
            ),
        ],
        needs_kernel: false,
    },
];

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
    operations_per_second: f64,
    clean: Option<bool>,
    #[serde(default)]
    figures: BTreeMap<String, f64>,
}

impl Row {
    fn is(&self, name: &str) -> bool {
        if name == KERNEL { self.target != "engine" } else { self.policy == name }
    }

    /// As a number of which more is better.
    fn value(&self, measure: Measure) -> Option<f64> {
        match measure {
            Measure::Rate => Some(self.operations_per_second),
            Measure::Gain(name) => self.figures.get(name).copied(),
            Measure::Figure(name) => self.figures.get(name).map(|value| 1.0 / value),
        }
    }
}

/// Runs the tables and prints each ratio with its bar. A bar that is missed is no error: on a machine
/// with other work a ratio says little.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let mut build = process::cargo(["build", "--quiet", "--release", "--package", "drystone-cli"]);
    process::run(&mut build)?;
    let drystone = process::target_directory().join("release/drystone");
    let is_wanted = |table: &&Table| {
        options.tables.is_empty() || options.tables.iter().any(|name| name == table.name)
    };
    for table in TABLES.iter().filter(is_wanted) {
        let rows = if table.needs_kernel {
            match KernelMount::new(&options.memory) {
                Ok(kernel) => {
                    let directory = kernel.directory.display().to_string();
                    let targets = ["--target", &directory, "--target", "engine"];
                    measure(&drystone, table, options, &targets)?
                }
                Err(error) => {
                    println!("{}: skipped: {error:#}", table.name);
                    continue;
                }
            }
        } else {
            measure(&drystone, table, options, &[])?
        };
        judge(table, &rows);
    }
    Ok(())
}

fn measure(
    drystone: &Path,
    table: &Table,
    options: &Options,
    targets: &[&str],
) -> anyhow::Result<Vec<Row>> {
    let scratch = std::env::temp_dir().join(format!("drystone-table-{}", std::process::id()));
    let file = match &options.json {
        Some(directory) => {
            std::fs::create_dir_all(directory)?;
            directory.join(format!("{}.json", table.name))
        }
        None => scratch.clone(),
    };
    let mut command = Command::new(drystone);
    command
        .arg("bench")
        .args(table.arguments.split_whitespace())
        .args(targets)
        .arg("--json")
        .arg(&file);
    command.args(["--rounds", &options.rounds.to_string()]);
    process::run(&mut command)?;
    let text = std::fs::read_to_string(&file);
    let _ = std::fs::remove_file(&scratch);
    let results: Results = serde_json::from_str(&text?).context("what drystone bench wrote")?;
    if results.rows.iter().any(|row| row.clean == Some(false)) {
        bail!("{}: an image is not clean", table.name);
    }
    Ok(results.rows)
}

fn judge(table: &Table, rows: &[Row]) {
    println!("\n{:<20}{:>8}  {:<52}{:>8}{:>8}", table.name, "workers", "", "ratio", "bar");
    for bar in table.bars {
        for better in rows.iter().filter(|row| row.workload == bar.workload && row.is(bar.is)) {
            let than = rows.iter().find(|row| {
                row.workload == bar.workload && row.workers == better.workers && row.is(bar.than)
            });
            let values =
                than.and_then(|than| than.value(bar.measure)).zip(better.value(bar.measure));
            let Some((before, now)) = values else { continue };
            let what = match bar.measure {
                Measure::Rate => String::new(),
                Measure::Figure(name) | Measure::Gain(name) => format!(" {name}"),
            };
            let ratio = now / before;
            let verdict = if ratio >= bar.ratio { "" } else { "  missed" };
            println!(
                "{:<20}{:>8}  {:<52}{ratio:>7.2}×{:>7.2}×{verdict}",
                bar.workload,
                better.workers,
                format!("{} / {}{what}", bar.is, bar.than),
                bar.ratio
            );
        }
    }
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
        // Whether it was mounted or not, nothing of it shall stay.
        let _ = Command::new("umount").arg("-q").arg(&self.directory).status();
        let _ = std::fs::remove_dir(&self.directory);
        let _ = std::fs::remove_file(&self.image);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(policy: &str, target: &str, rate: f64) -> Row {
        Row {
            workload: "w".into(),
            target: target.into(),
            policy: policy.into(),
            workers: 1,
            operations_per_second: rate,
            clean: None,
            figures: BTreeMap::from([("pass".to_string(), rate)]),
        }
    }

    #[test]
    fn rows_are_told_apart_and_figures_turned() {
        assert!(row("-", "/mnt", 1.0).is(KERNEL) && !row("scalable", "engine", 1.0).is(KERNEL));
        assert!(row("scalable", "engine", 1.0).is("scalable"));
        assert_eq!(row("a", "engine", 4.0).value(Measure::Figure("pass")), Some(0.25));
        assert_eq!(row("a", "engine", 4.0).value(Measure::Gain("pass")), Some(4.0));
        assert_eq!(row("a", "engine", 4.0).value(Measure::Figure("none")), None);
    }

    #[test]
    fn bars_name_policies_that_their_tables_run() {
        for table in TABLES {
            let words: Vec<&str> = table.arguments.split_whitespace().collect();
            for bar in table.bars {
                for name in [bar.is, bar.than] {
                    let runs = words.contains(&name) || table.needs_kernel;
                    assert!(runs, "{}: {name}", table.name);
                }
                assert!(words.contains(&bar.workload));
            }
        }
    }
}
