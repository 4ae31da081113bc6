//! `lsattr`: shows flags.

use crate::failure::Outcome;
use crate::flags::{letters, names};
use crate::global::Global;
use crate::image::{Intent, with_each};
use crate::location::Location;
use crate::output::NameJson;
use crate::terminal::Output;
use crate::tree::ImageTree;
use crate::walk::{Visitor, WalkStep, walk};
use serde::Serialize;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Show flags of files and directories
#[derive(Debug, Default, clap::Args)]
#[command(after_help = "\
Each flag has its place and the letter that 'drystone chattr' takes. Of a directory, the entries are shown. Flags that \
say how a file is stored are e (extents), N (in the inode), I (a directory with an index), E (encrypted), V (verity).

Examples:
  drystone lsattr disk.img:/etc/fstab
  drystone lsattr -d disk.img:/home disk.img:/var
  drystone lsattr -R disk.img:/home")]
pub struct Arguments {
    /// The entries to show.
    #[arg(required = true, value_name = "IMAGE[:PATH]", value_parser = Location::parser())]
    places: Vec<Location>,
    /// Show directories themselves, not what is in them.
    #[arg(short, long)]
    directory: bool,
    /// Show everything below directories.
    #[arg(short = 'R', long, conflicts_with = "directory")]
    recursive: bool,
    /// Accepted for compatibility with lsattr; names that begin with a dot are always shown.
    #[arg(short, long)]
    all: bool,
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
struct FlagsJson {
    path: NameJson,
    flags: Vec<String>,
}

fn show(
    tree: &ImageTree<'_>,
    path: &Path,
    arguments: &Arguments,
    output: &mut Output<'_>,
) -> Outcome {
    let node = tree.find(path, false)?;
    let mut showing = FlagLister { arguments, output };
    walk(tree, node, path.as_os_str().as_bytes(), &mut showing)
}

struct FlagLister<'s, 'o> {
    arguments: &'s Arguments,
    output: &'s mut Output<'o>,
}

impl Visitor for FlagLister<'_, '_> {
    fn enter(&mut self, _: &ImageTree<'_>, step: &WalkStep<'_, '_>) -> Outcome<bool> {
        if step.depth() == 0 && step.node.is_directory() && !self.arguments.directory {
            return Ok(true);
        }
        let flags = step.node.attributes().flags;
        if self.output.json {
            let path = step.path.into();
            self.output.json(&FlagsJson { path, flags: names(flags) })?;
        } else {
            write!(self.output, "{} ", letters(flags))?;
            self.output.path(step.path)?;
            writeln!(self.output)?;
        }
        Ok(self.arguments.recursive)
    }
}
