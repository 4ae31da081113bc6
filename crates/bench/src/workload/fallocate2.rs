//! `fallocate2`: the test of that name of will-it-scale.

use super::{Needs, Phase, PhaseKind, Sizes, Tally, Worker, Workload, own_directory};
use crate::files::{Files, Open, OpenDirectory, OpenFile};
use anyhow::{Context, Result};

/// See the module.
pub struct Fallocate2;

const OPERATIONS: u64 = 204_800;
const STEP_BYTES: u64 = 8 << 10;
const FILE_BYTES: u64 = 1 << 20;

impl Workload for Fallocate2 {
    fn name(&self) -> &'static str {
        "fallocate2"
    }

    fn summary(&self) -> &'static str {
        "an unlinked file: fallocate in steps of 8 KiB to 1 MiB, truncate to 0, repeat, until there \
         were --ops fallocates"
    }

    fn unit(&self) -> &'static str {
        "fallocates"
    }

    fn phases(&self) -> &'static [Phase] {
        const {
            &[
                Phase::new("file", PhaseKind::Aside),
                Phase::new("fallocate", PhaseKind::Main),
                Phase::new("clean", PhaseKind::Aside),
            ]
        }
    }

    fn needs(&self, sizes: &Sizes, workers: u64) -> Needs {
        // Freed space waits for a commit, and there may be none before the end. None of it is written,
        // so that it takes no memory.
        let operations = sizes.operations.unwrap_or(OPERATIONS);
        Needs {
            content_bytes: workers * operations * STEP_BYTES,
            inodes: 2 * workers,
            ..Needs::default()
        }
    }

    fn worker(&self, sizes: &Sizes, index: u64, _: u64) -> Box<dyn Worker> {
        let operations = sizes.operations.unwrap_or(OPERATIONS);
        Box::new(Fallocate2Worker { index, operations, open: None })
    }
}

struct Fallocate2Worker {
    index: u64,
    operations: u64,
    open: Option<(OpenDirectory, OpenFile)>,
}

impl Worker for Fallocate2Worker {
    fn run(&mut self, phase: &str, files: &mut dyn Files, tally: &mut Tally) -> Result<()> {
        let name = own_directory(self.index);
        if phase == "file" {
            let directory = files.make_directory(files.root(), &name)?;
            let file = files.open(directory, "file", Open::New)?;
            files.unlink(directory, "file")?;
            self.open = Some((directory, file));
            return Ok(());
        }
        let (directory, file) = self.open.context("the file was not made")?;
        if phase == "fallocate" {
            let mut offset = 0;
            for _ in 0..self.operations {
                files.allocate(file, offset, STEP_BYTES)?;
                offset += STEP_BYTES;
                if offset == FILE_BYTES {
                    files.set_length(file, 0)?;
                    offset = 0;
                }
            }
            tally.operations = self.operations;
            return Ok(());
        }
        files.close(file)?;
        files.close_directory(directory)?;
        files.remove_directory(files.root(), &name)
    }
}
