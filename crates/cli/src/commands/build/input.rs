//! Options for the sources of an image, and for changes to what they hold.

use crate::failure::{Failure, Outcome};
use crate::interrupt::Interrupt;
use crate::owners::OwnerArguments;
use anyhow::{Context as _, anyhow};
use drystone::Exclude;
use drystone_mkfs::tree::{FileTree, InodeTimestamp};
use drystone_sources::oci::{Choice, Platform};
use drystone_sources::tar::{TarError, TarProblem};
use drystone_sources::{Changes, Manifest, Opener, Source, SourceContext, Warnings};
use drystone_sync::thread;
use std::ffi::OsString;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The sources, and what is changed in them.
#[derive(Debug, Default, clap::Args)]
pub struct InputArguments {
    /// What to build from; later sources are laid over earlier ones.
    #[arg(short = 'F', long, value_name = "[KIND:]SOURCE")]
    from: Vec<OsString>,
    /// A file of lines 'SOURCE [PATH]'; PATH is where in the image the source goes.
    #[arg(long, value_name = "FILE")]
    from_list: Vec<PathBuf>,
    /// Threads that read and copy. [default: the number of cores]
    #[arg(short = 'j', long, value_name = "N", value_parser = crate::global::threads())]
    threads: Option<usize>,
    /// Leave out matching entries; a pattern with '/' matches paths from the image's root, any other
    /// names.
    #[arg(long, value_name = "GLOB")]
    exclude: Vec<OsString>,
    /// Change modes, owners, times and attributes, and make device nodes, as listed in a file; see
    /// docs/src/reference/sources.md.
    #[arg(long, value_name = "FILE")]
    manifest: Vec<PathBuf>,
    #[command(flatten)]
    owners: OwnerArguments,
    /// Limit all times to this, in seconds since 1970. [default: SOURCE_DATE_EPOCH]
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, allow_hyphen_values = true)]
    mtime_clamp: Option<Option<i64>>,
    /// Treat directories on other file systems as empty.
    #[arg(short = 'x', long)]
    one_file_system: bool,
    /// The platform of the image to take from an OCI layout: linux/arm64, arm/v7, …
    #[arg(long, value_parser = parse_platform)]
    platform: Option<Platform>,
    /// The name of the image to take from an OCI layout.
    #[arg(long, value_name = "NAME")]
    tag: Option<String>,
}

impl InputArguments {
    /// Threads that read and copy.
    pub fn threads(&self) -> usize {
        self.threads
            .unwrap_or_else(|| thread::available_parallelism().map_or(1, std::num::NonZero::get))
    }

    /// Reads all sources into a tree and changes what is to be changed.
    pub fn read(
        &self,
        tree: &mut FileTree,
        image: &Path,
        epoch: Option<u64>,
        interrupt: &Interrupt,
    ) -> Outcome<Warnings> {
        if self.from.is_empty() && self.from_list.is_empty() {
            return Err(Failure::Usage("build needs --from or --from-list".to_string()));
        }
        let mut sources: Vec<Source> = self.from.iter().map(|text| Source::parse(text)).collect();
        for list in &self.from_list {
            let (name, directory, text) = read_lines(list)?;
            sources.extend(Source::parse_list(&name, &directory, &text)?);
        }
        let exclude = Exclude::new(self.exclude.iter().cloned());
        let manifests = self.manifest.iter().map(|path| {
            let (name, directory, text) = read_lines(path)?;
            Ok(Manifest::parse(&name, &directory, &text)?)
        });
        let changes = Changes {
            exclude: exclude.clone(),
            owners: self.owners.map(),
            manifests: manifests.collect::<anyhow::Result<_>>()?,
            latest: self.latest(epoch)?,
        };
        let warnings = self.add(&sources, tree, image, exclude, interrupt)?;
        changes.apply(tree)?;
        Ok(warnings)
    }

    /// Reads the sources of the EFI system partition into a tree. Of the options that change sources, only the
    /// limit of times applies to them.
    pub fn read_esp(
        &self,
        sources: &[OsString],
        tree: &mut FileTree,
        image: &Path,
        epoch: Option<u64>,
        interrupt: &Interrupt,
    ) -> Outcome<Warnings> {
        let sources: Vec<Source> = sources.iter().map(|text| Source::parse(text)).collect();
        let warnings = self.add(&sources, tree, image, Exclude::default(), interrupt)?;
        Changes { latest: self.latest(epoch)?, ..Changes::default() }.apply(tree)?;
        Ok(warnings)
    }

    /// The latest time that a file may have.
    fn latest(&self, epoch: Option<u64>) -> Outcome<Option<InodeTimestamp>> {
        let clamp = match self.mtime_clamp {
            None => None,
            Some(Some(seconds)) => Some(seconds),
            Some(None) => Some(epoch.map(|epoch| epoch as i64).ok_or_else(|| {
                let message = "--mtime-clamp needs a time, or SOURCE_DATE_EPOCH";
                Failure::Usage(message.to_string())
            })?),
        };
        Ok(clamp.map(InodeTimestamp::from_seconds))
    }

    fn add(
        &self,
        sources: &[Source],
        tree: &mut FileTree,
        image: &Path,
        exclude: Exclude,
        interrupt: &Interrupt,
    ) -> Outcome<Warnings> {
        let mut context = SourceContext::new(Opener::new(&spool_directory(image)).cancelled_by({
            let interrupt = interrupt.clone();
            move || interrupt.is_asked()
        }));
        context.choice = Choice { platform: self.platform.clone(), reference: self.tag.clone() };
        context.exclude = exclude;
        context.threads = self.threads();
        context.one_file_system = self.one_file_system;
        for source in sources {
            source.add(tree, &mut context).map_err(|error| match error {
                drystone_sources::Error::Cancelled => Failure::Code(interrupt.code()),
                drystone_sources::Error::Tar(error) if is_no_archive(&error) => anyhow!(
                    "{}: neither a directory nor an archive; a list (--from-list) takes single files",
                    error.archive
                )
                .into(),
                other => other.into(),
            })?;
        }
        Ok(context.warnings)
    }
}

/// Whether a file has nothing of an archive.
fn is_no_archive(error: &TarError) -> bool {
    error.offset == 0 && matches!(error.problem, TarProblem::NotAHeader)
}

/// The name, the directory and the text of a file of lines; '-' is standard input.
fn read_lines(path: &Path) -> anyhow::Result<(String, PathBuf, Vec<u8>)> {
    if path.as_os_str() == "-" {
        let mut text = Vec::new();
        std::io::stdin().read_to_end(&mut text).context("standard input")?;
        return Ok(("standard input".into(), PathBuf::new(), text));
    }
    let name = path.display().to_string();
    let text = std::fs::read(path).with_context(|| name.clone())?;
    Ok((name, path.parent().unwrap_or(Path::new("")).to_path_buf(), text))
}

/// Where unpacked archives are kept meanwhile: beside the image, where there is space.
pub fn spool_directory(image: &Path) -> PathBuf {
    match image.as_os_str() == "-" {
        true => std::env::temp_dir(),
        false => drystone::build::spool_directory(image),
    }
}

fn parse_platform(text: &str) -> Result<Platform, String> {
    Platform::parse(text).ok_or_else(|| "a platform, as in linux/arm64".to_string())
}
