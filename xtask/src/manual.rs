//! The manual pages of the command, which the package `drystone-manual` writes.

use crate::process;
use anyhow::Context;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Writes all pages into a folder, which holds nothing else afterwards.
pub fn write(folder: &Path) -> anyhow::Result<()> {
    let _ = fs::remove_dir_all(folder);
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    // As the command that is installed.
    let mut cargo = process::cargo(["run", "--quiet", "--release", "--package", "drystone-manual"]);
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
