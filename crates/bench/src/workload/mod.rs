//! Workloads: each is written once, and runs the same calls in the same order on every target.
//!
//! A workload is a sequence of [`Phase`]s that all workers go through in step: no worker begins a
//! phase before all have finished the previous one. The [main phase](PhaseKind::Main) is what is
//! measured; the others set up, clean up, or give further figures.

mod append;
mod creat_clo;
mod extents_fragmented;
mod extents_many;
mod fallocate2;
mod fxmark;
mod inodes;
mod mdtest;
mod name;
mod orphan;
mod random;
mod stat;

use crate::files::Files;
use anyhow::Result;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Bytes in a block of the images that are made for workloads.
pub const BLOCK_BYTES: u64 = 4096;

/// The size of a workload, which chooses what isn't given. Also the flags for it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::Args)]
pub struct Sizes {
    /// Operations of each worker.
    #[arg(long = "ops", value_name = "N")]
    pub operations: Option<u64>,
    /// Files of each worker, or in each directory.
    #[arg(short = 'n', long, value_name = "N")]
    pub files: Option<u64>,
    /// Directories in each root (inodes).
    #[arg(long = "dirs", value_name = "N")]
    pub directories: Option<u64>,
    /// Roots of each worker (inodes).
    #[arg(long, value_name = "N")]
    pub roots: Option<u64>,
    /// Directories of each root whose files are deleted again (inodes).
    #[arg(long = "delete", value_name = "N")]
    pub deleted_directories: Option<u64>,
    /// Bytes in each file (append): 4M, 1G, …
    #[arg(long = "size", value_name = "SIZE", value_parser = drystone_volumes::parse_size)]
    pub bytes: Option<u64>,
}

impl Sizes {
    /// So small that every workload takes an instant: for tests.
    #[must_use]
    pub fn tiny() -> Sizes {
        Sizes {
            operations: Some(40),
            roots: Some(1),
            directories: Some(2),
            files: Some(5),
            deleted_directories: Some(1),
            bytes: Some(3 * BLOCK_BYTES),
        }
    }
}

/// What an image must have for a workload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Bytes of file content.
    pub content_bytes: u64,
    /// Inodes.
    pub inodes: u64,
    /// Bytes that the engine may use for cached extents, if the workload is about that.
    pub extent_status_bytes: Option<u64>,
    /// Whether the engine delays allocation, if that matters to the workload.
    pub delayed_allocation: Option<bool>,
}

/// What a phase is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PhaseKind {
    /// Not measured; the first worker alone does it, for all.
    Shared,
    /// Not measured; every worker does it.
    Aside,
    /// What the workload is about.
    Main,
    /// Measured too: the figure of this name is operations per second.
    Rate(&'static str),
    /// Measured too: the figure of this name is its seconds.
    Seconds(&'static str),
}

/// A step that all workers take together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phase {
    /// Its name, unique in the workload.
    pub name: &'static str,
    /// What it is for.
    pub kind: PhaseKind,
}

impl Phase {
    const fn new(name: &'static str, kind: PhaseKind) -> Phase {
        Phase { name, kind }
    }
}

/// What a worker has done in a phase.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tally {
    /// Operations, in the workload's own unit.
    pub operations: u64,
    /// Further figures; the mean over the workers that give one is reported.
    pub figures: BTreeMap<String, f64>,
}

/// One worker, from its first phase to its last.
pub trait Worker: Send {
    /// Does its part of a phase.
    fn run(&mut self, phase: &str, files: &mut dyn Files, tally: &mut Tally) -> Result<()>;
}

/// A workload.
pub trait Workload: Send + Sync {
    /// Its name on the command line and in results.
    fn name(&self) -> &'static str;

    /// What each worker does, in a sentence.
    fn summary(&self) -> &'static str;

    /// What an operation is: `truncates`, `creates`, ….
    fn unit(&self) -> &'static str;

    /// Its phases, one of them the main one.
    fn phases(&self) -> &'static [Phase];

    /// What the image must have.
    fn needs(&self, sizes: &Sizes, workers: u64) -> Needs;

    /// Worker `index` of `workers`.
    fn worker(&self, sizes: &Sizes, index: u64, workers: u64) -> Box<dyn Worker>;
}

/// All workloads.
#[must_use]
pub fn all() -> Vec<Box<dyn Workload>> {
    let mut all: Vec<Box<dyn Workload>> = vec![
        Box::new(orphan::Orphan),
        Box::new(creat_clo::CreatClo),
        Box::new(fallocate2::Fallocate2),
        Box::new(inodes::Inodes),
        Box::new(extents_fragmented::ExtentsFragmented),
        Box::new(extents_many::ExtentsMany),
        Box::new(mdtest::Mdtest),
        Box::new(append::Append),
        Box::new(stat::Stat),
    ];
    for operation in fxmark::FxmarkOperation::ALL {
        all.push(Box::new(fxmark::FxMark { operation }));
    }
    all
}

/// The workload with a name.
#[must_use]
pub fn find(name: &str) -> Option<Box<dyn Workload>> {
    all().into_iter().find(|workload| workload.name() == name)
}

/// The workloads named on the command line: names, `all`, `seeds` (those with a published table),
/// and `fxmark` for the fourteen of FxMark.
///
/// # Errors
/// An unknown word.
pub fn select(words: &[String]) -> Result<Vec<Box<dyn Workload>>> {
    let mut selected: Vec<Box<dyn Workload>> = Vec::new();
    for word in words {
        let before = selected.len();
        let mut found = false;
        for workload in all() {
            let name = workload.name();
            let is_meant = match word.as_str() {
                "all" => true,
                "published" => crate::published::Published::of(name).is_some(),
                "fxmark" => name.starts_with("fxmark-"),
                word => word == name,
            };
            found |= is_meant;
            if is_meant && selected.iter().all(|other| other.name() != name) {
                selected.push(workload);
            }
        }
        debug_assert!(found || selected.len() == before);
        if !found {
            let names: Vec<&str> = all().iter().map(|workload| workload.name()).collect();
            anyhow::bail!(
                "no workload '{word}'; there are: all, published, fxmark, {}",
                names.join(", ")
            );
        }
    }
    Ok(selected)
}

/// The name of a worker's own directory.
fn own_directory(index: u64) -> String {
    format!("worker{index}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_workload_is_well_formed() {
        let all = all();
        assert_eq!(all.len(), 9 + 14);
        for workload in &all {
            let name = workload.name();
            let count = |kind| workload.phases().iter().filter(|phase| phase.kind == kind).count();
            assert_eq!(count(PhaseKind::Main), 1, "{name}");
            assert!(workload.needs(&Sizes::default(), 2).inodes > 0, "{name}");
            assert!(!workload.summary().is_empty() && !workload.unit().is_empty(), "{name}");
            assert_eq!(all.iter().filter(|other| other.name() == name).count(), 1, "{name}");
        }
    }

    #[test]
    fn words_select_workloads() {
        let names = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_string()).collect();
            select(&words).map(|all| all.iter().map(|w| w.name()).collect::<Vec<_>>())
        };
        assert_eq!(names(&["orphan", "mdtest", "orphan"]).unwrap(), ["orphan", "mdtest"]);
        assert_eq!(names(&["published"]).unwrap().len(), 7);
        assert_eq!(names(&["fxmark"]).unwrap().len(), 14);
        assert_eq!(names(&["all"]).unwrap().len(), all().len());
        assert!(names(&["orphans"]).unwrap_err().to_string().contains("creat-clo"));
    }
}
