//! `import`: unpacks a tar archive into an image.

use crate::commands::build::spool_directory;
use crate::commands::cp::conclude;
use crate::failure::{Failure, Outcome};
use crate::global::Global;
use crate::image::{Intent, close, open};
use crate::interrupt::Interrupt;
use crate::location::Location;
use crate::messages::tell;
use crate::owners::{OWNER_OPTIONS, OwnerArguments};
use crate::progress::Progress;
use drystone::sources::{self, Opener};
use drystone::transfer::{CopyOptions, CopySummary, import};
use drystone::vfs::RequestContext;
use drystone::{ErrorCause, Exclude, Image};
use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::PathBuf;

/// Unpack a tar archive into an image
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The content of the archive is put into the directory DIR of the image, or into its root, as 'tar -x' and \
'docker cp -' do it: directories are merged, and existing files are replaced when the new ones are complete. \
Modes, owners, modification times in nanoseconds, hard links, holes, symbolic links, special files, extended \
attributes, ACLs and file capabilities are kept. Whatever the archive says, nothing outside of DIR changes, \
because symbolic links on the way are resolved inside DIR.

The archive may have any tar format, plain or compressed with gzip, zstd, xz or bzip2. It is first read to its \
end: one that is cut off or damaged changes nothing.

A pattern without '/' leaves out entries of that name anywhere; one with '/' is a path from the top of \
the archive. '*' stands for any bytes.

An entry that can't be unpacked is named, the rest is unpacked, and the exit code is 1.

Examples:
  drystone import disk.img root.tar.gz
  drystone import disk.img:/srv root.tar.gz --exclude '*.bak' --no-owners
  tar -c share | drystone import disk.img:/usr -")]
pub struct Arguments {
    /// The image, and the directory in it.
    #[arg(value_name = "IMAGE[:DIR]", value_parser = Location::parser())]
    into: Location,
    /// The archive; '-' is standard input.
    #[arg(value_name = "FILE.tar|-")]
    archive: PathBuf,
    /// Leave out matching entries, with everything in them.
    #[arg(long, value_name = "GLOB")]
    exclude: Vec<OsString>,
    #[command(flatten)]
    owners: OwnerArguments,
    /// Don't keep owners: new files belong to user 0.
    #[arg(long, conflicts_with_all = OWNER_OPTIONS)]
    no_owners: bool,
    /// Don't unpack extended attributes, ACLs and file capabilities.
    #[arg(long)]
    no_xattrs: bool,
}

pub fn run(arguments: &Arguments, global: &Global) -> Outcome {
    if arguments.archive.as_os_str() == "-" && std::io::stdin().is_terminal() {
        let message = "an archive can't be typed: pipe it, or name a file".to_string();
        return Err(Failure::Usage(message));
    }
    let interrupt = Interrupt::install()?;
    let path = &arguments.into.image;
    let image = open(path, Intent::Change, global)?;
    let imported = unpack(&image, arguments, global, &interrupt);
    close(path, image, conclude([imported], global))
}

fn unpack(
    image: &Image,
    arguments: &Arguments,
    global: &Global,
    interrupt: &Interrupt,
) -> Outcome<CopySummary> {
    let Location { image: image_path, path } = &arguments.into;
    let prefixes = [String::new(), format!("{}:", image_path.display())];
    let progress =
        Progress::new(global.quiet, global.verbose > 0, prefixes, Some(interrupt.clone()));
    let opener = Opener::new(&spool_directory(image_path)).cancelled_by({
        let interrupt = interrupt.clone();
        move || interrupt.is_asked()
    });
    let options = CopyOptions::default()
        .keep_owners(!arguments.no_owners)
        .owners(arguments.owners.map())
        .keep_xattrs(!arguments.no_xattrs)
        .exclude(Exclude::new(arguments.exclude.iter().cloned()));
    // Directories that the archive doesn't have itself get the usual permissions.
    let context = RequestContext { umask: 0o022, ..RequestContext::superuser() };
    let imported = progress.during(|| -> Outcome<CopySummary> {
        let archive = opener.open(&arguments.archive).map_err(|error| match error {
            sources::Error::Cancelled => nothing_imported(interrupt),
            other => other.into(),
        })?;
        let imported = import(&archive, image.file_system(), &context, path, &options, &progress);
        Ok(imported.map_err(|error| match error.into_cause() {
            // It names the archive.
            ErrorCause::Source(error) => anyhow::anyhow!("{error}"),
            cause => anyhow::anyhow!("{}: {cause}", arguments.into),
        })?)
    });
    let summary = imported?;
    if interrupt.is_asked() {
        tell("interrupted; what was unpacked so far is in place");
        return Err(Failure::Code(interrupt.code()));
    }
    progress.tell_unkept(global.quiet);
    if summary.is_stopped {
        tell("the import stopped there: what comes after is missing");
    }
    Ok(summary)
}

/// The end by an interrupt before anything was unpacked.
fn nothing_imported(interrupt: &Interrupt) -> Failure {
    tell("interrupted; nothing was unpacked");
    Failure::Code(interrupt.code())
}
