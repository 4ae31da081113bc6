//! `tree`: draws everything below a directory.

use crate::failure::Outcome;
use crate::global::Global;
use crate::image::{Intent, with_each};
use crate::location::Location;
use crate::output::InodeJson;
use crate::terminal::Output;
use crate::tree::ImageTree;
use crate::walk::{Visitor, WalkStep, walk};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Draw everything below a directory
#[derive(Debug, Default, clap::Args)]
#[command(after_help = "\
Examples:
  drystone tree disk.img
  drystone tree -L 2 disk.img:/etc")]
pub struct Arguments {
    /// Where to start.
    #[arg(required = true, value_name = "IMAGE[:PATH]", value_parser = Location::parser())]
    places: Vec<Location>,
    /// The depth to which to go.
    #[arg(short = 'L', long, value_name = "DEPTH")]
    level: Option<usize>,
    /// Show names that start with a dot.
    #[arg(short, long)]
    all: bool,
    /// Show only directories.
    #[arg(short, long)]
    directories: bool,
}

pub fn run(arguments: &Arguments, global: &Global) -> Outcome {
    with_each(&arguments.places, Intent::Read, global, |tree, paths| {
        Output::with_stdout(global.json, |output| {
            output.tell_image(tree);
            tree.for_each(paths, |path| draw(tree, path, arguments, output))
        })
    })
}

fn draw(
    tree: &ImageTree<'_>,
    path: &Path,
    arguments: &Arguments,
    output: &mut Output<'_>,
) -> Outcome {
    let start = tree.find(path, true)?;
    let lines = BranchLines::default();
    let mut drawing = Drawing { arguments, output, lines, directories: 0, others: 0 };
    walk(tree, start, path.as_os_str().as_bytes(), &mut drawing)?;
    let Drawing { directories, others, .. } = drawing;
    if !output.json {
        let plural = |count: u64, one: &str, many: &str| match count {
            1 => format!("1 {one}"),
            _ => format!("{count} {many}"),
        };
        let directories = plural(directories, "directory", "directories");
        if arguments.directories {
            writeln!(output, "\n{directories}")?;
        } else {
            writeln!(output, "\n{directories}, {}", plural(others, "file", "files"))?;
        }
    }
    Ok(())
}

struct Drawing<'d, 'w> {
    arguments: &'d Arguments,
    output: &'d mut Output<'w>,
    lines: BranchLines,
    directories: u64,
    others: u64,
}

/// The lines to the left of an entry, for the directories above it that go on. They are kept from one entry to
/// the next, because they are long in a deep tree.
#[derive(Default)]
struct BranchLines {
    text: Vec<u8>,
    /// Where that of each directory ends.
    ends: Vec<usize>,
}

impl BranchLines {
    /// The lines to the left of an entry at this depth; the last entry of a directory ends its line.
    fn above(&mut self, depth: usize, is_last: bool) -> &[u8] {
        self.ends.truncate(depth - 1);
        let end = self.ends.last().copied().unwrap_or(0);
        self.text.truncate(end);
        // For what is in the entry.
        self.text.extend_from_slice(if is_last { "    " } else { "│   " }.as_bytes());
        self.ends.push(self.text.len());
        &self.text[..end]
    }
}

impl Visitor for Drawing<'_, '_> {
    fn enter(&mut self, tree: &ImageTree<'_>, step: &WalkStep<'_, '_>) -> Outcome<bool> {
        let is_start = step.depth() == 0;
        let is_hidden = step.name.starts_with(b".") && !self.arguments.all;
        let is_unwanted = self.arguments.directories && !step.node.is_directory();
        if !is_start && (is_hidden || is_unwanted) {
            return Ok(false);
        }
        let target = match tree.link_target(step.node.attributes()) {
            Ok(target) => target,
            Err(error) => {
                tree.report(step.path, &error);
                None
            }
        };
        if self.output.json {
            let json = InodeJson::new(
                step.path,
                step.node.attributes(),
                target.as_deref(),
                tree.names().owners(step.node.attributes()),
            );
            self.output.json(&json)?;
        } else {
            if let Some(last) = step.lasts.last() {
                self.output.write_all(self.lines.above(step.depth(), *last))?;
                write!(self.output, "{}", if *last { "└── " } else { "├── " })?;
            }
            match is_start {
                true => self.output.path(step.name)?,
                false => self.output.name(step.name)?,
            }
            if let Some(target) = target {
                write!(self.output, " -> ")?;
                self.output.name(&target)?;
            }
            writeln!(self.output)?;
        }
        if !is_start {
            let count =
                if step.node.is_directory() { &mut self.directories } else { &mut self.others };
            *count += 1;
        }
        Ok(self.arguments.level.is_none_or(|level| step.depth() < level))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{example, printed, tree_of};

    #[test]
    fn a_tree_is_drawn() {
        let image = example(&["a/b/c", "a/d", ".e", "f"]);
        let tree = tree_of(&image);
        let arguments = Arguments::default();
        let drawn =
            printed(false, |output| draw(&tree, Path::new("/"), &arguments, output).unwrap());
        let expected = "\
/
├── a
│   ├── b
│   │   └── c
│   └── d
└── f

2 directories, 3 files
";
        assert_eq!(drawn, expected);
        let arguments = Arguments { level: Some(1), directories: true, ..Arguments::default() };
        let drawn =
            printed(false, |output| draw(&tree, Path::new("/"), &arguments, output).unwrap());
        assert!(drawn.ends_with("\n\n1 directory\n"), "{drawn}");
    }
}
