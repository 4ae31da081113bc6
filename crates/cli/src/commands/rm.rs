//! `rm`: removes names, and a file with its last name.

use crate::failure::Outcome;
use crate::global::Global;
use crate::image::{Intent, with_each};
use crate::location::Location;
use crate::tree::ImageTree;
use crate::walk::{Visitor, WalkStep, walk};
use drystone::vfs::{Errno, FileFlags};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Remove files and directories
#[derive(Debug, Default, clap::Args)]
#[command(after_help = "\
Examples:
  drystone rm disk.img:/etc/motd
  drystone rm -r disk.img:/var/cache disk.img:/tmp/old
  drystone rm -rf disk.img:/perhaps/there")]
pub struct Arguments {
    /// What to remove.
    #[arg(required = true, value_name = "IMAGE:PATH", value_parser = Location::path_parser())]
    victims: Vec<Location>,
    /// Remove directories with everything in them.
    #[arg(short, long, short_alias = 'R')]
    recursive: bool,
    /// Remove empty directories.
    #[arg(short, long)]
    dir: bool,
    /// Don't fail if an entry doesn't exist.
    #[arg(short, long)]
    force: bool,
}

pub fn run(arguments: &Arguments, global: &Global) -> Outcome {
    with_each(&arguments.victims, Intent::Change, global, |tree, paths| {
        tree.for_each(paths, |path| remove(tree, path, arguments))
    })
}

fn remove(tree: &ImageTree<'_>, path: &Path, arguments: &Arguments) -> Outcome {
    let bytes = path.as_os_str().as_bytes();
    if bytes.iter().all(|byte| *byte == b'/') {
        return Err(tree.error(bytes, &"the root directory can't be removed").into());
    }
    let problem = |error| tree.error(bytes, &error);
    let (parent, name) = match tree.find_parent(path) {
        Ok(found) => found,
        Err(_) if arguments.force && is_missing(tree, path) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    let Some(node) = tree.child(parent.inode(), name).map_err(problem)? else {
        if arguments.force {
            return Ok(());
        }
        return Err(problem(Errno::ENOENT.into()).into());
    };
    if !node.is_directory() {
        let flags = node.attributes().flags;
        drop(node);
        tree.fs.remove_file(path).map_err(|error| match fixed(flags, error.errno()) {
            Some(why) => tree.error(bytes, &why),
            None => tree.error_at(path, error),
        })?;
    } else if arguments.recursive {
        let mut removal = TreeRemover::default();
        walk(tree, node, bytes, &mut removal)?;
        if !removal.has_failed {
            let removed = tree.file_system.remove_directory(&tree.context, parent.inode(), name);
            removed.map_err(problem)?;
        }
    } else if arguments.dir {
        tree.fs.remove_dir(path).map_err(|error| tree.error_at(path, error))?;
    } else {
        return Err(tree.error(bytes, &"is a directory (-r removes it)").into());
    }
    Ok(())
}

/// Why a file with these flags can't be removed, if they are the reason.
fn fixed(flags: FileFlags, errno: Errno) -> Option<&'static str> {
    match errno {
        Errno::EPERM if flags.contains(FileFlags::IMMUTABLE) => {
            Some("is immutable ('drystone chattr -i' changes that)")
        }
        Errno::EPERM if flags.contains(FileFlags::APPEND) => {
            Some("takes only additions ('drystone chattr -a' changes that)")
        }
        _ => None,
    }
}

fn is_missing(tree: &ImageTree<'_>, path: &Path) -> bool {
    tree.fs.symlink_metadata(path).is_err_and(|error| error.errno() == Errno::ENOENT)
}

/// Removes everything below the start.
#[derive(Default)]
struct TreeRemover {
    has_failed: bool,
}

impl Visitor for TreeRemover {
    fn enter(&mut self, tree: &ImageTree<'_>, step: &WalkStep<'_, '_>) -> Outcome<bool> {
        if step.node.is_directory() {
            return Ok(true);
        }
        if let Some(parent) = step.parent
            && let Err(error) = tree.file_system.unlink(&tree.context, parent, step.name)
        {
            match fixed(step.node.attributes().flags, error.errno) {
                Some(why) => tree.report(step.path, &why),
                None => tree.report(step.path, &error),
            }
            self.has_failed = true;
        }
        Ok(false)
    }

    fn shun(&mut self, _step: &WalkStep<'_, '_>) {
        self.has_failed = true;
    }

    fn leave(&mut self, tree: &ImageTree<'_>, step: &WalkStep<'_, '_>) -> Outcome {
        if let Some(parent) = step.parent
            && let Err(error) = tree.file_system.remove_directory(&tree.context, parent, step.name)
        {
            tree.report(step.path, &error);
            self.has_failed = true;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{example, paths, tree_of};

    #[test]
    fn only_what_was_meant_is_removed() {
        let image = example(&["a/b/c", "a/d", "e"]);
        let tree = tree_of(&image);
        let plain = Arguments::default();
        let recursive = Arguments { recursive: true, ..Arguments::default() };
        let force = Arguments { force: true, ..Arguments::default() };
        assert!(remove(&tree, Path::new("/a"), &plain).is_err());
        assert!(remove(&tree, Path::new("/nothing"), &recursive).is_err());
        assert!(remove(&tree, Path::new("/"), &recursive).is_err());
        remove(&tree, Path::new("/nothing/at/all"), &force).unwrap();
        assert!(remove(&tree, Path::new("/e/x"), &force).is_err());
        remove(&tree, Path::new("/e"), &plain).unwrap();
        assert_eq!(paths(&tree), ["/a", "/a/b", "/a/b/c", "/a/d"]);
        remove(&tree, Path::new("/a/"), &recursive).unwrap();
        assert_eq!(paths(&tree), [""; 0]);
        assert_eq!(image.references(), 0);
    }
}
