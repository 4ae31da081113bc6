//! `extents-fragmented`: many files of extents that don't merge, far over the memory budget.

use super::name::Name;
use super::{BLOCK_BYTES, Needs, Phase, PhaseKind, Sizes, Tally, Worker, Workload, own_directory};
use crate::files::{Files, Open, OpenDirectory, OpenFile};
use anyhow::{Context, Result};

/// See the module.
pub struct ExtentsFragmented;

const FILES: u64 = 500;
/// Written and allocated blocks of a worker.
const OPERATIONS: u64 = 20_000;
/// A written, an unwritten and a missing block.
const PATTERN_BLOCKS: u64 = 3;
/// Small enough that the extents of the workload don't fit: 8,192 of them.
const EXTENT_STATUS_BYTES: u64 = 256 << 10;

impl Workload for ExtentsFragmented {
    fn name(&self) -> &'static str {
        "extents-fragmented"
    }

    fn summary(&self) -> &'static str {
        "--files files written from the start to the end, a block written, a block allocated, a block \
         left out, so that no two extents merge; --ops blocks in all; memory for 8,192 extents"
    }

    fn unit(&self) -> &'static str {
        "writes"
    }

    fn phases(&self) -> &'static [Phase] {
        const {
            &[
                Phase::new("create", PhaseKind::Aside),
                Phase::new("write", PhaseKind::Main),
                Phase::new("clean", PhaseKind::Aside),
            ]
        }
    }

    fn needs(&self, sizes: &Sizes, workers: u64) -> Needs {
        let blocks = sizes.operations.unwrap_or(OPERATIONS);
        Needs {
            // Blocks of the extent trees come on top: less than one in a hundred.
            content_bytes: workers * blocks * BLOCK_BYTES * 11 / 10,
            inodes: workers * (sizes.files.unwrap_or(FILES) + 1),
            extent_status_bytes: Some(EXTENT_STATUS_BYTES),
            // Reclaim scans delayed data in vain.
            delayed_allocation: Some(true),
        }
    }

    fn worker(&self, sizes: &Sizes, index: u64, _: u64) -> Box<dyn Worker> {
        Box::new(FragmentedWorker {
            index,
            files: sizes.files.unwrap_or(FILES).max(1),
            operations: sizes.operations.unwrap_or(OPERATIONS),
            directory: None,
            open: Vec::new(),
        })
    }
}

struct FragmentedWorker {
    index: u64,
    files: u64,
    operations: u64,
    directory: Option<OpenDirectory>,
    open: Vec<OpenFile>,
}

impl Worker for FragmentedWorker {
    fn run(&mut self, phase: &str, files: &mut dyn Files, tally: &mut Tally) -> Result<()> {
        let own = own_directory(self.index);
        let mut name = Name::default();
        if phase == "create" {
            let directory = files.make_directory(files.root(), &own)?;
            self.directory = Some(directory);
            for number in 0..self.files {
                self.open.push(files.open(directory, name.file(number), Open::New)?);
            }
            return Ok(());
        }
        let directory = self.directory.context("the files were not made")?;
        if phase == "write" {
            let block = [b'e'; BLOCK_BYTES as usize];
            let pairs = (self.operations / 2).div_ceil(self.files);
            for &file in &self.open {
                for pair in 0..pairs {
                    let offset = pair * PATTERN_BLOCKS * BLOCK_BYTES;
                    files.write(file, offset, &block)?;
                    files.allocate(file, offset + BLOCK_BYTES, BLOCK_BYTES)?;
                }
                tally.operations += 2 * pairs;
            }
            return Ok(());
        }
        for file in self.open.drain(..) {
            files.close(file)?;
        }
        for number in 0..self.files {
            files.unlink(directory, name.file(number))?;
        }
        files.close_directory(directory)?;
        files.remove_directory(files.root(), &own)
    }
}
