//! `inodes`: inodetest. The cost of a create must not grow with the number of inodes.

use super::name::Name;
use super::{BLOCK_BYTES, Needs, Phase, PhaseKind, Sizes, Tally, Worker, Workload, own_directory};
use crate::files::{Files, Open, OpenDirectory, remove_tree};
use anyhow::Result;

/// See the module.
pub struct Inodes;

const ROOTS: u64 = 1;
const DIRECTORIES: u64 = 20;
const FILES: u64 = 2500;

impl Workload for Inodes {
    fn name(&self) -> &'static str {
        "inodes"
    }

    fn summary(&self) -> &'static str {
        "--roots directories of --dirs directories of --files empty files, then, root by root, the \
         files of the first --delete directories deleted; then the first worker walks everything"
    }

    fn unit(&self) -> &'static str {
        "creates"
    }

    fn phases(&self) -> &'static [Phase] {
        const {
            &[
                Phase::new("create", PhaseKind::Main),
                Phase::new("delete", PhaseKind::Seconds("delete_seconds")),
                Phase::new("find", PhaseKind::Seconds("find_seconds")),
                Phase::new("clean", PhaseKind::Aside),
            ]
        }
    }

    fn needs(&self, sizes: &Sizes, workers: u64) -> Needs {
        let Tree { roots, directories, files, .. } = Tree::new(sizes);
        let in_roots = roots * directories;
        // Names of up to 8 bytes take 16 of a leaf, and leaves are half full at worst.
        let directory_bytes = (files * 32).next_multiple_of(BLOCK_BYTES) + 2 * BLOCK_BYTES;
        Needs {
            content_bytes: workers * (in_roots + roots + 1) * directory_bytes,
            inodes: workers * (in_roots * (files + 1) + roots + 1),
            ..Needs::default()
        }
    }

    fn worker(&self, sizes: &Sizes, index: u64, _: u64) -> Box<dyn Worker> {
        Box::new(InodesWorker { index, tree: Tree::new(sizes) })
    }
}

#[derive(Clone, Copy)]
struct Tree {
    roots: u64,
    directories: u64,
    files: u64,
    deleted: u64,
}

impl Tree {
    fn new(sizes: &Sizes) -> Tree {
        let directories = sizes.directories.unwrap_or(DIRECTORIES);
        Tree {
            roots: sizes.roots.unwrap_or(ROOTS),
            directories,
            files: sizes.files.unwrap_or(FILES),
            deleted: sizes.deleted_directories.unwrap_or(0).min(directories),
        }
    }
}

struct InodesWorker {
    index: u64,
    tree: Tree,
}

impl InodesWorker {
    fn create(&self, files: &mut dyn Files, tally: &mut Tally) -> Result<()> {
        let mut name = Name::default();
        let own = files.make_directory(files.root(), &own_directory(self.index))?;
        for root_number in 0..self.tree.roots {
            let root = files.make_directory(own, name.directory(root_number))?;
            for directory_number in 0..self.tree.directories {
                let directory = files.make_directory(root, name.directory(directory_number))?;
                for number in 0..self.tree.files {
                    let file = files.open(directory, name.file(number), Open::New)?;
                    files.close(file)?;
                }
                tally.operations += self.tree.files;
                files.close_directory(directory)?;
            }
            files.close_directory(root)?;
        }
        files.close_directory(own)
    }

    fn delete(&self, files: &mut dyn Files, tally: &mut Tally) -> Result<()> {
        let mut name = Name::default();
        let own = files.open_directory(files.root(), &own_directory(self.index))?;
        for root_number in 0..self.tree.roots {
            let root = files.open_directory(own, name.directory(root_number))?;
            for directory_number in 0..self.tree.deleted {
                let directory = files.open_directory(root, name.directory(directory_number))?;
                for number in 0..self.tree.files {
                    files.unlink(directory, name.file(number))?;
                }
                tally.operations += self.tree.files;
                files.close_directory(directory)?;
            }
            files.close_directory(root)?;
        }
        files.close_directory(own)
    }
}

impl Worker for InodesWorker {
    fn run(&mut self, phase: &str, files: &mut dyn Files, tally: &mut Tally) -> Result<()> {
        match phase {
            "create" => self.create(files, tally),
            "delete" => self.delete(files, tally),
            "find" if self.index == 0 => {
                let root = files.root();
                walk(files, root, tally)
            }
            "clean" => remove_tree(files, &own_directory(self.index)),
            _ => Ok(()),
        }
    }
}

/// Lists a directory and all below it, as `find` does, which needs no attributes.
fn walk(files: &mut dyn Files, directory: OpenDirectory, tally: &mut Tally) -> Result<()> {
    let mut below = Vec::new();
    files.list(directory, &mut |name, is_directory| {
        tally.operations += 1;
        if is_directory {
            below.push(name.to_string());
        }
    })?;
    for name in below {
        let directory = files.open_directory(directory, &name)?;
        walk(files, directory, tally)?;
        files.close_directory(directory)?;
    }
    Ok(())
}
