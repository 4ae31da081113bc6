//! `chown`: changes owners.

use crate::failure::Outcome;
use crate::global::{Global, LongHelp};
use crate::image::{Intent, with_each};
use crate::location::Location;
use crate::tree::ImageTree;
use crate::walk::{Visitor, WalkStep, walk};
use drystone::vfs::SetAttributes;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Change owners
#[derive(Debug, clap::Args)]
#[command(
    disable_help_flag = true,
    after_help = "\
Users and groups are numbers: an image has names of its own for them, if any.

Examples:
  drystone chown 1000:1000 disk.img:/home/user
  drystone chown -R :33 disk.img:/var/www"
)]
pub struct Arguments {
    /// USER, USER:GROUP or :GROUP, as numbers.
    #[arg(value_parser = NewOwner::parse)]
    owner: NewOwner,
    /// What to change.
    #[arg(required = true, value_name = "IMAGE:PATH", value_parser = Location::parser())]
    places: Vec<Location>,
    /// Change directories recursively; change symbolic links and not their targets.
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Don't follow a symbolic link at the end of the path.
    #[arg(short = 'h', long)]
    no_dereference: bool,
    #[command(flatten)]
    help: LongHelp,
}

/// A new owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct NewOwner {
    user: Option<u32>,
    group: Option<u32>,
}

impl NewOwner {
    fn parse(text: &str) -> Result<NewOwner, String> {
        let number = |digits: &str| match digits {
            "" => Ok(None),
            _ => digits
                .parse()
                .map(Some)
                .map_err(|_| format!("'{digits}' isn't a number; names aren't known in an image")),
        };
        let (user, group) = text.split_once(':').unwrap_or((text, ""));
        let owner = NewOwner { user: number(user)?, group: number(group)? };
        match owner {
            NewOwner { user: None, group: None } => Err("neither user nor group".to_string()),
            _ => Ok(owner),
        }
    }
}

pub fn run(arguments: &Arguments, global: &Global) -> Outcome {
    let follow = !(arguments.no_dereference || arguments.recursive);
    with_each(&arguments.places, Intent::Change, global, |tree, paths| {
        tree.for_each(paths, |path| {
            change(tree, path, arguments.owner, follow, arguments.recursive)
        })
    })
}

fn change(
    tree: &ImageTree<'_>,
    path: &Path,
    owner: NewOwner,
    follow: bool,
    recursive: bool,
) -> Outcome {
    if !recursive {
        let NewOwner { user, group } = owner;
        let changed = match follow {
            true => tree.fs.chown(path, user, group),
            false => tree.fs.lchown(path, user, group),
        };
        return Ok(changed.map_err(|error| tree.error_at(path, error))?);
    }
    let node = tree.find(path, follow)?;
    let mut changing = ChangingOwners { owner };
    walk(tree, node, path.as_os_str().as_bytes(), &mut changing)
}

struct ChangingOwners {
    owner: NewOwner,
}

impl Visitor for ChangingOwners {
    fn enter(&mut self, tree: &ImageTree<'_>, step: &WalkStep<'_, '_>) -> Outcome<bool> {
        let changes = SetAttributes {
            user: self.owner.user,
            group: self.owner.group,
            ..SetAttributes::default()
        };
        let result = tree.file_system.set_attributes(&tree.context, step.node.inode(), &changes);
        if let Err(error) = result {
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
    fn owners_are_numbers() {
        let owner = |user, group| Ok(NewOwner { user, group });
        assert_eq!(NewOwner::parse("5"), owner(Some(5), None));
        assert_eq!(NewOwner::parse("5:6"), owner(Some(5), Some(6)));
        assert_eq!(NewOwner::parse(":6"), owner(None, Some(6)));
        for text in ["", ":", "root", "1:x", "-1", "4294967296"] {
            assert!(NewOwner::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn owners_change_alone_or_below() {
        let image = example(&["a/b"]);
        let tree = tree_of(&image);
        let owners = |path| {
            let node = tree.find(Path::new(path), true).unwrap();
            (node.attributes.user, node.attributes.group)
        };
        change(&tree, Path::new("/a"), NewOwner::parse("7").unwrap(), true, false).unwrap();
        assert_eq!((owners("/a"), owners("/a/b")), ((7, 0), (0, 0)));
        change(&tree, Path::new("/a"), NewOwner::parse(":8").unwrap(), true, true).unwrap();
        assert_eq!((owners("/a"), owners("/a/b")), ((7, 8), (0, 8)));
        assert_eq!(image.references(), 0);
    }
}
