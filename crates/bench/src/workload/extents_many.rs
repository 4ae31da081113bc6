//! `extents-many`: very many files of few extents, written at random beside one stream.

use super::name::Name;
use super::random::Random;
use super::{BLOCK_BYTES, Needs, Phase, PhaseKind, Sizes, Tally, Worker, Workload, own_directory};
use crate::files::{Files, Open, OpenDirectory, remove_tree};
use anyhow::{Context, Result};

/// See the module.
pub struct ExtentsMany;

/// Files of a worker, and of all workers together at most.
const FILES: u64 = 40_000;
const FILES_OF_ALL: u64 = 80_000;
const OPERATIONS: u64 = 20_000;
/// Extents of each file at the start: every other block.
const EXTENTS: u64 = 3;
/// The memory budget: room for a part of each file's extents and holes.
const EXTENTS_CACHED_PER_FILE: u64 = 2;
/// Bytes that the engine counts for an extent.
const EXTENT_BYTES: u64 = 32;

impl Workload for ExtentsMany {
    fn name(&self) -> &'static str {
        "extents-many"
    }

    fn summary(&self) -> &'static str {
        "--files files of a few extents, --ops times one of them opened, a random block of it written, \
         closed; the first worker also writes a stream; memory for two extents a file"
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
        let files = files_of(sizes, workers);
        let stream = sizes.operations.unwrap_or(OPERATIONS);
        Needs {
            content_bytes: (workers * files * 2 * EXTENTS + stream) * BLOCK_BYTES,
            inodes: workers * (files + 2),
            delayed_allocation: Some(false),
            extent_status_bytes: Some(workers * files * EXTENTS_CACHED_PER_FILE * EXTENT_BYTES),
        }
    }

    fn worker(&self, sizes: &Sizes, index: u64, workers: u64) -> Box<dyn Worker> {
        Box::new(ManyWorker {
            index,
            files: files_of(sizes, workers),
            operations: sizes.operations.unwrap_or(OPERATIONS),
            directory: None,
        })
    }
}

fn files_of(sizes: &Sizes, workers: u64) -> u64 {
    sizes.files.unwrap_or_else(|| FILES.min(FILES_OF_ALL / workers.max(1))).max(1)
}

struct ManyWorker {
    index: u64,
    files: u64,
    operations: u64,
    directory: Option<OpenDirectory>,
}

impl ManyWorker {
    fn write(
        &self,
        files: &mut dyn Files,
        directory: OpenDirectory,
        tally: &mut Tally,
    ) -> Result<()> {
        let mut name = Name::default();
        let mut random = Random::of_worker(self.index);
        let block = [b'm'; BLOCK_BYTES as usize];
        let stream = match self.index {
            0 => Some(files.open(directory, "stream", Open::New)?),
            _ => None,
        };
        for operation in 0..self.operations {
            let number = random.below(self.files);
            let file = files.open(directory, name.file(number), Open::Write)?;
            files.write(file, random.below(2 * EXTENTS) * BLOCK_BYTES, &block)?;
            files.close(file)?;
            if let Some(stream) = stream {
                files.write(stream, operation * BLOCK_BYTES, &block)?;
            }
        }
        if let Some(stream) = stream {
            files.close(stream)?;
        }
        tally.operations = self.operations;
        Ok(())
    }
}

impl Worker for ManyWorker {
    fn run(&mut self, phase: &str, files: &mut dyn Files, tally: &mut Tally) -> Result<()> {
        let own = own_directory(self.index);
        if phase == "create" {
            let directory = files.make_directory(files.root(), &own)?;
            self.directory = Some(directory);
            let mut name = Name::default();
            let block = [b'm'; BLOCK_BYTES as usize];
            for number in 0..self.files {
                let file = files.open(directory, name.file(number), Open::New)?;
                for extent in 0..EXTENTS {
                    files.write(file, 2 * extent * BLOCK_BYTES, &block)?;
                }
                files.close(file)?;
            }
            return Ok(());
        }
        let directory = self.directory.context("the files were not made")?;
        if phase == "write" {
            return self.write(files, directory, tally);
        }
        files.close_directory(directory)?;
        remove_tree(files, &own)
    }
}
