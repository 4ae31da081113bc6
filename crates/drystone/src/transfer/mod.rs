//! Copies trees into, out of and between file systems, with several threads.
//!
//! Everything is kept that both ends can hold: types, permissions, owners, times in nanoseconds,
//! extended attributes (ACLs and file capabilities are such), hard links, holes, device nodes.
//! Names are bytes. An existing directory is merged into; anything else that has the name of a
//! copied entry is replaced when that is complete, except what the same copy has made of another spelling of
//! the name. A failed entry is reported and the rest goes on, unless the target is full or read-only, when
//! nothing after could succeed.
//!
//! An image may be hostile: on the host every name is made and opened relative to an open
//! directory without following symbolic links, so nothing can be made outside the target.
//!
//! `engine` shares the work among threads, `directories` and `leaves` do it. `ends` says what they ask
//! of a source and a target; `host_*` and `image_*` are the two kinds of each. `archive` writes tar
//! archives, `import` unpacks them.

#[cfg(feature = "tar")]
mod archive;
mod copied;
mod directories;
mod directory;
pub(crate) mod ends;
mod engine;
pub(crate) mod facts;
mod folded_names;
mod host_directory;
pub(crate) mod host_source;
mod host_target;
pub(crate) mod image_source;
mod image_target;
#[cfg(feature = "tar")]
mod import;
mod leaves;
mod links;
mod problem;
mod queue;
#[cfg(test)]
mod tests;

#[cfg(feature = "tar")]
pub use archive::archive;
#[cfg(feature = "tar")]
pub(crate) use archive::{LayerSelection, archive_selected, check_layer_name};
#[cfg(feature = "tar")]
pub use import::import;
#[cfg(feature = "fsck")]
pub(crate) use problem::FINAL;
pub use problem::{Cause, CopyProblem, Lacking, Side};

use crate::Exclude;
use drystone_vfs::{Errno, FileSystem, OwnerMap};
use host_source::HostSource;
use host_target::HostTarget;
use image_source::ImageSource;
use image_target::ImageTarget;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// One end of a copy.
#[derive(Clone, Copy)]
pub enum Endpoint<'a> {
    /// The files of this machine.
    Host,
    /// An open image; paths start at its root.
    Image(&'a dyn FileSystem),
}

/// One tree or file to copy.
#[derive(Clone, Debug)]
pub struct CopyItem {
    /// Where it is. A symbolic link here is copied, not followed.
    pub path: PathBuf,
    /// Its name in the target directory; `None` to merge the directory at `path` into the target
    /// directory itself.
    pub name: Option<OsString>,
}

impl CopyItem {
    /// Fails unless the item's name is that of one entry: it may come from an image.
    fn check_name(&self) -> Result<(), CopyProblem> {
        let Some(name) = &self.name else { return Ok(()) };
        drystone_vfs::check_name(name.as_bytes()).map_err(|error| {
            let detail = format!("'{}' can't be a name", name.display().to_string().escape_debug());
            let cause = drystone_vfs::Error::with_detail(error.errno, detail).into();
            CopyProblem::new(Side::Source, "copy", &self.path, cause)
        })
    }
}

/// How to copy.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CopyOptions {
    /// How many threads copy; 0 counts as 1.
    pub threads: usize,
    /// Keep owners. Otherwise new entries belong to the superuser in an image, to the caller on
    /// the host.
    pub keep_owners: bool,
    /// Other owners than those of the source, if owners are kept; also in ACLs.
    pub owners: OwnerMap,
    /// Keep extended attributes, ACLs and file capabilities among them.
    pub keep_xattrs: bool,
    /// Don't descend into directories of other devices.
    pub one_file_system: bool,
    /// Files of the host, as device and inode number, that are neither copied nor replaced: the image itself.
    /// It is left out of a tree; a copy of it alone fails.
    pub excluded: Vec<(u64, u64)>,
    /// Entries that are left out, with all that is in them, by their place below the target.
    pub exclude: Exclude,
    /// Leave out the `lost+found` in the root of an image if nothing is in it.
    pub without_lost_and_found: bool,
}

drystone_options::setters! {
    CopyOptions {
        threads: usize,
        keep_owners: bool,
        owners: OwnerMap,
        keep_xattrs: bool,
        one_file_system: bool,
        excluded: impl Into<Vec<(u64, u64)>>,
        exclude: Exclude,
        without_lost_and_found: bool,
    }
}

impl Default for CopyOptions {
    /// Everything kept, one thread per core.
    fn default() -> CopyOptions {
        CopyOptions {
            threads: drystone_sync::core_slots(),
            keep_owners: true,
            owners: OwnerMap::default(),
            keep_xattrs: true,
            one_file_system: false,
            excluded: Vec::new(),
            exclude: Exclude::default(),
            without_lost_and_found: false,
        }
    }
}

/// Told of what happens, by all threads at once.
pub trait CopyMonitor: Sync {
    /// Content was copied.
    fn bytes(&self, _count: u64) {}

    /// An entry is complete (a directory: made, its entries may follow).
    fn entry(&self, _path: &dyn Fn() -> PathBuf) {}

    /// Something could not be copied or kept.
    fn problem(&self, problem: &CopyProblem);

    /// An entry was made with less than it should have, each part of which was a problem already.
    fn lacking(&self, _entry: &Lacking<'_>) {}

    /// Asked again and again: true if the copy is to end early. A new file that was begun is left as it is; one that
    /// was to replace another is taken away.
    fn is_cancelled(&self) -> bool {
        false
    }
}

/// What was copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopySummary {
    /// Regular files, each counted once.
    pub files: u64,
    /// Further names of files.
    pub hard_links: u64,
    /// Directories.
    pub directories: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// Device nodes, pipes and sockets.
    pub special: u64,
    /// Content, without holes.
    pub bytes: u64,
    /// Entries that could not be copied, or not wholly.
    pub failed: u64,
    /// Device nodes that only the superuser may make.
    pub not_made: u64,
    /// Attributes that the target could not hold or the caller may not set.
    pub not_kept: u64,
    /// The target is full or can't be written any more, or the monitor asked for the end: the rest was
    /// not tried, and directories that had been begun did not get their attributes.
    pub is_stopped: bool,
}

/// Copies `items` into the directory `into` of `to`, which must exist.
///
/// # Errors
///
/// If `into` can't be used, or both ends are the host. What goes wrong with entries is told to `monitor` and counted
/// in what is returned.
pub fn copy(
    from: Endpoint<'_>,
    items: &[CopyItem],
    to: Endpoint<'_>,
    into: &Path,
    options: &CopyOptions,
    monitor: &dyn CopyMonitor,
) -> Result<CopySummary, CopyProblem> {
    match (from, to) {
        (Endpoint::Host, Endpoint::Host) => {
            let error = drystone_vfs::Error::with_detail(Errno::EINVAL, "neither end is an image");
            Err(CopyProblem::new(Side::Target, "copy to", into, error.into()))
        }
        (Endpoint::Host, Endpoint::Image(target)) => {
            let target = ImageTarget::new(target, None, options.keep_owners);
            engine::run(&HostSource::new(), &target, items, into, options, monitor)
        }
        (Endpoint::Image(source), Endpoint::Host) => {
            let target = HostTarget::new(into, options)?;
            engine::run(&ImageSource::new(source), &target, items, into, options, monitor)
        }
        (Endpoint::Image(source), Endpoint::Image(target)) => {
            let target = ImageTarget::new(target, Some(source), options.keep_owners);
            engine::run(&ImageSource::new(source), &target, items, into, options, monitor)
        }
    }
}
