//! `getfattr`: prints extended attributes.

use crate::failure::Outcome;
use crate::global::{Global, LongHelp};
use crate::image::{Intent, with_each};
use crate::location::Location;
use crate::output::{Escaped, NameJson};
use crate::terminal::Output;
use crate::tree::ImageTree;
use drystone::vfs::Errno;
use serde::Serialize;
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Show extended attributes
#[derive(Debug, Default, clap::Args)]
#[command(
    disable_help_flag = true,
    after_help = "\
All attributes are shown with their values, as text in quotes, or as 0x and hexadecimal digits. \
setfattr takes both as they are; put single quotes around them for the shell.

Examples:
  drystone getfattr disk.img:/file
  drystone getfattr -n security.capability disk.img:/usr/bin/ping"
)]
pub struct Arguments {
    /// The entries to show.
    #[arg(required = true, value_name = "IMAGE[:PATH]", value_parser = Location::parser())]
    places: Vec<Location>,
    /// Show only the attribute with this full name.
    #[arg(short, long)]
    name: Option<OsString>,
    /// Accepted for compatibility with getfattr; values are always shown.
    #[arg(short, long)]
    dump: bool,
    /// Don't follow a symbolic link at the end of the path.
    #[arg(short = 'h', long)]
    no_dereference: bool,
    #[command(flatten)]
    help: LongHelp,
}

pub fn run(arguments: &Arguments, global: &Global) -> Outcome {
    with_each(&arguments.places, Intent::Read, global, |tree, paths| {
        Output::with_stdout(global.json, |output| {
            output.tell_image(tree);
            tree.for_each(paths, |path| show(tree, path, arguments, output))
        })
    })
}

#[derive(Serialize)]
struct AttributeJson {
    path: NameJson,
    attribute: NameJson,
    /// Hexadecimal digits.
    value: String,
}

fn show(
    tree: &ImageTree<'_>,
    path: &Path,
    arguments: &Arguments,
    output: &mut Output<'_>,
) -> Outcome {
    let bytes = path.as_os_str().as_bytes();
    let problem = |error| tree.error(bytes, &error);
    let node = tree.find(path, !arguments.no_dereference)?;
    let mut names = match &arguments.name {
        Some(name) => vec![name.as_bytes().to_vec()],
        None => tree.file_system.list_xattrs(&tree.context, node.inode()).map_err(problem)?,
    };
    names.sort();
    if let Some(name) = &arguments.name {
        // Before anything is printed.
        tree.file_system.xattr(&tree.context, node.inode(), name.as_bytes()).map_err(|error| {
            match error.errno {
                Errno::ENODATA => tree.error(bytes, &lacks_attribute(name)),
                _ => problem(error),
            }
        })?;
    }
    if !names.is_empty() && !output.json {
        write!(output, "# file: ")?;
        output.path(bytes)?;
        writeln!(output)?;
    }
    for name in &names {
        let value = tree.file_system.xattr(&tree.context, node.inode(), name).map_err(problem)?;
        if output.json {
            let value = hexadecimal(&value);
            let (path, attribute) = (bytes.into(), name.as_slice().into());
            output.json(&AttributeJson { path, attribute, value })?;
        } else {
            output.name(name)?;
            writeln!(output, "={}", value_text(&value))?;
        }
    }
    if !names.is_empty() && !output.json {
        writeln!(output)?;
    }
    Ok(())
}

/// Why an attribute can't be shown or removed.
pub(super) fn lacks_attribute(name: &OsStr) -> String {
    format!("has no attribute {}", Escaped(name.as_bytes()))
}

/// Text in quotes if it is printable, otherwise digits. `setfattr` reads both.
pub(super) fn value_text(value: &[u8]) -> String {
    match std::str::from_utf8(value) {
        Ok(text) if !text.chars().any(char::is_control) => {
            format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
        }
        _ => format!("0x{}", hexadecimal(value)),
    }
}

fn hexadecimal(value: &[u8]) -> String {
    value.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{example, printed, tree_of};
    use drystone::vfs::{FileSystem, XattrMode};

    #[test]
    fn attributes_are_shown_as_getfattr_does() {
        let image = example(&["a"]);
        let tree = tree_of(&image);
        let inode = tree.find(Path::new("/a"), true).unwrap().inode();
        for (name, value) in [(b"user.b", b"\0\xff".as_slice()), (b"user.a", b"t\"x")] {
            image.set_xattr(&tree.context, inode, name, value, XattrMode::Set).unwrap();
        }
        let arguments = Arguments::default();
        let text =
            printed(false, |output| show(&tree, Path::new("/a"), &arguments, output).unwrap());
        assert_eq!(text, "# file: /a\nuser.a=\"t\\\"x\"\nuser.b=0x00ff\n\n");
        let only = Arguments { name: Some("user.b".into()), ..Arguments::default() };
        let text = printed(true, |output| show(&tree, Path::new("/a"), &only, output).unwrap());
        let expected = r#"{"path":{"name":"/a"},"attribute":{"name":"user.b"},"value":"00ff"}"#;
        assert_eq!(text.trim(), expected);
    }
}
