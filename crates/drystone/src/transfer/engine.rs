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
use drystone_sync::{Arc, LockClass, Mutex, thread};
use drystone_vfs::{Errno, Error};
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

static ENTERED: LockClass = LockClass::new("transfer directories entered", 3);

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
    /// Its name in its parent. What the user named has its path and none.
    name: Name,
    /// Which of the items it belongs to.
    item: usize,
    /// Pieces of work left, the listing included.
    pub(super) pending: AtomicUsize,
}

impl<S: Source, T: Target> Directory<S, T> {
    /// The names from the start to an entry in here; an empty name stands for the directory.
    fn path(&self, name: &Name, pick: impl Fn(&Name) -> &OsStr) -> PathBuf {
        let above = std::iter::successors(Some(self), |directory| directory.parent.as_deref());
        let mut names: Vec<&OsStr> = above.map(|directory| pick(&directory.name)).collect();
        names.reverse();
        names.push(pick(name));
        names.into_iter().filter(|name| !name.is_empty()).collect()
    }

    /// Where an entry is in the source. Built when it is needed: the paths of all directories of
    /// a deep tree would take the square of its depth.
    pub(super) fn source_path(&self, name: &Name) -> PathBuf {
        self.path(name, |name| &name.from)
    }

    /// Where an entry is below the start of the target.
    pub(super) fn target_path(&self, name: &Name) -> PathBuf {
        self.path(name, |name| &name.to)
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
    not_made: AtomicU64,
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
    /// Directories that were entered, of each item, where each can have one name only.
    entered: Mutex<HashSet<(usize, (u64, u64))>>,
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
        entered: Mutex::new(&ENTERED, HashSet::new()),
    };
    for (index, item) in items.iter().enumerate() {
        if let Err(problem) = engine.add_item(index, item, into) {
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
    fn add_item(&self, index: usize, item: &Item, into: &Path) -> Result<(), Problem> {
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
            name: Name { from: parent.as_os_str().to_os_string(), to: OsString::new() },
            item: index,
            pending: AtomicUsize::new(1),
        });
        match (name, &item.name) {
            (Some(name), _) => self.queue.add([Work::Entries(holder, vec![name])]),
            (None, None) => {
                let refused = self.refuse_enclosing(&facts, &holder, &Name::default());
                let entered = self.enter_once(&facts, &holder, &Name::default());
                if let Err(problem) = refused.and(entered) {
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
                if let Err(problem) = self.enter(&parent, name, node, facts) {
                    self.failed(problem);
                }
                self.complete(&parent);
            }
        }
    }

    /// Copies one entry, or puts it off if it is a directory or waits for another.
    fn entry(&self, directory: &Arc<Directory<S, T>>, name: Name, buffer: &mut [u8]) {
        if self.options.exclude.covers(name.to.as_bytes(), || directory.target_path(&name)) {
            return;
        }
        let (node, facts) = match self.source.find(&directory.source, &name.from) {
            Ok(found) => found,
            Err(cause) => {
                let path = directory.source_path(&name);
                return self.failed(Problem::new(Side::Source, "read", &path, cause));
            }
        };
        if self.options.excluded.contains(&facts.identity) {
            self.source.release(&node);
            let detail = "it is the image itself";
            let cause = Error::with_detail(Errno::EINVAL, detail).into();
            let path = directory.source_path(&name);
            return self.not_kept(Problem::new(Side::Source, "copy", &path, cause));
        }
        if self.options.without_lost_and_found
            && facts.is_directory()
            && self.source.is_unused_lost_and_found(&directory.source, &name.from, &node)
        {
            return self.source.release(&node);
        }
        if facts.is_directory() {
            directory.pending.fetch_add(1, Ordering::Relaxed);
            self.queue.add([Work::Enter(directory.clone(), name, node, facts)]);
        } else if facts.links < 2 {
            if let Err(problem) = self.leaf(directory, &name, node, &facts, buffer) {
                self.failed(problem);
            }
        } else {
            self.one_of_links(directory, name, node, &facts, buffer);
        }
    }

    /// Makes a directory and queues its entries.
    fn enter(
        &self,
        parent: &Arc<Directory<S, T>>,
        name: Name,
        mut node: S::Node,
        facts: Facts,
    ) -> Result<(), Problem> {
        let opened = self.refuse_enclosing(&facts, parent, &name).and_then(|()| {
            self.enter_once(&facts, parent, &name)?;
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
            name,
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

    /// In a damaged image a directory may lie in itself, or have many names, each of which would
    /// double the work.
    fn enter_once(
        &self,
        facts: &Facts,
        parent: &Directory<S, T>,
        name: &Name,
    ) -> Result<(), Problem> {
        if S::HAS_ONE_NAME && !self.entered.lock().insert((parent.item, facts.identity)) {
            let detail = "the directory has another place in the tree";
            let cause = Error::with_detail(Errno::EUCLEAN, detail).into();
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
            not_made: counters.not_made.into_inner(),
            not_kept: counters.not_kept.into_inner(),
        }
    }

    pub(super) fn target_problem(
        &self,
        action: &'static str,
        directory: &Directory<S, T>,
        name: &Name,
        cause: Cause,
    ) -> Problem {
        let below = directory.target_path(name);
        let is_start = below.as_os_str().is_empty();
        let path = if is_start { self.into.to_path_buf() } else { self.into.join(below) };
        Problem::new(Side::Target, action, &path, cause)
    }

    pub(super) fn source_problem(
        &self,
        action: &'static str,
        directory: &Directory<S, T>,
        name: &Name,
        cause: Cause,
    ) -> Problem {
        Problem::new(Side::Source, action, &directory.source_path(name), cause)
    }

    /// Copies a name once more, which is work of its directory still.
    pub(super) fn retry(&self, directory: Arc<Directory<S, T>>, name: Name) {
        self.queue.add([Work::Entries(directory, vec![name])]);
    }

    pub(super) fn failed(&self, problem: Problem) {
        if problem.is_not_made {
            count(&self.counters.not_made);
            return self.monitor.problem(&problem);
        }
        count(&self.counters.failed);
        if problem.is_final() {
            // One report is enough: the others fail for the same reason.
            if self.stopped.swap(true, Ordering::Relaxed) {
                return;
            }
        }
        // What stopped the copy has been told, unless the user did.
        if problem.is_cut_short() && !self.monitor.is_cancelled() {
            return;
        }
        self.monitor.problem(&problem);
    }

    pub(super) fn not_kept(&self, mut problem: Problem) {
        count(&self.counters.not_kept);
        problem.is_warning = true;
        self.monitor.problem(&problem);
    }
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
