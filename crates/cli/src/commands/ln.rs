//! `ln`: makes hard links and symbolic links.

use crate::failure::{Failure, Outcome};
use crate::global::Global;
use crate::image::{Intent, with_one};
use crate::location::{Location, is_same_image, last_name};
use crate::tree::{ImageTree, join};
use drystone::replace;
use drystone::vfs::{InodeGuard, NewNode};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Make links
#[derive(Debug, clap::Args)]
#[command(after_help = "\
If IMAGE:PATH is a directory, the link is made in it with the name of the target.

Examples:
  drystone ln disk.img:/bin/tool disk.img:/bin/other-name
  drystone ln -s ../usr/bin/tool disk.img:/bin/symbolic
  drystone ln -sf /etc/new.conf disk.img:/etc/current.conf")]
pub struct Arguments {
    /// IMAGE:PATH of a file; with -s, any text.
    target: OsString,
    /// The file, if it is known already.
    #[arg(skip)]
    file: Option<Location>,
    /// The link to make.
    #[arg(value_name = "IMAGE:PATH", value_parser = Location::path_parser())]
    link: Location,
    /// Make a symbolic link.
    #[arg(short, long)]
    symbolic: bool,
    /// Replace an existing entry, unless it is a directory.
    #[arg(short, long)]
    force: bool,
}

impl Arguments {
    /// Takes the target of a hard link for a path in an image, which `find` finds.
    pub fn find_target(&mut self, find: impl FnOnce(&OsStr) -> Location) {
        if !self.symbolic {
            self.file = Some(find(&self.target));
        }
    }
}

pub fn run(arguments: &Arguments, global: &Global) -> Outcome {
    let link = &arguments.link;
    let target = if arguments.symbolic {
        LinkTarget::Text(arguments.target.clone())
    } else {
        let location = match &arguments.file {
            Some(file) => file.clone(),
            None => Location::parse(&arguments.target).map_err(Failure::Usage)?,
        };
        if !is_same_image(&location.image, &link.image) {
            let message = "both names of a file must be in one image".to_string();
            return Err(Failure::Usage(message));
        }
        LinkTarget::File(location.path)
    };
    with_one(&link.image, Intent::Change, global, |tree| {
        make(tree, &target, &link.path, arguments.force)
    })
}

/// The target of a link.
enum LinkTarget {
    Text(OsString),
    File(PathBuf),
}

/// The same, found.
enum LinkSource<'t, 'a> {
    Text(&'t [u8]),
    File(InodeGuard<'a>),
}

impl LinkSource<'_, '_> {
    fn is(&self, other: &InodeGuard<'_>) -> bool {
        matches!(self, LinkSource::File(node) if node.inode() == other.inode())
    }
}

fn make(tree: &ImageTree<'_>, target: &LinkTarget, link: &Path, force: bool) -> Outcome {
    let path = place_of(tree, target, link);
    let bytes = path.as_os_str().as_bytes();
    if let (LinkTarget::Text(text), false) = (target, force) {
        return Ok(tree.fs.symlink(text, &path).map_err(|error| tree.error_at(&path, error))?);
    }
    let problem = |error| tree.error(bytes, &error);
    let source = match target {
        LinkTarget::Text(text) => LinkSource::Text(text.as_bytes()),
        LinkTarget::File(file) => LinkSource::File(tree.find(file, false)?),
    };
    if let (LinkTarget::File(file), LinkSource::File(node)) = (target, &source)
        && node.is_directory()
    {
        let cause = format!("{} is a directory", file.display());
        return Err(tree.error(bytes, &cause).into());
    }
    let (parent, name) = tree.find_parent(&path)?;
    let make = |name: &[u8]| {
        let (files, context, parent) = (tree.file_system, &tree.context, parent.inode());
        match &source {
            LinkSource::Text(text) => {
                let node = NewNode::Symlink(text);
                InodeGuard::create(files, context, parent, name, node, 0o777)
            }
            LinkSource::File(node) => InodeGuard::link(files, context, node.inode(), parent, name),
        }
    };
    let existing = if force { tree.child(parent.inode(), name).map_err(problem)? } else { None };
    let made = match existing.filter(|existing| !existing.is_directory()) {
        // Two names of one file can't replace each other.
        Some(existing) if source.is(&existing) => return Ok(()),
        Some(_) => replace(tree.file_system, &tree.context, parent.inode(), name, &make),
        None => make(name),
    };
    made.map_err(problem)?;
    Ok(())
}

/// Where the link goes: below `link` if that is a directory.
fn place_of(tree: &ImageTree<'_>, target: &LinkTarget, link: &Path) -> PathBuf {
    let target = match target {
        LinkTarget::Text(text) => Path::new(text),
        LinkTarget::File(path) => path,
    };
    let is_directory = tree.fs.metadata(link).is_ok_and(|metadata| metadata.is_dir());
    match last_name(target) {
        Some(name) if is_directory => {
            let path = join(link.as_os_str().as_bytes(), name.as_bytes());
            PathBuf::from(OsStr::from_bytes(&path))
        }
        _ => link.to_path_buf(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{content, example, paths, put, tree_of};
    use drystone::vfs::Errno;

    fn is_taken(outcome: &Outcome) -> bool {
        let text = Errno::EEXIST.text();
        matches!(outcome, Err(Failure::Failed(error)) if error.to_string().ends_with(text))
    }

    #[test]
    fn names_and_symbolic_links() {
        let image = example(&["file", "d/x"]);
        put(&image, "other", b"other");
        let tree = tree_of(&image);
        let file = LinkTarget::File("/file".into());
        make(&tree, &file, Path::new("/again"), false).unwrap();
        make(&tree, &file, Path::new("/d"), false).unwrap();
        assert!(is_taken(&make(&tree, &file, Path::new("/other"), false)));
        make(&tree, &file, Path::new("/other"), true).unwrap();
        make(&tree, &file, Path::new("/file"), true).unwrap();
        assert_eq!(content(&tree, "/other"), b"file");
        assert_eq!(tree.find(Path::new("/file"), false).unwrap().attributes().links, 4);
        assert!(make(&tree, &LinkTarget::File("/d".into()), Path::new("/e"), false).is_err());
        make(&tree, &LinkTarget::Text("../file".into()), Path::new("/d/s"), false).unwrap();
        assert_eq!(content(&tree, "/d/s"), b"file");
        assert_eq!(paths(&tree), ["/again", "/d", "/d/file", "/d/s", "/d/x", "/file", "/other"]);
        assert_eq!(image.references(), 0);
    }
}
