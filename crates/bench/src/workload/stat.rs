//! `stat`: looking names up and reading attributes, all in memory.

use super::name::Name;
use super::{BLOCK_BYTES, Needs, Phase, PhaseKind, Sizes, Tally, Worker, Workload, own_directory};
use crate::files::{Files, Open, OpenDirectory};
use anyhow::{Context, Result};

/// See the module.
pub struct Stat;

const FILES: u64 = 5000;
const OPERATIONS: u64 = 400_000;

impl Workload for Stat {
    fn name(&self) -> &'static str {
        "stat"
    }

    fn summary(&self) -> &'static str {
        "--ops times the attributes of the --files files in a directory of its own, in turn"
    }

    fn unit(&self) -> &'static str {
        "stats"
    }

    fn phases(&self) -> &'static [Phase] {
        const {
            &[
                Phase::new("create", PhaseKind::Aside),
                Phase::new("stat", PhaseKind::Main),
                Phase::new("clean", PhaseKind::Aside),
            ]
        }
    }

    fn needs(&self, sizes: &Sizes, workers: u64) -> Needs {
        let files = sizes.files.unwrap_or(FILES);
        Needs {
            content_bytes: workers * ((files * 32).next_multiple_of(BLOCK_BYTES) + 2 * BLOCK_BYTES),
            inodes: workers * (files + 1),
            ..Needs::default()
        }
    }

    fn worker(&self, sizes: &Sizes, index: u64, _: u64) -> Box<dyn Worker> {
        Box::new(StatWorker {
            index,
            files: sizes.files.unwrap_or(FILES).max(1),
            operations: sizes.operations.unwrap_or(OPERATIONS),
            directory: None,
            name: Name::default(),
        })
    }
}

struct StatWorker {
    index: u64,
    files: u64,
    operations: u64,
    directory: Option<OpenDirectory>,
    name: Name,
}

impl Worker for StatWorker {
    fn run(&mut self, phase: &str, files: &mut dyn Files, tally: &mut Tally) -> Result<()> {
        let own = own_directory(self.index);
        if phase == "create" {
            let directory = files.make_directory(files.root(), &own)?;
            self.directory = Some(directory);
            for number in 0..self.files {
                let file = files.open(directory, self.name.file(number), Open::New)?;
                files.close(file)?;
            }
            return Ok(());
        }
        let directory = self.directory.context("the files were not made")?;
        if phase == "stat" {
            for operation in 0..self.operations {
                files.status(directory, self.name.file(operation % self.files))?;
            }
            tally.operations = self.operations;
            return Ok(());
        }
        for number in 0..self.files {
            files.unlink(directory, self.name.file(number))?;
        }
        files.close_directory(directory)?;
        files.remove_directory(files.root(), &own)
    }
}
