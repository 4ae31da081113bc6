//! Compares mounts: ours, fuse2fs, the kernel's ext4, and an empty FUSE server, which is as fast as any server
//! can be. The same rows are measured on each, in turns, and the ratios printed.

mod files;
mod fsync;
mod metadata;
mod mounts;
mod rows;
mod table;

use crate::process;
use anyhow::{Context, bail};
use mounts::Mounts;
use rows::Rows;
use std::path::{Path, PathBuf};
use table::Table;

/// What to measure.
#[derive(clap::Args)]
pub struct Options {
    /// Only the rows of these names, or those whose names contain one of these words.
    rows: Vec<String>,
    /// Numbers of clients.
    #[arg(long, value_delimiter = ',', default_value = "1,2,8")]
    clients: Vec<u32>,
    /// Measured rounds of each metadata row.
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Files of each client in the metadata rows.
    #[arg(long, default_value_t = 2000)]
    files: u32,
    /// Files in the large directory.
    #[arg(long, default_value_t = 100_000)]
    large: u32,
    /// Seconds of each data row.
    #[arg(long, default_value_t = 5)]
    seconds: u32,
    /// MiB of the file of the data rows.
    #[arg(long, default_value_t = 256)]
    mebibytes: u32,
    /// The tree to unpack.
    #[arg(long, default_value = "/usr/include")]
    tree: PathBuf,
    /// What carries the requests of our mount and of the empty server.
    #[arg(long, default_value = "rings", value_parser = ["rings", "device"])]
    transport: String,
    /// A folder with programs that were built before: drystone, examples/empty.
    #[arg(long)]
    programs: Option<PathBuf>,
    /// Where images and mounts are made; in memory, so that no disk is measured.
    #[arg(long, default_value = "/dev/shm")]
    scratch: PathBuf,
    /// Where those of the fsync rows are made, which measure a disk. [default: cargo's target folder]
    #[arg(long)]
    disk: Option<PathBuf>,
}

/// Sets up the mounts, measures all rows and prints the table.
pub fn run(options: &Options) -> anyhow::Result<()> {
    if !rustix::process::geteuid().is_root() {
        bail!("mounting a loop device takes root");
    }
    let known: Vec<_> = metadata::rows().chain(files::rows()).chain(fsync::rows()).collect();
    let rows = Rows::chosen(&known, &options.rows)?;
    let programs = match &options.programs {
        Some(folder) => Programs::in_folder(folder),
        None => Programs::build()?,
    };
    let mut table = Table::new(mounts::NAMES.to_vec());
    let measured = in_memory(options, &rows, &programs, &mut table)
        .and_then(|()| on_disk(options, &rows, &programs, &mut table));
    // The rows so far are worth printing, whatever went wrong after them.
    println!("{}", table.markdown());
    measured
}

/// The rows that measure file systems without a disk.
fn in_memory(
    options: &Options,
    rows: &Rows,
    programs: &Programs,
    table: &mut Table,
) -> anyhow::Result<()> {
    if !metadata::rows().chain(files::rows()).any(|row| rows.wants(row)) {
        return Ok(());
    }
    let mounts = Mounts::set_up(&options.scratch, options, programs)?;
    metadata::measure(options, rows, programs, &mounts, table)?;
    files::measure(options, rows, &mounts, table)?;
    mounts.take_down()
}

/// The rows that wait for a disk.
fn on_disk(
    options: &Options,
    rows: &Rows,
    programs: &Programs,
    table: &mut Table,
) -> anyhow::Result<()> {
    if !fsync::rows().any(|row| rows.wants(row)) {
        return Ok(());
    }
    let folder = options.disk.clone().unwrap_or_else(process::target_directory);
    let mounts = Mounts::set_up(&folder, options, programs)?;
    fsync::measure(options, rows, programs, &mounts, table)?;
    mounts.take_down()
}

/// What is measured with and what is measured, optimised.
struct Programs {
    drystone: PathBuf,
    empty: PathBuf,
}

impl Programs {
    fn build() -> anyhow::Result<Programs> {
        let build = |package: &str, more: &[&str]| {
            let words = ["build", "--release", "--quiet", "--package", package];
            process::run(process::cargo(words).args(more)).context("building for the benchmark")
        };
        build("drystone-cli", &[])?;
        build("drystone-fuse", &["--example", "empty"])?;
        Ok(Programs::in_folder(&process::target_directory().join("release")))
    }

    fn in_folder(folder: &Path) -> Programs {
        Programs { drystone: folder.join("drystone"), empty: folder.join("examples/empty") }
    }
}
