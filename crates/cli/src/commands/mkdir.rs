//! `mkdir`: makes directories.

use crate::failure::{Failure, Outcome};
use crate::global::Global;
use crate::image::{Intent, with_each};
use crate::location::Location;
use crate::mode::Change;
use crate::tree::{ImageNode, ImageTree};
use drystone::vfs::{Errno, FileType, NewNode};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Make directories
#[derive(Debug, Default, clap::Args)]
#[command(after_help = "\
Examples:
  drystone mkdir disk.img:/data
  drystone mkdir -p -m 700 disk.img:/home/user/.ssh")]
pub struct Arguments {
    /// The directories to make.
    #[arg(required = true, value_name = "IMAGE:PATH", value_parser = Location::parser())]
    directories: Vec<Location>,
    /// Make missing parent directories; don't fail if a directory exists.
    #[arg(short, long)]
    parents: bool,
    /// Permissions of the new directories.
    #[arg(short, long, default_value = "755", value_parser = Change::parse)]
    mode: Option<Change>,
}

pub fn run(arguments: &Arguments, global: &Global) -> Outcome {
    with_each(&arguments.directories, Intent::Change, global, |tree, paths| {
        tree.for_each(paths, |path| make(tree, path, arguments))
    })
}

fn make(tree: &ImageTree<'_>, path: &Path, arguments: &Arguments) -> Outcome {
    let permissions = arguments.mode.as_ref().map_or(0o755, |mode| mode.apply(0o777, true));
    if !arguments.parents {
        let (parent, name) = tree.find_parent(path)?;
        make_one(tree, &parent, name, permissions, path)?;
        return Ok(());
    }
    // Names are made one after the other; the ones above get ordinary permissions, as mkdir does.
    let bytes = path.as_os_str().as_bytes();
    let names: Vec<&[u8]> =
        bytes.split(|&byte| byte == b'/').filter(|name| !name.is_empty()).collect();
    let mut here = tree.find(Path::new("/"), true)?;
    for (index, name) in names.iter().enumerate() {
        let is_last = index + 1 == names.len();
        let permissions = if is_last { permissions } else { 0o755 };
        here = match make_one(tree, &here, name, permissions, path) {
            Ok(made) => made,
            Err(error) => {
                // It may be there, perhaps behind a link; what is no directory fails here.
                let above: Vec<u8> = names[..=index].join(&b'/');
                match tree.find(Path::new(std::ffi::OsStr::from_bytes(&above)), true) {
                    Ok(node) if node.attributes.file_type == FileType::Directory => node,
                    Ok(_) => return Err(tree.error(bytes, &Errno::ENOTDIR.text()).into()),
                    Err(_) => return Err(error),
                }
            }
        };
    }
    Ok(())
}

fn make_one<'a>(
    tree: &ImageTree<'a>,
    parent: &ImageNode<'a>,
    name: &[u8],
    permissions: u16,
    path: &Path,
) -> Result<ImageNode<'a>, Failure> {
    tree.file_system
        .create(&tree.context, parent.inode(), name, NewNode::Directory, permissions)
        .map(|made| tree.hold(made))
        .map_err(|error| tree.error(path.as_os_str().as_bytes(), &error).into())
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
        let mode = Some(Change::parse("700").unwrap());
        let parents = Arguments { parents: true, mode, ..Arguments::default() };
        make(&tree, Path::new("/a/x/y/"), &parents).unwrap();
        make(&tree, Path::new("/a/x/y"), &parents).unwrap();
        assert!(make(&tree, Path::new("/a/file/z"), &parents).is_err());
        assert_eq!(paths(&tree), ["/a", "/a/file", "/a/x", "/a/x/y", "/b"]);
        let permissions = |path| tree.find(Path::new(path), false).unwrap().attributes.permissions;
        assert_eq!((permissions("/a/x"), permissions("/a/x/y")), (0o755, 0o700));
        assert_eq!(image.references(), 0);
    }
}
