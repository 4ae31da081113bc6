//! `getfacl`: shows access control lists.

use crate::acl::FileAcls;
use crate::failure::Outcome;
use crate::global::Global;
use crate::image::{Intent, with_each};
use crate::location::Location;
use crate::output::NameJson;
use crate::terminal::Output;
use crate::tree::ImageTree;
use crate::walk::{Visitor, WalkStep, walk};
use drystone::acl::{Acl, AclEntry, AclTag, permission_letters};
use drystone::vfs::{FileType, InodeGuard, mode};
use serde::Serialize;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;

/// Show access control lists
#[derive(Debug, Default, clap::Args)]
#[command(after_help = "\
Users and groups are numbers. Where the mask takes permissions away, those that are left follow as a comment. \
'drystone setfacl' takes the output with --restore, as setfacl does.

Examples:
  drystone getfacl disk.img:/srv
  drystone getfacl -R disk.img:/home > lists")]
pub struct Arguments {
    /// The entries to show.
    #[arg(required = true, value_name = "IMAGE[:PATH]", value_parser = Location::parser())]
    places: Vec<Location>,
    /// Show only the list that decides on accesses.
    #[arg(short, long, conflicts_with = "default")]
    access: bool,
    /// Show only the list that new entries of a directory inherit.
    #[arg(short, long)]
    default: bool,
    /// Leave out name, owner, group and set-id bits.
    #[arg(short = 'c', long)]
    omit_header: bool,
    /// Show effective permissions everywhere.
    #[arg(short = 'e', long, conflicts_with = "no_effective")]
    all_effective: bool,
    /// Show no effective permissions.
    #[arg(short = 'E', long)]
    no_effective: bool,
    /// Skip files for which permission bits say all.
    #[arg(short, long)]
    skip_base: bool,
    /// Show everything below directories, without symbolic links.
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Keep the slash that paths begin with.
    #[arg(short = 'p', long)]
    absolute_names: bool,
    /// Accepted for compatibility with getfacl; users and groups are always numbers.
    #[arg(short, long)]
    numeric: bool,
}

pub fn run(arguments: &Arguments, global: &Global) -> Outcome {
    with_each(&arguments.places, Intent::Read, global, |tree, paths| {
        Output::with_stdout(global.json, |output| {
            output.tell_image(tree);
            tree.for_each(paths, |path| {
                let node = tree.find(path, true)?;
                let mut showing = ShowingLists { arguments, output };
                walk(tree, node, path.as_os_str().as_bytes(), &mut showing)
            })
        })
    })
}

struct ShowingLists<'s, 'o> {
    arguments: &'s Arguments,
    output: &'s mut Output<'o>,
}

impl Visitor for ShowingLists<'_, '_> {
    fn enter(&mut self, tree: &ImageTree<'_>, step: &WalkStep<'_, '_>) -> Outcome<bool> {
        if step.node.attributes().file_type != FileType::Symlink {
            match FileAcls::load(tree, step.node) {
                Ok(lists) if lists.is_plain() && self.arguments.skip_base => {}
                Ok(lists) if self.output.json => self.show_json(step, &lists)?,
                Ok(lists) => self.show(step, &lists)?,
                Err(error) => tree.report(step.path, &error),
            }
        }
        Ok(self.arguments.recursive)
    }
}

impl ShowingLists<'_, '_> {
    fn show(&mut self, step: &WalkStep<'_, '_>, lists: &FileAcls) -> Outcome {
        let Arguments { access: only_access, default: only_default, .. } = *self.arguments;
        if !self.arguments.omit_header {
            self.show_header(step)?;
        }
        if !only_default {
            self.show_list("", &lists.access)?;
        }
        if let Some(default) = lists.default.as_ref().filter(|_| !only_access) {
            self.show_list(if only_default { "" } else { "default:" }, default)?;
        }
        writeln!(self.output)?;
        Ok(())
    }

    fn show_header(&mut self, step: &WalkStep<'_, '_>) -> std::io::Result<()> {
        write!(self.output, "# file: ")?;
        self.output.name(&shown_path(step.path, self.arguments.absolute_names))?;
        let attributes = step.node.attributes();
        writeln!(self.output, "\n# owner: {}\n# group: {}", attributes.user, attributes.group)?;
        match flags(step.node).as_str() {
            "---" => Ok(()),
            flags => writeln!(self.output, "# flags: {flags}"),
        }
    }

    fn show_list(&mut self, prefix: &str, list: &Acl) -> std::io::Result<()> {
        for entry in list.entries() {
            write!(self.output, "{prefix}{entry}")?;
            let effective = effective(list, entry).filter(|bits| {
                let differs = *bits != entry.permissions;
                self.arguments.all_effective || differs && !self.arguments.no_effective
            });
            if let Some(bits) = effective {
                write!(self.output, "\t#effective:{}", permission_letters(bits))?;
            }
            writeln!(self.output)?;
        }
        Ok(())
    }

    fn show_json(&mut self, step: &WalkStep<'_, '_>, lists: &FileAcls) -> Outcome {
        let attributes = step.node.attributes();
        let to_json = |list: &Acl| list.entries().iter().map(|e| EntryJson::new(list, e)).collect();
        self.output.json(&AclsJson {
            path: step.path.into(),
            user: attributes.user,
            group: attributes.group,
            flags: flags(step.node),
            access: Some(&lists.access).filter(|_| !self.arguments.default).map(to_json),
            default: lists.default.as_ref().filter(|_| !self.arguments.access).map(to_json),
        })?;
        Ok(())
    }
}

/// The path as setfacl reads it. Without its slash, so that setfacl on a mount doesn't reach the
/// machine's own files.
fn shown_path(path: &[u8], is_absolute: bool) -> Vec<u8> {
    let first = path.iter().position(|byte| *byte != b'/').unwrap_or(path.len());
    let path = if is_absolute { path } else { &path[first..] };
    let mut shown = Vec::new();
    for byte in path {
        match byte {
            b'\n' | b'\r' => shown.extend(format!("\\{byte:03o}").bytes()),
            b'\\' => shown.extend(b"\\\\"),
            _ => shown.push(*byte),
        }
    }
    if shown.is_empty() { b".".to_vec() } else { shown }
}

/// Set-user-id, set-group-id and sticky bit: `s--`.
fn flags(node: &InodeGuard<'_>) -> String {
    let bits = [(mode::SET_USER_ID, 's'), (mode::SET_GROUP_ID, 's'), (mode::STICKY, 't')];
    let letter =
        |(bit, letter)| if node.attributes().permissions & bit == 0 { '-' } else { letter };
    bits.into_iter().map(letter).collect()
}

/// What the mask leaves of an entry; none where it has no say.
fn effective(list: &Acl, entry: &AclEntry) -> Option<u8> {
    match entry.tag {
        AclTag::User(_) | AclTag::OwningGroup | AclTag::Group(_) => {
            Some(entry.permissions & list.get(AclTag::Mask)?)
        }
        AclTag::Owner | AclTag::Mask | AclTag::Other => None,
    }
}

#[derive(Serialize)]
struct AclsJson {
    path: NameJson,
    user: u32,
    group: u32,
    flags: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    access: Option<Vec<EntryJson>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    default: Option<Vec<EntryJson>>,
}

#[derive(Serialize)]
struct EntryJson {
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u32>,
    permissions: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    effective: Option<String>,
}

impl EntryJson {
    fn new(list: &Acl, entry: &AclEntry) -> EntryJson {
        let (kind, id) = match entry.tag {
            AclTag::Owner => ("user", None),
            AclTag::User(id) => ("user", Some(id)),
            AclTag::OwningGroup => ("group", None),
            AclTag::Group(id) => ("group", Some(id)),
            AclTag::Mask => ("mask", None),
            AclTag::Other => ("other", None),
        };
        let permissions = permission_letters(entry.permissions);
        EntryJson {
            kind,
            id,
            permissions,
            effective: effective(list, entry).map(permission_letters),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_shown_as_setfacl_reads_them() {
        assert_eq!(shown_path(b"/a\n/b\\", false), b"a\\012/b\\\\");
        assert_eq!(shown_path(b"/", false), b".");
        assert_eq!(shown_path(b"/a b", true), b"/a b");
    }
}
