//! `mdtest`: the test of that name with `-F -C -r -u`; its iterations (`-i`) are our rounds.

use super::name::Name;
use super::{BLOCK_BYTES, Needs, Phase, PhaseKind, Sizes, Tally, Worker, Workload, own_directory};
use crate::files::{Files, Open, OpenDirectory};
use anyhow::{Context, Result};

/// See the module.
pub struct Mdtest;

const FILES: u64 = 50_000;

impl Workload for Mdtest {
    fn name(&self) -> &'static str {
        "mdtest"
    }

    fn summary(&self) -> &'static str {
        "--files files created and closed in a directory of its own; when all are done, removed"
    }

    fn unit(&self) -> &'static str {
        "creates"
    }

    fn phases(&self) -> &'static [Phase] {
        const {
            &[
                Phase::new("directory", PhaseKind::Aside),
                Phase::new("create", PhaseKind::Main),
                Phase::new("remove", PhaseKind::Rate("removes_per_second")),
                Phase::new("clean", PhaseKind::Aside),
            ]
        }
    }

    fn needs(&self, sizes: &Sizes, workers: u64) -> Needs {
        let files = sizes.files.unwrap_or(FILES);
        Needs {
            content_bytes: workers * ((files * 48).next_multiple_of(BLOCK_BYTES) + 2 * BLOCK_BYTES),
            inodes: workers * (files + 1),
            ..Needs::default()
        }
    }

    fn worker(&self, sizes: &Sizes, index: u64, _: u64) -> Box<dyn Worker> {
        let files = sizes.files.unwrap_or(FILES);
        Box::new(MdtestWorker { index, files, directory: None, name: Name::default() })
    }
}

struct MdtestWorker {
    index: u64,
    files: u64,
    directory: Option<OpenDirectory>,
    name: Name,
}

impl Worker for MdtestWorker {
    fn run(&mut self, phase: &str, files: &mut dyn Files, tally: &mut Tally) -> Result<()> {
        if phase == "directory" {
            let made = files.make_directory(files.root(), &own_directory(self.index))?;
            self.directory = Some(made);
            return Ok(());
        }
        let directory = self.directory.context("the directory was not made")?;
        match phase {
            "create" => {
                for number in 0..self.files {
                    let name = self.name.write("file.mdtest.", number);
                    let file = files.open(directory, name, Open::New)?;
                    files.close(file)?;
                }
            }
            "remove" => {
                for number in 0..self.files {
                    files.unlink(directory, self.name.write("file.mdtest.", number))?;
                }
            }
            _ => {
                files.close_directory(directory)?;
                return files.remove_directory(files.root(), &own_directory(self.index));
            }
        }
        tally.operations = self.files;
        Ok(())
    }
}
