//! Walks both trees at once.
//!
//! # State
//!
//! A frame for each directory on the way down, open on both sides.

use super::links::{KnownPair, NotedLinks};
use super::pair::{self, BUFFER_BYTES, FilePair, PairFailure};
use super::pipeline::Pipeline;
use super::{CompareOptions, CompareSummary, Difference, DifferenceKind, Which};
use crate::EntryPath;
use crate::transfer::ends::{CopySource, EndResult};
use crate::transfer::facts::InodeFacts;
use crate::transfer::{Cause, CopyMonitor, CopyProblem, Side};
use drystone_sync::{Arc, thread};
use drystone_vfs::{Errno, Error};
use std::cmp::Ordering;
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::iter::Peekable;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::vec::IntoIter;

/// An inode with what is known of it.
type FoundEntry<S> = (<S as CopySource>::Node, InodeFacts);

/// Two inodes to be compared further.
struct PairJob<A: CopySource, B: CopySource> {
    way: Arc<EntryPath>,
    first: FoundEntry<A>,
    second: FoundEntry<B>,
    /// What is known to be different already.
    kinds: Vec<DifferenceKind>,
    /// The two were compared under another name.
    is_known: bool,
}

/// The outcome of comparing one path.
struct ComparedPair {
    way: Arc<EntryPath>,
    outcome: pair::PairOutcome,
}

/// A directory on the way down.
struct ComparedDirectory<A: CopySource, B: CopySource> {
    first: A::Node,
    second: B::Node,
    first_names: Peekable<IntoIter<OsString>>,
    second_names: Peekable<IntoIter<OsString>>,
    way: Arc<EntryPath>,
}

struct Walker<'w, A: CopySource, B: CopySource> {
    first: &'w A,
    second: &'w B,
    tops: [&'w Path; 2],
    options: &'w CompareOptions,
    monitor: &'w dyn CopyMonitor,
    pipeline: &'w Pipeline<PairJob<A, B>, ComparedPair>,
    found: &'w mut dyn FnMut(&Difference),
    links: NotedLinks,
    entered: [HashSet<(u64, u64)>; 2],
    summary: CompareSummary,
}

/// Compares what is at two paths.
pub(super) fn run<A: CopySource, B: CopySource>(
    first: &A,
    second: &B,
    tops: [&Path; 2],
    options: &CompareOptions,
    monitor: &dyn CopyMonitor,
    found: &mut dyn FnMut(&Difference),
) -> Result<CompareSummary, CopyProblem> {
    let unusable = |side, path| move |cause| CopyProblem::new(side, "open", path, cause);
    let first_top = top(first, tops[0]).map_err(unusable(Side::Source, tops[0]))?;
    let second_top = top(second, tops[1]).map_err(unusable(Side::Target, tops[1]))?;
    let pipeline = Pipeline::new();
    let compare = || {
        let mut buffers = [vec![0; BUFFER_BYTES], vec![0; BUFFER_BYTES]];
        pipeline.work(|job| work((first, second), job, options, monitor, &mut buffers));
    };
    thread::scope(|scope| {
        let _end = thread::at_end(|| pipeline.complete());
        let threads = options.threads.max(1);
        if let Err(error) = thread::spawn_several(scope, "compare", threads, compare) {
            let cause = Cause::of_host(&error);
            return Err(CopyProblem::new(
                Side::Source,
                "start a thread to compare",
                tops[0],
                cause,
            ));
        }
        let mut walker = Walker {
            first,
            second,
            tops,
            options,
            monitor,
            pipeline: &pipeline,
            found,
            links: NotedLinks::default(),
            entered: [HashSet::new(), HashSet::new()],
            summary: CompareSummary::default(),
        };
        walker.walk(first_top, second_top);
        pipeline.complete();
        walker.take(true);
        Ok(walker.summary)
    })
}

/// What the user named, a directory or anything else.
fn top<S: CopySource>(source: &S, path: &Path) -> EndResult<FoundEntry<S>> {
    let not_a_directory = match source.start(path) {
        Err(cause) if cause.is(Errno::ENOTDIR) => cause,
        other => return other,
    };
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(not_a_directory);
    };
    let (holder, _) = source.start(parent)?;
    source.find(&holder, name)
}

impl<A: CopySource, B: CopySource> Walker<'_, A, B> {
    fn walk(&mut self, first: FoundEntry<A>, second: FoundEntry<B>) {
        let mut frames = Vec::new();
        self.pair(first, second, &EntryPath::top(""), &mut frames);
        while !self.monitor.is_cancelled()
            && let Some(frame) = frames.last_mut()
        {
            let Some((name, order)) = next_name(frame) else {
                self.first.leave(&frame.first);
                self.second.leave(&frame.second);
                frames.pop();
                continue;
            };
            let way = frame.way.to(&name);
            self.name(&name, order, &way, &mut frames);
            self.take(false);
        }
    }

    /// Compares what has a name in the innermost frame.
    fn name(
        &mut self,
        name: &OsStr,
        order: Ordering,
        way: &Arc<EntryPath>,
        frames: &mut Vec<ComparedDirectory<A, B>>,
    ) {
        if self.options.exclude.covers(name.as_bytes(), || way.path()) {
            return;
        }
        let Some(ComparedDirectory { first, second, .. }) = frames.last() else { return };
        let found_first = order.is_le().then(|| self.first.find(first, name));
        let found_second = order.is_ge().then(|| self.second.find(second, name));
        let unused_first = matches!(&found_first, Some(Ok((node, facts))) if facts.is_directory()
            && self.first.is_unused_lost_and_found(first, name, node));
        let unused_second = matches!(&found_second, Some(Ok((node, facts))) if facts.is_directory()
            && self.second.is_unused_lost_and_found(second, name, node));
        let is_unused =
            (unused_first || found_first.is_none()) && (unused_second || found_second.is_none());
        match (found_first, found_second) {
            (Some(Ok(first)), Some(Ok(second))) if !is_unused => {
                self.pair(first, second, way, frames);
            }
            (Some(Ok((_, facts))), None) if !is_unused => {
                self.differ(way, DifferenceKind::OnlyIn(Which::First, facts.file_type));
            }
            (None, Some(Ok((_, facts)))) if !is_unused => {
                self.differ(way, DifferenceKind::OnlyIn(Which::Second, facts.file_type));
            }
            (first, second) => {
                if let Some(Err(cause)) = first {
                    self.fail(way, Side::Source, "read", cause);
                }
                if let Some(Err(cause)) = second {
                    self.fail(way, Side::Target, "read", cause);
                }
            }
        }
    }

    /// Compares two inodes, or has them compared. Takes their nodes.
    fn pair(
        &mut self,
        first: FoundEntry<A>,
        second: FoundEntry<B>,
        way: &Arc<EntryPath>,
        frames: &mut Vec<ComparedDirectory<A, B>>,
    ) {
        self.summary.entries += 1;
        self.monitor.entry(&|| way.path());
        let aspects = &self.options.aspects;
        let mut outcome = pair::PairOutcome::default();
        if !pair::attributes(&first.1, &second.1, aspects, &mut outcome.kinds) {
            return self.pipeline.add_result(ComparedPair { way: way.clone(), outcome });
        }
        if !first.1.is_directory() {
            let known = match first.1.links > 1 || second.1.links > 1 {
                true => self.links.note(
                    [first.1.identity, second.1.identity],
                    [first.1.links, second.1.links],
                    way,
                ),
                false => KnownPair::New,
            };
            let is_known = known == KnownPair::Same;
            match known {
                KnownPair::Different(kind) if aspects.links => outcome.kinds.push(kind),
                _ => {}
            }
            let (way, kinds) = (way.clone(), outcome.kinds);
            return self.pipeline.add(PairJob { way, first, second, kinds, is_known });
        }
        frames.push(self.pair_directories(first, second, way, outcome));
    }

    /// Compares two directories, whose names come next.
    fn pair_directories(
        &mut self,
        mut first: FoundEntry<A>,
        mut second: FoundEntry<B>,
        way: &Arc<EntryPath>,
        mut outcome: pair::PairOutcome,
    ) -> ComparedDirectory<A, B> {
        let opened = [
            self.first.open(&mut first.0, &first.1).err().map(|cause| (Side::Source, cause)),
            self.second.open(&mut second.0, &second.1).err().map(|cause| (Side::Target, cause)),
            self.enter_once::<A>(0, &first.1).err().map(|cause| (Side::Source, cause)),
            self.enter_once::<B>(1, &second.1).err().map(|cause| (Side::Target, cause)),
        ];
        let mut failed: Vec<(Side, Cause)> = opened.into_iter().flatten().collect();
        let mut names = [Vec::new(), Vec::new()];
        if failed.is_empty() {
            if self.options.aspects.xattrs {
                let (sources, nodes) = ((self.first, self.second), (&first.0, &second.0));
                pair::xattrs(sources, nodes, &mut outcome);
            }
            match (self.first.list(&first.0), self.second.list(&second.0)) {
                (Ok(first), Ok(second)) => names = [first, second],
                (first, second) => {
                    failed.extend(first.err().map(|cause| (Side::Source, cause)));
                    failed.extend(second.err().map(|cause| (Side::Target, cause)));
                }
            }
        }
        let failures = failed.into_iter().map(|(side, cause)| (side, "list", cause));
        outcome.failures.extend(failures);
        self.pipeline.add_result(ComparedPair { way: way.clone(), outcome });
        let [first_names, second_names] = names.map(|names| names.into_iter().peekable());
        let (first, second) = (first.0, second.0);
        ComparedDirectory { first, second, first_names, second_names, way: way.clone() }
    }

    /// In a damaged image a directory may lie in itself, or have many names.
    fn enter_once<S: CopySource>(&mut self, which: usize, facts: &InodeFacts) -> Result<(), Cause> {
        if S::HAS_ONE_NAME && !self.entered[which].insert(facts.identity) {
            let detail =
                "the directory has another place in the tree, unless it was moved meanwhile";
            return Err(Error::with_detail(Errno::EUCLEAN, detail).into());
        }
        Ok(())
    }

    fn differ(&self, way: &Arc<EntryPath>, kind: DifferenceKind) {
        let outcome = pair::PairOutcome { kinds: vec![kind], ..pair::PairOutcome::default() };
        self.pipeline.add_result(ComparedPair { way: way.clone(), outcome });
    }

    fn fail(&self, way: &Arc<EntryPath>, side: Side, action: &'static str, cause: Cause) {
        let failures = vec![(side, action, cause)];
        let outcome = pair::PairOutcome { failures, ..pair::PairOutcome::default() };
        self.pipeline.add_result(ComparedPair { way: way.clone(), outcome });
    }

    /// Tells what is ready, or everything if that is the last call.
    fn take(&mut self, is_last_call: bool) {
        while let Some(ComparedPair { way, outcome }) = self.pipeline.next(is_last_call) {
            self.summary.bytes += outcome.bytes;
            self.summary.differences += outcome.kinds.len() as u64;
            self.summary.failed += u64::from(!outcome.failures.is_empty());
            for (side, action, cause) in outcome.failures {
                self.monitor.problem(&self.problem(&way.path(), (side, action, cause)));
            }
            for kind in outcome.kinds {
                (self.found)(&Difference { path: way.path(), kind });
            }
        }
    }

    fn problem(&self, path: &Path, (side, action, cause): PairFailure) -> CopyProblem {
        let top = self.tops[if side == Side::Source { 0 } else { 1 }];
        let is_top = path.as_os_str().is_empty();
        let path = if is_top { top.to_path_buf() } else { top.join(path) };
        CopyProblem::new(side, action, &path, cause)
    }
}

/// Compares what takes longer. Takes the nodes.
fn work<A: CopySource, B: CopySource>(
    sources: (&A, &B),
    job: PairJob<A, B>,
    options: &CompareOptions,
    monitor: &dyn CopyMonitor,
    buffers: &mut [Vec<u8>; 2],
) -> ComparedPair {
    let PairJob { way, first: (mut first, first_facts), second, kinds, is_known } = job;
    let (mut second, second_facts) = second;
    let mut outcome = pair::PairOutcome { kinds, ..pair::PairOutcome::default() };
    let aspects = &options.aspects;
    let reads_content = first_facts.is_regular() && (aspects.content || aspects.holes);
    if !is_known && !monitor.is_cancelled() {
        let mut is_open = true;
        if reads_content && first_facts.size.min(second_facts.size) > 0 {
            let opened = [
                (Side::Source, sources.0.open(&mut first, &first_facts)),
                (Side::Target, sources.1.open(&mut second, &second_facts)),
            ];
            for (side, result) in opened {
                if let Err(cause) = result {
                    outcome.failures.push((side, "open", cause));
                    is_open = false;
                }
            }
            if is_open {
                let nodes = (&first, &second);
                let facts = (&first_facts, &second_facts);
                let mut files = FilePair { sources, nodes, facts, buffers, monitor };
                files.compare(aspects, &mut outcome);
            }
        }
        if aspects.xattrs {
            pair::xattrs(sources, (&first, &second), &mut outcome);
        }
    }
    ComparedPair { way, outcome }
}

/// The next name in either of two directories; how it compares says which directory has it: less for the
/// first, greater for the second, equal for both.
fn next_name<A: CopySource, B: CopySource>(
    frame: &mut ComparedDirectory<A, B>,
) -> Option<(OsString, Ordering)> {
    let order = match (frame.first_names.peek(), frame.second_names.peek()) {
        (None, None) => return None,
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (Some(first), Some(second)) => first.cmp(second),
    };
    let first = if order.is_le() { frame.first_names.next() } else { None };
    let second = if order.is_ge() { frame.second_names.next() } else { None };
    first.or(second).map(|name| (name, order))
}
