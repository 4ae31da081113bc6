//! `chmod`: changes permissions.

use crate::failure::Outcome;
use crate::global::Global;
use crate::image::{Intent, with_each};
use crate::location::Location;
use crate::mode::ModeChange;
use crate::tree::ImageTree;
use crate::walk::{Visitor, WalkStep, walk};
use drystone::vfs::{FileType, InodeGuard, SetAttributes};
use std::fs::Permissions;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Change permissions
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  drystone chmod 600 disk.img:/etc/shadow
  drystone chmod -R u+rwX,go-w disk.img:/srv")]
pub struct Arguments {
    /// Octal digits, or clauses like u+x,go=r.
    #[arg(value_parser = ModeChange::parse, allow_hyphen_values = true)]
    mode: ModeChange,
    /// What to change.
    #[arg(required = true, value_name = "IMAGE:PATH", value_parser = Location::path_parser())]
    places: Vec<Location>,
    /// Change directories recursively.
    #[arg(short = 'R', long)]
    recursive: bool,
}

pub fn run(arguments: &Arguments, global: &Global) -> Outcome {
    with_each(&arguments.places, Intent::Change, global, |tree, paths| {
        tree.for_each(paths, |path| change(tree, path, &arguments.mode, arguments.recursive))
    })
}

fn change(tree: &ImageTree<'_>, path: &Path, mode: &ModeChange, recursive: bool) -> Outcome {
    let bytes = path.as_os_str().as_bytes();
    if recursive {
        return walk(tree, tree.find(path, true)?, bytes, &mut ChangingModes { mode });
    }
    let problem = |error| tree.error_at(path, error);
    let metadata = tree.fs.metadata(path).map_err(problem)?;
    let permissions = mode.apply(metadata.attributes().permissions, metadata.is_dir());
    let permissions = Permissions::from_mode(u32::from(permissions));
    Ok(tree.fs.set_permissions(path, permissions).map_err(problem)?)
}

fn change_one(
    tree: &ImageTree<'_>,
    node: &InodeGuard<'_>,
    mode: &ModeChange,
) -> drystone::vfs::Result<()> {
    let permissions = mode.apply(node.attributes().permissions, node.is_directory());
    let changes = SetAttributes { permissions: Some(permissions), ..SetAttributes::default() };
    tree.file_system.set_attributes(&tree.context, node.inode(), &changes)?;
    Ok(())
}

struct ChangingModes<'m> {
    mode: &'m ModeChange,
}

impl Visitor for ChangingModes<'_> {
    fn enter(&mut self, tree: &ImageTree<'_>, step: &WalkStep<'_, '_>) -> Outcome<bool> {
        // A symbolic link has no permissions of its own.
        if step.node.attributes().file_type != FileType::Symlink
            && let Err(error) = change_one(tree, step.node, self.mode)
        {
            tree.report(step.path, &error);
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{example, tree_of};

    #[test]
    fn permissions_change_alone_or_below() {
        let image = example(&["a/b", "c"]);
        let tree = tree_of(&image);
        let permissions = |path| tree.find(Path::new(path), true).unwrap().attributes().permissions;
        change(&tree, Path::new("/c"), &ModeChange::parse("4711").unwrap(), false).unwrap();
        assert_eq!(permissions("/c"), 0o4711);
        change(&tree, Path::new("/a"), &ModeChange::parse("go-rwx").unwrap(), true).unwrap();
        assert_eq!((permissions("/a"), permissions("/a/b")), (0o700, 0o600));
        assert!(change(&tree, Path::new("/x"), &ModeChange::Octal(0), false).is_err());
        assert_eq!(image.references(), 0);
    }
}
