//! `fxmark-…`: the metadata set of FxMark (Min and others, USENIX ATC 2016), and its synchronous
//! overwrite.
//!
//! The last letter says what workers share: L nothing, M a directory, H one file. FxMark runs each
//! for a time; here each worker does `--ops` operations.

use super::name::Name;
use super::random::Random;
use super::{BLOCK_BYTES, Needs, Phase, PhaseKind, Sizes, Tally, Worker, Workload, own_directory};
use crate::files::{Files, Open, OpenDirectory, OpenFile, remove_tree};
use anyhow::{Context, Result};

/// One of the set.
pub struct FxMark {
    /// Which.
    pub operation: FxmarkOperation,
}

/// The fourteen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FxmarkOperation {
    /// Append a block to a private file.
    Dwal,
    /// Overwrite the first block of a private file, and sync it.
    Dwsl,
    /// Cut a block off a private file.
    Dwtl,
    /// Open a private file, five directories deep.
    Mrpl,
    /// Open a random file of a shared directory, five deep.
    Mrpm,
    /// Open the one file, five deep.
    Mrph,
    /// List a private directory.
    Mrdl,
    /// List the shared directory.
    Mrdm,
    /// Create a file in a private directory.
    Mwcl,
    /// Create a file in the shared directory.
    Mwcm,
    /// Unlink a file of a private directory.
    Mwul,
    /// Unlink a file of the shared directory.
    Mwum,
    /// Rename a file in a private directory.
    Mwrl,
    /// Move a file from a private directory to the shared one.
    Mwrm,
}

use FxmarkOperation::*;

impl FxmarkOperation {
    /// All of them.
    pub const ALL: [FxmarkOperation; 14] =
        [Dwal, Dwsl, Dwtl, Mrpl, Mrpm, Mrph, Mrdl, Mrdm, Mwcl, Mwcm, Mwul, Mwum, Mwrl, Mwrm];

    /// Whether each operation uses up a file or a name of its own.
    fn takes_a_file(self) -> bool {
        matches!(self, Mwcl | Mwcm | Mwul | Mwum | Mwrl | Mwrm)
    }

    /// Whether its private files are there before it begins.
    fn needs_files(self) -> bool {
        matches!(self, Mwul | Mwum | Mwrl | Mwrm)
    }

    fn default_operations(self) -> u64 {
        match self {
            Mrpl | Mrpm | Mrph => 50_000,
            Dwsl | Mrdl | Mrdm => 1000,
            _ => 10_000,
        }
    }
}

const SHARED: &str = "shared";
/// The directories above the files of MRP*.
const DEEP: [&str; 4] = ["a", "b", "c", "d"];
/// Files that MRPM opens, and that MRD* list.
const FILES: u64 = 400;

impl Workload for FxMark {
    fn name(&self) -> &'static str {
        match self.operation {
            Dwal => "fxmark-DWAL",
            Dwsl => "fxmark-DWSL",
            Dwtl => "fxmark-DWTL",
            Mrpl => "fxmark-MRPL",
            Mrpm => "fxmark-MRPM",
            Mrph => "fxmark-MRPH",
            Mrdl => "fxmark-MRDL",
            Mrdm => "fxmark-MRDM",
            Mwcl => "fxmark-MWCL",
            Mwcm => "fxmark-MWCM",
            Mwul => "fxmark-MWUL",
            Mwum => "fxmark-MWUM",
            Mwrl => "fxmark-MWRL",
            Mwrm => "fxmark-MWRM",
        }
    }

    fn summary(&self) -> &'static str {
        match self.operation {
            Dwal => "appends of 4 KiB to a private file",
            Dwsl => "overwrites of 4 KiB of a private file, each with an fsync",
            Dwtl => "truncates by 4 KiB of a private file",
            Mrpl => "opens of a private file, five directories deep",
            Mrpm => "opens of random files in a shared directory, five deep",
            Mrph => "opens of the same file, five directories deep",
            Mrdl => "listings of a private directory",
            Mrdm => "listings of the shared directory",
            Mwcl => "creates in a private directory",
            Mwcm => "creates in the shared directory",
            Mwul => "unlinks in a private directory",
            Mwum => "unlinks in the shared directory",
            Mwrl => "renames in a private directory",
            Mwrm => "moves from a private directory to the shared one",
        }
    }

    fn unit(&self) -> &'static str {
        match self.operation {
            Dwal => "appends",
            Dwsl => "syncs",
            Dwtl => "truncates",
            Mrpl | Mrpm | Mrph => "opens",
            Mrdl | Mrdm => "listings",
            Mwcl | Mwcm => "creates",
            Mwul | Mwum => "unlinks",
            Mwrl | Mwrm => "renames",
        }
    }

    fn phases(&self) -> &'static [Phase] {
        const {
            &[
                Phase::new("share", PhaseKind::Shared),
                Phase::new("prepare", PhaseKind::Aside),
                Phase::new("operate", PhaseKind::Main),
                Phase::new("clean", PhaseKind::Aside),
                Phase::new("clean shared", PhaseKind::Shared),
            ]
        }
    }

    fn needs(&self, sizes: &Sizes, workers: u64) -> Needs {
        let operations = sizes.operations.unwrap_or(self.operation.default_operations());
        let names = if self.operation.takes_a_file() { operations } else { FILES };
        let content = match self.operation {
            Dwal | Dwtl => operations * BLOCK_BYTES,
            _ => names * 64 + 16 * BLOCK_BYTES,
        };
        Needs {
            content_bytes: (workers + 1) * content,
            inodes: (workers + 1) * (names + 8),
            ..Needs::default()
        }
    }

    fn worker(&self, sizes: &Sizes, index: u64, _: u64) -> Box<dyn Worker> {
        Box::new(FxMarkWorker {
            operation: self.operation,
            operations: sizes.operations.unwrap_or(self.operation.default_operations()),
            index,
            directories: None,
            file: None,
            name: Name::default(),
            prefix: format!("w{index}."),
        })
    }
}

struct FxMarkWorker {
    operation: FxmarkOperation,
    operations: u64,
    index: u64,
    /// The private and the shared one.
    directories: Option<(OpenDirectory, OpenDirectory)>,
    file: Option<OpenFile>,
    name: Name,
    /// The prefix of this worker's file names in every directory.
    prefix: String,
}

impl Worker for FxMarkWorker {
    fn run(&mut self, phase: &str, files: &mut dyn Files, tally: &mut Tally) -> Result<()> {
        let own = own_directory(self.index);
        match phase {
            "share" => self.share(files),
            "prepare" => self.prepare(files),
            "operate" => {
                self.operate(files)?;
                tally.operations = self.operations;
                Ok(())
            }
            "clean" => {
                let (private, shared) = self.directories.context("nothing was prepared")?;
                if let Some(file) = self.file.take() {
                    files.close(file)?;
                }
                files.close_directory(private)?;
                files.close_directory(shared)?;
                remove_tree(files, &own)
            }
            _ => remove_tree(files, SHARED),
        }
    }
}

impl FxMarkWorker {
    /// Makes the shared directory; only the first worker does.
    fn share(&mut self, files: &mut dyn Files) -> Result<()> {
        let shared = files.make_directory(files.root(), SHARED)?;
        match self.operation {
            Mrpm | Mrph => {
                let deep = make_deep(files, shared)?;
                self.create_files(files, deep, FILES, "")?;
                files.close_directory(deep)?;
            }
            Mrdm => self.create_files(files, shared, FILES, "")?,
            _ => {}
        }
        files.close_directory(shared)
    }

    fn prepare(&mut self, files: &mut dyn Files) -> Result<()> {
        let private = files.make_directory(files.root(), &own_directory(self.index))?;
        let shared = files.open_directory(files.root(), SHARED)?;
        self.directories = Some((private, shared));
        let prefix = self.prefix.clone();
        match self.operation {
            Dwal | Dwsl | Dwtl => {
                let file = files.open(private, "file", Open::New)?;
                match self.operation {
                    Dwtl => files.allocate(file, 0, self.operations * BLOCK_BYTES)?,
                    Dwsl => {
                        files.write(file, 0, &[b'f'; BLOCK_BYTES as usize])?;
                        files.sync_file(file)?;
                    }
                    _ => {}
                }
                self.file = Some(file);
            }
            Mrpl => {
                let deep = make_deep(files, private)?;
                self.create_files(files, deep, 1, "")?;
                files.close_directory(deep)?;
            }
            Mrdl => self.create_files(files, private, FILES, "")?,
            operation if operation.needs_files() => {
                let place = if operation == Mwum { shared } else { private };
                self.create_files(files, place, self.operations, &prefix)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn create_files(
        &mut self,
        files: &mut dyn Files,
        directory: OpenDirectory,
        count: u64,
        prefix: &str,
    ) -> Result<()> {
        for number in 0..count {
            let file = files.open(directory, self.name.write(prefix, number), Open::New)?;
            files.close(file)?;
        }
        Ok(())
    }

    fn operate(&mut self, files: &mut dyn Files) -> Result<()> {
        let (private, shared) = self.directories.context("nothing was prepared")?;
        let deep = format!("{}/", DEEP.join("/"));
        let block = [b'f'; BLOCK_BYTES as usize];
        let mut random = Random::of_worker(self.index);
        let mut new_name = Name::default();
        for number in 0..self.operations {
            match self.operation {
                Dwal => {
                    let file = self.file.context("no file was made")?;
                    files.write(file, number * BLOCK_BYTES, &block)?;
                }
                Dwsl => {
                    let file = self.file.context("no file was made")?;
                    files.write(file, 0, &block)?;
                    files.sync_file(file)?;
                }
                Dwtl => {
                    let file = self.file.context("no file was made")?;
                    files.set_length(file, (self.operations - number - 1) * BLOCK_BYTES)?;
                }
                Mrpl | Mrpm | Mrph => {
                    let place = if self.operation == Mrpl { private } else { shared };
                    let which = if self.operation == Mrpm { random.below(FILES) } else { 0 };
                    let file = files.open(place, self.name.write(&deep, which), Open::Read)?;
                    files.close(file)?;
                }
                Mrdl => files.list(private, &mut |_, _| {})?,
                Mrdm => files.list(shared, &mut |_, _| {})?,
                Mwcl | Mwcm => {
                    let place = if self.operation == Mwcl { private } else { shared };
                    let name = self.name.write(&self.prefix, number);
                    let file = files.open(place, name, Open::New)?;
                    files.close(file)?;
                }
                Mwul | Mwum => {
                    let place = if self.operation == Mwul { private } else { shared };
                    files.unlink(place, self.name.write(&self.prefix, number))?;
                }
                Mwrl | Mwrm => {
                    let target = if self.operation == Mwrl { private } else { shared };
                    let name = self.name.write(&self.prefix, number);
                    let renamed = match self.operation {
                        Mwrl => new_name.write("renamed.", number),
                        _ => name,
                    };
                    files.rename(private, name, target, renamed)?;
                }
            }
        }
        Ok(())
    }
}

/// Makes the four directories and opens the last.
fn make_deep(files: &mut dyn Files, top: OpenDirectory) -> Result<OpenDirectory> {
    let mut here = top;
    for name in DEEP {
        let next = files.make_directory(here, name)?;
        if here != top {
            files.close_directory(here)?;
        }
        here = next;
    }
    Ok(here)
}
