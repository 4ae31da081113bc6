//! `truncate`: sets the length of files.

use crate::failure::Outcome;
use crate::global::Global;
use crate::image::{Intent, with_each};
use crate::location::Location;
use crate::size;
use crate::tree::ImageTree;
use drystone::OpenOptions;
use drystone::vfs::Errno;
use std::path::Path;

/// Set the length of files
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A file that doesn't exist is created. A file grows by a hole.

Examples:
  drystone truncate -s 0 disk.img:/var/log/syslog
  drystone truncate -s 10G disk.img:/swapfile
  drystone truncate -s -4K disk.img:/file")]
pub struct Arguments {
    /// The length in bytes, or with K, M, G or T; +N grows the file by N, -N shrinks it.
    #[arg(short, long, value_name = "[+-]N", allow_hyphen_values = true, value_parser = Length::parse)]
    size: Length,
    /// The files.
    #[arg(required = true, value_name = "IMAGE:PATH", value_parser = Location::path_parser())]
    files: Vec<Location>,
    /// Don't create files.
    #[arg(short = 'c', long)]
    no_create: bool,
}

/// A new length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Length {
    Exactly(u64),
    Longer(u64),
    Shorter(u64),
}

impl Length {
    fn parse(text: &str) -> Result<Length, String> {
        match text.split_at_checked(1) {
            Some(("+", more)) => size::parse(more).map(Length::Longer),
            Some(("-", less)) => size::parse(less).map(Length::Shorter),
            _ => size::parse(text).map(Length::Exactly),
        }
    }

    fn apply(self, size: u64) -> u64 {
        match self {
            Length::Exactly(size) => size,
            Length::Longer(more) => size.saturating_add(more),
            Length::Shorter(less) => size.saturating_sub(less),
        }
    }
}

pub fn run(arguments: &Arguments, global: &Global) -> Outcome {
    with_each(&arguments.files, Intent::Change, global, |tree, paths| {
        tree.for_each(paths, |path| set(tree, path, arguments.size, arguments.no_create))
    })
}

fn set(tree: &ImageTree<'_>, path: &Path, length: Length, no_create: bool) -> Outcome {
    let problem = |error| tree.error_at(path, error);
    let options = OpenOptions::new().write(true).create(!no_create).mode(0o644);
    let file = match tree.fs.open_with(path, options) {
        Err(error) if error.errno() == Errno::ENOENT && no_create => return Ok(()),
        opened => opened.map_err(problem)?,
    };
    let size = file.metadata().map_err(problem)?.len();
    Ok(file.set_len(length.apply(size)).map_err(problem)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{content, example, tree_of};

    #[test]
    fn lengths() {
        assert_eq!(Length::parse("4K"), Ok(Length::Exactly(4096)));
        assert_eq!(Length::parse("+1"), Ok(Length::Longer(1)));
        assert_eq!(Length::parse("-1M"), Ok(Length::Shorter(1 << 20)));
        assert!(Length::parse("").is_err() && Length::parse("x").is_err());
        assert_eq!(Length::Shorter(5).apply(3), 0);
    }

    #[test]
    fn files_get_longer_and_shorter_and_come_to_be() {
        let image = example(&["abc", "d/e"]);
        let tree = tree_of(&image);
        set(&tree, Path::new("/abc"), Length::Longer(2), false).unwrap();
        assert_eq!(content(&tree, "/abc"), b"abc\0\0");
        set(&tree, Path::new("/abc"), Length::Exactly(2), false).unwrap();
        assert_eq!(content(&tree, "/abc"), b"ab");
        set(&tree, Path::new("/new"), Length::Exactly(3), true).unwrap();
        assert!(tree.find(Path::new("/new"), true).is_err());
        set(&tree, Path::new("/new"), Length::Exactly(3), false).unwrap();
        assert_eq!(content(&tree, "/new"), b"\0\0\0");
        assert!(set(&tree, Path::new("/d"), Length::Exactly(3), false).is_err());
        assert_eq!(image.references(), 0);
    }
}
