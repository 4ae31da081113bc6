//! Packages of the command: one for Debian, and an archive with a static program for any Linux. Their
//! files are those of [`crate::install`].

mod archive;
mod bare_root;
mod debian;
mod debian_trial;

use crate::{install, process};
use anyhow::Context;
use drystone_sync::clock;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The size of the stripped program, at most. TLS is 1.1 MB of it.
const PROGRAM_BYTES_MAX: u64 = 12_900_000;
/// What `drystone --version` takes, at most.
const VERSION_TIME_MAX: Duration = Duration::from_millis(5);
/// Other work on the machine only makes a run longer, so that one run in time is enough.
const VERSION_TRIES: u32 = 400;

/// Saves half a megabyte. The C library must know it: glibc does since 2.36, which Debian 12 has, and
/// the musl that comes with Rust.
const PACKED_RELOCATIONS: &str = "link-arg=-Wl,-z,pack-relative-relocs";

#[derive(clap::Args)]
pub struct Options {
    /// An archive with a static program, instead of a Debian package.
    #[arg(long = "static")]
    is_static: bool,
    /// Also install and use the package on bare roots; as root.
    #[arg(long)]
    test: bool,
}

/// Builds a package and says where it is.
pub fn run(options: &Options) -> anyhow::Result<()> {
    if options.test {
        let is_root = rustix::process::geteuid().is_root();
        anyhow::ensure!(is_root, "--test needs root, for chroot, mounts and dpkg");
    }
    let build = if options.is_static { archive::build } else { debian::build };
    let package = build()?;
    println!("{}", package.display());
    match (options.test, options.is_static) {
        (false, _) => Ok(()),
        (true, false) => debian_trial::run(&package),
        (true, true) => archive::test(&package),
    }
}

/// The folder for finished packages; it is there.
fn folder() -> anyhow::Result<PathBuf> {
    let folder = std::path::absolute(process::target_directory())?.join("packages");
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    Ok(folder)
}

/// Builds the program, for this machine or for another target; gives its path.
fn build_program(target: Option<&str>) -> anyhow::Result<PathBuf> {
    let words =
        ["rustc", "--release", "--locked", "--package", "drystone-cli", "--bin", "drystone"];
    let mut cargo = process::cargo(words);
    let mut place = process::target_directory();
    if let Some(target) = target {
        cargo.args(["--target", target]);
        place.push(target);
    }
    process::run(cargo.args(["--", "-C", PACKED_RELOCATIONS]))?;
    let program = place.join("release/drystone");
    check_program(&program)?;
    Ok(program)
}

/// Installs the program and all that belongs to it below an empty prefix.
fn fill(prefix: &Path, program: &Path) -> anyhow::Result<install::Tree> {
    let _ = fs::remove_dir_all(prefix);
    let mut tree = install::Tree::new(prefix);
    tree.fill(program)?;
    Ok(tree)
}

/// Refuses a program that has become too large or slow to start.
fn check_program(program: &Path) -> anyhow::Result<()> {
    let bytes = fs::metadata(program).with_context(|| program.display().to_string())?.len();
    let time = version_time(program)?;
    println!("{}: {bytes} bytes, --version in {time:.1?}", program.display());
    anyhow::ensure!(
        bytes <= PROGRAM_BYTES_MAX,
        "the program has more than {PROGRAM_BYTES_MAX} bytes: see profile.release in Cargo.toml"
    );
    anyhow::ensure!(time <= VERSION_TIME_MAX, "--version takes more than {VERSION_TIME_MAX:?}");
    Ok(())
}

/// The time of the first run that is short enough, else of the shortest.
fn version_time(program: &Path) -> anyhow::Result<Duration> {
    let mut shortest = Duration::MAX;
    for _ in 0..VERSION_TRIES {
        if shortest <= VERSION_TIME_MAX {
            break;
        }
        let start = clock::now_ns();
        process::output(Command::new(program).arg("--version"))?;
        shortest = shortest.min(Duration::from_nanos(clock::now_ns() - start));
    }
    Ok(shortest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_program_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("program");
        fs::copy("/bin/true", &program).unwrap();
        check_program(&program).unwrap();
        fs::OpenOptions::new()
            .write(true)
            .open(&program)
            .and_then(|file| file.set_len(PROGRAM_BYTES_MAX + 1))
            .unwrap();
        let error = check_program(&program).unwrap_err();
        let problem = format!("more than {PROGRAM_BYTES_MAX} bytes");
        assert!(error.to_string().contains(&problem), "{error}");
    }
}
