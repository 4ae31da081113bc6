//! Manifests: changes to what the sources hold.
//!
//! Each line has a path and its properties: `/dev/console type=character device=5:1 mode=600`. What a
//! line doesn't mention stays as it is. With `type=` a line makes something, so that device nodes need
//! no superuser. `docs/src/reference/sources.md` describes the format; `drystone extract
//! --manifest-out` writes it.

mod apply;
mod parse;

use crate::host_files::HostFiles;
use crate::list::LineError;
use drystone_mkfs::tree::{FileTree, InodeTimestamp};
use std::path::{Path, PathBuf};

/// A manifest: the changes to make.
#[derive(Clone, Debug)]
pub struct Manifest {
    /// What the user called it.
    name: String,
    /// The directory of the files that it names.
    directory: PathBuf,
    lines: Vec<Line>,
}

/// The meaning of a line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Line {
    number: usize,
    path: Vec<u8>,
    /// What to make.
    new: Option<New>,
    removes: bool,
    /// Whether the path may be missing.
    is_optional: bool,
    mode: Option<u16>,
    user: Option<u32>,
    group: Option<u32>,
    modified: Option<InodeTimestamp>,
    /// Attributes by name; one without a value is removed.
    attributes: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

/// What a line makes.
#[derive(Clone, Debug, PartialEq, Eq)]
enum New {
    /// A regular file with the content of a file of this machine, or empty.
    File(Option<PathBuf>),
    Directory,
    Symlink(Vec<u8>),
    HardLink(Vec<u8>),
    CharacterDevice(u32, u32),
    BlockDevice(u32, u32),
    Fifo,
    Socket,
}

impl Manifest {
    /// Reads a manifest's text; the files that it names are in `directory`.
    ///
    /// # Errors
    /// The first invalid line.
    pub fn parse(name: &str, directory: &Path, text: &[u8]) -> Result<Manifest, LineError> {
        let lines = parse::lines(name, text)?;
        Ok(Manifest { name: name.to_owned(), directory: directory.to_path_buf(), lines })
    }

    /// Changes a tree, line by line.
    ///
    /// # Errors
    /// The first line that doesn't fit the tree.
    pub fn apply(&self, tree: &mut FileTree) -> Result<(), LineError> {
        let mut files = HostFiles::default();
        for line in &self.lines {
            apply::line(tree, &mut files, line, &self.directory).map_err(|problem| LineError {
                file: self.name.clone(),
                line: line.number,
                column: 1,
                problem,
            })?;
        }
        Ok(())
    }
}
