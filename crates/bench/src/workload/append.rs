//! `append`: many files grow a little at a time, in turn. How many pieces does each end up in?

use super::name::Name;
use super::{BLOCK_BYTES, Needs, Phase, PhaseKind, Sizes, Tally, Worker, Workload};
use crate::files::{Files, Open, OpenFile};
use anyhow::Result;

/// See the module.
pub struct Append;

/// Files of all workers together.
const FILES: u64 = 64;
const FILE_BYTES: u64 = 4 << 20;

impl Workload for Append {
    fn name(&self) -> &'static str {
        "append"
    }

    fn summary(&self) -> &'static str {
        "--files files, shared out among the workers, grow to --size in turns of 4 KiB"
    }

    fn unit(&self) -> &'static str {
        "appends"
    }

    fn phases(&self) -> &'static [Phase] {
        const {
            &[
                Phase::new("create", PhaseKind::Aside),
                Phase::new("append", PhaseKind::Main),
                Phase::new("count", PhaseKind::Aside),
                Phase::new("clean", PhaseKind::Aside),
            ]
        }
    }

    fn needs(&self, sizes: &Sizes, _: u64) -> Needs {
        let files = sizes.files.unwrap_or(FILES);
        let bytes = sizes.bytes.unwrap_or(FILE_BYTES);
        Needs { content_bytes: files * bytes, inodes: files, ..Needs::default() }
    }

    fn worker(&self, sizes: &Sizes, index: u64, workers: u64) -> Box<dyn Worker> {
        let own = (index..sizes.files.unwrap_or(FILES)).step_by(workers.max(1) as usize);
        Box::new(AppendWorker {
            numbers: own.collect(),
            bytes: sizes.bytes.unwrap_or(FILE_BYTES),
            open: Vec::new(),
        })
    }
}

struct AppendWorker {
    numbers: Vec<u64>,
    bytes: u64,
    open: Vec<OpenFile>,
}

impl Worker for AppendWorker {
    fn run(&mut self, phase: &str, files: &mut dyn Files, tally: &mut Tally) -> Result<()> {
        let mut name = Name::default();
        match phase {
            "create" => {
                for &number in &self.numbers {
                    self.open.push(files.open(files.root(), name.file(number), Open::New)?);
                }
            }
            "append" => {
                let block = [b'a'; BLOCK_BYTES as usize];
                for offset in (0..self.bytes).step_by(BLOCK_BYTES as usize) {
                    for &file in &self.open {
                        files.write(file, offset, &block)?;
                    }
                    tally.operations += self.open.len() as u64;
                }
            }
            "count" => {
                let mut sum = 0;
                for &file in &self.open {
                    let Some(extents) = files.extents(file)? else { return Ok(()) };
                    sum += extents;
                }
                if !self.open.is_empty() {
                    let mean = sum as f64 / self.open.len() as f64;
                    tally.figures.insert("extents_per_file".into(), mean);
                    let gibibytes = self.bytes as f64 / f64::from(1 << 30);
                    tally.figures.insert("extents_per_gib".into(), mean / gibibytes);
                }
            }
            _ => {
                for file in self.open.drain(..) {
                    files.close(file)?;
                }
                for &number in &self.numbers {
                    files.unlink(files.root(), name.file(number))?;
                }
            }
        }
        Ok(())
    }
}
