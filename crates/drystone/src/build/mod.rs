//! Builds images from directories, archives and layers.
//!
//! [`build_image`] does all of it. For options that [`BuildOptions`] lacks, read [`sources`](drystone_sources) into a
//! [`FileTree`], hand that to a [`Builder`] or a [`Nilfs2Builder`], and have it write to a [`BuildPlace`].
//!
//! # Crash
//! A file gets its name when the image is complete and durable. A device is written in place: until it is complete, it
//! holds no ext4, and may hold a NILFS2 of the first files.

mod nilfs2;
mod place;
mod unfinished;

pub use nilfs2::{Nilfs2BuildOptions, Nilfs2Builder};
pub use place::{BuildPlace, spool_directory};
pub use unfinished::{FilePlace, Unfinished, followed};

use crate::error::on_image;
use crate::{ErrorCause, FileSystemKind, Result};
use drystone_mkfs::Error;
use drystone_mkfs::build::{BuildMonitor, Builder, Ext4BuildOptions, Size, SpareRoom};
use drystone_mkfs::tree::FileTree;
use drystone_sources::{Changes, Manifest, Opener, Source, SourceContext};
use drystone_sync::thread;
use drystone_vfs::{Exclude, OwnerMap};
use std::ffi::OsStr;
use std::io;
use std::path::Path;
use uuid::Uuid;

/// How to build an image. The same sources and options give the same bytes.
///
/// ```no_run
/// use drystone::{BuildOptions, build_image};
///
/// # fn main() -> drystone::Result<()> {
/// let options = BuildOptions::default().label("root").overwrite(true);
/// build_image("disk.img", ["rootfs/", "overlay.tar"], &options, &())?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BuildOptions {
    /// What the image holds: ext4 by default.
    pub kind: FileSystemKind,
    /// How large it becomes. By default as large as the files need; on a device, all of it.
    pub size: Size,
    /// The label: at most 16 bytes, 80 in NILFS2.
    pub label: String,
    /// The identity; derived from the files unless said.
    pub uuid: Option<Uuid>,
    /// When the image is made, in seconds since 1970; the latest time of a file unless said.
    pub time_seconds: Option<u64>,
    /// Replace a file that isn't empty, or what a device holds.
    pub overwrite: bool,
    /// Entries that are left out, with all that is in them.
    pub exclude: Exclude,
    /// Other owners than those of the sources; also in ACLs.
    pub owners: OwnerMap,
    /// Changes of modes, owners, times and attributes, and device nodes.
    pub manifests: Vec<Manifest>,
    /// Take directories of other file systems as empty.
    pub one_file_system: bool,
    /// How many threads read and copy; 0 counts as 1.
    pub threads: usize,
}

drystone_options::setters! {
    BuildOptions {
        kind: FileSystemKind,
        size: Size,
        label: impl Into<String>,
        uuid: impl Into<Option<Uuid>>,
        time_seconds: impl Into<Option<u64>>,
        overwrite: bool,
        exclude: Exclude,
        owners: OwnerMap,
        manifests: Vec<Manifest>,
        one_file_system: bool,
        threads: usize,
    }
}

impl Default for BuildOptions {
    /// ext4, as large as the files need, one thread per core.
    fn default() -> BuildOptions {
        BuildOptions {
            kind: FileSystemKind::Ext4,
            size: Size::Auto(SpareRoom::Bytes(0)),
            label: String::new(),
            uuid: None,
            time_seconds: None,
            overwrite: false,
            exclude: Exclude::default(),
            owners: OwnerMap::default(),
            manifests: Vec::new(),
            one_file_system: false,
            threads: thread::available_parallelism().map_or(1, usize::from),
        }
    }
}

/// What was built.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BuildSummary {
    /// Bytes of the image.
    pub size_bytes: u64,
    /// Files in it, directories and all else included.
    pub files: u64,
    /// Bytes of data that were copied.
    pub data_bytes: u64,
    /// The identity of the image.
    pub uuid: Uuid,
    /// What was left out, one sentence each.
    pub warnings: Vec<String>,
}

/// Builds the image that `name` stands for ([`VolumeName`](crate::VolumeName)): a new file, or the content of a device or partition.
///
/// A source is a directory, a tar archive, or an OCI layout or an archive of one, if the feature `oci` is on. The kind
/// is detected; `dir:`, `tar:` or `oci:` in front sets it, and `-` is standard input. Several are laid over each other:
/// a later one replaces the names that earlier ones have, and directories are merged.
///
/// `monitor` is told of what is written, and asked between sources and while data are written whether to go on; `&()`
/// does neither.
///
/// # Errors
///
/// [`HoldsData`](ErrorCause::HoldsData) if something is there that may not be replaced; a source can't be read, or has
/// what no image can hold; the image can't have the size; something can't be written. A file stays as it was; a device
/// that was written to holds no image.
pub fn build_image(
    name: impl AsRef<Path>,
    sources: impl IntoIterator<Item = impl AsRef<OsStr>>,
    options: &BuildOptions,
    monitor: &dyn BuildMonitor,
) -> Result<BuildSummary> {
    let sources: Vec<Source> =
        sources.into_iter().map(|source| Source::parse(source.as_ref())).collect();
    build_of(name.as_ref(), options, monitor, |tree, context| {
        if sources.is_empty() {
            let problem = "there is nothing to build it from: name a source";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, problem).into());
        }
        for source in &sources {
            if monitor.is_cancelled() {
                return Err(Error::Cancelled.into());
            }
            source.add(tree, context).map_err(|error| match error {
                // The path is that of the source, not of the image.
                drystone_sources::Error::Io { name, problem } => {
                    crate::Error::from(problem).during("read").at(name.as_ref())
                }
                other => other.into(),
            })?;
        }
        Ok(Vec::new())
    })
}

/// Builds an image of what `read` puts into a tree; it returns warnings.
pub(crate) fn build_of(
    name: &Path,
    options: &BuildOptions,
    monitor: &dyn BuildMonitor,
    read: impl FnOnce(&mut FileTree, &mut SourceContext) -> Result<Vec<String>>,
) -> Result<BuildSummary> {
    on_image("build", name, || {
        let mut place = BuildPlace::choose(name, options.overwrite)?;
        let mut tree = FileTree::new();
        let mut context = SourceContext::new(Opener::new(&spool_directory(name)));
        context.exclude = options.exclude.clone();
        context.threads = options.threads.max(1);
        context.one_file_system = options.one_file_system;
        let warnings = read(&mut tree, &mut context)?;
        let changes = Changes {
            exclude: options.exclude.clone(),
            owners: options.owners.clone(),
            manifests: options.manifests.clone(),
            latest: None,
        };
        changes.apply(&mut tree)?;
        let mut built = match options.kind {
            FileSystemKind::Ext4 => build_ext4(&mut tree, &mut place, options, monitor)?,
            FileSystemKind::Nilfs2 => build_nilfs2(&tree, &mut place, options, monitor)?,
        };
        built.warnings.extend(warnings);
        built.warnings.extend(context.warnings.sentences());
        Ok(built)
    })
}

fn build_ext4(
    tree: &mut FileTree,
    place: &mut BuildPlace,
    options: &BuildOptions,
    monitor: &dyn BuildMonitor,
) -> Result<BuildSummary> {
    let ext4 = Ext4BuildOptions::default()
        .size(options.size_at(place))
        .label(options.label.as_bytes())
        .uuid(options.uuid.map(Uuid::into_bytes))
        .time_seconds(options.time_seconds)
        .threads(options.threads.max(1));
    let builder = Builder::new(tree, &ext4)?;
    let mut built = BuildSummary {
        size_bytes: builder.size_bytes(),
        files: builder.files(),
        data_bytes: builder.data_bytes(),
        uuid: Uuid::from_bytes(builder.uuid()),
        warnings: Vec::new(),
    };
    let is_zeroed = place.is_zeroed();
    let device = place.open(built.size_bytes)?;
    builder.write(&*device, is_zeroed, monitor)?;
    built.warnings.extend(place.finish(&*device)?);
    Ok(built)
}

fn build_nilfs2(
    tree: &FileTree,
    place: &mut BuildPlace,
    options: &BuildOptions,
    monitor: &dyn BuildMonitor,
) -> Result<BuildSummary> {
    let nilfs2 = Nilfs2BuildOptions::default()
        .size(options.size_at(place))
        .label(options.label.as_bytes())
        .uuid(options.uuid)
        .time_seconds(options.time_seconds)
        .threads(options.threads.max(1));
    let builder = Nilfs2Builder::new(tree, &nilfs2)?;
    // Its second superblock is looked for at the end of the device.
    if let Some(bytes) = place.device_bytes().filter(|bytes| *bytes != builder.size_bytes()) {
        return Err(ErrorCause::DeviceSize { bytes }.into());
    }
    let device = place.open(builder.size_bytes())?;
    builder.write(&device, monitor)?;
    let warning = place.finish(&*device)?;
    Ok(BuildSummary {
        size_bytes: builder.size_bytes(),
        files: builder.files(),
        data_bytes: builder.data_bytes(),
        uuid: builder.options().uuid,
        warnings: builder.warning().into_iter().chain(warning).collect(),
    })
}

impl BuildOptions {
    /// The size of an image that goes there: it fills a device, unless room is asked for.
    fn size_at(&self, place: &BuildPlace) -> Size {
        match (self.size, place.device_bytes()) {
            (Size::Auto(SpareRoom::Bytes(0)), Some(bytes)) => Size::Fixed(bytes),
            (size, _) => size,
        }
    }
}
