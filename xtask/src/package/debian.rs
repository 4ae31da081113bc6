//! The Debian package, which cargo-deb writes. `crates/cli/Cargo.toml` has its description.

use crate::process;
use anyhow::Context;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// The release of cargo-deb. Its lock file fixes what it is made of.
const CARGO_DEB: &str = "3.8.0";

/// Where cargo-deb takes the files from, below `target/release`: `crates/cli/Cargo.toml` names it too.
const TREE: &str = "debian/usr";

/// Builds the package; gives its path.
pub fn build() -> anyhow::Result<PathBuf> {
    let program = super::build_program(None)?;
    let tree = process::target_directory().join("release").join(TREE);
    super::fill(&tree, &program)?;
    // Debian's zsh looks there.
    let zsh = tree.join("share/zsh");
    fs::rename(zsh.join("site-functions"), zsh.join("vendor-completions"))
        .with_context(|| zsh.display().to_string())?;
    // As Debian wants manual pages; cargo-deb does it only outside of `target/release`.
    process::run(Command::new("gzip").args(["-9nr"]).arg(tree.join("share/man")))?;
    let package = super::folder()?.join(file_name()?);
    let mut deb = Command::new(cargo_deb()?);
    deb.args(["--no-build", "--no-strip", "--locked", "--quiet", "--package", "drystone-cli"]);
    process::run(deb.arg("--output").arg(&package))?;
    Ok(package)
}

/// As Debian names the file of a package.
fn file_name() -> anyhow::Result<String> {
    let mut dpkg = Command::new("dpkg");
    let architecture = process::output(dpkg.arg("--print-architecture"))?;
    Ok(format!("drystone_{}-1_{}.deb", env!("CARGO_PKG_VERSION"), architecture.trim()))
}

/// The program, built if it isn't there.
fn cargo_deb() -> anyhow::Result<PathBuf> {
    let root = std::path::absolute(process::target_directory())?.join("tools");
    // Returns at once if this release is there.
    let mut install = process::cargo(["install", "--locked", "--quiet", "--root"]);
    install.arg(&root).arg(format!("cargo-deb@{CARGO_DEB}"));
    // It isn't one of the workspace's.
    install.env("CARGO_TARGET_DIR", root.join("target"));
    process::run(&mut install).context("can't build cargo-deb")?;
    Ok(root.join("bin/cargo-deb"))
}
