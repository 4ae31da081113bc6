//! Walks the source and makes the target, with several threads. What is no directory is copied in
//! `leaves`.
//!
//! # State
//!
//! A [`Directory`] is open at both ends and counts the work that is left in it; whoever finishes
//! the last piece sets its attributes, which entries made later would have changed.
//!
//! # Locking
//!
//! The queue and the table of links are locked for moments only, never while a file system is
//! called.

use super::ends::{Source, Target};
use super::facts::Facts;
use super::links::Links;
use super::problem::{Cause, Problem, Side};
use super::queue::Queue;
use super::{Item, Monitor, Options, Summary};
use drystone_sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use drystone_sync::{Arc, thread};
use drystone_vfs::{Errno, Error};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// Names that a thread takes at a time.
const NAMES_PER_BATCH: usize = 64;
/// Content that is read and written at a time.
const BUFFER_BYTES: usize = 1 << 20;

/// A directory that is open at both ends.
pub(super) struct Directory<S: Source, T: Target> {
    pub(super) source: S::Node,
    pub(super) target: T::Node,
    /// What to set at the end; none for what only holds an item.
    facts: Option<Facts>,
    /// It was there before: new entries may inherit from it.
    pub(super) existed: bool,
    parent: Option<Arc<Directory<S, T>>>,
    /// Where it is in the source.
    pub(super) path: PathBuf,
    /// Where it is below the start of the target.
    pub(super) target_path: PathBuf,
    /// Pieces of work left, the listing included.
    pub(super) pending: AtomicUsize,
}

/// A name in a directory and the name that it gets.
pub(super) struct Name {
    pub(super) from: OsString,
    pub(super) to: OsString,
}

/// A file with several names that waits for its first copy.
pub(super) type Waiter<S, T> = (Arc<Directory<S, T>>, Name);

enum Work<S: Source, T: Target> {
    /// Copy these entries.
    Entries(Arc<Directory<S, T>>, Vec<Name>),
    /// Make this directory, list it, copy its entries.
    Enter(Arc<Directory<S, T>>, Name, S::Node, Facts),
}

#[derive(Default)]
pub(super) struct Counters {
    pub(super) files: AtomicU64,
    pub(super) hard_links: AtomicU64,
    directories: AtomicU64,
    pub(super) symlinks: AtomicU64,
    pub(super) special: AtomicU64,
    pub(super) bytes: AtomicU64,
    failed: AtomicU64,
    not_kept: AtomicU64,
}

pub(super) struct Engine<'e, S: Source, T: Target> {
    pub(super) source: &'e S,
    pub(super) target: &'e T,
    /// The directory that the user named.
    pub(super) into: &'e Path,
    pub(super) options: &'e Options,
    pub(super) monitor: &'e dyn Monitor,
    queue: Queue<Work<S, T>>,
    pub(super) links: Links<T::Original, Waiter<S, T>>,
    pub(super) counters: Counters,
    /// Nothing can succeed any more, or nothing more is wanted: only give back what is held.
    stopped: AtomicBool,
    /// Source directories that the target lies in.
    enclosing: Vec<(u64, u64)>,
}

/// Copies `items`; see [`copy`](super::copy).
pub(super) fn run<S: Source, T: Target>(
    source: &S,
    target: &T,
    items: &[Item],
    into: &Path,
    options: &Options,
    monitor: &dyn Monitor,
) -> Result<Summary, Problem> {
    let unusable = |cause| Problem::new(Side::Target, "open", into, cause);
    let start = target.start(into).map_err(unusable)?;
    let enclosing = target.enclosing(&start);
    target.release(&start);
    let engine = Engine {
        source,
        target,
        into,
        options,
        monitor,
        queue: Queue::new(),
        links: Links::new(),
        counters: Counters::default(),
        stopped: AtomicBool::new(false),
        enclosing: enclosing.map_err(unusable)?,
    };
    for item in items {
        if let Err(problem) = engine.add_item(item, into) {
            engine.failed(problem);
        }
    }
    thread::scope(|scope| {
        for _ in 0..options.threads.max(1) {
            scope.spawn(|| {
                let mut buffer = vec![0; BUFFER_BYTES];
                engine.queue.work(|work| engine.work(work, &mut buffer));
            });
        }
    });
    Ok(engine.close())
}

impl<S: Source, T: Target> Engine<'_, S, T> {
    fn add_item(&self, item: &Item, into: &Path) -> Result<(), Problem> {
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
            path: parent.to_path_buf(),
            target_path: PathBuf::new(),
            pending: AtomicUsize::new(1),
        });
        match (name, &item.name) {
            (Some(name), _) => self.queue.add([Work::Entries(holder, vec![name])]),
            (None, None) => {
                if let Err(problem) = self.refuse_enclosing(&facts, parent) {
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

    /// True if nothing more is to be begun.
    pub(super) fn is_stopped(&self) -> bool {
        if self.monitor.is_cancelled() {
            self.stopped.store(true, Ordering::Relaxed);
        }
        self.stopped.load(Ordering::Relaxed)
    }

    fn work(&self, work: Work<S, T>, buffer: &mut [u8]) {
        let stopped = self.is_stopped();
        match work {
            Work::Entries(directory, names) => {
                for name in names {
                    if !self.is_stopped() {
                        self.entry(&directory, name, buffer);
                    }
                }
                self.complete(&directory);
            }
            Work::Enter(parent, _, node, _) if stopped => {
                self.source.release(&node);
                self.complete(&parent);
            }
            Work::Enter(parent, name, node, facts) => {
                if let Err(problem) = self.enter(&parent, &name, node, facts) {
                    self.failed(problem);
                }
                self.complete(&parent);
            }
        }
    }

    /// Copies one entry, or puts it off if it is a directory or waits for another.
    fn entry(&self, directory: &Arc<Directory<S, T>>, name: Name, buffer: &mut [u8]) {
        let path = directory.path.join(&name.from);
        let (node, facts) = match self.source.find(&directory.source, &name.from) {
            Ok(found) => found,
            Err(cause) => {
                return self.failed(Problem::new(Side::Source, "read", &path, cause));
            }
        };
        if self.options.excluded.contains(&facts.identity) {
            self.source.release(&node);
            let detail = "it is the image itself";
            let cause = Error::with_detail(Errno::EINVAL, detail).into();
            return self.not_kept(Problem::new(Side::Source, "copy", &path, cause));
        }
        if facts.is_directory() {
            directory.pending.fetch_add(1, Ordering::Relaxed);
            self.queue.add([Work::Enter(directory.clone(), name, node, facts)]);
        } else if facts.links < 2 {
            if let Err(problem) = self.leaf(directory, &name.to, node, &facts, &path, buffer) {
                self.failed(problem);
            }
        } else {
            self.one_of_links(directory, name, node, &facts, &path, buffer);
        }
    }

    /// Makes a directory and queues its entries.
    fn enter(
        &self,
        parent: &Arc<Directory<S, T>>,
        name: &Name,
        mut node: S::Node,
        facts: Facts,
    ) -> Result<(), Problem> {
        let path = parent.path.join(&name.from);
        let opened = self.refuse_enclosing(&facts, &path).and_then(|()| {
            refuse_circle(parent, &facts, &path)?;
            let open = self.source.open(&mut node, &facts);
            open.map_err(|cause| Problem::new(Side::Source, "open", &path, cause))?;
            self.target
                .make_directory(&parent.target, &name.to, &facts)
                .map_err(|cause| self.target_problem("make", parent, &name.to, cause))
        });
        let (target, existed) = match opened {
            Ok(opened) => opened,
            Err(problem) => {
                self.source.release(&node);
                return Err(problem);
            }
        };
        count(&self.counters.directories);
        self.monitor.entry(&path);
        parent.pending.fetch_add(1, Ordering::Relaxed);
        let is_mount_point = self.options.one_file_system && self.leaves_device(parent, &facts);
        let directory = Arc::new(Directory {
            source: node,
            target,
            facts: Some(facts),
            existed,
            parent: Some(parent.clone()),
            path,
            target_path: parent.target_path.join(&name.to),
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
    fn refuse_enclosing(&self, facts: &Facts, path: &Path) -> Result<(), Problem> {
        if self.enclosing.contains(&facts.identity) {
            let cause = Error::with_detail(Errno::EINVAL, "the target lies in it").into();
            return Err(Problem::new(Side::Source, "copy", path, cause));
        }
        Ok(())
    }

    /// Queues the entries of a directory.
    fn list(&self, directory: &Arc<Directory<S, T>>) {
        let mut names = match self.source.list(&directory.source) {
            Ok(names) => names.into_iter(),
            Err(cause) => {
                return self.failed(Problem::new(Side::Source, "list", &directory.path, cause));
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
        let xattrs = self.xattrs(&directory.source, &directory.path);
        let may_inherit =
            !directory.existed && directory.parent.as_ref().is_some_and(|parent| parent.existed);
        self.finish(&directory.target, facts, &xattrs, may_inherit, &directory.target_path)
    }

    fn close(self) -> Summary {
        for original in self.links.into_originals() {
            self.target.forget(original);
        }
        let counters = self.counters;
        Summary {
            files: counters.files.into_inner(),
            hard_links: counters.hard_links.into_inner(),
            directories: counters.directories.into_inner(),
            symlinks: counters.symlinks.into_inner(),
            special: counters.special.into_inner(),
            bytes: counters.bytes.into_inner(),
            failed: counters.failed.into_inner(),
            not_kept: counters.not_kept.into_inner(),
        }
    }

    pub(super) fn target_problem(
        &self,
        action: &'static str,
        directory: &Directory<S, T>,
        name: &OsStr,
        cause: Cause,
    ) -> Problem {
        let path = self.into.join(&directory.target_path).join(name);
        Problem::new(Side::Target, action, &path, cause)
    }

    /// Copies a name once more, which is work of its directory still.
    pub(super) fn retry(&self, directory: Arc<Directory<S, T>>, name: Name) {
        self.queue.add([Work::Entries(directory, vec![name])]);
    }

    pub(super) fn failed(&self, problem: Problem) {
        count(&self.counters.failed);
        if problem.is_final() {
            // One report is enough: the others fail for the same reason.
            if self.stopped.swap(true, Ordering::Relaxed) {
                return;
            }
        }
        self.monitor.problem(&problem);
    }

    pub(super) fn not_kept(&self, mut problem: Problem) {
        count(&self.counters.not_kept);
        problem.is_warning = true;
        self.monitor.problem(&problem);
    }
}

/// A directory that is in itself, in a damaged image, has no end.
fn refuse_circle<S: Source, T: Target>(
    parent: &Arc<Directory<S, T>>,
    facts: &Facts,
    path: &Path,
) -> Result<(), Problem> {
    let mut above = Some(parent);
    while let Some(directory) = above {
        if directory.facts.as_ref().is_some_and(|above| above.identity == facts.identity) {
            let cause = Error::with_detail(Errno::ELOOP, "the directory lies in itself").into();
            return Err(Problem::new(Side::Source, "copy", path, cause));
        }
        above = directory.parent.as_ref();
    }
    Ok(())
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
