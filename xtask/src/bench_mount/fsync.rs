//! The fsync rows: images on a disk, where a sync waits for a flush, and syncs that wait together share
//! one.
//!
//! The mounts are measured one at a time, because a flush for one would also write the data of another.
//! The disk's own count of flushes says how many each sync took, including those of the host's journal.

use super::files::{fio_command, fio_result};
use super::metadata::{drop_caches, median, results_of};
use super::mounts::{KERNEL, Mount, Mounts, OURS};
use super::rows::Rows;
use super::table::{Table, Unit};
use super::{Options, Programs};
use anyhow::Context;
use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

/// How many jobs or threads sync at once.
const JOBS: [u32; 4] = [1, 2, 8, 32];

/// Appends of 4 KiB to files of their own through the mounts, by fio.
const APPENDS: &str = "fsync of each 4 KiB written";
/// Overwrites of 4 KiB, by threads in the engine's process and by processes on the kernel's mount.
const IN_PROCESS: &str = "fsync in process";

/// Where a device's statistics have its completed flushes.
const FLUSHES_FIELD: usize = 15;

/// The names of all rows.
pub fn rows() -> impl Iterator<Item = &'static str> {
    [APPENDS, IN_PROCESS].into_iter()
}

/// Measures all rows that are asked for.
pub fn measure(
    options: &Options,
    rows: &Rows,
    programs: &Programs,
    mounts: &Mounts,
    table: &mut Table,
) -> anyhow::Result<()> {
    if rows.wants(APPENDS) {
        for jobs in JOBS {
            appends(options, jobs, mounts, table)?;
        }
    }
    if rows.wants(IN_PROCESS) {
        for threads in JOBS {
            in_process(options, programs, threads, mounts, table)?;
        }
    }
    Ok(())
}

/// What was measured of one target in each round: syncs a second, and the disk's flushes for each of
/// them where the disk counts them.
#[derive(Clone, Default)]
struct SyncFigures {
    rates: Vec<f64>,
    flushes: Vec<f64>,
}

impl SyncFigures {
    fn push(&mut self, (rate, flushes): (f64, Option<f64>)) {
        self.rates.push(rate);
        self.flushes.extend(flushes);
    }

    /// Adds the medians to a row and to that of its flushes.
    fn show(&mut self, table: &mut Table, row: &str, column: &'static str) {
        table.add(row, Unit::PerSecond, column, median(&mut self.rates));
        if !self.flushes.is_empty() {
            let row = format!("{row}: flushes of the disk");
            table.add(&row, Unit::EachTime, column, median(&mut self.flushes));
        }
    }
}

/// Medians of some rounds; the mounts take turns.
fn appends(options: &Options, jobs: u32, mounts: &Mounts, table: &mut Table) -> anyhow::Result<()> {
    // A FUSE server that keeps nothing has nothing to flush.
    let measured: Vec<&Mount> =
        mounts.iter().filter(|mount| [OURS, KERNEL].contains(&mount.name)).collect();
    let mut figures = vec![SyncFigures::default(); measured.len()];
    for _ in 0..options.rounds {
        for (mount, figures) in measured.iter().zip(&mut figures) {
            figures.push(fio(options, jobs, mount)?);
        }
    }
    let jobs = if jobs == 1 { "1 job".to_owned() } else { format!("{jobs} jobs") };
    for (mount, figures) in measured.iter().zip(&mut figures) {
        figures.show(table, &format!("{APPENDS}, {jobs}"), mount.name);
    }
    Ok(())
}

fn fio(options: &Options, jobs: u32, mount: &Mount) -> anyhow::Result<(f64, Option<f64>)> {
    drop_caches(mount)?;
    let directory = mount.directory.join("fsync");
    std::fs::create_dir(&directory)?;
    let mut command = fio_command();
    command.args(["--rw=write", "--bs=4k", "--fsync=1", "--size=64M", "--time_based"]);
    command.arg(format!("--numjobs={jobs}")).arg(format!("--runtime={}", options.seconds));
    command.arg(format!("--directory={}", directory.display()));
    let image = mount.directory.with_extension("img");
    let before = flushes_of(&image)?;
    let result = fio_result(&mut command)?;
    let after = flushes_of(&image)?;
    std::fs::remove_dir_all(&directory)?;
    let writes = &result["jobs"][0]["write"];
    let rate = writes["iops"].as_f64().context("no rate")?;
    let total = writes["total_ios"].as_f64().context("no count")?;
    let flushes = before.zip(after).map(|(before, after)| (after - before) as f64 / total);
    Ok((rate, flushes))
}

/// Flushes that the disk below a file has completed; nothing if it has no count.
fn flushes_of(file: &Path) -> anyhow::Result<Option<u64>> {
    let device = std::fs::metadata(file)?.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let Ok(text) = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat")) else {
        return Ok(None);
    };
    Ok(text.split_whitespace().nth(FLUSHES_FIELD).and_then(|count| count.parse().ok()))
}

/// The engine and the kernel take turns. Each turn is a run of its own, which tells their flushes apart.
/// It warms up for as long as it measures, so there are half as many.
fn in_process(
    options: &Options,
    programs: &Programs,
    threads: u32,
    mounts: &Mounts,
    table: &mut Table,
) -> anyhow::Result<()> {
    let kernel = mounts.iter().find(|mount| mount.name == KERNEL).context("no kernel's mount")?;
    let targets = [(OURS, OsStr::new("engine")), (KERNEL, kernel.directory.as_os_str())];
    let mut figures = targets.map(|_| SyncFigures::default());
    for _ in 0..options.rounds.div_ceil(2) {
        for ((_, target), figures) in targets.iter().zip(&mut figures) {
            figures.push(overwrites(programs, threads, target, kernel)?);
        }
    }
    let threads = if threads == 1 { "1 thread".to_owned() } else { format!("{threads} threads") };
    for ((column, _), figures) in targets.iter().zip(&mut figures) {
        figures.show(table, &format!("{IN_PROCESS}, {threads}"), column);
    }
    Ok(())
}

/// One run on the engine or a directory. The engine's image is a new one beside the kernel's.
fn overwrites(
    programs: &Programs,
    threads: u32,
    target: &OsStr,
    kernel: &Mount,
) -> anyhow::Result<(f64, Option<f64>)> {
    let mut command = Command::new(&programs.drystone);
    command.args(["bench", "fxmark-DWSL", "--no-verify", "--policy", "scalable"]);
    command.args(["--rounds", "1", "--procs"]).arg(threads.to_string());
    command.arg("--target").arg(target);
    let image = kernel.directory.with_file_name("in-process.img");
    command.arg("--image").arg(&image);
    let disk = kernel.directory.with_extension("img");
    let before = flushes_of(&disk)?;
    let (results, ran) = results_of(&mut command)?;
    let after = flushes_of(&disk)?;
    ran?;
    if image.exists() {
        std::fs::remove_file(&image)?;
    }
    let row = results.rows.first().context("no results")?;
    // Those of the round that warms up are counted too.
    let total = 2.0 * row.operations as f64;
    let flushes = before.zip(after).map(|(before, after)| (after - before) as f64 / total);
    Ok((row.operations_per_second, flushes))
}
