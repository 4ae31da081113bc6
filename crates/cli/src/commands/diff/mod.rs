//! `diff`: compares two trees.

mod line;

use crate::failure::{Failure, Outcome};
use crate::global::Global;
use crate::image::{Intent, OpenedImage, close, open};
use crate::interrupt::Interrupt;
use crate::location::{AnyLocation, Location};
use crate::messages::tell;
use crate::progress::Progress;
use crate::terminal::Output;
use drystone::Exclude;
use drystone::compare::{Aspects, CompareOptions, ComparedTree, compare};
use drystone::transfer::{CopyMonitor, CopyProblem, Endpoint};
use drystone_sync::atomic::{AtomicBool, Ordering};
use line::print;
use std::ffi::OsString;
use std::path::PathBuf;

/// The code if nothing differs but for what could not be compared, and for any other trouble.
const TROUBLE: u8 = 2;
/// The code if there are differences.
const DIFFERENT: u8 = 1;

/// Compare two trees file by file
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Each of A and B is IMAGE, IMAGE:/PATH, or a directory of this machine. The command compares types, permissions, \
owners, sizes, contents, modification times, extended attributes, which names are hard links to the \
same file, and where files have holes. Each difference is one line, sorted by path, with the value of \
A before that of B. The content of a directory that only one side has isn't listed. An empty \
lost+found in the root of an image is ignored.

Exit codes: 0 no differences; 1 differences; 2 something could not be compared and was named, or the \
command was called wrongly; 130 interrupted (143 by SIGTERM, 129 by SIGHUP).

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
    /// What not to compare; separated by commas.
    #[arg(long, value_name = "WHAT", value_delimiter = ',')]
    ignore: Vec<Ignored>,
    /// Leave out matching entries, with everything in them; a pattern with '/' matches paths from
    /// the top, any other names.
    #[arg(long, value_name = "GLOB")]
    exclude: Vec<OsString>,
    /// Threads that compare. [default: the number of cores]
    #[arg(short = 'j', long, value_name = "N", value_parser = crate::global::threads())]
    threads: Option<usize>,
}

/// What may be left out of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Ignored {
    /// Permissions.
    Mode,
    /// User and group.
    Owner,
    /// Content and size of files.
    Content,
    /// Modification times.
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
        // Only differences are printed, so any output means that there are some.
        Err(failure) if failure.is_closed_pipe() => Err(Failure::Code(DIFFERENT)),
        Err(failure @ (Failure::Failed(_) | Failure::Reported)) => {
            failure.report();
            Err(Failure::Code(TROUBLE))
        }
        other => other,
    }
}

/// One of the two trees, ready to be read.
struct ComparedSide {
    /// The image and its path; none for this machine.
    image: Option<(PathBuf, OpenedImage)>,
    path: PathBuf,
    /// What the user called it.
    label: String,
}

impl ComparedSide {
    fn open(location: &AnyLocation, global: &Global) -> Outcome<ComparedSide> {
        let location = match location {
            AnyLocation::Image(location) => location.clone(),
            AnyLocation::Host(path) if path.is_dir() => {
                let label = path.display().to_string();
                return Ok(ComparedSide { image: None, path: path.clone(), label });
            }
            // Anything that isn't a directory can only be an image.
            AnyLocation::Host(path) => Location { image: path.clone(), path: PathBuf::from("/") },
        };
        let image = open(&location.image, Intent::Read, global)?;
        let label = location.to_string();
        Ok(ComparedSide { image: Some((location.image, image)), path: location.path, label })
    }

    fn tree(&self) -> ComparedTree<'_> {
        let place = match &self.image {
            Some((_, image)) => Endpoint::Image(image.file_system()),
            None => Endpoint::Host,
        };
        ComparedTree { place, path: &self.path }
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
    let first = ComparedSide::open(&arguments.first, global)?;
    let second = match ComparedSide::open(&arguments.second, global) {
        Ok(second) => second,
        Err(error) => return first.close(Err(error)),
    };
    let result = compare_sides(&first, &second, arguments, global, interrupt);
    let result = second.close(result);
    first.close(result)
}

fn compare_sides(
    first: &ComparedSide,
    second: &ComparedSide,
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
    let mut options = CompareOptions::default()
        .aspects(aspects)
        .exclude(Exclude::new(arguments.exclude.iter().cloned()));
    if let Some(threads) = arguments.threads {
        options.threads = threads;
    }
    let prefixes = [first.prefix(), second.prefix()];
    let progress =
        Progress::new(global.quiet, global.verbose > 0, prefixes, Some(interrupt.clone()));
    let followed = FollowedComparison { progress: &progress, is_closed: AtomicBool::new(false) };
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
        tell(format_args!("interrupted: not everything was compared"));
        return Err(Failure::Code(interrupt.code()));
    }
    match (summary.failed, summary.differences) {
        (0, 0) => Ok(()),
        (0, _) => Err(Failure::Code(DIFFERENT)),
        _ => Err(Failure::Code(TROUBLE)),
    }
}

/// Follows a comparison.
struct FollowedComparison<'f> {
    progress: &'f Progress,
    /// The output's reader has closed it.
    is_closed: AtomicBool,
}

impl CopyMonitor for FollowedComparison<'_> {
    fn bytes(&self, count: u64) {
        self.progress.bytes(count);
    }

    fn entry(&self, path: &dyn Fn() -> PathBuf) {
        self.progress.entry(path);
    }

    fn problem(&self, problem: &CopyProblem) {
        self.progress.problem(problem);
    }

    fn is_cancelled(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed) || self.progress.is_cancelled()
    }
}
