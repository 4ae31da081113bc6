//! `ls`: the entries of directories.

use crate::arguments::{Global, LongHelp};
use crate::failure::Outcome;
use crate::image::{Intent, with_each};
use crate::location::Location;
use crate::output::{InodeJson, is_device, time_short};
use crate::terminal::Output;
use crate::tree::{Node, Tree, join};
use crate::{mode, size};
use jiff::tz::TimeZone;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// List directories
#[derive(Debug, Default, clap::Args)]
#[command(
    disable_help_flag = true,
    after_help = "\
Owners and groups are numbers: the names that belong to them are the image's own business.

Examples:
  drystone ls disk.img
  drystone ls -l disk.img:/etc
  drystone ls -lR --json disk.img:/ | jq .size"
)]
pub struct Arguments {
    /// Directories, or single files.
    #[arg(required = true, value_name = "IMAGE[:PATH]", value_parser = Location::parser())]
    places: Vec<Location>,
    /// Type, permissions, links, owner, group, size and time of each entry.
    #[arg(short, long)]
    long: bool,
    /// Directories in directories too.
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Names that start with a dot too.
    #[arg(short, long)]
    all: bool,
    /// The directory itself, not what is in it.
    #[arg(short, long)]
    directory: bool,
    /// Inode numbers.
    #[arg(short, long)]
    inode: bool,
    /// Sizes like 4.0K and 12M.
    #[arg(short, long)]
    human_readable: bool,
    /// The newest first, instead of by name.
    #[arg(short = 't', long)]
    by_time: bool,
    /// The largest first, instead of by name.
    #[arg(short = 'S', long, conflicts_with = "by_time")]
    by_size: bool,
    /// The order turned round.
    #[arg(short, long)]
    reverse: bool,
    #[command(flatten)]
    help: LongHelp,
}

pub fn run(arguments: &Arguments, global: &Global) -> Outcome {
    with_each(&arguments.places, Intent::Read, global, |tree, paths| {
        Output::with_stdout(global.json, |output| {
            let mut listing = Listing::new(arguments);
            let with_titles = arguments.recursive || arguments.places.len() > 1;
            tree.for_each(paths, |path| listing.place(tree, path, with_titles, output))
        })
    })
}

/// One entry that is to be printed.
struct Line<'a> {
    name: Vec<u8>,
    node: Node<'a>,
    target: Option<Vec<u8>>,
}

struct Listing<'r> {
    arguments: &'r Arguments,
    zone: TimeZone,
    now: i64,
    /// Something was printed: the next title has an empty line before it.
    has_printed: bool,
}

impl<'r> Listing<'r> {
    fn new(arguments: &'r Arguments) -> Listing<'r> {
        let now = jiff::Timestamp::now().as_second();
        Listing { arguments, zone: TimeZone::system(), now, has_printed: false }
    }

    fn place(
        &mut self,
        tree: &Tree<'_>,
        path: &Path,
        with_titles: bool,
        output: &mut Output<'_>,
    ) -> Outcome {
        let bytes = path.as_os_str().as_bytes();
        // As ls: a link that is named is followed unless its own facts are asked for.
        let follow = !(self.arguments.long || self.arguments.directory);
        let node = tree.find(path, follow)?;
        if !node.is_directory() || self.arguments.directory {
            let target =
                tree.link_target(&node.attributes).map_err(|error| tree.error(bytes, &error))?;
            return self.lines(vec![Line { name: bytes.to_vec(), node, target }], None, output);
        }
        let mut waiting = vec![(node, bytes.to_vec(), Vec::new())];
        while let Some((directory, path, above)) = waiting.pop() {
            if with_titles && !output.json {
                if self.has_printed {
                    writeln!(output)?;
                }
                output.name(&path)?;
                writeln!(output, ":")?;
                self.has_printed = true;
            }
            let lines = self.entries(tree, &directory, &path)?;
            let mut below = Vec::new();
            if self.arguments.recursive {
                let mut above = above;
                above.push(directory.inode());
                for line in lines.iter().filter(|line| line.node.is_directory()) {
                    let path = join(&path, &line.name);
                    if above.contains(&line.node.inode()) {
                        tree.report(&path, &"the directory lies in itself");
                    } else if let Ok(Some(node)) = tree.child(directory.inode(), &line.name) {
                        below.push((node, path, above.clone()));
                    }
                }
            }
            self.lines(lines, Some(&path), output)?;
            waiting.extend(below.into_iter().rev());
        }
        Ok(())
    }

    /// The entries of a directory in the order that was asked for.
    fn entries<'a>(
        &self,
        tree: &Tree<'a>,
        directory: &Node<'a>,
        path: &[u8],
    ) -> anyhow::Result<Vec<Line<'a>>> {
        let listed = tree.list(directory.inode()).map_err(|error| tree.error(path, &error))?;
        let mut lines = Vec::new();
        for listed in listed {
            if listed.name.starts_with(b".") && !self.arguments.all {
                continue;
            }
            let found = tree.child(directory.inode(), &listed.name).and_then(|node| {
                let target = match &node {
                    Some(node) => tree.link_target(&node.attributes)?,
                    None => None,
                };
                Ok((node, target))
            });
            match found {
                Ok((Some(node), target)) => lines.push(Line { name: listed.name, node, target }),
                Ok((None, _)) => {}
                Err(error) => tree.report(&join(path, &listed.name), &error),
            }
        }
        if self.arguments.by_time {
            lines.sort_by_key(|line| std::cmp::Reverse(line.node.attributes.modified));
        } else if self.arguments.by_size {
            lines.sort_by_key(|line| std::cmp::Reverse(line.node.attributes.size));
        }
        if self.arguments.reverse {
            lines.reverse();
        }
        Ok(lines)
    }

    /// Prints entries; `directory` is where they are, none if they are paths already.
    fn lines(
        &mut self,
        lines: Vec<Line<'_>>,
        directory: Option<&[u8]>,
        output: &mut Output<'_>,
    ) -> Outcome {
        self.has_printed |= !lines.is_empty();
        if output.json {
            for line in &lines {
                let path = match directory {
                    Some(directory) if self.arguments.recursive => join(directory, &line.name),
                    _ => line.name.clone(),
                };
                output.json(&InodeJson::new(
                    &path,
                    &line.node.attributes,
                    line.target.as_deref(),
                ))?;
            }
            return Ok(());
        }
        let columns = Columns::of(&lines, self.arguments);
        for line in &lines {
            let attributes = &line.node.attributes;
            if self.arguments.inode {
                write!(output, "{:>width$} ", attributes.inode.0, width = columns.inode)?;
            }
            if self.arguments.long {
                write!(
                    output,
                    "{} {:>links$} {:>user$} {:>group$} {:>size$} {} ",
                    mode::text(attributes.file_type, attributes.permissions),
                    attributes.links,
                    attributes.user,
                    attributes.group,
                    size_text(line, self.arguments),
                    time_short(attributes.modified, self.now, &self.zone),
                    links = columns.links,
                    user = columns.user,
                    group = columns.group,
                    size = columns.size,
                )?;
            }
            output.name(&line.name)?;
            if let (true, Some(target)) = (self.arguments.long, &line.target) {
                output.write_all(b" -> ")?;
                output.name(target)?;
            }
            writeln!(output)?;
        }
        Ok(())
    }
}

/// How wide the numbers are.
#[derive(Default)]
struct Columns {
    inode: usize,
    links: usize,
    user: usize,
    group: usize,
    size: usize,
}

impl Columns {
    fn of(lines: &[Line<'_>], arguments: &Arguments) -> Columns {
        let mut columns = Columns::default();
        for line in lines {
            let attributes = &line.node.attributes;
            let widen = |width: &mut usize, text: String| *width = text.len().max(*width);
            widen(&mut columns.inode, attributes.inode.0.to_string());
            widen(&mut columns.links, attributes.links.to_string());
            widen(&mut columns.user, attributes.user.to_string());
            widen(&mut columns.group, attributes.group.to_string());
            widen(&mut columns.size, size_text(line, arguments));
        }
        columns
    }
}

fn size_text(line: &Line<'_>, arguments: &Arguments) -> String {
    let attributes = &line.node.attributes;
    if is_device(attributes.file_type) {
        format!("{}, {}", attributes.device.major, attributes.device.minor)
    } else if arguments.human_readable {
        size::human(attributes.size)
    } else {
        attributes.size.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{example, printed, put, tree_of};
    use drystone::vfs::{DeviceNumber, FileSystem, NewNode, RequestContext};

    fn listed(
        image: &drystone_testkit::model::MemoryFileSystem,
        path: &str,
        arguments: &Arguments,
    ) -> String {
        let tree = tree_of(image);
        printed(false, |output| {
            let mut listing = Listing::new(arguments);
            listing.zone = TimeZone::UTC;
            listing.now = 1_100_000_000;
            listing.place(&tree, Path::new(path), arguments.recursive, output).unwrap();
        })
    }

    #[test]
    fn names_in_order_without_the_hidden() {
        let image = example(&["b", "a", ".hidden", "c/d"]);
        assert_eq!(listed(&image, "/", &Arguments::default()), "a\nb\nc\n");
        let all = Arguments { all: true, reverse: true, ..Arguments::default() };
        assert_eq!(listed(&image, "/", &all), "c\nb\na\n.hidden\n");
        assert_eq!(listed(&image, "/a", &all), "/a\n");
    }

    #[test]
    fn the_long_form_is_that_of_coreutils() {
        let image = example(&["a"]);
        put(&image, "b", &[0; 12345]);
        let context = RequestContext::superuser();
        let device = DeviceNumber { major: 1, minor: 3 };
        for (name, node) in [
            (b"link".as_slice(), NewNode::Symlink(b"to\n")),
            (b"null", NewNode::CharacterDevice(device)),
        ] {
            let made = image.create(&context, image.root(), name, node, 0o777).unwrap();
            image.forget(made.inode, 1);
        }
        let long = Arguments { long: true, ..Arguments::default() };
        let text = listed(&image, "/", &long);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "-rw-r--r-- 1 0 0     1 Sep  9  2001 a");
        assert_eq!(lines[1], "-rw-r--r-- 1 0 0 12345 Sep  9  2001 b");
        assert!(
            lines[2].starts_with("lrwxrwxrwx 1 0 0     3 ") && lines[2].ends_with("link -> to\\n")
        );
        assert!(lines[3].starts_with("crwxrwxrwx 1 0 0  1, 3 "), "{}", lines[3]);
        assert_eq!(image.references(), 0);
    }

    #[test]
    fn directories_below_have_titles() {
        let image = example(&["a/b/c", "d"]);
        let recursive = Arguments { recursive: true, ..Arguments::default() };
        assert_eq!(listed(&image, "/", &recursive), "/:\na\nd\n\n/a:\nb\n\n/a/b:\nc\n");
        assert_eq!(image.references(), 0);
    }

    #[test]
    fn json_has_a_line_for_each() {
        let image = example(&["a/b"]);
        let tree = tree_of(&image);
        let arguments = Arguments { recursive: true, ..Arguments::default() };
        let text = printed(true, |output| {
            Listing::new(&arguments).place(&tree, Path::new("/"), true, output).unwrap();
        });
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines[0]["name"], "/a");
        assert_eq!(lines[1]["name"], "/a/b");
        assert_eq!(lines[1]["type"], "regular");
        assert_eq!(lines[1]["modified"], "2001-09-09T01:46:40.000000000+00:00");
    }
}
