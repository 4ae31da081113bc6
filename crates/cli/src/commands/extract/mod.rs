//! `extract`: extracts the tree in an image, as a directory or as a tar archive.

mod layer;
mod manifest;
mod summary;
mod whole_file;

use crate::failure::{Failure, Outcome};
use crate::global::Global;
use crate::image::{Intent, close, open};
use crate::interrupt::Interrupt;
use crate::location::{Location, is_below, is_same_file, last_name};
use crate::messages::tell;
use crate::owners::{OWNER_OPTIONS, OwnerArguments};
use crate::progress::{ExpectedWork, Progress};
use crate::size;
use crate::terminal::print_line;
use crate::tree::ImageTree;
use anyhow::{Context, anyhow};
use drystone::transfer::{
    CopyItem, CopyMonitor, CopyOptions, CopyProblem, CopySummary, Endpoint, Lacking, Side, archive,
    copy,
};
use drystone::{Exclude, Image, VolumeName};
use drystone_sync::clock;
use manifest::LossManifest;
use std::ffi::OsString;
use std::io::{ErrorKind, IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use summary::ExtractSummaryJson;
use whole_file::WholeFile;

/// Extract the tree in an image into a directory or a tar archive
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The content of the directory PATH, or of the image's root, is put into DIR, which is made if it \
doesn't exist, and is merged into if it does: files, modes, owners, times in nanoseconds, extended \
attributes, ACLs, file capabilities, hard links, holes, symbolic links and special files. If PATH \
isn't a directory, it is put into DIR under its name. An empty lost+found in the root of an image is \
left out. Whatever the image says, nothing is written outside of DIR, and no symbolic link is followed.

A target that ends in '.tar' is an archive, and '-' is one on standard output, in the POSIX (PAX) \
format with all of the above but sockets. GNU tar reads it with '--xattrs --xattrs-include=* --acls', \
bsdtar with '-p'. The same tree gives the same bytes.

With --since, the archive is a layer of an OCI image: what is new or different, whole, and whiteouts for \
what is gone. Over the tree of OLD it gives that of IMAGE; 'umoci raw add-layer' puts it into a layout.

Only root may set owners and some attributes and make device nodes. What can't be kept is reported \
once for each kind, with the first entry affected; --manifest-out writes all of it to a file, one line \
for each entry.

A pattern without '/' leaves out entries of that name anywhere; one with '/' is a path from the top of \
the extracted tree. '*' stands for any bytes.

Exit codes: 0 everything was extracted; 1 some entries are missing or incomplete, and were named; 2 \
called wrongly; 130 interrupted (143 by SIGTERM, 129 by SIGHUP), the target is incomplete. A device \
node that could not be made counts as missing unless --manifest-out records it.

Examples:
  drystone extract disk.img --to root
  drystone extract disk.img:/etc --to etc --exclude '*.bak' --exclude /ssl/private
  drystone extract disk.img --to tree --manifest-out tree.manifest
  drystone extract disk.img --to disk.tar
  drystone extract disk.img:/etc --to - | tar -tv
  drystone extract new.img --since old.img --to layer.tar")]
pub struct Arguments {
    /// The image, and the path of the tree in it.
    #[arg(value_name = "IMAGE[:PATH]", value_parser = Location::parser())]
    from: Location,
    /// The directory or archive to write.
    #[arg(long, value_name = "DIR|FILE.tar|-")]
    to: PathBuf,
    /// Extract only what differs from this image, or directory of one, as a layer.
    #[arg(long, value_name = "OLD[:PATH]", value_parser = Location::parser())]
    since: Option<Location>,
    /// Leave out matching entries, with everything in them.
    #[arg(long, value_name = "GLOB")]
    exclude: Vec<OsString>,
    /// Write a manifest of what can't be kept.
    #[arg(long, value_name = "FILE")]
    manifest_out: Option<PathBuf>,
    /// Threads that copy. [default: the number of cores]
    #[arg(short = 'j', long, value_name = "N", value_parser = crate::global::threads())]
    threads: Option<usize>,
    #[command(flatten)]
    owners: OwnerArguments,
    /// Don't keep owners: everything belongs to the caller.
    #[arg(long, conflicts_with_all = OWNER_OPTIONS)]
    no_owners: bool,
    /// Don't extract extended attributes, ACLs and file capabilities.
    #[arg(long)]
    no_xattrs: bool,
}

pub fn run(arguments: &Arguments, global: &Global) -> Outcome {
    let is_stream = arguments.to.as_os_str() == "-";
    let is_file = arguments.to.extension().is_some_and(|extension| extension == "tar")
        && !arguments.to.is_dir();
    if (is_stream || is_file) && arguments.manifest_out.is_some() {
        let message = "an archive keeps everything: there is nothing for a manifest";
        return Err(Failure::Usage(message.to_string()));
    }
    if !arguments.to.is_dir() && is_compressed_archive(&arguments.to) {
        let message = format!(
            "{} would be compressed, which is for another program: '--to - | zstd -o FILE.tar.zst'",
            arguments.to.display()
        );
        return Err(Failure::Usage(message));
    }
    if arguments.since.is_some() && !(is_stream || is_file) {
        let message = "a layer is an archive: name a file that ends in '.tar', or '-'";
        return Err(Failure::Usage(message.to_string()));
    }
    if is_stream && global.json {
        let message = "the archive goes to standard output: there is no place for JSON";
        return Err(Failure::Usage(message.to_string()));
    }
    let path = &arguments.from.image;
    for image in [Some(path), arguments.since.as_ref().map(|old| &old.image)].into_iter().flatten()
    {
        refuse_overwriting(image, arguments, is_file).map_err(Failure::Usage)?;
    }
    let interrupt = Interrupt::install()?;
    let image = open(path, Intent::Read, global)?;
    let extraction = Extraction { arguments, global, interrupt };
    let result = match (is_stream, is_file) {
        (true, _) => extraction.to_stream(&image),
        (_, true) => extraction.to_file(&image),
        _ => extraction.to_directory(&image),
    };
    close(path, image, result)
}

/// Whether a name is one that compressed archives have.
fn is_compressed_archive(path: &Path) -> bool {
    const ENDS: &str = ".tar.gz .tgz .tar.bz2 .tbz2 .tar.xz .txz .tar.zst .tzst .tar.lz4 .tar.lz";
    let name = path.as_os_str().as_bytes();
    ENDS.split(' ').any(|end| name.ends_with(end.as_bytes()))
}

/// The output must be neither the image nor below the target directory, where extraction could
/// replace it.
fn refuse_overwriting(image: &Path, arguments: &Arguments, is_file: bool) -> Result<(), String> {
    let Arguments { to, manifest_out, .. } = arguments;
    let archive = is_file.then_some(to);
    // A name that isn't understood is told when it is opened.
    let source = VolumeName::find(image).map(|name| name.source().to_owned());
    let file = source.as_deref().unwrap_or(image);
    for written in archive.into_iter().chain(manifest_out) {
        if is_same_file(written, file) {
            return Err(format!("{} is the image itself: name another file", written.display()));
        }
    }
    match manifest_out {
        Some(manifest) if is_below(manifest, to) => {
            let (manifest, to) = (manifest.display(), to.display());
            Err(format!("the manifest {manifest} can't be in {to}, which is for what is extracted"))
        }
        _ => Ok(()),
    }
}

/// What is followed while the tree is made.
struct FollowedExtract<'f> {
    progress: &'f Progress,
    manifest: Option<&'f LossManifest>,
}

impl CopyMonitor for FollowedExtract<'_> {
    fn bytes(&self, count: u64) {
        self.progress.bytes(count);
    }

    fn entry(&self, path: &dyn Fn() -> PathBuf) {
        self.progress.entry(path);
    }

    fn problem(&self, problem: &CopyProblem) {
        self.progress.problem(problem);
    }

    fn lacking(&self, entry: &Lacking<'_>) {
        if let Some(manifest) = self.manifest {
            manifest.add(entry);
        }
    }

    fn is_cancelled(&self) -> bool {
        self.progress.is_cancelled()
    }
}

struct Extraction<'e> {
    arguments: &'e Arguments,
    global: &'e Global,
    interrupt: Interrupt,
}

impl Extraction<'_> {
    fn to_directory(&self, image: &Image) -> Outcome {
        let Arguments { from, to, .. } = self.arguments;
        let start = clock::now();
        let item = self.item(image)?;
        match std::fs::create_dir(to) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                if !to.is_dir() {
                    let to = to.display();
                    return Err(anyhow!("{to} is no directory; an archive ends in .tar").into());
                }
            }
            other => other.with_context(|| format!("can't make {}", to.display()))?,
        }
        let manifest = self.arguments.manifest_out.as_ref().map(|path| LossManifest::new(path));
        let manifest = manifest.transpose()?;
        let progress = self.progress(image);
        let options = self.options(image);
        let source = Endpoint::Image(image.file_system());
        let followed = FollowedExtract { progress: &progress, manifest: manifest.as_ref() };
        let copied =
            progress.during(|| copy(source, &[item], Endpoint::Host, to, &options, &followed));
        let summary = match copied {
            Ok(summary) => summary,
            Err(problem) => {
                progress.problem(&problem);
                if let Some(manifest) = manifest {
                    manifest.discard();
                }
                return Err(Failure::Reported);
            }
        };
        progress.tell_unkept(self.global.quiet);
        let has_manifest = manifest.is_some();
        match manifest {
            // The manifest would be incomplete.
            Some(manifest) if summary.is_stopped => {
                manifest.discard();
                tell(format_args!(
                    "no manifest was written: it would not tell all that is missing"
                ));
            }
            Some(manifest) => manifest.write()?,
            None => {}
        }
        if self.interrupt.is_asked() {
            tell(format_args!(
                "interrupted: {} is incomplete, {} entries of {from} are in it",
                to.display(),
                entries(&summary)
            ));
            return Err(Failure::Code(self.interrupt.code()));
        }
        progress.tell_stopped(&summary);
        self.tell(to, &summary, start.elapsed())?;
        let missing = summary.failed + if has_manifest { 0 } else { summary.not_made };
        self.conclude(missing, summary.is_stopped)
    }

    /// Writes an archive beside its name, which it gets at the end.
    fn to_file(&self, image: &Image) -> Outcome {
        let to = &self.arguments.to;
        let start = clock::now();
        let mut file = WholeFile::new(to)?;
        let summary = match self.to_archive(image, &mut file) {
            Ok(summary) => summary,
            Err(failure) => {
                file.discard();
                if matches!(failure, Failure::Code(_)) {
                    tell(format_args!("interrupted: {} was not made", to.display()));
                }
                return Err(failure);
            }
        };
        file.keep()?;
        self.tell(to, &summary, start.elapsed())?;
        self.conclude(summary.failed, false)
    }

    /// Writes an archive to standard output.
    fn to_stream(&self, image: &Image) -> Outcome {
        if std::io::stdout().is_terminal() {
            let message = "standard output is a terminal: pipe the archive, or name a file";
            return Err(Failure::Usage(message.to_string()));
        }
        let written = self.to_archive(image, &mut std::io::stdout());
        if matches!(written, Err(Failure::Code(_))) {
            tell(format_args!("interrupted: the archive is incomplete"));
        }
        let summary = written?;
        self.conclude(summary.failed, false)
    }

    fn to_archive(&self, image: &Image, out: &mut (dyn Write + Send)) -> Outcome<CopySummary> {
        let (progress, options) = (self.progress(image), self.options(image));
        let archived = match &self.arguments.since {
            None => {
                let (item, files) = (self.item(image)?, image.file_system());
                progress.during(|| archive(files, &item, out, &options, &progress))
            }
            Some(old) => {
                let layer = self.layer(image, old)?;
                progress.during(|| layer.write(&image.fs(), out, &options, &progress))
            }
        };
        match archived {
            Ok(summary) => Ok(summary),
            // The caller says so.
            Err(problem) if problem.is_cut_short() => Err(Failure::Code(self.interrupt.code())),
            Err(problem) if problem.side == Side::Target => {
                let error = std::io::Error::from_raw_os_error(problem.cause.code());
                Err(anyhow::Error::from(error).context(self.arguments.to.display().to_string()))?
            }
            Err(problem) => {
                progress.problem(&problem);
                Err(Failure::Reported)
            }
        }
    }

    fn options(&self, image: &Image) -> CopyOptions {
        let mut options = CopyOptions::default()
            .keep_owners(!self.arguments.no_owners)
            .owners(self.arguments.owners.map())
            .keep_xattrs(!self.arguments.no_xattrs)
            .exclude(Exclude::new(self.arguments.exclude.iter().cloned()))
            .without_lost_and_found(true)
            .excluded(image.host_file().into_iter().collect::<Vec<_>>());
        if let Some(threads) = self.arguments.threads {
            options.threads = threads;
        }
        options
    }

    /// Fails if anything is missing. If the copy stopped, it is unknown how much.
    fn conclude(&self, missing: u64, is_stopped: bool) -> Outcome {
        if missing == 0 && !is_stopped {
            return Ok(());
        }
        if !self.global.quiet && !is_stopped {
            let entries = if missing == 1 { "entry is" } else { "entries are" };
            tell(format_args!("{missing} {entries} missing or incomplete"));
        }
        Err(Failure::Reported)
    }

    /// What is to be copied: the content of a directory, or a file.
    fn item(&self, image: &Image) -> Outcome<CopyItem> {
        let Location { image: image_path, path } = &self.arguments.from;
        let tree = ImageTree::new(image.file_system(), image_path);
        // A link to a directory leads there; one to anything else is what is wanted.
        let is_directory = tree.find(path, true).is_ok_and(|node| node.is_directory());
        if is_directory {
            return Ok(CopyItem { path: path.clone(), name: None });
        }
        tree.find(path, false)?;
        Ok(CopyItem { path: path.clone(), name: last_name(path) })
    }

    fn progress(&self, image: &Image) -> Progress {
        let Location { image: image_path, path } = &self.arguments.from;
        let prefixes = [format!("{}:", image_path.display()), String::new()];
        let verbose = self.global.verbose > 0;
        Progress::new(self.global.quiet, verbose, prefixes, Some(self.interrupt.clone()))
            .expecting(expected(image, path).filter(|_| self.arguments.since.is_none()))
    }

    /// Says what was done.
    fn tell(&self, to: &Path, summary: &CopySummary, elapsed: Duration) -> Outcome {
        if self.global.json {
            print_line(&serde_json::to_string(&ExtractSummaryJson::new(summary, elapsed))?)?;
        } else if !self.global.quiet {
            let seconds = elapsed.as_secs_f64();
            print_line(&format!(
                "{}: {} entries, {} in {seconds:.1} s ({}/s)",
                to.display(),
                entries(summary),
                size::bytes(summary.bytes),
                size::bytes((summary.bytes as f64 / seconds.max(0.001)) as u64),
            ))?;
        }
        Ok(())
    }
}

fn entries(summary: &CopySummary) -> u64 {
    let CopySummary { files, hard_links, directories, symlinks, special, .. } = summary;
    files + hard_links + directories + symlinks + special
}

/// How much is in a whole image; what is below some path would have to be counted first.
fn expected(image: &Image, path: &Path) -> Option<ExpectedWork> {
    if path != Path::new("/") {
        return None;
    }
    let statistics = image.file_system().statistics().ok()?;
    let blocks = statistics.blocks.saturating_sub(statistics.blocks_free);
    Some(ExpectedWork {
        entries: statistics.inodes.saturating_sub(statistics.inodes_free),
        bytes: blocks.saturating_mul(statistics.block_size.into()),
    })
}
