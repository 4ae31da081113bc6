//! Copies directories: makes and lists each one when it is entered. The thread that finishes the last
//! piece of work in a directory sets its attributes, which entries made later would have changed.
//!
//! # State
//! A [`CopiedDirectory`] counts the work that is left in it, and keeps its parent open.

use super::CopyItem;
use super::directory::{CopiedDirectory, EntryName};
use super::ends::{CopySource, CopyTarget, EndResult};
use super::engine::{Copier, Work, count};
use super::facts::InodeFacts;
use super::problem::{CopyProblem, Side};
use crate::EntryPath;
use drystone_sync::Arc;
use drystone_sync::atomic::{AtomicUsize, Ordering};
use drystone_vfs::{Errno, Error};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Names that a thread takes at a time.
const NAMES_PER_BATCH: usize = 64;

impl<S: CopySource, T: CopyTarget> Copier<'_, S, T> {
    /// Opens the ends of an item and queues it.
    pub(super) fn add_item(
        &self,
        index: usize,
        item: &CopyItem,
        into: &Path,
    ) -> Result<(), CopyProblem> {
        item.check_name()?;
        let (parent, name) = match (&item.name, item.path.file_name(), item.path.parent()) {
            (Some(to), Some(from), Some(parent)) => {
                (parent, Some(EntryName { from: from.to_os_string(), to: to.clone() }))
            }
            // The root, `..`, or a directory to be merged: it has no name to be looked up by.
            _ => (item.path.as_path(), None),
        };
        let (source, facts) = self
            .source
            .start(parent)
            .map_err(|cause| CopyProblem::new(Side::Source, "open", parent, cause))?;
        let facts = facts.owned_by(&self.options.owners);
        let target = self
            .target
            .start(into)
            .map_err(|cause| CopyProblem::new(Side::Target, "open", into, cause))?;
        let is_merge = name.is_none() && item.name.is_none();
        let holder = Arc::new(CopiedDirectory {
            source,
            target,
            facts: is_merge.then(|| facts.clone()),
            existed: true,
            parent: None,
            from: parent.as_os_str().to_os_string(),
            way: EntryPath::top(""),
            item: index,
            pending: AtomicUsize::new(1),
        });
        match (name, &item.name) {
            (Some(name), _) => self.queue.add([Work::Entries(holder, vec![name])]),
            (None, None) => {
                let refused = self.refuse_enclosing(&facts, &holder, &EntryName::default());
                let noted =
                    self.note_copied(&holder.source, &facts, &holder, &EntryName::default());
                if let Err(problem) = refused.and(noted) {
                    self.failed(problem);
                } else {
                    self.list(&holder);
                }
                self.complete(&holder);
            }
            (None, Some(to)) => {
                let name = EntryName { from: OsString::new(), to: to.clone() };
                let again = self.source.start(parent);
                match again {
                    Ok((node, facts)) => {
                        let facts = facts.owned_by(&self.options.owners);
                        self.queue.add([Work::Enter(holder, name, node, facts)]);
                    }
                    Err(cause) => {
                        self.failed(CopyProblem::new(Side::Source, "open", parent, cause));
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
        parent: &Arc<CopiedDirectory<S, T>>,
        name: EntryName,
        mut node: S::Node,
        facts: InodeFacts,
    ) -> Result<(), CopyProblem> {
        self.refuse_enclosing(&facts, parent, &name)?;
        self.note_copied(&node, &facts, parent, &name)?;
        let opened = self.source.open(&mut node, &facts);
        opened.map_err(|cause| self.source_problem("open", parent, &name, cause))?;
        let (target, existed) = self
            .target
            .make_directory(&parent.target, &name.to, &facts)
            .map_err(|cause| self.target_problem("make", parent, &name, cause))?;
        count(&self.counters.directories);
        self.monitor.entry(&|| parent.source_path(&name));
        parent.pending.fetch_add(1, Ordering::Relaxed);
        let is_mount_point = self.options.one_file_system && self.leaves_device(parent, &facts);
        let directory = Arc::new(CopiedDirectory {
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

    fn leaves_device(&self, parent: &CopiedDirectory<S, T>, facts: &InodeFacts) -> bool {
        parent.facts.as_ref().is_some_and(|parent| parent.identity.0 != facts.identity.0)
    }

    /// A directory that the target lies in would grow while it is copied.
    fn refuse_enclosing(
        &self,
        facts: &InodeFacts,
        parent: &CopiedDirectory<S, T>,
        name: &EntryName,
    ) -> Result<(), CopyProblem> {
        if self.enclosing.contains(&facts.identity) {
            let cause = Error::with_detail(Errno::EINVAL, "the target lies in it").into();
            return Err(self.source_problem("copy", parent, name, cause));
        }
        Ok(())
    }

    /// Queues the entries of a directory.
    fn list(&self, directory: &Arc<CopiedDirectory<S, T>>) {
        let listed = match self.source.list(&directory.source) {
            Ok(names) => names,
            Err(cause) => {
                let problem = self.source_problem("list", directory, &EntryName::default(), cause);
                return self.failed(problem);
            }
        };
        let names = listed.into_iter().map(|from| EntryName { to: from.clone(), from }).collect();
        let mut names = match self.target.folds_names() {
            true => self.without_folded_twins(directory, names),
            false => names,
        }
        .into_iter();
        let mut batches = Vec::new();
        loop {
            let batch: Vec<EntryName> = names.by_ref().take(NAMES_PER_BATCH).collect();
            if batch.is_empty() {
                break;
            }
            batches.push(Work::Entries(directory.clone(), batch));
        }
        directory.pending.fetch_add(batches.len(), Ordering::Relaxed);
        // The last added is done first: the order of the names is kept.
        self.queue.add(batches.into_iter().rev());
    }

    /// Leaves out, and reports, names that the target takes for an earlier one. Before the threads share the
    /// names: which of two comes first mustn't depend on them.
    fn without_folded_twins(
        &self,
        directory: &CopiedDirectory<S, T>,
        names: Vec<EntryName>,
    ) -> Vec<EntryName> {
        let is_single = |name: &EntryName| {
            self.is_excluded(directory, name)
                || match self.note_folded(&directory.target, &name.to) {
                    Ok(()) => true,
                    Err(cause) => {
                        self.failed(self.target_problem("make", directory, name, cause));
                        false
                    }
                }
        };
        names.into_iter().filter(is_single).collect()
    }

    /// Notes a name that the copy makes in a directory of the target, if that folds names.
    pub(super) fn note_folded(&self, directory: &T::Node, name: &OsStr) -> EndResult<()> {
        if let Some((directory, folded)) = self.target.folded_name(directory, name)? {
            self.folded.lock().note(directory, folded, name.as_bytes())?;
        }
        Ok(())
    }

    /// One piece of work in a directory is done. The last one sets its attributes, which is a
    /// piece of work of its parent.
    pub(super) fn complete(&self, directory: &Arc<CopiedDirectory<S, T>>) {
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
            self.source.leave(&directory.source);
            self.target.leave(&directory.target);
            next = directory.parent.as_ref();
        }
    }

    fn finish_directory(
        &self,
        directory: &CopiedDirectory<S, T>,
        facts: &InodeFacts,
    ) -> Result<(), CopyProblem> {
        let name = EntryName::default();
        let (facts, xattrs) = self.wanted(&directory.source, facts, directory, &name);
        let may_inherit =
            !directory.existed && directory.parent.as_ref().is_some_and(|parent| parent.existed);
        let made = &directory.target;
        self.finish(made, &facts, &xattrs, may_inherit, directory, &name)
    }
}
