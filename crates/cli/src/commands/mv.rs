//! `mv`: renames and moves files within an image.

use crate::failure::{Failure, Outcome};
use crate::global::Global;
use crate::image::{Intent, with_one};
use crate::location::{Location, is_same_image, last_name};
use crate::tree::ImageTree;
use drystone::vfs::{Errno, RenameFlags};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Rename and move within an image
#[derive(Debug, Default, clap::Args)]
#[command(
    override_usage = "drystone mv [OPTIONS] <IMAGE:PATH>... <IMAGE:PATH>",
    after_help = "\
If the target is a directory, everything is moved into it. To move between images, use cp and rm.

Examples:
  drystone mv disk.img:/etc/motd disk.img:/etc/motd.old
  drystone mv disk.img:/a disk.img:/b disk.img:/directory
  drystone mv --exchange disk.img:/current disk.img:/next"
)]
pub struct Arguments {
    /// What to move, and the place to move it to.
    #[arg(required = true, num_args = 2.., value_name = "IMAGE:PATH", value_parser = Location::path_parser())]
    places: Vec<Location>,
    /// Don't replace an existing file.
    #[arg(short, long)]
    no_clobber: bool,
    /// Swap two entries.
    #[arg(long, conflicts_with = "no_clobber")]
    exchange: bool,
    /// Treat the target as the new name, even if it is a directory.
    #[arg(short = 'T', long)]
    no_target_directory: bool,
}

pub fn run(arguments: &Arguments, global: &Global) -> Outcome {
    let Some((target, sources)) = arguments.places.split_last() else { return Ok(()) };
    if sources.iter().any(|source| !is_same_image(&source.image, &target.image)) {
        let message = "mv works within one image; between images use cp and rm";
        return Err(Failure::Usage(message.to_string()));
    }
    let sources: Vec<PathBuf> = sources.iter().map(|source| source.path.clone()).collect();
    with_one(&target.image, Intent::Change, global, |tree| {
        rename(tree, &sources, &target.path, arguments)
    })
}

fn rename(
    tree: &ImageTree<'_>,
    sources: &[PathBuf],
    target: &Path,
    arguments: &Arguments,
) -> Outcome {
    let is_name = arguments.no_target_directory || arguments.exchange;
    let is_directory = !is_name && tree.fs.metadata(target).is_ok_and(|metadata| metadata.is_dir());
    if !is_directory && sources.len() > 1 {
        let message = "with several sources the last place must be a directory";
        return Err(tree.error(target.as_os_str().as_bytes(), &message).into());
    }
    let flags = match (arguments.no_clobber, arguments.exchange) {
        (true, _) => RenameFlags::NO_REPLACE,
        (_, true) => RenameFlags::EXCHANGE,
        _ => RenameFlags::empty(),
    };
    tree.for_each(sources, |source| {
        let place = match (is_directory, last_name(source)) {
            (true, Some(name)) => target.join(name),
            _ => target.to_path_buf(),
        };
        tree.fs.rename_with(source, place, flags).map_err(|error| {
            let (errno, to) = (error.errno(), target.display());
            let cause = match errno {
                Errno::EINVAL => {
                    format!("can't move to {to}: a directory can't be moved into itself")
                }
                _ => format!("can't move to {to}: {}", error.into_cause()),
            };
            tree.error(source.as_os_str().as_bytes(), &cause).into()
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{content, example, paths, tree_of};

    fn moved(tree: &ImageTree<'_>, from: &[&str], to: &str, arguments: &Arguments) -> bool {
        let sources: Vec<PathBuf> = from.iter().map(PathBuf::from).collect();
        rename(tree, &sources, Path::new(to), arguments).is_ok() && !tree.has_reported()
    }

    #[test]
    fn names_change_and_directories_take_in() {
        let image = example(&["a", "b", "d/e"]);
        let tree = tree_of(&image);
        let plain = Arguments::default();
        assert!(moved(&tree, &["/a"], "/x", &plain));
        assert!(moved(&tree, &["/x", "/b"], "/d", &plain));
        assert_eq!(paths(&tree), ["/d", "/d/b", "/d/e", "/d/x"]);
        assert!(moved(&tree, &["/d/b"], "/d/e", &plain));
        assert_eq!(content(&tree, "/d/e"), b"b");
        let exchange = Arguments { exchange: true, ..Arguments::default() };
        assert!(moved(&tree, &["/d/e"], "/d/x", &exchange));
        assert_eq!(content(&tree, "/d/x"), b"b");
        assert!(!moved(&tree, &["/d/e", "/d/x"], "/new", &plain));
        let no_clobber = Arguments { no_clobber: true, ..Arguments::default() };
        assert!(!moved(&tree, &["/d/e"], "/d/x", &no_clobber));
        assert_eq!(image.references(), 0);
    }
}
