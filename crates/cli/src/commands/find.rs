//! `find`: prints the paths of files with given properties.

use crate::failure::Outcome;
use crate::global::Global;
use crate::image::{Intent, with_each};
use crate::location::Location;
use crate::output::{InodeJson, type_letter};
use crate::size;
use crate::terminal::Output;
use crate::tree::ImageTree;
use crate::walk::{Visitor, WalkStep, walk};
use anyhow::anyhow;
use drystone::glob;
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Find entries by their properties
#[derive(Debug, Default, clap::Args)]
#[command(after_help = "\
An entry is printed if all conditions hold. N means exactly N, +N more than N, -N less than N.

Examples:
  drystone find disk.img --name '*.conf'
  drystone find disk.img:/usr --type f --size +10M
  drystone find disk.img --type f --links +1 --json
  drystone find disk.img:/home --print0 | xargs -0 -n1 echo")]
pub struct Arguments {
    /// Where to start.
    #[arg(required = true, value_name = "IMAGE[:PATH]", value_parser = Location::parser())]
    places: Vec<Location>,
    /// The name matches this pattern of '*', '?' and '[...]'.
    #[arg(short, long, value_name = "GLOB")]
    name: Option<OsString>,
    /// The type is one of these, separated by commas: f, d, l, c, b, p, s.
    #[arg(short, long = "type", value_name = "TYPES", value_parser = parse_types)]
    types: Option<Types>,
    /// The size is N bytes, or with K, M or G.
    #[arg(short, long, value_name = "[+-]N", allow_hyphen_values = true, value_parser = parse_size)]
    size: Option<Bound>,
    /// It has N hard links.
    #[arg(short, long, value_name = "[+-]N", allow_hyphen_values = true, value_parser = parse_number)]
    links: Option<Bound>,
    /// The owner is this user: a number, or a name that the image has.
    #[arg(short, long)]
    user: Option<String>,
    /// The depth to which to look.
    #[arg(long, value_name = "DEPTH")]
    max_depth: Option<usize>,
    /// End each path with a null byte instead of a newline.
    #[arg(short = '0', long, conflicts_with = "json")]
    print0: bool,
}

/// Letters of types.
#[derive(Clone, Debug)]
struct Types(String);

fn parse_types(text: &str) -> Result<Types, String> {
    let mut letters = String::new();
    for part in text.split(',') {
        match part {
            "f" | "d" | "l" | "c" | "b" | "p" | "s" => letters.push_str(part),
            _ => return Err(format!("'{part}' isn't a type: f, d, l, c, b, p or s")),
        }
    }
    Ok(Types(letters))
}

/// A number and on which side of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bound {
    order: std::cmp::Ordering,
    number: u64,
}

impl Bound {
    fn parse(text: &str, number: impl Fn(&str) -> Result<u64, String>) -> Result<Bound, String> {
        let (order, digits) = match text.as_bytes().first() {
            Some(b'+') => (std::cmp::Ordering::Greater, &text[1..]),
            Some(b'-') => (std::cmp::Ordering::Less, &text[1..]),
            _ => (std::cmp::Ordering::Equal, text),
        };
        Ok(Bound { order, number: number(digits)? })
    }

    fn admits(self, number: u64) -> bool {
        number.cmp(&self.number) == self.order
    }
}

fn parse_size(text: &str) -> Result<Bound, String> {
    Bound::parse(text, size::parse)
}

fn parse_number(text: &str) -> Result<Bound, String> {
    Bound::parse(text, |digits| digits.parse().map_err(|_| format!("'{text}' isn't a number")))
}

pub fn run(arguments: &Arguments, global: &Global) -> Outcome {
    with_each(&arguments.places, Intent::Read, global, |tree, paths| {
        Output::with_stdout(global.json, |output| {
            output.tell_image(tree);
            tree.for_each(paths, |path| find(tree, path, arguments, output))
        })
    })
}

fn find(
    tree: &ImageTree<'_>,
    path: &Path,
    arguments: &Arguments,
    output: &mut Output<'_>,
) -> Outcome {
    let start = tree.find(path, false)?;
    let user = arguments.user.as_deref().map(|name| tree.names().user_id(name)).transpose();
    let user = user.map_err(|message| anyhow!("{}: {message}", tree.image().display()))?;
    let mut search = FindQuery { arguments, user, output };
    walk(tree, start, path.as_os_str().as_bytes(), &mut search)
}

struct FindQuery<'d, 'w> {
    arguments: &'d Arguments,
    /// The number of the user that is looked for.
    user: Option<u32>,
    output: &'d mut Output<'w>,
}

impl FindQuery<'_, '_> {
    fn matches(&self, step: &WalkStep<'_, '_>) -> bool {
        let attributes = step.node.attributes();
        let arguments = self.arguments;
        let last_name = step.name.rsplit(|&byte| byte == b'/').find(|name| !name.is_empty());
        let name = last_name.unwrap_or(b"/");
        arguments.name.as_ref().is_none_or(|pattern| glob::matches(pattern.as_bytes(), name))
            && arguments
                .types
                .as_ref()
                .is_none_or(|types| types.0.contains(type_letter(attributes.file_type)))
            && arguments.size.is_none_or(|bound| bound.admits(attributes.size))
            && arguments.links.is_none_or(|bound| bound.admits(attributes.links.into()))
            && self.user.is_none_or(|user| user == attributes.user)
    }
}

impl Visitor for FindQuery<'_, '_> {
    fn enter(&mut self, tree: &ImageTree<'_>, step: &WalkStep<'_, '_>) -> Outcome<bool> {
        if self.matches(step) {
            if self.output.json {
                match tree.link_target(step.node.attributes()) {
                    Ok(target) => {
                        let (path, attributes) = (step.path, step.node.attributes());
                        self.output.json(&InodeJson::new(
                            path,
                            attributes,
                            target.as_deref(),
                            tree.names().owners(attributes),
                        ))?;
                    }
                    Err(error) => tree.report(step.path, &error),
                }
            } else if self.arguments.print0 {
                self.output.write_all(step.path)?;
                self.output.write_all(&[0])?;
            } else {
                self.output.path(step.path)?;
                self.output.write_all(b"\n")?;
            }
        }
        Ok(self.arguments.max_depth.is_none_or(|depth| step.depth() < depth))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{example, printed, put, tree_of};

    fn found(arguments: &Arguments) -> String {
        let image = example(&["a/b.rs", "a/c.txt", "d.rs"]);
        put(&image, "big", &[1; 5000]);
        let tree = tree_of(&image);
        printed(false, |output| find(&tree, Path::new("/"), arguments, output).unwrap())
    }

    #[test]
    fn conditions_hold_together() {
        let name = |pattern: &str| Arguments { name: Some(pattern.into()), ..Arguments::default() };
        assert_eq!(found(&name("*.rs")), "/a/b.rs\n/d.rs\n");
        assert_eq!(found(&Arguments { max_depth: Some(1), ..name("*.rs") }), "/d.rs\n");
        let types = Some(parse_types("d").unwrap());
        assert_eq!(found(&Arguments { types, ..Arguments::default() }), "/\n/a\n");
        let size = Some(parse_size("+1K").unwrap());
        let types = Some(parse_types("f,l").unwrap());
        assert_eq!(found(&Arguments { size, types, ..Arguments::default() }), "/big\n");
        let links = Some(parse_number("+1").unwrap());
        let types = Some(parse_types("f").unwrap());
        assert_eq!(found(&Arguments { links, types, ..Arguments::default() }), "");
        assert_eq!(found(&Arguments { print0: true, ..name("d.rs") }), "/d.rs\0");
    }

    #[test]
    fn conditions_that_make_no_sense_are_refused() {
        assert!(parse_types("f,x").is_err());
        assert!(parse_size("+x").is_err());
        assert!(parse_number("").is_err());
    }
}
