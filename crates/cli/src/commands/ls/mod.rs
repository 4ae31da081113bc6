//! `ls`: lists directories.

mod columns;

use crate::failure::Outcome;
use crate::global::{Global, LongHelp};
use crate::image::{Intent, with_each};
use crate::location::Location;
use crate::mode;
use crate::output::{InodeJson, time_short};
use crate::terminal::Output;
use crate::tree::{Entered, ImageTree, join, push};
use columns::{Columns, aligned, owner_names, owner_texts, size_text};
use drystone::vfs::InodeGuard;
use jiff::tz::TimeZone;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// List directories
#[derive(Debug, Default, clap::Args)]
#[command(
    disable_help_flag = true,
    after_help = "\
Names of users and groups are those in /etc/passwd and /etc/group of the image; others are numbers.

Examples:
  drystone ls disk.img
  drystone ls -l disk.img:/etc
  drystone ls -lR --json disk.img:/ | jq .size"
)]
pub struct Arguments {
    /// Directories, or single files.
    #[arg(required = true, value_name = "IMAGE[:PATH]", value_parser = Location::parser())]
    places: Vec<Location>,
    /// Show type, permissions, links, owner, group, size and time of each entry.
    #[arg(short, long)]
    long: bool,
    /// Like --long, with the numbers of users and groups.
    #[arg(short, long)]
    numeric: bool,
    /// List subdirectories recursively.
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Show names that start with a dot.
    #[arg(short, long)]
    all: bool,
    /// Show a directory itself, not its content.
    #[arg(short, long)]
    directory: bool,
    /// Show inode numbers.
    #[arg(short, long)]
    inode: bool,
    /// Show sizes like 4.0K and 12M.
    #[arg(short, long)]
    human_readable: bool,
    /// Sort by time, newest first.
    #[arg(short = 't', long)]
    by_time: bool,
    /// Sort by size, largest first.
    #[arg(short = 'S', long, conflicts_with = "by_time")]
    by_size: bool,
    /// Reverse the order.
    #[arg(short, long)]
    reverse: bool,
    #[command(flatten)]
    help: LongHelp,
}

impl Arguments {
    fn is_long(&self) -> bool {
        self.long || self.numeric
    }
}

pub fn run(arguments: &Arguments, global: &Global) -> Outcome {
    with_each(&arguments.places, Intent::Read, global, |tree, paths| {
        Output::with_stdout(global.json, |output| {
            output.tell_image(tree);
            let mut listing = Listing::new(arguments);
            let with_titles = arguments.recursive || arguments.places.len() > 1;
            tree.for_each(paths, |path| listing.place(tree, path, with_titles, output))
        })
    })
}

/// A directory whose directories are listed too.
struct ListedDirectory<'a> {
    node: InodeGuard<'a>,
    /// Where its path ends in that of the listing.
    path_length: usize,
    below: std::vec::IntoIter<Box<[u8]>>,
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
        tree: &ImageTree<'_>,
        path: &Path,
        with_titles: bool,
        output: &mut Output<'_>,
    ) -> Outcome {
        let bytes = path.as_os_str().as_bytes();
        // As in ls: a link that is named is followed unless its own attributes are shown.
        let follow = !(self.arguments.is_long() || self.arguments.directory);
        let node = tree.find(path, follow)?;
        if !node.is_directory() || self.arguments.directory {
            let mut columns = Columns::default();
            columns.widen(node.attributes(), self.arguments, tree);
            self.has_printed = true;
            return self.line(tree, bytes, bytes, &node, &columns, output);
        }
        let (mut path, mut frames, mut entered) = (bytes.to_vec(), Vec::new(), Entered::default());
        // The start has no other name yet.
        entered.enter(node.inode()).map_err(|error| tree.error(&path, &error))?;
        frames.push(self.directory(tree, node, &path, with_titles, output)?);
        while let Some(frame) = frames.last_mut() {
            path.truncate(frame.path_length);
            let Some(name) = frame.below.next() else {
                frames.pop();
                continue;
            };
            push(&mut path, &name);
            let Ok(Some(node)) = tree.child(frame.node.inode(), &name) else { continue };
            match entered.enter(node.inode()) {
                Ok(()) => frames.push(self.directory(tree, node, &path, with_titles, output)?),
                Err(error) => tree.report(&path, &error),
            }
        }
        Ok(())
    }

    /// Prints the entries of a directory, or says that it can't be read. Returns which of them are to be
    /// listed in turn.
    fn directory<'a>(
        &mut self,
        tree: &ImageTree<'a>,
        node: InodeGuard<'a>,
        path: &[u8],
        with_titles: bool,
        output: &mut Output<'_>,
    ) -> Outcome<ListedDirectory<'a>> {
        let path_length = path.len();
        let mut names = match tree.list(node.inode(), path) {
            Ok(names) => names,
            Err(error) => {
                tree.report(path, &error);
                return Ok(ListedDirectory { node, path_length, below: Vec::new().into_iter() });
            }
        };
        if with_titles && !output.json {
            if self.has_printed {
                writeln!(output)?;
            }
            output.path(path)?;
            writeln!(output, ":")?;
            self.has_printed = true;
        }
        names.retain(|name| self.arguments.all || !name.starts_with(b"."));
        let columns = self.arrange(tree, &node, path, &mut names, output.json);
        let mut below = Vec::new();
        for name in names {
            let entry = match tree.child(node.inode(), &name) {
                Ok(Some(entry)) => entry,
                Ok(None) => continue,
                Err(error) => {
                    tree.report(&join(path, &name), &error);
                    continue;
                }
            };
            let shown = match output.json && self.arguments.recursive {
                true => join(path, &name),
                false => name.to_vec(),
            };
            self.has_printed = true;
            self.line(tree, &shown, &join(path, &name), &entry, &columns, output)?;
            if self.arguments.recursive && entry.is_directory() {
                below.push(name);
            }
        }
        Ok(ListedDirectory { node, path_length, below: below.into_iter() })
    }

    /// Sorts names and measures the columns. Only the names of a large directory are kept; attributes
    /// are read again when they are printed.
    fn arrange(
        &self,
        tree: &ImageTree<'_>,
        directory: &InodeGuard<'_>,
        path: &[u8],
        names: &mut Vec<Box<[u8]>>,
        json: bool,
    ) -> Columns {
        let Arguments { by_time, by_size, inode, reverse, .. } = *self.arguments;
        let long = self.arguments.is_long();
        let mut columns = Columns::default();
        if by_time || by_size || (long || inode) && !json {
            let mut keyed = Vec::with_capacity(names.len());
            for name in std::mem::take(names) {
                match tree.child(directory.inode(), &name) {
                    Ok(Some(node)) => {
                        columns.widen(node.attributes(), self.arguments, tree);
                        let modified = node.attributes().modified;
                        let key = match (by_time, by_size) {
                            (true, _) => (modified.seconds, modified.nanoseconds),
                            // Sizes are signed elsewhere.
                            (_, true) => (node.attributes().size as i64, 0),
                            _ => (0, 0),
                        };
                        keyed.push((std::cmp::Reverse(key), name));
                    }
                    Ok(None) => {}
                    Err(error) => tree.report(&join(path, &name), &error),
                }
            }
            if by_time || by_size {
                keyed.sort_by_key(|(key, _)| *key);
            }
            names.extend(keyed.into_iter().map(|(_, name)| name));
        }
        if reverse {
            names.reverse();
        }
        columns
    }

    /// Prints an entry, which is at `path`, as `shown`.
    fn line(
        &self,
        tree: &ImageTree<'_>,
        shown: &[u8],
        path: &[u8],
        node: &InodeGuard<'_>,
        columns: &Columns,
        output: &mut Output<'_>,
    ) -> Outcome {
        let attributes = node.attributes();
        let target = match tree.link_target(attributes) {
            Ok(target) => target,
            Err(error) => {
                tree.report(path, &error);
                return Ok(());
            }
        };
        if output.json {
            return Ok(output.json(&InodeJson::new(
                shown,
                attributes,
                target.as_deref(),
                owner_names(attributes, self.arguments, tree),
            ))?);
        }
        if self.arguments.inode {
            write!(output, "{:>width$} ", attributes.inode.0, width = columns.inode)?;
        }
        if self.arguments.is_long() {
            let [user, group] = owner_texts(attributes, self.arguments, tree);
            write!(
                output,
                "{} {:>links$} {} {} {:>size$} {} ",
                mode::text(attributes.file_type, attributes.permissions),
                attributes.links,
                aligned(&user, columns.user),
                aligned(&group, columns.group),
                size_text(attributes, self.arguments),
                time_short(attributes.modified, self.now, &self.zone),
                links = columns.links,
                size = columns.size,
            )?;
        }
        match shown == path {
            true => output.path(shown)?,
            false => output.name(shown)?,
        }
        if let (true, Some(target)) = (self.arguments.is_long(), &target) {
            output.write_all(b" -> ")?;
            output.name(target)?;
        }
        Ok(writeln!(output)?)
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
            InodeGuard::create(&image, &context, image.root(), name, node, 0o777).unwrap();
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
