//! `mkdir`: makes directories.

use crate::failure::Outcome;
use crate::global::Global;
use crate::image::{Intent, with_each};
use crate::location::Location;
use crate::mode::ModeChange;
use crate::tree::ImageTree;
use drystone::vfs::NewNode;
use std::path::Path;

/// Make directories
#[derive(Debug, Default, clap::Args)]
#[command(after_help = "\
Examples:
  drystone mkdir disk.img:/data
  drystone mkdir -p -m 700 disk.img:/home/user/.ssh")]
pub struct Arguments {
    /// The directories to make.
    #[arg(required = true, value_name = "IMAGE:PATH", value_parser = Location::path_parser())]
    directories: Vec<Location>,
    /// Make missing parent directories; don't fail if a directory exists.
    #[arg(short, long)]
    parents: bool,
    /// Permissions of the new directories.
    #[arg(short, long, default_value = "755", value_parser = ModeChange::parse)]
    mode: Option<ModeChange>,
}

pub fn run(arguments: &Arguments, global: &Global) -> Outcome {
    with_each(&arguments.directories, Intent::Change, global, |tree, paths| {
        tree.for_each(paths, |path| make(tree, path, arguments))
    })
}

fn make(tree: &ImageTree<'_>, path: &Path, arguments: &Arguments) -> Outcome {
    let permissions = arguments.mode.as_ref().map_or(0o755, |mode| mode.apply(0o777, true));
    let problem = |error| tree.error_making(path, error, " (-p makes it)");
    if arguments.parents {
        if tree.fs.metadata(path).is_ok_and(|metadata| metadata.is_dir()) {
            return Ok(());
        }
        // Those above get ordinary permissions, as mkdir does.
        if let Some(above) = path.parent() {
            tree.fs.with_umask(0o022).create_dir_all(above).map_err(problem)?;
        }
    }
    let made = tree.fs.make_node(path, NewNode::Directory, u32::from(permissions));
    Ok(made.map_err(problem)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{example, paths, tree_of};

    #[test]
    fn directories_are_made_with_those_above() {
        let image = example(&["a/file"]);
        let tree = tree_of(&image);
        let plain = Arguments::default();
        make(&tree, Path::new("/b"), &plain).unwrap();
        assert!(make(&tree, Path::new("/b"), &plain).is_err());
        assert!(make(&tree, Path::new("/c/d"), &plain).is_err());
        let mode = Some(ModeChange::parse("700").unwrap());
        let parents = Arguments { parents: true, mode, ..Arguments::default() };
        make(&tree, Path::new("/a/x/y/"), &parents).unwrap();
        make(&tree, Path::new("/a/x/y"), &parents).unwrap();
        assert!(make(&tree, Path::new("/a/file/z"), &parents).is_err());
        assert_eq!(paths(&tree), ["/a", "/a/file", "/a/x", "/a/x/y", "/b"]);
        let permissions =
            |path| tree.find(Path::new(path), false).unwrap().attributes().permissions;
        assert_eq!((permissions("/a/x"), permissions("/a/x/y")), (0o755, 0o700));
        assert_eq!(image.references(), 0);
    }
}
