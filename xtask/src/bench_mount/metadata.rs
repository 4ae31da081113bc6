//! The metadata rows: workloads of `drystone bench`, the same calls in the same order on each mount,
//! taking turns; and listings by `find` with nothing cached.

use super::mounts::{Mount, Mounts};
use super::rows::Rows;
use super::table::{Table, Unit};
use super::{Options, Programs};
use crate::process;
use anyhow::Context;
use drystone_sync::thread;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::SystemTime;

/// A workload, the name of its main figure, and of its second one if that makes a row.
struct Case {
    workload: &'static str,
    row: &'static str,
    second: Option<(&'static str, &'static str)>,
    /// Operations for each file that was asked for; zero: the workload counts files.
    operations_per_file: u32,
}

const CASES: [Case; 5] = [
    Case {
        workload: "mdtest",
        row: "create + close",
        second: Some(("removes_per_second", "unlink")),
        operations_per_file: 0,
    },
    Case {
        workload: "stat",
        row: "stat, cached by the kernel",
        second: None,
        operations_per_file: 20,
    },
    Case { workload: "fxmark-MWRL", row: "rename", second: None, operations_per_file: 1 },
    Case { workload: "orphan", row: "truncate by a byte", second: None, operations_per_file: 2 },
    Case { workload: "fallocate2", row: "fallocate2", second: None, operations_per_file: 2 },
];

/// What is read of the results.
#[derive(Deserialize)]
pub struct Results {
    /// One for each target and number of workers.
    pub rows: Vec<Row>,
}

/// Medians of one target.
#[derive(Deserialize)]
pub struct Row {
    /// `engine`, or a directory.
    pub target: String,
    /// Threads or processes.
    pub workers: u32,
    /// Of all workers together, in one round.
    pub operations: u64,
    /// Of all workers together.
    pub operations_per_second: f64,
    figures: BTreeMap<String, f64>,
}

/// The rows of one directory, before the name of the step.
const LARGE: &str = "large directory";

/// The names of all rows.
pub fn rows() -> impl Iterator<Item = &'static str> {
    let cases = CASES
        .iter()
        .flat_map(|case| std::iter::once(case.row).chain(case.second.map(|(_, row)| row)));
    cases.chain(UNCACHED.iter().map(|(row, _)| *row)).chain([LARGE])
}

/// Measures all rows that are asked for.
pub fn measure(
    options: &Options,
    rows: &Rows,
    programs: &Programs,
    mounts: &Mounts,
    table: &mut Table,
) -> anyhow::Result<()> {
    for case in &CASES {
        let wants_second = case.second.is_some_and(|(_, row)| rows.wants(row));
        if rows.wants(case.row) || wants_second {
            run_case(options, programs, mounts, table, case)?;
        }
    }
    for row in UNCACHED.iter().filter(|(row, _)| rows.wants(row)) {
        uncached(options, mounts, table, row)?;
    }
    if rows.wants(LARGE) {
        large_directory(options, mounts, table)?;
    }
    Ok(())
}

fn run_case(
    options: &Options,
    programs: &Programs,
    mounts: &Mounts,
    table: &mut Table,
    case: &Case,
) -> anyhow::Result<()> {
    let clients: Vec<String> = options.clients.iter().map(u32::to_string).collect();
    let mut command = Command::new(&programs.drystone);
    command.args(["bench", case.workload, "--no-verify", "--procs", &clients.join(",")]);
    command.arg("--rounds").arg(options.rounds.to_string());
    command.arg("--files").arg(options.files.to_string());
    if case.operations_per_file > 0 {
        let operations = options.files * case.operations_per_file;
        command.arg("--ops").arg(operations.to_string());
    }
    for mount in mounts.iter() {
        command.arg("--target").arg(&mount.directory);
    }
    let (results, ran) = results_of(&mut command)?;
    if let Err(error) = ran {
        // fuse2fs fails some runs; what was measured before counts.
        eprintln!("xtask: {error:#}");
        for mount in mounts.iter() {
            remove_remains(&mount.directory)?;
        }
    }
    for row in results.rows {
        let Some(column) = mounts.name_of(&row.target) else { continue };
        let named = |name: &str| format!("{name}, {}", clients_of(row.workers));
        table.add(&named(case.row), Unit::PerSecond, column, row.operations_per_second);
        if let Some((figure, name)) = case.second
            && let Some(figure) = row.figures.get(figure)
        {
            table.add(&named(name), Unit::PerSecond, column, *figure);
        }
    }
    Ok(())
}

/// Runs a `drystone bench`. Returns what it measured, also if it failed after some rounds, and whether
/// it did.
pub fn results_of(command: &mut Command) -> anyhow::Result<(Results, anyhow::Result<()>)> {
    let json = std::env::temp_dir().join(format!("bench-mount-{}.json", std::process::id()));
    let ran = process::run(command.arg("--json").arg(&json).stdout(Stdio::null()));
    let text = std::fs::read(&json);
    let _ = std::fs::remove_file(&json);
    let results = serde_json::from_slice(&text?).context("results of drystone bench")?;
    Ok((results, ran))
}

fn clients_of(count: u32) -> String {
    if count == 1 { "1 client".to_owned() } else { format!("{count} clients") }
}

/// Removes what a failed run has left.
fn remove_remains(directory: &Path) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.file_name().is_some_and(|name| name != "lost+found") {
            super::mounts::retry(|| Ok(std::fs::remove_dir_all(&path)?))?;
        }
    }
    Ok(())
}

/// Directories of which nothing is cached. All clients together go through all of them, so that each
/// row takes some tenths of a second.
const UNCACHED_DIRECTORIES: u32 = 24;

/// What a client does in a directory of which nothing is cached: a row's name, and the work.
type Uncached = (&'static str, fn(&Path, u32) -> anyhow::Result<()>);

const UNCACHED: [Uncached; 2] = [
    ("stat, nothing cached", |directory, files| {
        for number in 0..files {
            // The library's own call asks for the time of creation as well, which no look-up brings: a
            // request more, but not with the empty server, which knows none.
            rustix::fs::lstat(file(directory, number))?;
        }
        Ok(())
    }),
    ("find with stat, nothing cached", |directory, _| {
        Ok(find(directory).spawn()?.wait().map(drop)?)
    }),
];

/// Runs as many clients at once as are asked for. Nothing is cached before.
fn uncached(
    options: &Options,
    mounts: &Mounts,
    table: &mut Table,
    (row, work): &Uncached,
) -> anyhow::Result<()> {
    let files = options.files;
    for mount in mounts.iter() {
        let directory = |index: u32| mount.directory.join(format!("directory-{index}"));
        for index in 0..UNCACHED_DIRECTORIES {
            std::fs::create_dir(directory(index))?;
            make_files(&directory(index), files)?;
        }
        for clients in &options.clients {
            let mut seconds = Vec::new();
            for _ in 0..options.rounds {
                drop_caches(mount)?;
                let client = |client| {
                    let mut own = (client..UNCACHED_DIRECTORIES).step_by(*clients as usize);
                    own.try_for_each(|index| work(&directory(index), files))
                };
                seconds.push(timed(|| at_once(*clients, client))?);
            }
            let rate = f64::from(files * UNCACHED_DIRECTORIES) / median(&mut seconds);
            let row = format!("{row}, {}", clients_of(*clients));
            table.add(&row, Unit::PerSecond, mount.name, rate);
        }
        for index in 0..UNCACHED_DIRECTORIES {
            std::fs::remove_dir_all(directory(index))?;
        }
    }
    Ok(())
}

/// Each client in a thread of its own.
fn at_once(clients: u32, client: impl Fn(u32) -> anyhow::Result<()> + Sync) -> anyhow::Result<()> {
    let client = &client;
    thread::scope(|scope| {
        let running: Vec<_> =
            (0..clients).map(|index| scope.spawn(move || client(index))).collect();
        running.into_iter().try_for_each(|thread| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    })
}

/// One directory with many files: made, listed, looked at, removed.
fn large_directory(options: &Options, mounts: &Mounts, table: &mut Table) -> anyhow::Result<()> {
    for mount in mounts.iter() {
        let directory = mount.directory.join("large");
        std::fs::create_dir(&directory)?;
        let mut add = |step: &str, seconds: f64| {
            let row = format!("{LARGE} of {}: {step}", options.large);
            table.add(&row, Unit::Seconds, mount.name, seconds);
        };
        add("create", timed(|| make_files(&directory, options.large))?);
        drop_caches(mount)?;
        let list = || process::output(Command::new("ls").arg("-U").arg(&directory)).map(drop);
        add("list", timed(list)?);
        drop_caches(mount)?;
        add("list and stat all", timed(|| Ok(find(&directory).spawn()?.wait().map(drop)?))?);
        add("remove", timed(|| Ok(std::fs::remove_dir_all(&directory)?))?);
    }
    Ok(())
}

fn make_files(directory: &Path, files: u32) -> anyhow::Result<()> {
    for number in 0..files {
        std::fs::File::create(file(directory, number))?;
    }
    Ok(())
}

fn file(directory: &Path, number: u32) -> PathBuf {
    directory.join(format!("file {number}"))
}

/// Prints the length of every file, which takes a stat of each.
fn find(directory: &Path) -> Command {
    let mut command = Command::new("find");
    command.arg(directory).args(["-printf", "%s\\n"]).stdout(Stdio::null());
    command
}

/// Names, attributes and content of a mount are asked for again. (The kernel drops names and inodes
/// of all file systems, and with an inode its pages.)
pub fn drop_caches(mount: &Mount) -> anyhow::Result<()> {
    let directory = std::fs::File::open(&mount.directory)?;
    rustix::fs::syncfs(&directory)?;
    drop(directory);
    std::fs::write("/proc/sys/vm/drop_caches", "2").context("can't drop caches")
}

/// Seconds that something takes.
pub fn timed(work: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<f64> {
    let begin = SystemTime::now();
    work()?;
    Ok(begin.elapsed().map_or(0.0, |time| time.as_secs_f64()))
}

/// The middle value.
pub fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
