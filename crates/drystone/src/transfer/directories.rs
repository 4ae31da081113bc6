//! Directories on their way: made and listed when they are entered, and given their attributes by
//! whoever finishes the last piece of work in them, since entries made later would have changed
//! them.
//!
//! # State
//! A [`Directory`] is open at both ends, counts the work that is left in it, and keeps its parent
//! open.

use super::Item;
use super::ends::{Source, Target};
use super::engine::{Engine, Work, count};
use super::facts::Facts;
use super::problem::{Problem, Side};
use crate::Way;
use drystone_sync::Arc;
use drystone_sync::atomic::{AtomicUsize, Ordering};
use drystone_vfs::{Errno, Error};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// Names that a thread takes at a time.
const NAMES_PER_BATCH: usize = 64;

/// A directory that is open at both ends.
pub(super) struct Directory<S: Source, T: Target> {
    pub(super) source: S::Node,
    pub(super) target: T::Node,
    /// What to set at the end; none for what only holds an item.
    facts: Option<Facts>,
    /// It was there before: new entries may inherit from it.
    pub(super) existed: bool,
    pub(super) parent: Option<Arc<Directory<S, T>>>,
    /// Its name in its parent. What the user named has its path.
    from: OsString,
    /// Where it is below the start of the target.
    way: Arc<Way>,
    /// Which of the items it belongs to.
    pub(super) item: usize,
    /// Pieces of work left, the listing included.
    pub(super) pending: AtomicUsize,
}

impl<S: Source, T: Target> Directory<S, T> {
    /// Where an entry is in the source; an empty name stands for the directory. Built when it is needed:
    /// the paths of all directories of a deep tree would take the square of its depth.
    pub(super) fn source_path(&self, name: &Name) -> PathBuf {
        let above = std::iter::successors(Some(self), |directory| directory.parent.as_deref());
        let mut names: Vec<&OsStr> = above.map(|directory| directory.from.as_os_str()).collect();
        names.reverse();
        names.push(&name.from);
        names.into_iter().filter(|name| !name.is_empty()).collect()
    }

    /// The way to an entry from the start of the target.
    pub(super) fn target_way(&self, name: &Name) -> Arc<Way> {
        if name.to.is_empty() { self.way.clone() } else { self.way.to(&name.to) }
    }

    /// Where an entry is below the start of the target.
    pub(super) fn target_path(&self, name: &Name) -> PathBuf {
        self.target_way(name).path()
    }
}

impl<S: Source, T: Target> Drop for Directory<S, T> {
    /// One after the other: a deep tree's parents, each dropped by its last child, would take the
    /// whole stack.
    fn drop(&mut self) {
        let mut above = self.parent.take();
        while let Some(mut directory) = above.and_then(Arc::into_inner) {
            above = directory.parent.take();
        }
    }
}

/// A name in a directory and the name that it gets.
#[derive(Default)]
pub(super) struct Name {
    pub(super) from: OsString,
    pub(super) to: OsString,
}

impl<S: Source, T: Target> Engine<'_, S, T> {
    /// Opens the ends of an item and queues it.
    pub(super) fn add_item(&self, index: usize, item: &Item, into: &Path) -> Result<(), Problem> {
        item.check_name()?;
        let (parent, name) = match (&item.name, item.path.file_name(), item.path.parent()) {
            (Some(to), Some(from), Some(parent)) => {
                (parent, Some(Name { from: from.to_os_string(), to: to.clone() }))
            }
            // The root, `..`, or a directory to be merged: it has no name to be looked up by.
            _ => (item.path.as_path(), None),
        };
        let (source, facts) = self
            .source
            .start(parent)
            .map_err(|cause| Problem::new(Side::Source, "open", parent, cause))?;
        let target = self
            .target
            .start(into)
            .map_err(|cause| Problem::new(Side::Target, "open", into, cause))?;
        let is_merge = name.is_none() && item.name.is_none();
        let holder = Arc::new(Directory {
            source,
            target,
            facts: is_merge.then(|| facts.clone()),
            existed: true,
            parent: None,
            from: parent.as_os_str().to_os_string(),
            way: Way::top(""),
            item: index,
            pending: AtomicUsize::new(1),
        });
        match (name, &item.name) {
            (Some(name), _) => self.queue.add([Work::Entries(holder, vec![name])]),
            (None, None) => {
                let refused = self.refuse_enclosing(&facts, &holder, &Name::default());
                let noted = self.note_copied(&holder.source, &facts, &holder, &Name::default());
                if let Err(problem) = refused.and(noted) {
                    self.failed(problem);
                } else {
                    self.list(&holder);
                }
                self.complete(&holder);
            }
            (None, Some(to)) => {
                let name = Name { from: OsString::new(), to: to.clone() };
                let again = self.source.start(parent);
                match again {
                    Ok((node, facts)) => self.queue.add([Work::Enter(holder, name, node, facts)]),
                    Err(cause) => {
                        self.failed(Problem::new(Side::Source, "open", parent, cause));
                        self.complete(&holder);
                    }
                }
            }
        }
        Ok(())
    }

    /// Makes a directory and queues its entries.
    pub(super) fn enter(
        &self,
        parent: &Arc<Directory<S, T>>,
        name: Name,
        mut node: S::Node,
        facts: Facts,
    ) -> Result<(), Problem> {
        let opened = self.refuse_enclosing(&facts, parent, &name).and_then(|()| {
            self.note_copied(&node, &facts, parent, &name)?;
            let open = self.source.open(&mut node, &facts);
            open.map_err(|cause| self.source_problem("open", parent, &name, cause))?;
            self.target
                .make_directory(&parent.target, &name.to, &facts)
                .map_err(|cause| self.target_problem("make", parent, &name, cause))
        });
        let (target, existed) = match opened {
            Ok(opened) => opened,
            Err(problem) => {
                self.source.release(&node);
                return Err(problem);
            }
        };
        count(&self.counters.directories);
        self.monitor.entry(&|| parent.source_path(&name));
        parent.pending.fetch_add(1, Ordering::Relaxed);
        let is_mount_point = self.options.one_file_system && self.leaves_device(parent, &facts);
        let directory = Arc::new(Directory {
            source: node,
            target,
            facts: Some(facts),
            existed,
            parent: Some(parent.clone()),
            way: parent.target_way(&name),
            from: name.from,
            item: parent.item,
            pending: AtomicUsize::new(1),
        });
        if !is_mount_point {
            self.list(&directory);
        }
        self.complete(&directory);
        Ok(())
    }

    fn leaves_device(&self, parent: &Directory<S, T>, facts: &Facts) -> bool {
        parent.facts.as_ref().is_some_and(|parent| parent.identity.0 != facts.identity.0)
    }

    /// A directory that the target lies in would grow while it is copied.
    fn refuse_enclosing(
        &self,
        facts: &Facts,
        parent: &Directory<S, T>,
        name: &Name,
    ) -> Result<(), Problem> {
        if self.enclosing.contains(&facts.identity) {
            let cause = Error::with_detail(Errno::EINVAL, "the target lies in it").into();
            return Err(self.source_problem("copy", parent, name, cause));
        }
        Ok(())
    }

    /// Queues the entries of a directory.
    fn list(&self, directory: &Arc<Directory<S, T>>) {
        let mut names = match self.source.list(&directory.source) {
            Ok(names) => names.into_iter(),
            Err(cause) => {
                let problem = self.source_problem("list", directory, &Name::default(), cause);
                return self.failed(problem);
            }
        };
        let mut batches = Vec::new();
        loop {
            let batch: Vec<Name> = names
                .by_ref()
                .take(NAMES_PER_BATCH)
                .map(|from| Name { to: from.clone(), from })
                .collect();
            if batch.is_empty() {
                break;
            }
            batches.push(Work::Entries(directory.clone(), batch));
        }
        directory.pending.fetch_add(batches.len(), Ordering::Relaxed);
        // The last added is done first: the order of the names is kept.
        self.queue.add(batches.into_iter().rev());
    }

    /// One piece of work in a directory is done. The last one sets its attributes, which is a
    /// piece of work of its parent.
    pub(super) fn complete(&self, directory: &Arc<Directory<S, T>>) {
        let mut next = Some(directory);
        while let Some(directory) = next {
            // The last to finish must see what the others did to the directory.
            if directory.pending.fetch_sub(1, Ordering::AcqRel) > 1 {
                return;
            }
            if let Some(facts) = &directory.facts
                && !self.stopped.load(Ordering::Relaxed)
                && let Err(problem) = self.finish_directory(directory, facts)
            {
                self.failed(problem);
            }
            self.source.release(&directory.source);
            self.target.release(&directory.target);
            next = directory.parent.as_ref();
        }
    }

    fn finish_directory(&self, directory: &Directory<S, T>, facts: &Facts) -> Result<(), Problem> {
        let xattrs = self.xattrs(&directory.source, directory, &Name::default());
        let may_inherit =
            !directory.existed && directory.parent.as_ref().is_some_and(|parent| parent.existed);
        let made = &directory.target;
        self.finish(made, facts, &xattrs, may_inherit, directory, &Name::default())
    }
}
