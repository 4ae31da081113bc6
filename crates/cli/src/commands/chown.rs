//! `chown`: changes owners.

use crate::accounts::AccountNames;
use crate::failure::Outcome;
use crate::global::{Global, LongHelp};
use crate::image::{Intent, with_each};
use crate::location::Location;
use crate::tree::ImageTree;
use crate::walk::{Visitor, WalkStep, walk};
use anyhow::anyhow;
use drystone::vfs::SetAttributes;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Change owners
#[derive(Debug, clap::Args)]
#[command(
    disable_help_flag = true,
    after_help = "\
Names are looked up in /etc/passwd and /etc/group of the image. 'USER:' also changes the group, to the \
one that the user logs in with.

Examples:
  drystone chown 1000:1000 disk.img:/home/user
  drystone chown root:root disk.img:/etc/passwd
  drystone chown -R :33 disk.img:/var/www"
)]
pub struct Arguments {
    /// USER, USER:GROUP, USER: or :GROUP, as names or numbers.
    #[arg(value_parser = OwnerText::parse)]
    owner: OwnerText,
    /// What to change.
    #[arg(required = true, value_name = "IMAGE:PATH", value_parser = Location::path_parser())]
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

/// A new owner, as it was given: numbers, or names that each image has.
#[derive(Clone, Debug, PartialEq, Eq)]
struct OwnerText {
    user: Option<String>,
    group: Option<String>,
    /// `USER:` stands for the group that the user logs in with.
    with_login_group: bool,
}

impl OwnerText {
    fn parse(text: &str) -> Result<OwnerText, String> {
        let part = |text: &str| {
            let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
            match text.is_empty() {
                true => Ok(None),
                false if is_number && drystone::vfs::parse_id(text.as_bytes()).is_none() => {
                    Err(format!("{text} is too large for the number of a user or group"))
                }
                false => Ok(Some(text.to_string())),
            }
        };
        let (user, group) = text.split_once(':').unwrap_or((text, ""));
        let (user, group) = (part(user)?, part(group)?);
        let with_login_group = user.is_some() && text.ends_with(':');
        match (&user, &group) {
            (None, None) => Err("neither user nor group".to_string()),
            _ => Ok(OwnerText { user, group, with_login_group }),
        }
    }

    /// The numbers for an image with these names.
    fn look_up(&self, names: &AccountNames) -> Result<NewOwner, String> {
        let user = self.user.as_deref().map(|name| names.user_id(name)).transpose()?;
        let group = self.group.as_deref().map(|name| names.group_id(name)).transpose()?;
        let login_group = user.filter(|_| self.with_login_group).map(|user| {
            let group = names.login_group(user);
            group.ok_or_else(|| format!("/etc/passwd of the image has no group of user {user}"))
        });
        Ok(NewOwner { user, group: group.or(login_group.transpose()?) })
    }
}

/// A new owner, in numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct NewOwner {
    user: Option<u32>,
    group: Option<u32>,
}

pub fn run(arguments: &Arguments, global: &Global) -> Outcome {
    let follow = !(arguments.no_dereference || arguments.recursive);
    with_each(&arguments.places, Intent::Change, global, |tree, paths| {
        let owner = arguments.owner.look_up(tree.names());
        let owner = owner.map_err(|message| anyhow!("{}: {message}", tree.image().display()))?;
        tree.for_each(paths, |path| change(tree, path, owner, follow, arguments.recursive))
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
    use crate::testing::{example, put, tree_of};

    #[test]
    fn owners_are_numbers_or_names_of_the_image() {
        let image = example(&["etc/x"]);
        put(&image, "etc/passwd", b"web:x:33:34::/:/bin/sh\nlone:x:5\n");
        put(&image, "etc/group", b"users:x:100:web\n");
        let tree = tree_of(&image);
        let look_up = |text| OwnerText::parse(text)?.look_up(tree.names());
        let owner = |user, group| Ok(NewOwner { user, group });
        assert_eq!(look_up("5"), owner(Some(5), None));
        assert_eq!(look_up("5:6"), owner(Some(5), Some(6)));
        assert_eq!(look_up(":6"), owner(None, Some(6)));
        assert_eq!(look_up("web"), owner(Some(33), None));
        assert_eq!(look_up("web:users"), owner(Some(33), Some(100)));
        assert_eq!(look_up("web:"), owner(Some(33), Some(34)));
        assert_eq!(look_up("33:"), owner(Some(33), Some(34)));
        assert_eq!(look_up(":users"), owner(None, Some(100)));
        for text in ["", ":", "root", "1:web", "users", "lone:", "7:", "-1", "4294967296"] {
            assert!(look_up(text).is_err(), "{text}");
        }
    }

    #[test]
    fn owners_change_alone_or_below() {
        let image = example(&["a/b"]);
        let tree = tree_of(&image);
        let owners = |path| {
            let node = tree.find(Path::new(path), true).unwrap();
            (node.attributes().user, node.attributes().group)
        };
        change(&tree, Path::new("/a"), NewOwner { user: Some(7), group: None }, true, false)
            .unwrap();
        assert_eq!((owners("/a"), owners("/a/b")), ((7, 0), (0, 0)));
        change(&tree, Path::new("/a"), NewOwner { user: None, group: Some(8) }, true, true)
            .unwrap();
        assert_eq!((owners("/a"), owners("/a/b")), ((7, 8), (0, 8)));
        assert_eq!(image.references(), 0);
    }
}
