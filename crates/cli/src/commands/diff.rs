//! `diff`: in what two trees differ.

use crate::arguments::Global;
use crate::failure::{Failure, Outcome};
use crate::image::{Intent, close, open};
use crate::interrupt::{INTERRUPTED, Interrupt};
use crate::location::{AnyLocation, Location};
use crate::output::{Escaped, NameJson, time_exact};
use crate::progress::Progress;
use crate::terminal::Output;
use drystone::compare::{Aspects, Difference, Kind, Options, Tree, Which, compare};
use drystone::transfer::{Monitor, Place, Problem};
use drystone::vfs::FileType;
use drystone::{Exclude, Image};
use drystone_sync::atomic::{AtomicBool, Ordering};
use jiff::tz::TimeZone;
use serde::Serialize;
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The code if nothing differs but for what could not be compared, and for any other trouble.
const TROUBLE: u8 = 2;
/// The code if there are differences.
const DIFFERENT: u8 = 1;

/// Compare two trees file by file
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A and B are IMAGE, IMAGE:/PATH, or a directory of this machine. Everything is compared that an image \
keeps: types, permissions, owners, sizes, contents, times of modification, extended attributes, which \
names are hard links to the same file, and where files have holes. There is one line for each \
difference, in the order of the paths, values of A before those of B; of a directory that only one \
side has, nothing that is in it is named. An empty lost+found in the root of an image counts as \
nothing.

Exit codes: 0 no differences; 1 some; 2 trouble: something could not be compared and was named, or \
the command was called wrongly; 130 interrupted.

Examples:
  drystone diff old.img new.img
  drystone diff old.img new.img --ignore times,holes --json
  drystone diff rootfs disk.img --exclude '*.cache'")]
pub struct Arguments {
    /// The first tree.
    #[arg(value_name = "A", value_parser = AnyLocation::parser())]
    first: AnyLocation,
    /// The second tree.
    #[arg(value_name = "B", value_parser = AnyLocation::parser())]
    second: AnyLocation,
    /// What is not compared; several are separated by commas.
    #[arg(long, value_name = "WHAT", value_delimiter = ',')]
    ignore: Vec<Ignored>,
    /// Leave out what matches, with all that is in it: without '/' the name of an entry, with '/'
    /// the path from the top.
    #[arg(long, value_name = "GLOB")]
    exclude: Vec<OsString>,
    /// How many threads compare. [default: the number of cores]
    #[arg(short = 'j', long, value_name = "N")]
    threads: Option<usize>,
}

/// What may be left out of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Ignored {
    /// Permissions.
    Mode,
    /// User and group.
    Owner,
    /// What is in files, and how much.
    Content,
    /// When content changed last.
    Times,
    /// Extended attributes, ACLs and capabilities.
    Xattrs,
    /// Which names belong to the same file.
    Links,
    /// Where files have holes.
    Holes,
}

pub fn run(arguments: &Arguments, global: &Global) -> Outcome {
    match diff(arguments, global) {
        Err(failure @ (Failure::Failed(_) | Failure::Reported)) => {
            failure.report();
            Err(Failure::Code(TROUBLE))
        }
        other => other,
    }
}

/// One of the two trees, ready to be read.
struct Side {
    /// The image and its path; none for this machine.
    image: Option<(PathBuf, Image)>,
    path: PathBuf,
    /// What the user called it.
    label: String,
}

impl Side {
    fn open(location: &AnyLocation, global: &Global) -> anyhow::Result<Side> {
        let location = match location {
            AnyLocation::Image(location) => location.clone(),
            AnyLocation::Host(path) if path.is_dir() => {
                let label = path.display().to_string();
                return Ok(Side { image: None, path: path.clone(), label });
            }
            // What is no directory, or not there, can only be an image.
            AnyLocation::Host(path) => Location { image: path.clone(), path: PathBuf::from("/") },
        };
        let image = open(&location.image, Intent::Read, global)?;
        let label = location.to_string();
        Ok(Side { image: Some((location.image, image)), path: location.path, label })
    }

    fn tree(&self) -> Tree<'_> {
        let place = match &self.image {
            Some((_, image)) => Place::Image(image.file_system()),
            None => Place::Host,
        };
        Tree { place, path: &self.path }
    }

    /// What is put before paths in messages.
    fn prefix(&self) -> String {
        self.image.as_ref().map_or(String::new(), |(path, _)| format!("{}:", path.display()))
    }

    fn close(self, result: Outcome) -> Outcome {
        match self.image {
            Some((path, image)) => close(&path, image, result),
            None => result,
        }
    }
}

fn diff(arguments: &Arguments, global: &Global) -> Outcome {
    let interrupt = Interrupt::install()?;
    let first = Side::open(&arguments.first, global)?;
    let second = match Side::open(&arguments.second, global) {
        Ok(second) => second,
        Err(error) => return first.close(Err(error.into())),
    };
    let result = compare_sides(&first, &second, arguments, global, interrupt);
    let result = second.close(result);
    first.close(result)
}

fn compare_sides(
    first: &Side,
    second: &Side,
    arguments: &Arguments,
    global: &Global,
    interrupt: Interrupt,
) -> Outcome {
    let is_compared = |what| !arguments.ignore.contains(&what);
    let aspects = Aspects {
        mode: is_compared(Ignored::Mode),
        owner: is_compared(Ignored::Owner),
        content: is_compared(Ignored::Content),
        times: is_compared(Ignored::Times),
        xattrs: is_compared(Ignored::Xattrs),
        links: is_compared(Ignored::Links),
        holes: is_compared(Ignored::Holes),
    };
    let defaults = Options::default();
    let options = Options {
        threads: arguments.threads.unwrap_or(defaults.threads),
        aspects,
        exclude: Exclude::new(arguments.exclude.iter().cloned()),
    };
    let prefixes = [first.prefix(), second.prefix()];
    let progress =
        Progress::new(global.quiet, global.verbose > 0, prefixes, Some(interrupt.clone()));
    let followed = Followed { progress: &progress, is_closed: AtomicBool::new(false) };
    let labels = [first.label.as_str(), second.label.as_str()];
    let compared = Output::with_stdout(global.json, |output| {
        let mut printed = Ok(());
        let compared = progress.during(|| {
            compare(first.tree(), second.tree(), &options, &followed, &mut |difference| {
                if printed.is_ok() {
                    printed = print(output, difference, labels);
                    followed.is_closed.store(printed.is_err(), Ordering::Relaxed);
                }
            })
        });
        printed?;
        Ok(compared)
    })?;
    let summary = compared.map_err(|problem| {
        progress.problem(&problem);
        Failure::Reported
    })?;
    if interrupt.is_asked() {
        eprintln!("drystone: interrupted: not everything was compared");
        return Err(Failure::Code(INTERRUPTED));
    }
    match (summary.failed, summary.differences) {
        (0, 0) => Ok(()),
        (0, _) => Err(Failure::Code(DIFFERENT)),
        _ => Err(Failure::Code(TROUBLE)),
    }
}

/// What is followed while trees are compared.
struct Followed<'f> {
    progress: &'f Progress,
    /// Nobody reads our output any more.
    is_closed: AtomicBool,
}

impl Monitor for Followed<'_> {
    fn bytes(&self, count: u64) {
        self.progress.bytes(count);
    }

    fn entry(&self, path: &dyn Fn() -> PathBuf) {
        self.progress.entry(path);
    }

    fn problem(&self, problem: &Problem) {
        self.progress.problem(problem);
    }

    fn is_cancelled(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed) || self.progress.is_cancelled()
    }
}

#[derive(Serialize)]
struct DifferenceJson {
    /// Where it is below the tops.
    #[serde(flatten)]
    path: NameJson,
    /// What differs.
    what: &'static str,
    /// The name of an extended attribute.
    #[serde(skip_serializing_if = "Option::is_none")]
    attribute: Option<String>,
    /// The value of the first tree, where it has any.
    #[serde(skip_serializing_if = "Option::is_none")]
    a: Option<String>,
    /// The value of the second tree.
    #[serde(skip_serializing_if = "Option::is_none")]
    b: Option<String>,
    /// The first byte that differs.
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<u64>,
}

/// A difference in words: what, values where there are such, an offset.
struct Words {
    what: &'static str,
    values: [Option<String>; 2],
    attribute: Option<String>,
    offset: Option<u64>,
}

impl Words {
    fn new(kind: &Kind) -> Words {
        let mut words = Words { what: "", values: [None, None], attribute: None, offset: None };
        let mut both = |what, first: String, second: String| {
            words.what = what;
            words.values = [Some(first), Some(second)];
        };
        match kind {
            Kind::Type(a, b) => both("type", type_name(*a).into(), type_name(*b).into()),
            Kind::Mode(a, b) => both("mode", format!("{a:04o}"), format!("{b:04o}")),
            Kind::Owner(a, b) => {
                both("owner", format!("{}:{}", a.0, a.1), format!("{}:{}", b.0, b.1));
            }
            Kind::Size(a, b) => both("size", a.to_string(), b.to_string()),
            Kind::Target(a, b) => {
                both("target", Escaped(a).to_string(), Escaped(b).to_string());
            }
            Kind::Device(a, b) => {
                both(
                    "device",
                    format!("{}:{}", a.major, a.minor),
                    format!("{}:{}", b.major, b.minor),
                );
            }
            Kind::Modified(a, b) => {
                both("modified", time_exact(*a, &TimeZone::UTC), time_exact(*b, &TimeZone::UTC));
            }
            Kind::Xattr(name, a, b) => {
                words.what = "xattr";
                words.attribute = Some(Escaped(name).to_string());
                words.values = [a, b].map(|value| value.as_deref().map(shown_value));
            }
            Kind::OnlyIn(which, file_type) => {
                words.what = "only";
                words.values[place(*which)] = Some(type_name(*file_type).to_string());
            }
            Kind::Links(which, name) => {
                words.what = "links";
                words.values[place(*which)] = Some(shown_path(name));
            }
            Kind::Content(offset) => {
                words.what = "content";
                words.offset = Some(*offset);
            }
            Kind::Holes(offset) => {
                words.what = "holes";
                words.offset = Some(*offset);
            }
        }
        words
    }
}

fn place(which: Which) -> usize {
    match which {
        Which::First => 0,
        Which::Second => 1,
    }
}

fn type_name(file_type: FileType) -> &'static str {
    match file_type {
        FileType::Regular => "file",
        FileType::Directory => "directory",
        FileType::Symlink => "symlink",
        FileType::CharacterDevice => "character device",
        FileType::BlockDevice => "block device",
        FileType::Fifo => "fifo",
        FileType::Socket => "socket",
    }
}

fn shown_path(path: &Path) -> String {
    format!("/{}", Escaped(path.as_os_str().as_bytes()))
}

/// Text in quotes, anything else in hexadecimal digits, as `getfattr` shows them.
fn shown_value(value: &[u8]) -> String {
    match std::str::from_utf8(value) {
        Ok(text) if !text.contains(|c: char| c.is_control()) => format!("{text:?}"),
        _ => value.iter().fold("0x".to_string(), |text, byte| text + &format!("{byte:02x}")),
    }
}

fn print(
    output: &mut Output<'_>,
    difference: &Difference,
    labels: [&str; 2],
) -> anyhow::Result<()> {
    let Words { what, values, attribute, offset } = Words::new(&difference.kind);
    let path = difference.path.as_os_str().as_bytes();
    if output.json {
        let [a, b] = values;
        let path = NameJson::from([b"/", path].concat().as_slice());
        return output.json(&DifferenceJson { path, what, attribute, a, b, offset });
    }
    write!(output, "{}: ", shown_path(&difference.path))?;
    match &difference.kind {
        Kind::OnlyIn(which, file_type) => {
            write!(output, "only in {} ({})", labels[place(*which)], type_name(*file_type))?;
        }
        Kind::Links(which, name) => {
            let (name, label) = (shown_path(name), labels[place(*which)]);
            write!(output, "links: the same file as {name} in {label} only")?;
        }
        _ => {
            write!(output, "{what}")?;
            if let Some(attribute) = attribute {
                write!(output, " {attribute}")?;
            }
            match (values, offset) {
                (_, Some(offset)) => write!(output, ": from byte {offset} on")?,
                ([a, b], _) => {
                    let shown = |value: Option<String>| value.unwrap_or_else(|| "none".to_string());
                    write!(output, ": {} -> {}", shown(a), shown(b))?;
                }
            }
        }
    }
    Ok(writeln!(output)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::printed;

    #[test]
    fn lines() {
        let line = |json, kind| {
            let difference = Difference { path: "a/b\nc".into(), kind };
            printed(json, |output| print(output, &difference, ["x.img:/", "y"]).unwrap())
        };
        assert_eq!(line(false, Kind::Mode(0o644, 0o4755)), "/a/b\\nc: mode: 0644 -> 4755\n");
        assert_eq!(line(false, Kind::Content(7)), "/a/b\\nc: content: from byte 7 on\n");
        let kind = Kind::OnlyIn(Which::Second, FileType::Directory);
        assert_eq!(line(false, kind.clone()), "/a/b\\nc: only in y (directory)\n");
        assert_eq!(
            line(true, kind),
            "{\"name\":\"/a/b\\nc\",\"what\":\"only\",\"b\":\"directory\"}\n"
        );
        let kind = Kind::Xattr(b"user.x".to_vec(), Some(b"v\"".to_vec()), Some(vec![0, 255]));
        let expected = "/a/b\\nc: xattr user.x: \"v\\\"\" -> 0x00ff\n";
        assert_eq!(line(false, kind), expected);
        let kind = Kind::Links(Which::First, "z".into());
        let expected = "/a/b\\nc: links: the same file as /z in x.img:/ only\n";
        assert_eq!(line(false, kind), expected);
    }
}
