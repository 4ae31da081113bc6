//! Compares the library's interface with that of an earlier state, by cargo-semver-checks: what breaks callers needs
//! a new major version.

use crate::ci::Verdict;
use crate::process;
use anyhow::Context;
use std::path::PathBuf;
use std::process::Command;

/// The release of cargo-semver-checks that [`run`] installs.
const VERSION: &str = "0.51.0";

/// The library, and the packages whose items it hands on: the tool compares the items of a package itself.
const PACKAGES: [&str; 11] = [
    "drystone",
    "drystone-blockdev",
    "drystone-fsck",
    "drystone-fuse",
    "drystone-inspect",
    "drystone-mkfs",
    "drystone-nilfs2-check",
    "drystone-reshape",
    "drystone-sources",
    "drystone-vfs",
    "drystone-volumes",
];

#[derive(clap::Args)]
pub struct Options {
    /// The state to compare with: a tag or a commit. [default: the latest release]
    baseline: Option<String>,
}

/// Compares, and installs the tool first if it isn't there, which takes minutes.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let baseline = match &options.baseline {
        Some(baseline) => baseline.clone(),
        None => {
            latest_release()?.context("nothing is released yet: name a commit to compare with")?
        }
    };
    let program = match installed() {
        Some(program) => program,
        None => {
            let install = ["install", "cargo-semver-checks", "--locked", "--version", VERSION];
            process::run(process::cargo(install).arg("--root").arg(tools()))?;
            installed().context("cargo-semver-checks was installed, but isn't there")?
        }
    };
    compare(program, &baseline)
}

/// The step of continuous integration.
pub fn check() -> anyhow::Result<Verdict> {
    let Some(baseline) = latest_release()? else {
        return Ok(Verdict::Impossible("nothing is released yet".to_owned()));
    };
    match installed() {
        Some(program) => compare(program, &baseline).map(|()| Verdict::Passed),
        None => Ok(Verdict::Impossible("`./dev semver` installs cargo-semver-checks".to_owned())),
    }
}

fn compare(program: PathBuf, baseline: &str) -> anyhow::Result<()> {
    let mut command = Command::new(program);
    command.args(["semver-checks", "--all-features"]);
    for package in PACKAGES {
        command.args(["--package", package]);
    }
    process::run(command.args(["--baseline-rev", baseline]))
}

/// The tag of the latest release before this state.
fn latest_release() -> anyhow::Result<Option<String>> {
    let tags = process::output(Command::new("git").args([
        "tag",
        "--merged",
        "HEAD",
        "--sort=-version:refname",
        "--list",
        "v[0-9]*",
    ]))?;
    // Not one before a release: v1.0.0-rc1.
    Ok(tags.lines().find(|tag| !tag.contains('-')).map(str::to_owned))
}

/// The program, where [`run`] or the user has put it.
fn installed() -> Option<PathBuf> {
    const NAME: &str = "cargo-semver-checks";
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(tools().join("bin")).chain(std::env::split_paths(&path));
    folders.map(|folder| folder.join(NAME)).find(|program| program.is_file())
}

/// Where tools of cargo are installed.
fn tools() -> PathBuf {
    process::target_directory().join("tools")
}
