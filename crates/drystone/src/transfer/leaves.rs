//! Copies what is no directory: content, links, special files, and the attributes of all.

use super::ends::{Source, Target};
use super::engine::{Directory, Engine, Name};
use super::facts::{Facts, Xattrs};
use super::links::Claim;
use super::problem::{Problem, Side};
use drystone_sync::Arc;
use drystone_sync::atomic::Ordering;
use drystone_vfs::FileType;
use std::ffi::OsStr;
use std::path::Path;

impl<S: Source, T: Target> Engine<'_, S, T> {
    /// Copies an inode that has one name.
    pub(super) fn leaf(
        &self,
        directory: &Directory<S, T>,
        to: &OsStr,
        node: S::Node,
        facts: &Facts,
        path: &Path,
        buffer: &mut [u8],
    ) -> Result<(), Problem> {
        let made = self.make(directory, to, node, facts, path, buffer)?;
        self.target.release(&made);
        Ok(())
    }

    /// Copies or links one of the names of an inode that has several.
    pub(super) fn one_of_links(
        &self,
        directory: &Arc<Directory<S, T>>,
        name: Name,
        node: S::Node,
        facts: &Facts,
        path: &Path,
        buffer: &mut [u8],
    ) {
        // If somebody else is at this file, the name stays work of its directory.
        directory.pending.fetch_add(1, Ordering::Relaxed);
        match self.links.claim(facts.identity, (directory.clone(), name)) {
            Claim::Waits => self.source.release(&node),
            Claim::Link(original, (_, name)) => {
                self.source.release(&node);
                self.link(directory, &name, &original, facts);
            }
            Claim::First((_, name)) => {
                match self.make(directory, &name.to, node, facts, path, buffer) {
                    Ok(made) => {
                        let target_path = directory.target_path.join(&name.to);
                        let original = self.target.keep(made, &target_path);
                        let waiting =
                            self.links.made(facts.identity, original.clone(), facts.links - 1);
                        for (directory, name) in waiting {
                            self.link(&directory, &name, &original, facts);
                        }
                    }
                    Err(problem) => {
                        self.failed(problem);
                        // Each of the others may succeed where this one failed.
                        for (directory, name) in self.links.failed(facts.identity) {
                            self.retry(directory, name);
                        }
                    }
                }
                self.complete(directory);
            }
        }
    }

    /// Makes a further name of a file that is copied, which was work of `directory`.
    fn link(
        &self,
        directory: &Arc<Directory<S, T>>,
        name: &Name,
        original: &T::Original,
        facts: &Facts,
    ) {
        match self.target.link(original, &directory.target, &name.to) {
            Ok(()) => {
                self.counters.hard_links.fetch_add(1, Ordering::Relaxed);
                self.monitor.entry(&directory.path.join(&name.from));
            }
            Err(cause) => {
                self.failed(self.target_problem("link", directory, &name.to, cause));
            }
        }
        if let Some(original) = self.links.used(facts.identity) {
            self.target.forget(original);
        }
        self.complete(directory);
    }

    /// Makes an inode with content and attributes. Takes the source's node.
    fn make(
        &self,
        directory: &Directory<S, T>,
        to: &OsStr,
        mut node: S::Node,
        facts: &Facts,
        path: &Path,
        buffer: &mut [u8],
    ) -> Result<T::Node, Problem> {
        let result = self.make_of(directory, to, &mut node, facts, path, buffer);
        self.source.release(&node);
        if result.is_ok() {
            let counter = match facts.file_type {
                FileType::Regular => &self.counters.files,
                FileType::Symlink => &self.counters.symlinks,
                _ => &self.counters.special,
            };
            counter.fetch_add(1, Ordering::Relaxed);
            self.monitor.entry(path);
        }
        result
    }

    fn make_of(
        &self,
        directory: &Directory<S, T>,
        to: &OsStr,
        node: &mut S::Node,
        facts: &Facts,
        path: &Path,
        buffer: &mut [u8],
    ) -> Result<T::Node, Problem> {
        if facts.is_regular() {
            let open = self.source.open(node, facts);
            open.map_err(|cause| Problem::new(Side::Source, "open", path, cause))?;
        }
        let xattrs = self.xattrs(node, path);
        let made = self
            .target
            .make(&directory.target, to, facts)
            .map_err(|cause| self.target_problem("make", directory, to, cause))?;
        let content = match facts.is_regular() {
            true => self.content(directory, to, node, &made, facts, path, buffer),
            false => Ok(()),
        };
        let finished = content.and_then(|()| {
            self.finish(&made, facts, &xattrs, directory.existed, &directory.target_path.join(to))
        });
        match finished {
            Ok(()) => Ok(made),
            Err(problem) => {
                self.target.release(&made);
                Err(problem)
            }
        }
    }

    /// Copies content, leaving out holes.
    #[expect(clippy::too_many_arguments, reason = "both ends with their names for messages")]
    fn content(
        &self,
        directory: &Directory<S, T>,
        to: &OsStr,
        from: &S::Node,
        made: &T::Node,
        facts: &Facts,
        path: &Path,
        buffer: &mut [u8],
    ) -> Result<(), Problem> {
        let unreadable = |cause| Problem::new(Side::Source, "read", path, cause);
        let unwritable = |cause| self.target_problem("write", directory, to, cause);
        let mut copy = |mut offset: u64, end: u64| {
            while offset < end && !self.is_stopped() {
                let room = usize::try_from(end - offset).unwrap_or(usize::MAX).min(buffer.len());
                let length =
                    self.source.read(from, offset, &mut buffer[..room]).map_err(unreadable)?;
                if length == 0 {
                    break;
                }
                self.target.write(made, offset, &buffer[..length]).map_err(unwritable)?;
                offset += length as u64;
                self.counters.bytes.fetch_add(length as u64, Ordering::Relaxed);
                self.monitor.bytes(length as u64);
            }
            Ok(())
        };
        if !facts.is_sparse {
            // To the end, whatever the size was: files of some file systems have none.
            return copy(0, u64::MAX);
        }
        let mut offset = 0;
        while let Some((start, end)) = self.source.next_data(from, offset).map_err(unreadable)? {
            // A file that a damaged image contradicts itself about must not turn in circles.
            if end <= offset {
                break;
            }
            copy(start, end)?;
            offset = end;
        }
        self.target.set_size(made, facts.size).map_err(unwritable)
    }

    /// The extended attributes to copy. If they can't be read that is told, and the rest of the
    /// file is copied all the same: it may be all that can be saved.
    pub(super) fn xattrs(&self, node: &S::Node, path: &Path) -> Xattrs {
        if !self.options.keep_xattrs {
            return Xattrs::new();
        }
        self.source.xattrs(node).unwrap_or_else(|cause| {
            let action = "read the extended attributes of";
            self.failed(Problem::new(Side::Source, action, path, cause));
            Xattrs::new()
        })
    }

    /// Sets the attributes of what was made at `target_path` below the start.
    pub(super) fn finish(
        &self,
        made: &T::Node,
        facts: &Facts,
        xattrs: &Xattrs,
        may_inherit: bool,
        target_path: &Path,
    ) -> Result<(), Problem> {
        let path = self.into.join(target_path);
        let mut not_kept = |action, cause| {
            self.not_kept(Problem::new(Side::Target, action, &path, cause));
        };
        self.target
            .finish(made, facts, xattrs, may_inherit, &mut not_kept)
            .map_err(|cause| Problem::new(Side::Target, "set the attributes of", &path, cause))
    }
}
