//! The manual pages of the command: written by the package `drystone-manual`, judged by mandoc.

use crate::process;
use anyhow::Context;
use std::fs;
use std::path::Path;
use std::process::Command;

/// How what writes them is compiled: as the rest of what the caller builds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    Dev,
    Release,
}

/// Writes all pages into a folder, which holds nothing else afterwards.
pub fn write(folder: &Path, profile: Profile) -> anyhow::Result<()> {
    let _ = fs::remove_dir_all(folder);
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    let mut cargo = process::cargo(["run", "--quiet", "--package", "drystone-manual"]);
    if profile == Profile::Release {
        cargo.arg("--release");
    }
    process::run(cargo.args(["--", "--date", &date()]).arg(folder))
}

/// The names of the pages in a folder.
pub fn names(folder: &Path) -> anyhow::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

/// The date of the last change of the sources, if git knows.
fn date() -> String {
    let output = process::output(Command::new("git").args(["log", "-1", "--format=%cs"]));
    output.unwrap_or_default().trim().to_owned()
}

/// Writes all pages and has mandoc judge them: the step of continuous integration.
pub fn check() -> anyhow::Result<()> {
    let folder = process::target_directory().join("manual-check");
    write(&folder, Profile::Dev)?;
    let names = names(&folder)?;
    anyhow::ensure!(names.len() > 40, "only {} pages", names.len());
    let mut mandoc = Command::new("mandoc");
    let said = process::output(
        mandoc.args(["-T", "lint", "-W", "warning"]).args(&names).current_dir(&folder),
    );
    said.context("mandoc finds fault with the manual pages")?;
    eprintln!("manual: {} pages", names.len());
    Ok(())
}
