//! Walks the source and makes the target, with several threads: what they share, and how a piece of
//! work is taken up. `directories` enters and ends directories; `leaves` copies all else.
//!
//! # Locking
//!
//! The queue, the table of links and the folded names are locked for moments only, never while a file system is
//! called.

use super::copied::Copied;
use super::directory::{CopiedDirectory, EntryName};
use super::ends::{CopySource, CopyTarget};
use super::facts::InodeFacts;
use super::folded_names::FoldedNames;
use super::links::CopiedLinks;
use super::problem::{Cause, CopyProblem, Side};
use super::queue::WorkQueue;
use super::{CopyItem, CopyMonitor, CopyOptions, CopySummary};
use drystone_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use drystone_sync::{Arc, LockClass, Mutex, thread};
use drystone_vfs::{Errno, Error};
use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

static COPIED: LockClass = LockClass::new("transfer places copied", 6);
static FOLDED: LockClass = LockClass::new("transfer names folded", 6);

/// Content that is read and written at a time.
const BUFFER_BYTES: usize = 1 << 20;

/// A file with several names that waits for its first copy.
pub(super) type Waiter<S, T> = (Arc<CopiedDirectory<S, T>>, EntryName);

pub(super) enum Work<S: CopySource, T: CopyTarget> {
    /// Copy these entries.
    Entries(Arc<CopiedDirectory<S, T>>, Vec<EntryName>),
    /// Make this directory, list it, copy its entries.
    Enter(Arc<CopiedDirectory<S, T>>, EntryName, S::Node, InodeFacts),
}

#[derive(Default)]
pub(super) struct CopyCounters {
    pub(super) files: AtomicU64,
    pub(super) hard_links: AtomicU64,
    pub(super) directories: AtomicU64,
    pub(super) symlinks: AtomicU64,
    pub(super) special: AtomicU64,
    pub(super) bytes: AtomicU64,
    failed: AtomicU64,
    not_made: AtomicU64,
    not_kept: AtomicU64,
}

pub(super) struct Copier<'e, S: CopySource, T: CopyTarget> {
    pub(super) source: &'e S,
    pub(super) target: &'e T,
    /// The directory that the user named.
    pub(super) into: &'e Path,
    pub(super) options: &'e CopyOptions,
    pub(super) monitor: &'e dyn CopyMonitor,
    pub(super) queue: WorkQueue<Work<S, T>>,
    pub(super) links: CopiedLinks<T::Original, Waiter<S, T>>,
    pub(super) counters: CopyCounters,
    /// Nothing can succeed any more, or nothing more is wanted: what is queued is only dropped.
    pub(super) stopped: AtomicBool,
    /// Source directories that the target lies in.
    pub(super) enclosing: Vec<(u64, u64)>,
    /// What of the source was copied, by item.
    pub(super) copied: Mutex<HashMap<usize, Copied>>,
    /// Names that were made in directories of the target that fold names.
    pub(super) folded: Mutex<FoldedNames>,
}

/// Copies `items`; see [`copy`](super::copy).
pub(super) fn run<S: CopySource, T: CopyTarget>(
    source: &S,
    target: &T,
    items: &[CopyItem],
    into: &Path,
    options: &CopyOptions,
    monitor: &dyn CopyMonitor,
) -> Result<CopySummary, CopyProblem> {
    let unusable = |cause| CopyProblem::new(Side::Target, "open", into, cause);
    let start = target.start(into).map_err(unusable)?;
    let enclosing = target.enclosing(&start).map_err(unusable)?;
    let engine = Copier {
        source,
        target,
        into,
        options,
        monitor,
        queue: WorkQueue::new(),
        links: CopiedLinks::new(),
        counters: CopyCounters::default(),
        stopped: AtomicBool::new(false),
        enclosing,
        copied: Mutex::new(&COPIED, HashMap::new()),
        folded: Mutex::new(&FOLDED, FoldedNames::default()),
    };
    for (index, item) in items.iter().enumerate() {
        let name = item.name.as_deref();
        let noted = name.map_or(Ok(()), |name| engine.note_folded(&start, name));
        let added = noted
            .map_err(|cause| CopyProblem::new(Side::Source, "copy", &item.path, cause))
            .and_then(|()| engine.add_item(index, item, into));
        if let Err(problem) = added {
            engine.failed(problem);
        }
    }
    drop(start);
    thread::together("copy", options.threads, || {
        let mut buffer = vec![0; BUFFER_BYTES];
        engine.queue.work(|work| engine.work(work, &mut buffer));
    });
    Ok(engine.close())
}

impl<S: CopySource, T: CopyTarget> Copier<'_, S, T> {
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
            Work::Enter(parent, ..) if stopped => self.complete(&parent),
            Work::Enter(parent, name, node, facts) => {
                if let Err(problem) = self.enter(&parent, name, node, facts) {
                    self.failed(problem);
                }
                self.complete(&parent);
            }
        }
    }

    /// Copies one entry, or puts it off if it is a directory or waits for another.
    fn entry(&self, directory: &Arc<CopiedDirectory<S, T>>, name: EntryName, buffer: &mut [u8]) {
        if self.is_excluded(directory, &name) {
            return;
        }
        let (node, facts) = match self.source.find(&directory.source, &name.from) {
            Ok((node, facts)) => (node, facts.owned_by(&self.options.owners)),
            Err(cause) => {
                let path = directory.source_path(&name);
                return self.failed(CopyProblem::new(Side::Source, "read", &path, cause));
            }
        };
        if self.options.excluded.contains(&facts.identity) {
            let detail = "it is the image itself";
            let cause = Error::with_detail(Errno::EINVAL, detail).into();
            let path = directory.source_path(&name);
            let problem = CopyProblem::new(Side::Source, "copy", &path, cause);
            let is_asked_for = directory.facts.is_none();
            return if is_asked_for { self.failed(problem) } else { self.not_kept(problem) };
        }
        if self.options.without_lost_and_found
            && facts.is_directory()
            && self.source.is_unused_lost_and_found(&directory.source, &name.from, &node)
        {
            return;
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

    /// Whether the user wants an entry left out.
    pub(super) fn is_excluded(&self, directory: &CopiedDirectory<S, T>, name: &EntryName) -> bool {
        self.options.exclude.covers(name.to.as_bytes(), || directory.target_path(name))
    }

    fn close(self) -> CopySummary {
        let counters = self.counters;
        CopySummary {
            files: counters.files.into_inner(),
            hard_links: counters.hard_links.into_inner(),
            directories: counters.directories.into_inner(),
            symlinks: counters.symlinks.into_inner(),
            special: counters.special.into_inner(),
            bytes: counters.bytes.into_inner(),
            failed: counters.failed.into_inner(),
            not_made: counters.not_made.into_inner(),
            not_kept: counters.not_kept.into_inner(),
            is_stopped: self.stopped.into_inner(),
        }
    }

    pub(super) fn target_problem(
        &self,
        action: &'static str,
        directory: &CopiedDirectory<S, T>,
        name: &EntryName,
        cause: Cause,
    ) -> CopyProblem {
        let below = directory.target_path(name);
        let is_start = below.as_os_str().is_empty();
        let path = if is_start { self.into.to_path_buf() } else { self.into.join(below) };
        CopyProblem::new(Side::Target, action, &path, cause)
    }

    pub(super) fn source_problem(
        &self,
        action: &'static str,
        directory: &CopiedDirectory<S, T>,
        name: &EntryName,
        cause: Cause,
    ) -> CopyProblem {
        CopyProblem::new(Side::Source, action, &directory.source_path(name), cause)
    }

    /// Copies a name once more, which is work of its directory still.
    pub(super) fn retry(&self, directory: Arc<CopiedDirectory<S, T>>, name: EntryName) {
        self.queue.add([Work::Entries(directory, vec![name])]);
    }

    pub(super) fn failed(&self, problem: CopyProblem) {
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

    /// The entry is there without something; the others may be better off.
    pub(super) fn incomplete(&self, problem: CopyProblem) {
        count(&self.counters.failed);
        self.monitor.problem(&problem);
    }

    pub(super) fn not_kept(&self, mut problem: CopyProblem) {
        count(&self.counters.not_kept);
        problem.is_warning = true;
        self.monitor.problem(&problem);
    }
}

pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
