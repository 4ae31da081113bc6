//! The licences of what the program is made of, as their texts ask for.

use crate::process;
use anyhow::Context;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

/// How files begin that hold a licence or a notice.
const NAMES: [&str; 5] = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE"];

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    version: String,
    license: Option<String>,
    manifest_path: PathBuf,
    /// None for packages of the workspace.
    source: Option<String>,
}

/// All texts, each once and headed by the packages that have it.
pub fn text() -> anyhow::Result<String> {
    let used = used()?;
    let mut metadata = process::cargo(["metadata", "--locked", "--format-version", "1"]);
    let metadata: Metadata = serde_json::from_str(&process::output(&mut metadata)?)?;
    let mut text = String::from("The program contains these libraries:\n\n");
    let mut holders: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in metadata.packages.iter().filter(|package| package.source.is_some()) {
        let name = format!("{} {}", package.name, package.version);
        if !used.contains(&name) {
            continue;
        }
        let licence = package.license.as_deref().unwrap_or("see below");
        writeln!(text, "{name}: {licence}")?;
        let folder = package.manifest_path.parent().unwrap_or(Path::new("."));
        for licence in licences(folder)? {
            holders.entry(licence).or_default().insert(name.clone());
        }
    }
    for (licence, names) in &holders {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        write!(text, "\n{}\n{}:\n\n{}\n", "-".repeat(80), names.join(", "), licence.trim_end())?;
    }
    Ok(text)
}

/// The names and versions of the packages in the program.
fn used() -> anyhow::Result<BTreeSet<String>> {
    let mut tree = process::cargo(["tree", "--locked", "--package", "drystone-cli"]);
    tree.args(["--edges", "normal,no-proc-macro", "--prefix", "none", "--format", "{p}"]);
    let lines = process::output(&mut tree)?;
    Ok(lines.lines().filter_map(name_and_version).collect())
}

/// `clap v4.5.0 (proc-macro)` names `clap 4.5.0`.
fn name_and_version(line: &str) -> Option<String> {
    let mut words = line.split(' ');
    Some(format!("{} {}", words.next()?, words.next()?.strip_prefix('v')?))
}

/// The texts in a package's folder, with one kind of line ends.
fn licences(folder: &Path) -> anyhow::Result<Vec<String>> {
    let mut texts = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().to_uppercase();
        if NAMES.iter().any(|begin| name.starts_with(begin)) && entry.file_type()?.is_file() {
            texts.push(fs::read_to_string(entry.path())?.replace("\r\n", "\n"));
        }
    }
    Ok(texts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_in_the_program_are_named_with_their_licences() {
        let text = text().unwrap();
        let (list, texts) = text.split_once("\n---").unwrap();
        assert!(list.contains("\nzstd-sys 2."), "{list}");
        assert!(list.lines().skip(2).all(|line| line.contains(": ")), "{list}");
        // Only tests use it, and ours aren't third parties'.
        assert!(!list.contains("\nproptest") && !list.contains("\ndrystone"), "{list}");
        assert!(texts.contains("Permission is hereby granted"));
    }
}
