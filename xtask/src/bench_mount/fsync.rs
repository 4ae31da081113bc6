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
        in_process(options, programs, mounts, table)?;
    }
    Ok(())
}

/// Medians of some rounds; the mounts take turns.
fn appends(options: &Options, jobs: u32, mounts: &Mounts, table: &mut Table) -> anyhow::Result<()> {
    // A FUSE server that keeps nothing has nothing to flush.
    let measured: Vec<&Mount> =
        mounts.iter().filter(|mount| [OURS, KERNEL].contains(&mount.name)).collect();
    let mut figures = vec![(Vec::new(), Vec::new()); measured.len()];
    for _ in 0..options.rounds {
        for (mount, (rates, flushes)) in measured.iter().zip(&mut figures) {
            let (rate, flushes_each) = fio(options, jobs, mount)?;
            rates.push(rate);
            flushes.extend(flushes_each);
        }
    }
    let jobs = if jobs == 1 { "1 job".to_owned() } else { format!("{jobs} jobs") };
    for (mount, (rates, flushes)) in measured.iter().zip(&mut figures) {
        table.add(&format!("{APPENDS}, {jobs}"), Unit::PerSecond, mount.name, median(rates));
        if !flushes.is_empty() {
            let row = format!("flushes of the disk for each, {jobs}");
            table.add(&row, Unit::EachTime, mount.name, median(flushes));
        }
    }
    Ok(())
}

/// Syncs a second, and the disk's flushes for each of them where the disk counts them.
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

fn in_process(
    options: &Options,
    programs: &Programs,
    mounts: &Mounts,
    table: &mut Table,
) -> anyhow::Result<()> {
    let kernel = mounts.iter().find(|mount| mount.name == KERNEL).context("no kernel's mount")?;
    let jobs = JOBS.map(|count| count.to_string()).join(",");
    let mut command = Command::new(&programs.drystone);
    command.args(["bench", "fxmark-DWSL", "--no-verify", "--procs", &jobs]);
    command.arg("--rounds").arg(options.rounds.to_string());
    command.arg("--image").arg(kernel.directory.with_file_name("in-process.img"));
    command.args(["--target", "engine", "--target"]).arg(&kernel.directory);
    let (results, ran) = results_of(&mut command)?;
    ran?;
    for row in results.rows {
        let column = if row.target == "engine" { OURS } else { KERNEL };
        let threads = if row.workers == 1 { "thread" } else { "threads" };
        let name = format!("{IN_PROCESS}, {} {threads}", row.workers);
        table.add(&name, Unit::PerSecond, column, row.operations_per_second);
    }
    Ok(())
}
