//! `edit`: opens a file of an image in an editor.
//!
//! # Crash
//! The new content gets a file of its own, which replaces the old one when it is durable. A file with
//! several names is written in place, because another file would part it from them: a crash then leaves
//! some of both contents.

mod editor;
mod write_back;

use crate::failure::Outcome;
use crate::global::Global;
use crate::image::{Intent, check_may_change, with_one};
use crate::location::{Location, last_name};
use crate::messages::tell;
use crate::tree::ImageTree;
use anyhow::Context;
use drystone::vfs::{Errno, FileFlags, InodeAttributes};
use std::ffi::OsString;
use std::fs::Permissions;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Edit a file with an editor of this machine
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The editor is $VISUAL, or else $EDITOR, or else vi. It gets a copy that nobody else can read; the image isn't in use \
meanwhile. If the copy was changed when the editor ends, it replaces the content: owner, permissions, access \
control lists, attributes and flags stay. A crash leaves the old content or the new one; only a file with several \
names is written in place. If the new content can't be stored, or the editor fails after it has written, the copy \
is kept.

Examples:
  drystone edit disk.img:/etc/fstab")]
pub struct Arguments {
    /// The file, which is made if it doesn't exist.
    #[arg(value_name = "IMAGE:PATH", value_parser = Location::path_parser())]
    file: Location,
}

pub fn run(arguments: &Arguments, global: &Global) -> Outcome {
    let Location { image, path } = &arguments.file;
    check_may_change(image, global)?;
    let before = with_one(image, Intent::Read, global, |tree| EditedFile::read(tree, path))?;
    let copy = PrivateCopy::new(&before.path, &before.content)?;
    let edited = editor::run(&copy.path).and_then(|()| {
        let after = std::fs::read(&copy.path);
        Ok(after.with_context(|| copy.path.display().to_string())?)
    });
    let after = match edited {
        Ok(after) => after,
        Err(failure) => {
            if copy.differs(&before.content) {
                copy.keep_and_tell();
            }
            return Err(failure);
        }
    };
    if after == before.content {
        if !global.quiet {
            tell(format_args!("{}: not changed", arguments.file));
        }
        return Ok(());
    }
    let stored = with_one(image, Intent::Change, global, |tree| before.write_back(tree, &after));
    if stored.is_err() {
        copy.keep_and_tell();
    }
    stored
}

/// A file as it was before it was edited.
struct EditedFile {
    /// Its path, without symbolic links.
    path: PathBuf,
    /// None if there is no file yet.
    attributes: Option<InodeAttributes>,
    content: Vec<u8>,
}

impl EditedFile {
    fn read(tree: &ImageTree<'_>, path: &Path) -> Outcome<EditedFile> {
        let problem = |error| tree.error_at(path, error);
        let real = match tree.fs.canonicalize(path) {
            Ok(real) => real,
            Err(error) if error.errno() == Errno::ENOENT => {
                if tree.fs.symlink_metadata(path).is_ok() || last_name(path).is_none() {
                    return Err(problem(error).into());
                }
                tree.find_parent(path)?;
                return Ok(EditedFile {
                    path: path.to_path_buf(),
                    attributes: None,
                    content: Vec::new(),
                });
            }
            Err(error) => return Err(problem(error).into()),
        };
        // Not a directory, nor a pipe that a reader would wait for.
        let metadata = tree.fs.metadata(&real).map_err(problem)?;
        if !metadata.is_file() {
            return Err(tree.error(path.as_os_str().as_bytes(), &"isn't a file").into());
        }
        let fixed = FileFlags::IMMUTABLE | FileFlags::APPEND | FileFlags::VERITY;
        let flags = metadata.attributes().flags & fixed;
        if !flags.is_empty() {
            let names = crate::flags::names(flags).join(", ");
            let problem = format!("can't be replaced because of its flags: {names}");
            return Err(tree.error(path.as_os_str().as_bytes(), &problem).into());
        }
        let mut content = Vec::new();
        let mut file = tree.fs.open(&real).map_err(problem)?;
        file.read_to_end(&mut content).map_err(|error| problem(error.into()))?;
        let attributes = Some(*metadata.attributes());
        Ok(EditedFile { path: real, attributes, content })
    }
}

/// A copy in a directory of its own. Its name is that of the file: editors tell by it what is in it.
struct PrivateCopy {
    directory: TempDir,
    path: PathBuf,
}

impl PrivateCopy {
    fn new(path: &Path, content: &[u8]) -> anyhow::Result<PrivateCopy> {
        let directory = tempfile::Builder::new()
            .prefix("drystone-edit-")
            .permissions(Permissions::from_mode(0o700))
            .tempdir();
        let directory = directory.context("can't make a temporary directory")?;
        let name = last_name(path).unwrap_or_else(|| OsString::from("file"));
        let path = directory.path().join(name);
        std::fs::write(&path, content).with_context(|| path.display().to_string())?;
        Ok(PrivateCopy { directory, path })
    }

    /// Whether the editor has left another text, perhaps under another name.
    fn differs(&self, before: &[u8]) -> bool {
        match std::fs::read(&self.path) {
            Ok(now) => now != before,
            Err(_) => {
                let entries = std::fs::read_dir(self.directory.path());
                entries.is_ok_and(|mut entries| entries.next().is_some())
            }
        }
    }

    fn keep_and_tell(self) {
        let _ = self.directory.keep();
        tell(format_args!("the edited text is kept in {}", self.path.display()));
    }
}
