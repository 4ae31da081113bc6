//! The difference of two trees as a layer of an OCI image.
//!
//! A layer over the old tree gives the new one. It has the entries that are new or different, whole; names
//! of a file that has several, of which one is different; the directories that these are in; and whiteouts for
//! what the old tree has alone. A directory that keeps nothing of the old one gets one whiteout for all.
//!
//! # Reference
//! OCI Image Format Specification, "Image Layer Filesystem Changeset".

#[cfg(test)]
mod tests;

use crate::compare::{Aspects, CompareOptions, Difference, DifferenceKind, Which, compare};
use crate::transfer::{
    self, CopyItem, CopyMonitor, CopyOptions, CopyProblem, CopySummary, LayerSelection, Side,
    check_layer_name,
};
use crate::{Error, Exclude, Fs, Result};
use drystone_vfs::{Errno, FileType};
use std::collections::{BTreeMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What changed from one tree to another, to be written as a layer.
#[derive(Debug)]
pub struct Layer {
    /// Where the new tree is, without symbolic links.
    path: PathBuf,
    selection: LayerSelection,
    /// Entries that could not be compared.
    failed: u64,
}

impl Layer {
    /// Finds the changes that lead from the directory `old_path` of `old` to `new_path` of `new`. Access times
    /// and holes don't count. `options` are those that the layer is then written with.
    ///
    /// # Errors
    ///
    /// One of the directories can't be used. What goes wrong with entries is told to `monitor`, with
    /// [`Side::Source`](crate::transfer::Side) for the old tree, and counted by [`write`](Layer::write).
    pub fn new(
        (old, old_path): (&Fs<'_>, &Path),
        (new, new_path): (&Fs<'_>, &Path),
        options: &CopyOptions,
        monitor: &dyn CopyMonitor,
    ) -> Result<Layer> {
        let path = new.canonicalize(new_path)?;
        for (fs, path) in [(old, old_path), (new, &path)] {
            fs.read_dir(path)?;
            if fs.context().check_permissions {
                // It would read with all rights.
                return Err(Error::from(Errno::EPERM).during("compare").at(path));
            }
        }
        let mut changes = LayerChanges::default();
        let aspects = Aspects {
            owner: options.keep_owners,
            xattrs: options.keep_xattrs,
            holes: false,
            ..Aspects::default()
        };
        let exclude = options.exclude.clone();
        let compared = CompareOptions { threads: options.threads, aspects, exclude };
        let (first, second) = (old.tree(old_path), new.tree(&path));
        let summary =
            compare(first, second, &compared, &WithoutEntries(monitor), &mut |difference| {
                changes.add(difference);
            })?;
        changes.add_other_names(new, &path, monitor);
        changes.add_whiteouts((old, old_path), (new, &path), &options.exclude, monitor);
        let LayerChanges { selection, failed, .. } = changes;
        Ok(Layer { path, selection, failed: failed + summary.failed })
    }

    /// Writes the layer to `out`. `new` is the new tree's image.
    ///
    /// # Errors
    ///
    /// As for [`archive`](transfer::archive). An archive that is given up is taken for a whole one by nobody.
    pub fn write(
        &self,
        new: &Fs<'_>,
        out: &mut (dyn Write + Send),
        options: &CopyOptions,
        monitor: &dyn CopyMonitor,
    ) -> std::result::Result<CopySummary, CopyProblem> {
        let item = CopyItem { path: self.path.clone(), name: None };
        let selection = Some(&self.selection);
        let written =
            transfer::archive_selected(new.file_system(), &item, out, options, selection, monitor);
        written.map(|sum| CopySummary { failed: sum.failed + self.failed, ..sum })
    }
}

/// A monitor that isn't told of entries: they are only looked at.
struct WithoutEntries<'m>(&'m dyn CopyMonitor);

impl CopyMonitor for WithoutEntries<'_> {
    fn bytes(&self, count: u64) {
        self.0.bytes(count);
    }

    fn problem(&self, problem: &CopyProblem) {
        self.0.problem(problem);
    }

    fn is_cancelled(&self) -> bool {
        self.0.is_cancelled()
    }
}

/// What a comparison has found, as paths below the tops.
#[derive(Default)]
struct LayerChanges {
    selection: LayerSelection,
    /// By directory: what only the old tree has in it.
    removed: BTreeMap<PathBuf, Vec<OsString>>,
    /// What no layer can take away.
    failed: u64,
}

impl LayerChanges {
    fn add(&mut self, difference: &Difference) {
        let path = difference.path.as_os_str().as_bytes();
        match &difference.kind {
            DifferenceKind::OnlyIn(Which::First, _) => self.remove(&difference.path),
            // No archive holds the socket: only the old entry goes.
            DifferenceKind::Type(_, FileType::Socket) => {
                self.remove(&difference.path);
                self.selection.add(path);
            }
            DifferenceKind::OnlyIn(Which::Second, FileType::Directory)
            | DifferenceKind::Type(_, FileType::Directory) => self.selection.add_whole(path),
            DifferenceKind::Holes(_) => {}
            _ => self.selection.add(path),
        }
    }

    fn remove(&mut self, path: &Path) {
        let directory = path.parent().unwrap_or(Path::new(""));
        let removed = self.removed.entry(directory.to_path_buf()).or_default();
        removed.push(path.file_name().unwrap_or_default().to_os_string());
    }

    /// Adds all names of files of which one is written: the others would stay names of the old file.
    fn add_other_names(&mut self, new: &Fs<'_>, top: &Path, monitor: &dyn CopyMonitor) {
        let mut names = Vec::new();
        let mut written = HashSet::new();
        // What can't be read is told when it is compared or written.
        for entry in new.walk(top).flatten() {
            if monitor.is_cancelled() {
                return;
            }
            let metadata = entry.metadata();
            if metadata.is_dir() || metadata.nlink() < 2 {
                continue;
            }
            let Ok(path) = entry.path().strip_prefix(top) else { continue };
            let path = path.as_os_str().as_bytes().to_vec();
            if self.selection.contains(&path) || self.selection.is_within_whole(&path) {
                written.insert(metadata.ino());
            }
            names.push((metadata.ino(), path));
        }
        names.retain(|(inode, _)| written.contains(inode));
        names.iter().for_each(|(_, path)| self.selection.add(path));
    }

    fn add_whiteouts(
        &mut self,
        old: (&Fs<'_>, &Path),
        new: (&Fs<'_>, &Path),
        exclude: &Exclude,
        monitor: &dyn CopyMonitor,
    ) {
        for (directory, names) in std::mem::take(&mut self.removed) {
            let path = directory.as_os_str().as_bytes();
            // The top is nothing that a layer could replace.
            if !path.is_empty() && keeps_nothing(&directory, old, new, exclude) {
                self.selection.clear(path);
                continue;
            }
            for name in names {
                match check_layer_name(name.as_bytes()) {
                    Ok(()) => self.selection.remove(path, name.as_bytes()),
                    Err(error) => {
                        self.failed += 1;
                        let place = old.1.join(&directory).join(name);
                        let (side, cause) = (Side::Source, error.into());
                        monitor.problem(&CopyProblem::new(side, "take away", &place, cause));
                    }
                }
            }
        }
    }
}

/// Whether nothing that a directory had is left in it. If that can't be found out, it may be.
fn keeps_nothing(
    directory: &Path,
    (old, old_top): (&Fs<'_>, &Path),
    (new, new_top): (&Fs<'_>, &Path),
    exclude: &Exclude,
) -> bool {
    let names = |fs: &Fs<'_>, top: &Path| {
        let entries = fs.read_dir(top.join(directory))?;
        entries.map(|entry| Ok(entry?.file_name().to_os_string())).collect::<Result<HashSet<_>>>()
    };
    let (Ok(before), Ok(after)) = (names(old, old_top), names(new, new_top)) else { return false };
    let is_kept = |name: &OsStr| {
        after.contains(name) || exclude.covers(name.as_bytes(), || directory.join(name))
    };
    !before.iter().any(|name| is_kept(name))
}
