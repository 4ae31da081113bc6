//! The rules of style that a tool can check.
//!
//! `source` tells code from comments and strings, `files` looks at one file at a time, `crates`
//! at the packages and their dependencies, `modules` at which module uses which, by the `paths` in it,
//! `types` at the names of types, `programs` at what tests call, `pages` at what the documentation refers to,
//! and `words` at its words.

mod crates;
mod files;
mod modules;
mod pages;
mod paths;
mod programs;
mod source;
mod types;
mod words;

#[cfg(test)]
pub use crates::uses;

use anyhow::{Context, bail};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A rule that a place breaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The file or package, with a line where there is one.
    pub place: String,
    /// What is wrong, and what to do where that isn't clear.
    pub problem: String,
    /// Only a warning: the run succeeds all the same.
    pub is_warning: bool,
}

impl Finding {
    fn error(place: impl Into<String>, problem: impl Into<String>) -> Finding {
        Finding { place: place.into(), problem: problem.into(), is_warning: false }
    }
}

/// Checks the workspace in the current folder.
pub fn run() -> anyhow::Result<()> {
    let mut findings = crates::check()?;
    findings.extend(modules::check()?);
    findings.extend(types::check()?);
    let dev = std::fs::read_to_string("dev").context("dev")?;
    let locks = std::fs::read_to_string(pages::LOCKS).context(pages::LOCKS)?;
    let files = files_of_the_project()?;
    let mut pages = BTreeMap::new();
    for path in &files {
        let bytes = match std::fs::read(path) {
            Ok(bytes) => bytes,
            // Deleted, but not yet in a commit.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error).with_context(|| path.display().to_string()),
        };
        if let Ok(text) = String::from_utf8(bytes) {
            findings.extend(files::check(&path.to_string_lossy(), &text));
            findings.extend(programs::check(&path.to_string_lossy(), &text, &dev));
            findings.extend(words::check(&path.to_string_lossy(), &text));
            findings.extend(pages::check_lock_classes(&path.to_string_lossy(), &text, &locks));
            if path.extension().is_some_and(|extension| extension == "md") {
                pages.insert(path.to_string_lossy().into_owned(), text);
            }
        }
    }
    findings.extend(pages::check(&pages, &text_or_folder));
    let errors = findings.iter().filter(|finding| !finding.is_warning).count();
    for finding in &findings {
        let kind = if finding.is_warning { "warning" } else { "error" };
        eprintln!("{kind}: {}: {}", finding.place, finding.problem);
    }
    if errors > 0 {
        bail!("{errors} rules of style broken");
    }
    eprintln!("tidy: {} files, {} warnings", files.len(), findings.len());
    Ok(())
}

/// The text of a file; nothing of a folder.
fn text_or_folder(path: &str) -> Option<String> {
    if Path::new(path).is_dir() { Some(String::new()) } else { std::fs::read_to_string(path).ok() }
}

/// Everything that is or would be under version control.
fn files_of_the_project() -> anyhow::Result<Vec<PathBuf>> {
    let output = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard", "-z"])
        .output()
        .context("can't run git")?;
    if !output.status.success() {
        bail!("git ls-files: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let names = String::from_utf8(output.stdout).context("a file name isn't UTF-8")?;
    Ok(names.split('\0').filter(|name| !name.is_empty()).map(PathBuf::from).collect())
}
