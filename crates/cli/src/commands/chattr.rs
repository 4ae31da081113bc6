//! `chattr`: changes flags.

use crate::failure::Outcome;
use crate::flags::FlagChange;
use crate::global::Global;
use crate::image::{Intent, with_each};
use crate::location::Location;
use crate::tree::ImageTree;
use crate::walk::{Visitor, WalkStep, walk};
use drystone::vfs::{self, FileType, InodeGuard, SetAttributes};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Change flags of files and directories
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Flags are those of chattr, among them i (can't be changed), a (can only be appended to), d (left out by dump), \
A (no access times), S and D (synchronous), P (entries inherit the project), F (names without case). \
'drystone lsattr' shows them.

Examples:
  drystone chattr +i disk.img:/etc/fstab
  drystone chattr -R +A disk.img:/srv
  drystone chattr = disk.img:/file")]
pub struct Arguments {
    /// +FLAGS sets flags, -FLAGS removes them, =FLAGS sets these and removes the others.
    #[arg(value_name = "[+-=]FLAGS", allow_hyphen_values = true, value_parser = FlagChange::parse)]
    change: FlagChange,
    /// What to change.
    #[arg(required = true, value_name = "IMAGE:PATH", value_parser = Location::path_parser())]
    places: Vec<Location>,
    /// Change directories recursively; leave symbolic links and special files alone.
    #[arg(short = 'R', long)]
    recursive: bool,
}

pub fn run(arguments: &Arguments, global: &Global) -> Outcome {
    with_each(&arguments.places, Intent::Change, global, |tree, paths| {
        tree.for_each(paths, |path| change(tree, path, arguments.change, arguments.recursive))
    })
}

fn change(tree: &ImageTree<'_>, path: &Path, change: FlagChange, recursive: bool) -> Outcome {
    let bytes = path.as_os_str().as_bytes();
    let node = tree.find(path, !recursive)?;
    match recursive {
        true => walk(tree, node, bytes, &mut ChangingFlags { change }),
        false => Ok(set(tree, &node, change).map_err(|error| tree.error(bytes, &error))?),
    }
}

fn set(tree: &ImageTree<'_>, node: &InodeGuard<'_>, change: FlagChange) -> vfs::Result<()> {
    let flags = Some(change.apply(node.attributes().flags));
    let changes = SetAttributes { flags, ..SetAttributes::default() };
    tree.file_system.set_attributes(&tree.context, node.inode(), &changes).map(drop)
}

struct ChangingFlags {
    change: FlagChange,
}

impl Visitor for ChangingFlags {
    fn enter(&mut self, tree: &ImageTree<'_>, step: &WalkStep<'_, '_>) -> Outcome<bool> {
        let has_flags =
            matches!(step.node.attributes().file_type, FileType::Regular | FileType::Directory);
        if has_flags && let Err(error) = set(tree, step.node, self.change) {
            tree.report(step.path, &error);
        }
        Ok(true)
    }
}
