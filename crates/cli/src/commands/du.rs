//! `du`: how much space trees take.

use crate::failure::Outcome;
use crate::global::{Global, LongHelp};
use crate::image::{Intent, with_each};
use crate::location::Location;
use crate::output::NameJson;
use crate::size;
use crate::terminal::Output;
use crate::tree::ImageTree;
use crate::walk::{Visitor, WalkStep, walk};
use drystone::vfs::{FileType, InodeGuard, InodeNumber};
use serde::Serialize;
use std::collections::HashSet;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;

/// Show how much space directories take
#[derive(Debug, Default, clap::Args)]
#[command(
    disable_help_flag = true,
    after_help = "\
A directory counts with everything below it. Without -h and -b sizes are KiB, rounded up. What has several names \
counts once, for the first. Apparent sizes are those of files and symbolic links; directories have none.

Examples:
  drystone du -h disk.img
  drystone du -sh disk.img:/usr disk.img:/var
  drystone du -d 2 disk.img:/home | sort -n"
)]
pub struct Arguments {
    /// The directories and files.
    #[arg(required = true, value_name = "IMAGE[:PATH]", value_parser = Location::parser())]
    places: Vec<Location>,
    /// Show files too, not only directories.
    #[arg(short, long, conflicts_with = "summarize")]
    all: bool,
    /// Show apparent sizes instead of the space used.
    #[arg(long)]
    apparent_size: bool,
    /// Show apparent sizes in bytes.
    #[arg(short, long)]
    bytes: bool,
    /// Show the total too.
    #[arg(short = 'c', long)]
    total: bool,
    /// Show only directories up to this depth below the places.
    #[arg(short = 'd', long, value_name = "DEPTH", conflicts_with = "summarize")]
    max_depth: Option<usize>,
    /// Show sizes like 12M.
    #[arg(short, long, conflicts_with = "bytes")]
    human_readable: bool,
    /// Count each name of a file.
    #[arg(short = 'l', long)]
    count_links: bool,
    /// Show only the places themselves.
    #[arg(short, long)]
    summarize: bool,
    #[command(flatten)]
    help: LongHelp,
}

pub fn run(arguments: &Arguments, global: &Global) -> Outcome {
    Output::with_stdout(global.json, |output| {
        let mut total = Usage::default();
        let counted = with_each(&arguments.places, Intent::Read, global, |tree, paths| {
            output.tell_image(tree);
            let mut counting = Counting::new(arguments, paths.len() > 1, output);
            let counted = tree.for_each(paths, |path| {
                let node = tree.find(path, false)?;
                walk(tree, node, path.as_os_str().as_bytes(), &mut counting)
            });
            total.add(counting.total);
            counted
        });
        output.tell_no_image();
        if arguments.total {
            show(arguments, b"total", total, output)?;
        }
        counted
    })
}

/// What a tree takes, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Usage {
    allocated: u64,
    apparent: u64,
}

impl Usage {
    fn of(node: &InodeGuard<'_>) -> Usage {
        let attributes = node.attributes();
        let has_size = matches!(attributes.file_type, FileType::Regular | FileType::Symlink);
        Usage {
            allocated: attributes.sectors.saturating_mul(512),
            apparent: if has_size { attributes.size } else { 0 },
        }
    }

    /// A damaged image may have any numbers.
    fn add(&mut self, other: Usage) {
        self.allocated = self.allocated.saturating_add(other.allocated);
        self.apparent = self.apparent.saturating_add(other.apparent);
    }
}

#[derive(Serialize)]
struct UsageJson {
    #[serde(flatten)]
    name: NameJson,
    allocated: u64,
    size: u64,
}

struct Counting<'s, 'o> {
    arguments: &'s Arguments,
    output: &'s mut Output<'o>,
    /// Inodes that were counted and may be found again.
    counted: HashSet<InodeNumber>,
    /// One place may lie in another.
    has_several_places: bool,
    /// What is known of the directories on the way.
    open: Vec<Usage>,
    total: Usage,
}

impl<'s, 'o> Counting<'s, 'o> {
    fn new(
        arguments: &'s Arguments,
        has_several_places: bool,
        output: &'s mut Output<'o>,
    ) -> Counting<'s, 'o> {
        let (counted, open, total) = (HashSet::new(), Vec::new(), Usage::default());
        Counting { arguments, output, counted, has_several_places, open, total }
    }

    /// Adds what an entry takes to the directory that it is in.
    fn close(&mut self, step: &WalkStep<'_, '_>, usage: Usage) -> Outcome {
        self.open.last_mut().unwrap_or(&mut self.total).add(usage);
        let arguments = self.arguments;
        let depth_max =
            if arguments.summarize { 0 } else { arguments.max_depth.unwrap_or(usize::MAX) };
        let is_shown = step.depth() == 0 || step.node.is_directory() || arguments.all;
        match is_shown && step.depth() <= depth_max {
            true => show(arguments, step.path, usage, self.output),
            false => Ok(()),
        }
    }
}

impl Visitor for Counting<'_, '_> {
    fn enter(&mut self, _: &ImageTree<'_>, step: &WalkStep<'_, '_>) -> Outcome<bool> {
        let node = step.node;
        let is_repeatable = self.has_several_places || node.attributes().links > 1;
        if !self.arguments.count_links && is_repeatable && !self.counted.insert(node.inode()) {
            return Ok(false);
        }
        match node.is_directory() {
            true => self.open.push(Usage::of(node)),
            false => self.close(step, Usage::of(node))?,
        }
        Ok(true)
    }

    fn leave(&mut self, _: &ImageTree<'_>, step: &WalkStep<'_, '_>) -> Outcome {
        let usage = self.open.pop().unwrap_or_default();
        self.close(step, usage)
    }
}

fn show(arguments: &Arguments, path: &[u8], usage: Usage, output: &mut Output<'_>) -> Outcome {
    if output.json {
        let Usage { allocated, apparent: size } = usage;
        return Ok(output.json(&UsageJson { name: path.into(), allocated, size })?);
    }
    let is_apparent = arguments.apparent_size || arguments.bytes;
    let bytes = if is_apparent { usage.apparent } else { usage.allocated };
    match (arguments.bytes, arguments.human_readable) {
        (true, _) => write!(output, "{bytes}\t")?,
        (false, true) => write!(output, "{}\t", size::human_used(bytes))?,
        (false, false) => write!(output, "{}\t", bytes.div_ceil(1024))?,
    }
    output.path(path)?;
    writeln!(output)?;
    Ok(())
}
