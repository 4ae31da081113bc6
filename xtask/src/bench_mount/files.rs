//! The data rows, with fio where it is installed, and a real tree: unpacked, and looked over by git.

use super::Options;
use super::metadata::{drop_caches, timed};
use super::mounts::{Mount, Mounts};
use super::rows::Rows;
use super::table::{Table, Unit};
use crate::process;
use anyhow::Context;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};

/// A row: what fio does, and in which direction.
struct Case {
    row: &'static str,
    arguments: &'static [&'static str],
    direction: &'static str,
    unit: Unit,
}

const CASES: [Case; 6] = [
    Case {
        row: "sequential write, 1 MiB, with fsync",
        arguments: &["--rw=write", "--bs=1M", "--end_fsync=1"],
        direction: "write",
        unit: Unit::MebibytesPerSecond,
    },
    Case {
        row: "sequential read, 1 MiB, nothing cached",
        arguments: &["--rw=read", "--bs=1M"],
        direction: "read",
        unit: Unit::MebibytesPerSecond,
    },
    Case {
        row: "random read, 4 KiB, buffered, 8 jobs",
        arguments: &["--rw=randread", "--bs=4k", "--numjobs=8", "--time_based"],
        direction: "read",
        unit: Unit::PerSecond,
    },
    Case {
        row: "random write, 4 KiB, buffered, 8 jobs",
        arguments: &["--rw=randwrite", "--bs=4k", "--numjobs=8", "--time_based"],
        direction: "write",
        unit: Unit::PerSecond,
    },
    Case {
        row: "random read, 4 KiB, direct, 8 jobs",
        arguments: &["--rw=randread", "--bs=4k", "--numjobs=8", "--time_based", "--direct=1"],
        direction: "read",
        unit: Unit::PerSecond,
    },
    Case {
        row: "random write, 4 KiB, direct, 8 jobs",
        arguments: &["--rw=randwrite", "--bs=4k", "--numjobs=8", "--time_based", "--direct=1"],
        direction: "write",
        unit: Unit::PerSecond,
    },
];

/// The row of a tree that is unpacked, before the name of the tree.
const UNTAR: &str = "untar";
const GIT_STATUS: &str = "git status";

/// The names of all rows.
pub fn rows() -> impl Iterator<Item = &'static str> {
    CASES.iter().map(|case| case.row).chain([UNTAR, GIT_STATUS])
}

/// Measures all rows that are asked for.
pub fn measure(
    options: &Options,
    rows: &Rows,
    mounts: &Mounts,
    table: &mut Table,
) -> anyhow::Result<()> {
    let has_fio = Command::new("fio").arg("--version").stdout(Stdio::null()).status();
    if !has_fio.is_ok_and(|status| status.success()) {
        eprintln!("skipped: the data rows need fio");
    } else {
        for case in CASES.iter().filter(|case| rows.wants(case.row)) {
            for mount in mounts.iter() {
                match fio(options, mount, case) {
                    Ok(figure) => table.add(case.row, case.unit, mount.name, figure),
                    Err(error) => eprintln!("{}, {}: {error:#}", case.row, mount.name),
                }
            }
        }
        for mount in mounts.iter() {
            let _ = std::fs::remove_file(mount.directory.join("data"));
        }
    }
    if rows.wants(UNTAR) || rows.wants(GIT_STATUS) {
        let archive = options.scratch.join(format!("tree-{}.tar", std::process::id()));
        let unpacked = unpack(options, rows, mounts, table, &archive);
        let _ = std::fs::remove_file(archive);
        unpacked?;
    }
    Ok(())
}

fn fio(options: &Options, mount: &Mount, case: &Case) -> anyhow::Result<f64> {
    drop_caches(mount)?;
    let mut command = fio_command();
    command.arg(format!("--filename={}", mount.directory.join("data").display()));
    command.arg(format!("--size={}M", options.mebibytes));
    command.arg(format!("--runtime={}", options.seconds)).args(case.arguments);
    let result = fio_result(&mut command)?;
    let figures = &result["jobs"][0][case.direction];
    let figure = match case.unit {
        Unit::MebibytesPerSecond => {
            // Time for the last fsync is part of the job's, not of the rate that fio reports.
            let bytes = figures["io_bytes"].as_f64().context("no bytes")?;
            let seconds = result["jobs"][0]["job_runtime"].as_f64().context("no time")? / 1000.0;
            bytes / f64::from(1 << 20) / seconds
        }
        _ => figures["iops"].as_f64().context("no rate")?,
    };
    Ok(figure)
}

/// A call of fio for one row.
pub fn fio_command() -> Command {
    let mut command = Command::new("fio");
    command.args(["--name=row", "--output-format=json", "--group_reporting", "--ioengine=psync"]);
    command
}

/// What a call of fio reports.
pub fn fio_result(command: &mut Command) -> anyhow::Result<Value> {
    let output = process::output(command)?;
    // Notes may come before.
    let begin = output.find('{').context("fio says nothing")?;
    Ok(serde_json::from_str(&output[begin..])?)
}

fn unpack(
    options: &Options,
    rows: &Rows,
    mounts: &Mounts,
    table: &mut Table,
    archive: &Path,
) -> anyhow::Result<()> {
    let parent = options.tree.parent().unwrap_or(Path::new("/"));
    let name = options.tree.file_name().context("the tree to unpack has no name")?;
    let mut pack = Command::new("tar");
    process::run(pack.arg("-C").arg(parent).arg("-cf").arg(archive).arg(name))?;
    // What the empty server keeps isn't content: git can't work in it.
    for mount in mounts.iter() {
        let directory = mount.directory.join("untar");
        std::fs::create_dir(&directory)?;
        let tree = options.tree.display();
        let untar = timed(|| {
            let mut tar = Command::new("tar");
            process::output(tar.arg("-C").arg(&directory).arg("-xf").arg(archive))?;
            process::output(Command::new("sync").arg("-f").arg(&directory)).map(drop)
        });
        table.add(&format!("{UNTAR} {tree} with sync"), Unit::Seconds, mount.name, untar?);
        if mount.name != super::mounts::EMPTY && rows.wants(GIT_STATUS) {
            let git = |words: &[&str]| {
                let mut git = Command::new("git");
                git.arg("-C").arg(&directory).args(["-c", "user.name=bench"]);
                git.args(["-c", "user.email=bench@localhost", "-c", "gc.auto=0"]).args(words);
                process::output(&mut git).map(drop)
            };
            git(&["init", "-q"])?;
            git(&["add", "-A"])?;
            git(&["commit", "-qm", "all"])?;
            drop_caches(mount)?;
            let status = timed(|| git(&["status", "--short"]))?;
            table.add(
                &format!("{GIT_STATUS} in it, nothing cached"),
                Unit::Seconds,
                mount.name,
                status,
            );
        }
        std::fs::remove_dir_all(&directory)?;
    }
    Ok(())
}
