//! `orphan`: every truncate adds an orphan record and deletes it again.

use super::{BLOCK_BYTES, Needs, Phase, PhaseKind, Sizes, Tally, Worker, Workload, own_directory};
use crate::files::{Files, Open, OpenDirectory, OpenFile};
use anyhow::{Context, Result};

/// See the module.
pub struct Orphan;

const OPERATIONS: u64 = 300_000;
/// Bytes that are written at once when the file is made.
const PIECE_BYTES: u64 = 64 << 10;

impl Workload for Orphan {
    fn name(&self) -> &'static str {
        "orphan"
    }

    fn summary(&self) -> &'static str {
        "one file of --ops bytes, cut by one byte until it is empty"
    }

    fn unit(&self) -> &'static str {
        "truncates"
    }

    fn phases(&self) -> &'static [Phase] {
        const {
            &[
                Phase::new("fill", PhaseKind::Aside),
                Phase::new("truncate", PhaseKind::Main),
                Phase::new("clean", PhaseKind::Aside),
            ]
        }
    }

    fn needs(&self, sizes: &Sizes, workers: u64) -> Needs {
        let bytes = sizes.operations.unwrap_or(OPERATIONS).next_multiple_of(BLOCK_BYTES);
        Needs { content_bytes: workers * bytes, inodes: 2 * workers, ..Needs::default() }
    }

    fn worker(&self, sizes: &Sizes, index: u64, _: u64) -> Box<dyn Worker> {
        let length = sizes.operations.unwrap_or(OPERATIONS);
        Box::new(OrphanWorker { index, length, open: None })
    }
}

struct OrphanWorker {
    index: u64,
    length: u64,
    open: Option<(OpenDirectory, OpenFile)>,
}

impl Worker for OrphanWorker {
    fn run(&mut self, phase: &str, files: &mut dyn Files, tally: &mut Tally) -> Result<()> {
        let name = own_directory(self.index);
        if phase == "fill" {
            let directory = files.make_directory(files.root(), &name)?;
            let file = files.open(directory, "file", Open::New)?;
            let piece = vec![b'o'; PIECE_BYTES as usize];
            for offset in (0..self.length).step_by(PIECE_BYTES as usize) {
                let length = PIECE_BYTES.min(self.length - offset);
                files.write(file, offset, &piece[..length as usize])?;
            }
            self.open = Some((directory, file));
            return Ok(());
        }
        let (directory, file) = self.open.context("the file was not made")?;
        if phase == "truncate" {
            for length in (0..self.length).rev() {
                files.set_length(file, length)?;
            }
            tally.operations = self.length;
            return Ok(());
        }
        files.close(file)?;
        files.unlink(directory, "file")?;
        files.close_directory(directory)?;
        files.remove_directory(files.root(), &name)
    }
}
