//! The wheel for Python: builds it in an environment of its own, tests and measures it.

use crate::process;
use anyhow::{Context, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the environment holds, with versions.
const REQUIREMENTS: &str = "python/requirements.txt";

#[derive(clap::Args)]
pub struct Options {
    /// Only build the wheel.
    #[arg(long, conflicts_with = "bench")]
    wheel: bool,
    /// Also read 10,000 small files in several ways, and print a table.
    #[arg(long)]
    bench: bool,
}

/// Builds the wheel, then tests what is installed from it.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let target = std::path::absolute(process::target_directory())?;
    let environment = target.join("python-environment");
    let programs = environment.join("bin");
    prepare(&environment)?;
    let wheels = target.join("wheels");
    let _ = fs::remove_dir_all(&wheels);
    let mut maturin = Command::new(programs.join("maturin"));
    maturin.args(["build", "--release", "--locked", "--quiet", "--manifest-path"]);
    maturin.arg("python/Cargo.toml").arg("--out").arg(&wheels);
    // This environment's interpreter, and no other crate's artifacts.
    maturin.arg("--interpreter").arg(programs.join("python"));
    process::run(maturin.env("CARGO_TARGET_DIR", target.join("python")))?;
    let wheel = only_file(&wheels)?;
    println!("{}", wheel.display());
    if options.wheel {
        return Ok(());
    }
    let mut install = Command::new(programs.join("pip"));
    install.args(["install", "--quiet", "--no-deps", "--force-reinstall"]).arg(&wheel);
    process::run(&mut install)?;
    // Not `python -m`: that would find the sources instead of what is installed.
    process::run(Command::new(programs.join("pytest")).current_dir("python"))?;
    process::run(Command::new(programs.join("mypy")).arg("drystone").current_dir("python"))?;
    if options.bench {
        process::run(Command::new(programs.join("python")).arg("python/bench/small_files.py"))?;
    }
    Ok(())
}

/// An environment that holds what is required, made again only when that has changed.
fn prepare(environment: &Path) -> anyhow::Result<()> {
    let required = fs::read_to_string(REQUIREMENTS).context(REQUIREMENTS)?;
    let stamp = environment.join("requirements.txt");
    if fs::read_to_string(&stamp).is_ok_and(|there| there == required) {
        return Ok(());
    }
    let mut venv = Command::new("python3");
    process::run(venv.args(["-m", "venv", "--clear"]).arg(environment))?;
    let mut pip = Command::new(environment.join("bin/pip"));
    pip.args(["install", "--quiet", "--disable-pip-version-check", "-r", REQUIREMENTS]);
    process::run(&mut pip)?;
    Ok(fs::write(stamp, required)?)
}

fn only_file(folder: &Path) -> anyhow::Result<PathBuf> {
    let mut files = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    match files.next() {
        Some(file) => Ok(file?.path()),
        None => bail!("no wheel in {}", folder.display()),
    }
}
