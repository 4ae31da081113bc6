//! Unpacks tar archives into an image.
//!
//! Paths are resolved below the directory that the archive is unpacked into. It is the root for symbolic links and
//! `..` on the way, so no archive reaches anything else in the image.
//!
//! An entry is complete before it replaces an existing one. Directories get their attributes at the end: otherwise
//! their times would change again, and a read-only directory would take no entries.
//!
//! `places` resolves paths and replaces existing entries; `entry` makes new ones.

mod entry;
mod places;

use super::folded_names::FoldedNames;
use super::{CopyMonitor, CopyOptions, CopyProblem, CopySummary, Side};
use crate::{Error, Result};
use drystone_sources::Archive;
use drystone_sources::tar::{TarAttributes, TarEntry, TarReader};
use drystone_vfs::{Errno, FileSystem, FileType, RequestContext, Timestamp, find_path};
use places::{Missing, Places};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Unpacks `archive` into the directory `into` of an image, for the user that `context` names. Existing directories
/// are merged, anything else is replaced. If the user isn't root, the new entries belong to the user. The options about
/// threads, devices and `lost+found` have no effect.
///
/// The archive is first read to its end: one that is cut off in an entry, or has a damaged header, changes
/// nothing. Damaged content isn't noticed, because a tar has no checksums of it.
///
/// # Errors
///
/// The archive can't be read or is damaged, or `into` isn't a directory. Problems with entries are passed to
/// `monitor` and counted; what those entries would have replaced stays.
pub fn import(
    archive: &Archive,
    target: &dyn FileSystem,
    context: &RequestContext,
    into: &Path,
    options: &CopyOptions,
    monitor: &dyn CopyMonitor,
) -> Result<CopySummary> {
    let top = find_path(target, context, into.as_os_str().as_bytes(), true)
        .map_err(|error| Error::from(error).during("import").at(into))?;
    if top.attributes().file_type != FileType::Directory {
        return Err(Error::from(Errno::ENOTDIR).during("import").at(into));
    }
    let next = |reader: &mut TarReader<'_>| {
        let failed = |error| Error::from(drystone_sources::Error::from(error));
        reader.next_entry().map_err(|error| failed(error).during("import").at(into))
    };
    let mut reader = TarReader::new(&archive.name, &archive.input);
    while !monitor.is_cancelled() && next(&mut reader)?.is_some() {}
    let mut import = Import {
        places: Places { file_system: target, context, top, folded: FoldedNames::default() },
        archive,
        into,
        options,
        monitor,
        directories: BTreeMap::new(),
        summary: CopySummary::default(),
    };
    let mut reader = TarReader::new(&archive.name, &archive.input);
    let mut add_all = || {
        while !import.is_stopped()
            && let Some(entry) = next(&mut reader)?
        {
            import.add(entry);
        }
        Ok(())
    };
    let added: Result<()> = add_all();
    // Also those of an archive that is given up: until then only their owner may use them.
    import.finish_directories();
    added?;
    Ok(import.summary)
}

/// What an inode is to get.
struct ImportedAttributes {
    permissions: u16,
    user: u32,
    group: u32,
    modified: Timestamp,
    xattrs: TarAttributes,
}

/// A directory that gets its attributes in the end.
struct ImportedDirectory {
    is_new: bool,
    attributes: ImportedAttributes,
}

struct Import<'i> {
    places: Places<'i>,
    archive: &'i Archive,
    into: &'i Path,
    options: &'i CopyOptions,
    monitor: &'i dyn CopyMonitor,
    /// By path: the last entry of a path counts.
    directories: BTreeMap<Vec<u8>, ImportedDirectory>,
    summary: CopySummary,
}

impl Import<'_> {
    /// True if nothing more is to be begun.
    fn is_stopped(&mut self) -> bool {
        self.summary.is_stopped |= self.monitor.is_cancelled();
        self.summary.is_stopped
    }

    fn add(&mut self, entry: TarEntry) {
        if self.is_excluded(&entry.path) {
            return;
        }
        let path = entry.path.clone();
        match self.unpack(entry) {
            Ok(()) => self.monitor.entry(&|| self.full_path(&path)),
            Err(error) => self.failed(&path, error),
        }
    }

    /// Whether an entry, or a directory that it is in, is left out.
    fn is_excluded(&self, path: &[u8]) -> bool {
        if self.options.exclude.is_empty() {
            return false;
        }
        let slashes = (0..path.len()).filter(|&at| path[at] == b'/');
        slashes.chain([path.len()]).any(|end| {
            let (_, name) = places::split(&path[..end]);
            self.options.exclude.covers(name, || PathBuf::from(OsStr::from_bytes(&path[..end])))
        })
    }

    fn failed(&mut self, path: &[u8], error: drystone_vfs::Error) {
        let problem = self.problem("import", path, error);
        // Nothing of the entry is left, and the user knows.
        if problem.is_cut_short() {
            return;
        }
        self.summary.failed += 1;
        let was_stopped = self.summary.is_stopped;
        self.summary.is_stopped |= problem.is_final();
        // One report is enough: the others fail for the same reason.
        if !(was_stopped && problem.is_final()) {
            self.monitor.problem(&problem);
        }
    }

    fn problem(
        &self,
        action: &'static str,
        path: &[u8],
        error: drystone_vfs::Error,
    ) -> CopyProblem {
        CopyProblem::new(Side::Target, action, &self.full_path(path), error.into())
    }

    /// Where an entry comes to be, for messages.
    fn full_path(&self, path: &[u8]) -> PathBuf {
        match path.is_empty() {
            true => self.into.to_path_buf(),
            false => self.into.join(OsStr::from_bytes(path)),
        }
    }

    /// Gives directories their attributes, those within before those around them.
    fn finish_directories(&mut self) {
        while let Some((path, directory)) = self.directories.pop_last() {
            let ImportedDirectory { is_new, attributes } = directory;
            let done = self.places.directory_at(&path, Missing::AreErrors).and_then(|directory| {
                self.finish(directory.inode(), FileType::Directory, is_new, &attributes, &path)
            });
            if let Err(error) = done {
                self.failed(&path, error);
            }
        }
    }
}
