//! Workloads on a recorded device, and what the model went through meanwhile.

use crate::images::Shape;
use crate::state::State;
use drystone_blockdev::{BlockDevice, Event, EventKind, MemoryDevice, Recording};
use drystone_ext4::{Ext4, MountOptions};
use drystone_sync::{Arc, thread};
use drystone_testkit::model::{Configuration, MemoryFileSystem};
use drystone_testkit::operations::{
    Action, Actor, Executor, Operation, Outcome, RangeKind, Target, Word,
};
use drystone_vfs::Errno;
use std::time::Duration;

/// What one thread did, below a directory of its own.
pub struct Track {
    pub base: String,
    pub operations: Vec<Operation>,
    /// What was visible below the directory after so many operations.
    pub states: Vec<Arc<State>>,
    /// By the number of operations that have returned: the oldest state that a crash may leave.
    /// One more than there are operations: after the close.
    pub durable: Vec<usize>,
}

impl Track {
    /// The states that a crash may leave when so many operations have returned.
    pub fn possible(&self, returned: usize) -> (usize, usize) {
        (self.durable[returned], (returned + 1).min(self.states.len() - 1))
    }

    /// What is possible when nothing is known but what had begun.
    pub fn begin(base: &str, state: State) -> Track {
        let states = vec![Arc::new(state)];
        Track { base: base.to_owned(), operations: Vec::new(), states, durable: vec![0] }
    }

    /// Notes an operation, and what the model holds after it.
    pub fn push(&mut self, operation: &Operation, has_succeeded: bool, model: &MemoryFileSystem) {
        let before = Arc::clone(self.states.last().unwrap());
        let after = match has_succeeded && is_change(&operation.action) {
            true => Arc::new(State::read(model, &self.base, Some(&before)).unwrap()),
            false => before,
        };
        self.states.push(after);
        self.operations.push(operation.clone());
        let mut durable = *self.durable.last().unwrap();
        if has_succeeded {
            durable = durable.max(self.made_durable(&operation.action));
        }
        self.durable.push(durable);
    }

    /// The state that a sync, which was the last operation, has made durable.
    fn made_durable(&self, action: &Action) -> usize {
        let now = self.states.len() - 1;
        match action {
            Action::Sync {} => now,
            Action::SyncFile { target: Target::Path(path) } => self.last_change(path, now),
            _ => 0,
        }
    }

    /// The first state of those that show the inode at a path as it is.
    fn last_change(&self, path: &Word, now: usize) -> usize {
        let Some(entry) = self.states[now].entries.get(&path.0) else { return 0 };
        let mut since = now;
        while since > 0 {
            let mut entries = self.states[since - 1].entries.values();
            let is_same = entries.any(|old| {
                old.inode == entry.inode
                    && (&old.facts, old.size, &old.content)
                        == (&entry.facts, entry.size, &entry.content)
            });
            if !is_same {
                return since;
            }
            since -= 1;
        }
        0
    }
}

fn is_change(action: &Action) -> bool {
    !matches!(
        action,
        Action::Sync {}
            | Action::SyncFile { .. }
            | Action::Close { .. }
            | Action::Temporary { .. }
            | Action::Status { .. }
            | Action::List { .. }
    )
}

/// True if a crash may leave a part of the operation: it moves the end of the file, or what is in
/// it, in several transactions.
pub fn may_be_partial(action: &Action) -> bool {
    matches!(action, Action::Write { .. } | Action::Append { .. } | Action::Range { .. })
}

/// True if the operation moves content to other offsets.
pub fn shifts(action: &Action) -> bool {
    let Action::Range { kind, .. } = action else { return false };
    matches!(kind, RangeKind::Collapse | RangeKind::Insert)
}

/// Everything known of a run.
pub struct Recorded {
    pub name: String,
    pub base: MemoryDevice,
    pub events: Vec<Event>,
    pub tracks: Vec<Track>,
}

impl Recorded {
    /// How many operations of each track had returned before an event.
    pub fn returned(&self, events_before: usize) -> Vec<usize> {
        let mut returned = vec![0; self.tracks.len()];
        for event in &self.events[..events_before] {
            if let EventKind::Mark(mark) = event.kind {
                returned[(mark >> 32) as usize] = mark as u32 as usize;
            }
        }
        returned
    }
}

/// A thread's part of a workload.
pub struct Part {
    /// Done before the recording.
    pub setup: Vec<Operation>,
    pub operations: Vec<Operation>,
}

/// Where a track's files are.
pub fn base(track: usize) -> String {
    format!("/w{track}")
}

pub fn options(commit_ms: u64) -> MountOptions {
    MountOptions { commit_interval: Duration::from_millis(commit_ms), ..MountOptions::default() }
}

/// The image after the setup of all parts, with the model of each part.
pub fn set_up(shape: &Shape, parts: &[Part]) -> Option<(MemoryDevice, Vec<MemoryFileSystem>)> {
    let device = Arc::new(shape.make()?);
    let fs = Ext4::open(Arc::clone(&device) as Arc<dyn BlockDevice>, options(5000)).unwrap();
    let mut models = Vec::new();
    for (number, part) in parts.iter().enumerate() {
        let model = MemoryFileSystem::new(Configuration {
            extents: shape.extents,
            ..Configuration::with_block_size(shape.block_size)
        });
        let path = Word::from(&base(number)[..]);
        let make = Action::MakeDirectory { path, mode: 0o777 };
        let make = Operation { actor: Actor(0), action: make };
        let (mut on_fs, mut on_model) = (Executor::new(&fs), Executor::new(&model));
        for operation in std::iter::once(&make).chain(&part.setup) {
            let (left, right) = (on_fs.apply(operation), on_model.apply(operation));
            assert_eq!(left, right, "{operation}: {:?}", on_fs.last_detail());
        }
        drop(on_model);
        models.push(model);
    }
    fs.close().unwrap();
    drop(fs);
    Some((device.snapshot(), models))
}

/// Does all parts at once, a thread each, and records it; the mount is closed at the end if asked.
pub fn record(
    name: &str,
    shape: &Shape,
    parts: &[Part],
    commit_ms: u64,
    closes: bool,
) -> Option<Recorded> {
    let (base, models) = set_up(shape, parts)?;
    let device = Arc::new(Recording::new(base.snapshot()));
    let fs = Ext4::open(Arc::clone(&device) as Arc<dyn BlockDevice>, options(commit_ms)).unwrap();
    let mut tracks: Vec<Track> = Vec::new();
    thread::scope(|scope| {
        let threads: Vec<_> = parts
            .iter()
            .zip(&models)
            .enumerate()
            .map(|(number, (part, model))| {
                let (fs, device) = (&fs, &device);
                scope.spawn(move || run(number, part, model, fs, device))
            })
            .collect();
        tracks = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    });
    if closes {
        fs.close().unwrap();
        for (number, track) in tracks.iter_mut().enumerate() {
            track.durable.push(track.states.len() - 1);
            device.mark((number as u64) << 32 | (track.durable.len() - 1) as u64);
        }
    }
    drop(fs);
    let name = format!("{name} on {}", shape.name);
    Some(Recorded { name, base, events: device.take_events(), tracks })
}

fn run(
    number: usize,
    part: &Part,
    model: &MemoryFileSystem,
    fs: &Ext4,
    device: &Recording<MemoryDevice>,
) -> Track {
    let base = base(number);
    let mut track = Track::begin(&base, State::read(model, &base, None).unwrap());
    let (mut on_fs, mut on_model) = (Executor::new(fs), Executor::new(model));
    for operation in &part.operations {
        let outcome = on_fs.apply(operation);
        device.mark((number as u64) << 32 | (track.operations.len() + 1) as u64);
        if outcome == Outcome(Err(Errno::ENOSPC)) {
            eprintln!("full after {} operations", track.operations.len());
            let last = track.durable.last().copied().unwrap();
            track.durable.push(last);
            break;
        }
        let expected = on_model.apply(operation);
        // Which error it is, and what is returned, is for other tests to compare.
        let agrees = outcome.0.is_ok() == expected.0.is_ok();
        assert!(agrees, "{operation}: {outcome} {:?}, {expected}", on_fs.last_detail());
        track.push(operation, outcome.0.is_ok(), model);
    }
    track
}
