//! `stat`: shows all metadata of files.

use crate::failure::Outcome;
use crate::flags;
use crate::global::Global;
use crate::image::{Intent, with_each};
use crate::location::Location;
use crate::mode;
use crate::output::{Escaped, InodeJson, is_device, time_stat, type_words};
use crate::terminal::Output;
use crate::tree::ImageTree;
use drystone::vfs::{self, ExtentFlags, FileExtent, InodeAttributes};
use jiff::tz::TimeZone;
use serde::Serialize;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Ranges asked for at a time.
const EXTENTS_PER_CALL: usize = 1024;

/// Show all metadata of files
#[derive(Debug, Default, clap::Args)]
#[command(after_help = "\
Examples:
  drystone stat disk.img:/etc/passwd
  drystone stat --extents disk.img:/var/lib/database
  drystone stat --json disk.img:/ | jq .inode")]
pub struct Arguments {
    /// The entries to show.
    #[arg(required = true, value_name = "IMAGE[:PATH]", value_parser = Location::parser())]
    places: Vec<Location>,
    /// Follow a symbolic link at the end of the path.
    #[arg(short = 'L', long)]
    dereference: bool,
    /// Show where the content lies on the device, in bytes.
    #[arg(short, long)]
    extents: bool,
    /// Show the numbers of users and groups without their names.
    #[arg(short, long)]
    numeric: bool,
}

pub fn run(arguments: &Arguments, global: &Global) -> Outcome {
    with_each(&arguments.places, Intent::Read, global, |tree, paths| {
        Output::with_stdout(global.json, |output| {
            output.tell_image(tree);
            tree.for_each(paths, |path| show(tree, path, arguments, &TimeZone::system(), output))
        })
    })
}

#[derive(Serialize)]
struct StatJson {
    #[serde(flatten)]
    inode: InodeJson,
    generation: u32,
    project: u32,
    flags: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    extents: Option<Vec<ExtentJson>>,
}

#[derive(Serialize)]
struct ExtentJson {
    logical: u64,
    physical: u64,
    length: u64,
    flags: Vec<String>,
}

fn show(
    tree: &ImageTree<'_>,
    path: &Path,
    arguments: &Arguments,
    zone: &TimeZone,
    output: &mut Output<'_>,
) -> Outcome {
    let bytes = path.as_os_str().as_bytes();
    let node = tree.find(path, arguments.dereference)?;
    let attributes = node.attributes();
    let problem = |error: vfs::Error| tree.error(bytes, &error);
    let target = tree.link_target(attributes).map_err(problem)?;
    let extents = match arguments.extents {
        true => Some(all_extents(tree, attributes).map_err(problem)?),
        false => None,
    };
    let names = match arguments.numeric {
        true => [None; 2],
        false => tree.names().owners(attributes),
    };
    if output.json {
        let to_json = |extent: &FileExtent| ExtentJson {
            logical: extent.logical,
            physical: extent.physical,
            length: extent.length,
            flags: extent_flags(extent.flags),
        };
        output.json(&StatJson {
            inode: InodeJson::new(bytes, attributes, target.as_deref(), names),
            generation: attributes.generation,
            project: attributes.project,
            flags: flags::names(attributes.flags),
            extents: extents.map(|extents| extents.iter().map(to_json).collect()),
        })?;
        return Ok(());
    }
    write!(output, "  File: ")?;
    output.path(bytes)?;
    if let Some(target) = target {
        write!(output, " -> ")?;
        output.name(&target)?;
    }
    writeln!(output)?;
    print_attributes(attributes, names, zone, output)?;
    for (index, extent) in extents.iter().flatten().enumerate() {
        if index == 0 {
            writeln!(output, "Extents: logical .. end, physical, length, flags")?;
        }
        writeln!(
            output,
            "{:>12} .. {:<12} {:>14} {:>12} {}",
            extent.logical,
            extent.logical.saturating_add(extent.length),
            extent.physical,
            extent.length,
            extent_flags(extent.flags).join(",")
        )?;
    }
    Ok(())
}

fn print_attributes(
    attributes: &InodeAttributes,
    names: [Option<&[u8]>; 2],
    zone: &TimeZone,
    output: &mut Output<'_>,
) -> std::io::Result<()> {
    writeln!(
        output,
        "  Size: {:<15} Blocks: {:<10} IO Block: {:<6} {}",
        attributes.size,
        attributes.sectors,
        attributes.block_size,
        type_words(attributes)
    )?;
    write!(output, " Inode: {:<15} Links: {:<11}", attributes.inode.0, attributes.links)?;
    if is_device(attributes.file_type) {
        let device = attributes.device;
        write!(output, "Device type: {},{}", device.major, device.minor)?;
    } else {
        write!(output, "Generation: {}", attributes.generation)?;
    }
    writeln!(output)?;
    let InodeAttributes { user, group, .. } = *attributes;
    writeln!(
        output,
        "Access: ({:04o}/{})  Uid: {}   Gid: {}   Project: {}",
        attributes.permissions,
        mode::text(attributes.file_type, attributes.permissions),
        with_name(user, names[0]),
        with_name(group, names[1]),
        attributes.project
    )?;
    if !attributes.flags.is_empty() {
        writeln!(output, " Flags: {}", flags::names(attributes.flags).join(", "))?;
    }
    writeln!(output, "Access: {}", time_stat(attributes.accessed, zone))?;
    writeln!(output, "Modify: {}", time_stat(attributes.modified, zone))?;
    writeln!(output, "Change: {}", time_stat(attributes.changed, zone))?;
    let created = attributes.created.map(|time| time_stat(time, zone));
    writeln!(output, " Birth: {}", created.as_deref().unwrap_or("-"))
}

/// A number and the name that goes with it, if any.
fn with_name(id: u32, name: Option<&[u8]>) -> String {
    name.map_or_else(|| id.to_string(), |name| format!("{id}/{}", Escaped(name)))
}

fn all_extents(tree: &ImageTree<'_>, attributes: &InodeAttributes) -> vfs::Result<Vec<FileExtent>> {
    let mut extents: Vec<FileExtent> = Vec::new();
    let mut offset = 0;
    loop {
        let more = tree.file_system.extents(
            attributes.inode,
            offset,
            u64::MAX - offset,
            EXTENTS_PER_CALL,
        )?;
        let Some(last) = more.last() else { return Ok(extents) };
        let end = last.logical.saturating_add(last.length);
        let is_last = last.flags.contains(ExtentFlags::LAST) || end <= offset;
        extents.extend(&more);
        if is_last {
            return Ok(extents);
        }
        offset = end;
    }
}

fn extent_flags(flags: ExtentFlags) -> Vec<String> {
    flags.iter_names().map(|(name, _)| name.to_lowercase()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{example, printed, tree_of};

    #[test]
    fn facts_are_shown_as_stat_does() {
        let image = example(&["a"]);
        let tree = tree_of(&image);
        let arguments = Arguments { extents: true, ..Arguments::default() };
        let text = printed(false, |output| {
            show(&tree, Path::new("/a"), &arguments, &TimeZone::UTC, output).unwrap();
        });
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "  File: /a");
        assert!(lines[1].starts_with("  Size: 1 ") && lines[1].ends_with("regular file"));
        assert!(text.contains("\nAccess: (0644/-rw-r--r--)  Uid: 0   Gid: 0   Project: 0\n"));
        assert!(text.contains("\nModify: 2001-09-09 01:46:40.000000000 +0000\n"));
    }

    #[test]
    fn json_has_it_all() {
        let image = example(&["a"]);
        let tree = tree_of(&image);
        let arguments = Arguments { extents: true, ..Arguments::default() };
        let text = printed(true, |output| {
            show(&tree, Path::new("/a"), &arguments, &TimeZone::UTC, output).unwrap();
        });
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(json["permissions"], "0644");
        assert_eq!(json["size"], 1);
        assert!(json["extents"].is_array());
    }
}
