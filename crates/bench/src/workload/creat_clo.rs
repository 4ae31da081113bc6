//! `creat-clo`: the test of that name of AIM7, as `reaim` runs it.

use super::{Needs, Phase, PhaseKind, Sizes, Tally, Worker, Workload, own_directory};
use crate::files::{Files, Open, OpenDirectory};
use anyhow::{Context, Result};

/// See the module.
pub struct CreatClo;

const OPERATIONS: u64 = 100_000;
/// Opens of one name before it is unlinked.
const OPENS: u64 = 1000;

impl Workload for CreatClo {
    fn name(&self) -> &'static str {
        "creat-clo"
    }

    fn summary(&self) -> &'static str {
        "1000 times open(create, truncate) and close of one name, then one unlink, until there were \
         --ops opens; all but the first truncate an empty file"
    }

    fn unit(&self) -> &'static str {
        "opens"
    }

    fn phases(&self) -> &'static [Phase] {
        const {
            &[
                Phase::new("directory", PhaseKind::Aside),
                Phase::new("open", PhaseKind::Main),
                Phase::new("clean", PhaseKind::Aside),
            ]
        }
    }

    fn needs(&self, _: &Sizes, workers: u64) -> Needs {
        Needs { inodes: 2 * workers, ..Needs::default() }
    }

    fn worker(&self, sizes: &Sizes, index: u64, _: u64) -> Box<dyn Worker> {
        let operations = sizes.operations.unwrap_or(OPERATIONS);
        Box::new(CreatCloWorker { index, operations, directory: None })
    }
}

struct CreatCloWorker {
    index: u64,
    operations: u64,
    directory: Option<OpenDirectory>,
}

impl Worker for CreatCloWorker {
    fn run(&mut self, phase: &str, files: &mut dyn Files, tally: &mut Tally) -> Result<()> {
        let name = own_directory(self.index);
        if phase == "directory" {
            self.directory = Some(files.make_directory(files.root(), &name)?);
            return Ok(());
        }
        let directory = self.directory.context("the directory was not made")?;
        if phase == "open" {
            while tally.operations < self.operations {
                for _ in 0..OPENS.min(self.operations - tally.operations) {
                    let file = files.open(directory, "link", Open::CreateTruncate)?;
                    files.close(file)?;
                    tally.operations += 1;
                }
                files.unlink(directory, "link")?;
            }
            return Ok(());
        }
        files.close_directory(directory)?;
        files.remove_directory(files.root(), &name)
    }
}
