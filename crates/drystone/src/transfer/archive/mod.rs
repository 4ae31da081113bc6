//! Writes a tree of an image as a tar archive, in one pass and with fixed memory.
//!
//! The format is that of POSIX (PAX), with the extensions that GNU tar and bsdtar read: extended
//! attributes, ACLs, holes. Entries come depth first, the names of a directory in the order of
//! their bytes, so that the same tree gives the same archive.
//!
//! # State
//!
//! A frame for each directory on the way down; the first name of each file that has further ones
//! to come.

mod content;
mod entry;
mod output;
mod selection;
#[cfg(test)]
mod tests;

use super::copied::Copied;
use super::ends::CopySource;
use super::facts::{InodeFacts, Xattrs, permissions_of_other_owner, with_mapped_ids};
use super::image_source::ImageSource;
use super::problem::{Cause, CopyProblem, Side};
use super::{CopyItem, CopyMonitor, CopyOptions, CopySummary};
use crate::EntryPath;
use drystone_sources::tar::EntryKind;
use drystone_sync::Arc;
use drystone_vfs::{Errno, Error, FileSystem, InodeGuard};
use entry::{ArchivePath, head, kind_of};
use output::ArchiveOutput;
pub(crate) use selection::{LayerSelection, check_layer_name};
use std::borrow::Cow;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Writes what is at `item` in an image to `out`: a directory without a name as the top of the
/// archive, `./`; anything else under its name. Of `options`, threads and devices mean nothing
/// here.
///
/// # Errors
///
/// If the item can't be found, `out` takes no more, or `monitor` asks for an end: then what was
/// written is cut off within an entry, so that no program takes it for a whole archive. What goes
/// wrong with entries is told to `monitor` and counted; a file that can't be read to its end is filled
/// up with zeros.
pub fn archive(
    source: &dyn FileSystem,
    item: &CopyItem,
    out: &mut (dyn Write + Send),
    options: &CopyOptions,
    monitor: &dyn CopyMonitor,
) -> Result<CopySummary, CopyProblem> {
    archive_selected(source, item, out, options, None, monitor)
}

/// The same of a directory, but only what is selected, if anything is, with whiteouts for the rest.
pub(crate) fn archive_selected(
    source: &dyn FileSystem,
    item: &CopyItem,
    out: &mut (dyn Write + Send),
    options: &CopyOptions,
    selection: Option<&LayerSelection>,
    monitor: &dyn CopyMonitor,
) -> Result<CopySummary, CopyProblem> {
    let source = ImageSource::new(source);
    output::run(out, |output| {
        let mut archiver = Archiver {
            source: &source,
            options,
            selection,
            monitor,
            output,
            links: HashMap::new(),
            copied: Copied::default(),
            summary: CopySummary::default(),
        };
        let archived = archiver.item(item);
        if monitor.is_cancelled() {
            return Err(archiver.output.cut(archived.is_ok()));
        }
        archived?;
        archiver.output.end()?;
        Ok(archiver.summary)
    })
}

/// A directory on the way down.
struct ArchivedDirectory<'f> {
    node: InodeGuard<'f>,
    names: std::vec::IntoIter<OsString>,
    /// The length of its path, which ends in `/`.
    path_length: usize,
    way: Arc<EntryPath>,
    /// Everything in it is written.
    is_whole: bool,
}

struct Archiver<'a, 'o> {
    source: &'a ImageSource<'a>,
    options: &'a CopyOptions,
    selection: Option<&'a LayerSelection>,
    monitor: &'a dyn CopyMonitor,
    output: &'a mut ArchiveOutput<'o>,
    /// By identity: the first name, and how many are to come.
    links: HashMap<(u64, u64), (Arc<EntryPath>, u64)>,
    /// What of the image was written, of the item that is being written.
    copied: Copied,
    summary: CopySummary,
}

impl<'a> Archiver<'a, '_> {
    fn item(&mut self, item: &CopyItem) -> Result<(), CopyProblem> {
        let unusable = |cause| CopyProblem::new(Side::Source, "open", &item.path, cause);
        let Some(name) = &item.name else {
            let (node, facts) = self.source.start(&item.path).map_err(unusable)?;
            let facts = self.as_wanted(facts);
            return self.tree(node, &facts, b"./".to_vec(), &item.path);
        };
        item.check_name()?;
        let parent = item.path.parent().unwrap_or(Path::new("/"));
        let (holder, _) = self.source.start(parent).map_err(unusable)?;
        let from = item.path.file_name().unwrap_or(name);
        let (node, facts) = self.source.find(&holder, from).map_err(unusable)?;
        drop(holder);
        let facts = self.as_wanted(facts);
        if facts.is_directory() {
            let path = [name.as_bytes(), b"/"].concat();
            return self.tree(node, &facts, path, &item.path);
        }
        let place = ArchivePath { name: name.as_bytes(), top_length: 0, top: parent };
        self.leaf(&node, &facts, &place, &|| EntryPath::top(name))
    }

    /// Writes a directory and everything below it. Takes the node.
    fn tree(
        &mut self,
        node: InodeGuard<'a>,
        facts: &InodeFacts,
        mut path: Vec<u8>,
        top: &Path,
    ) -> Result<(), CopyProblem> {
        let top_length = path.len();
        if self.selection.is_some_and(|selection| !selection.contains(b"")) {
            return Ok(());
        }
        let mut frames = Vec::new();
        let mut written = self.enter(node, facts, &path, top_length, top, &mut frames);
        while written.is_ok()
            && !self.monitor.is_cancelled()
            && let Some(frame) = frames.last_mut()
        {
            path.truncate(frame.path_length);
            let Some(name) = frame.names.next() else {
                frames.pop();
                continue;
            };
            path.extend_from_slice(name.as_bytes());
            written = self.entry(&name, &mut path, top_length, top, &mut frames);
        }
        written
    }

    /// Writes the entry at `path` of the innermost frame, to which a `/` is added if it is a directory.
    fn entry(
        &mut self,
        name: &OsStr,
        path: &mut Vec<u8>,
        top_length: usize,
        top: &Path,
        frames: &mut Vec<ArchivedDirectory<'a>>,
    ) -> Result<(), CopyProblem> {
        let Some(frame) = frames.last() else { return Ok(()) };
        let below = || PathBuf::from(OsStr::from_bytes(&path[top_length..]));
        if self.options.exclude.covers(name.as_bytes(), below) {
            return Ok(());
        }
        if let Some(selection) = self.selection {
            if !frame.is_whole && !selection.contains(&path[top_length..]) {
                return Ok(());
            }
            if let Err(error) = check_layer_name(name.as_bytes()) {
                let place = ArchivePath { name: path, top_length, top };
                self.failed(place.problem("archive", error.into()));
                return Ok(());
            }
        }
        let (node, facts) = match self.source.find(&frame.node, name) {
            Ok(found) => found,
            Err(cause) => {
                let place = ArchivePath { name: path, top_length, top };
                self.failed(place.problem("read", cause));
                return Ok(());
            }
        };
        let facts = self.as_wanted(facts);
        if facts.is_directory() {
            if self.options.without_lost_and_found
                && self.source.is_unused_lost_and_found(&frame.node, name, &node)
            {
                return Ok(());
            }
            path.push(b'/');
            return self.enter(node, &facts, path, top_length, top, frames);
        }
        let place = ArchivePath { name: path, top_length, top };
        self.leaf(&node, &facts, &place, &|| frame.way.to(name))
    }

    /// Writes the entry of a directory and begins with what is in it. Takes the node.
    fn enter(
        &mut self,
        node: InodeGuard<'a>,
        facts: &InodeFacts,
        path: &[u8],
        top_length: usize,
        top: &Path,
        frames: &mut Vec<ArchivedDirectory<'a>>,
    ) -> Result<(), CopyProblem> {
        let place = ArchivePath { name: path, top_length, top };
        if let Err(cause) = self.note_copied(&node, facts) {
            self.failed(place.problem("archive", cause));
            return Ok(());
        }
        let (facts, xattrs) = self.wanted(&node, facts, &place);
        let mut written = self.output.write(&head(path, &facts, &xattrs, EntryKind::Directory));
        let mut is_whole = frames.last().is_some_and(|frame| frame.is_whole);
        if let Some(selection) = self.selection {
            let below = path[top_length..].strip_suffix(b"/").unwrap_or_default();
            is_whole |= selection.is_whole(below);
            for whiteout in selection.whiteouts(below, path) {
                written = written.and_then(|()| self.output.write(&whiteout));
            }
        }
        let names = self.source.list(&node).unwrap_or_else(|cause| {
            self.failed(place.problem("list", cause));
            Vec::new()
        });
        let way = match frames.last() {
            Some(frame) => frame.way.to(place.last_name()),
            None => EntryPath::top(place.last_name()),
        };
        frames.push(ArchivedDirectory {
            node,
            names: names.into_iter(),
            path_length: path.len(),
            way,
            is_whole,
        });
        self.summary.directories += 1;
        self.monitor.entry(&|| place.source_path());
        written
    }

    /// Writes what is no directory. `way` is that to the place, for what has further names.
    fn leaf(
        &mut self,
        node: &InodeGuard<'a>,
        facts: &InodeFacts,
        place: &ArchivePath<'_>,
        way: &dyn Fn() -> Arc<EntryPath>,
    ) -> Result<(), CopyProblem> {
        let Some(kind) = kind_of(facts) else {
            let cause = Error::with_detail(Errno::EOPNOTSUPP, "archives hold no sockets").into();
            self.summary.not_kept += 1;
            let problem = place.problem("archive", cause);
            self.monitor.problem(&CopyProblem { is_warning: true, ..problem });
            return Ok(());
        };
        if let Some((first, left)) = self.links.get_mut(&facts.identity) {
            // The first name has told everything else already.
            let kind = EntryKind::HardLink(first.path().into_os_string().into_vec());
            *left = left.saturating_sub(1);
            // A damaged image may have more names than it counts: those are refused.
            if *left == 0 {
                self.links.remove(&facts.identity);
            }
            self.summary.hard_links += 1;
            self.monitor.entry(&|| place.source_path());
            let facts = self.facts_wanted(node, facts);
            return self.output.write(&head(place.name, &facts, &Xattrs::new(), kind));
        }
        if let Err(cause) = self.note_copied(node, facts) {
            self.failed(place.problem("archive", cause));
            return Ok(());
        }
        let (facts, xattrs) = self.wanted(node, facts, place);
        let facts = &*facts;
        if facts.is_regular() {
            self.file(node, facts, &xattrs, place)?;
            self.summary.files += 1;
        } else {
            self.output.write(&head(place.name, facts, &xattrs, kind))?;
            match facts.target.is_empty() {
                true => self.summary.special += 1,
                false => self.summary.symlinks += 1,
            }
        }
        if facts.links > 1 {
            self.links.insert(facts.identity, (way(), facts.links - 1));
        }
        self.monitor.entry(&|| place.source_path());
        Ok(())
    }

    /// Notes that an inode is written, which must not have been under another name or number.
    fn note_copied(&mut self, node: &InodeGuard<'a>, facts: &InodeFacts) -> Result<(), Cause> {
        self.copied.note(facts.identity.1, facts.is_directory())?;
        if !facts.may_have_places() {
            return Ok(());
        }
        let places = self.source.places(node, facts.size)?;
        Ok(self.copied.note_places(&places, self.source.size())?)
    }

    fn as_wanted(&self, facts: InodeFacts) -> InodeFacts {
        match self.options.keep_owners {
            true => facts.owned_by(&self.options.owners),
            false => {
                let (owner, root) = ((facts.user, facts.group), (0, 0));
                let permissions =
                    permissions_of_other_owner(facts.file_type, facts.permissions, owner, root);
                InodeFacts { user: 0, group: 0, permissions, ..facts }
            }
        }
    }

    /// What an entry gets: what is known of the inode, and extended attributes.
    fn wanted<'i>(
        &mut self,
        node: &InodeGuard<'a>,
        facts: &'i InodeFacts,
        place: &ArchivePath<'_>,
    ) -> (Cow<'i, InodeFacts>, Xattrs) {
        let xattrs = match self.options.keep_xattrs {
            true => self.xattrs(node, place),
            false => Xattrs::new(),
        };
        (self.facts_wanted(node, facts), xattrs)
    }

    fn facts_wanted<'i>(
        &self,
        node: &InodeGuard<'a>,
        facts: &'i InodeFacts,
    ) -> Cow<'i, InodeFacts> {
        if self.options.keep_xattrs {
            return Cow::Borrowed(facts);
        }
        // Nobody misses attributes that can't be read.
        facts.without_xattrs(&self.source.xattrs(node).unwrap_or_default())
    }

    fn xattrs(&mut self, node: &InodeGuard<'a>, place: &ArchivePath<'_>) -> Xattrs {
        let (action, cause) = match self.source.xattrs(node) {
            Ok(xattrs) => match self.copied.note_xattrs(&xattrs, self.source.size()) {
                Ok(()) => return with_mapped_ids(xattrs, &self.options.owners),
                Err(error) => ("archive the extended attributes of", error.into()),
            },
            Err(cause) => ("read the extended attributes of", cause),
        };
        self.failed(place.problem(action, cause));
        Xattrs::new()
    }

    fn failed(&mut self, problem: CopyProblem) {
        self.summary.failed += 1;
        self.monitor.problem(&problem);
    }
}
