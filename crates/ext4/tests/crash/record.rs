//! Workloads on a recorded device, and the states of the model meanwhile.

use crate::images::Shape;
use drystone_blockdev::{BlockDevice, Event, EventKind, MemoryDevice, Recording};
use drystone_ext4::{Ext4, MountOptions, QuotaLimits};
use drystone_ext4_format::quota::SPACE_LIMIT_UNIT;
use drystone_sync::{Arc, thread};
use drystone_testkit::model::MemoryFileSystem;
use drystone_testkit::operations::{
    Action, Actor, Data, Executor, Operation, OperationTarget, Outcome, RangeKind, Word,
};
use drystone_testkit::visible::VisibleState;
use drystone_vfs::{Errno, FallocateMode, FileSystem, InodeNumber, NewNode, RequestContext};
use std::time::Duration;

/// The states that a crash may leave.
#[derive(Clone, Copy, Debug, Default)]
pub struct Possible {
    /// The oldest and the newest state, in everything that is journaled.
    pub first: usize,
    pub last: usize,
    /// The oldest state whose size and content a file may have, if they may be older than the rest.
    pub content: Option<usize>,
}

impl Possible {
    /// The same, with everything up to a state known to be durable.
    pub fn at_least(self, state: usize) -> Possible {
        let content = self.content.map(|content| content.max(state));
        Possible { first: self.first.max(state), content, ..self }
    }
}

/// The operations of one thread, below a directory of its own.
pub struct Track {
    pub base: String,
    pub operations: Vec<Operation>,
    /// What was visible below the directory after so many operations.
    pub states: Vec<Arc<VisibleState>>,
    /// By the number of operations that have returned: the oldest state that a crash may leave.
    /// One more than there are operations: after the close.
    pub durable: Vec<usize>,
    /// By the number of operations that have returned: the state at the last sync of everything.
    pub synced: Vec<usize>,
    /// Data may wait for its blocks. After a crash it may then be older than what is journaled.
    pub is_delayed: bool,
    /// Operations that were refused or cut short for lack of space.
    pub refused: usize,
    file_syncs: Vec<FileSync>,
}

impl Track {
    /// The states that a crash may leave when so many operations have returned.
    pub fn possible(&self, returned: usize) -> Possible {
        Possible {
            first: self.durable[returned],
            last: (returned + 1).min(self.states.len() - 1),
            content: self.is_delayed.then(|| self.synced[returned]),
        }
    }

    /// Notes that the mount was closed, so everything is durable.
    pub fn close(&mut self) {
        self.durable.push(self.states.len() - 1);
        self.synced.push(self.states.len() - 1);
    }

    /// A track without operations, which begins in a state.
    pub fn begin(base: &str, state: VisibleState, is_delayed: bool) -> Track {
        let states = vec![Arc::new(state)];
        Track {
            base: base.to_owned(),
            operations: Vec::new(),
            states,
            durable: vec![0],
            synced: vec![0],
            is_delayed,
            refused: 0,
            file_syncs: Vec::new(),
        }
    }

    /// Notes an operation, and the state of the model after the executor has done it there.
    pub fn push(&mut self, operation: &Operation, has_succeeded: bool, model: &Executor) {
        let before = Arc::clone(self.states.last().unwrap());
        let after = if has_succeeded && is_change(&operation.action) {
            let fs = model.file_system();
            let mut after = VisibleState::read(fs, &self.base, Some(&before)).unwrap();
            after.read_nameless(fs, model.open_inodes(), Some(&before)).unwrap();
            Arc::new(after)
        } else {
            before
        };
        self.states.push(after);
        self.operations.push(operation.clone());
        let mut durable = *self.durable.last().unwrap();
        if has_succeeded {
            durable = durable.max(self.made_durable(&operation.action, model));
        }
        self.durable.push(durable);
        let is_sync = has_succeeded && matches!(operation.action, Action::Sync {});
        let synced =
            if is_sync { self.states.len() - 1 } else { self.synced[self.synced.len() - 1] };
        self.synced.push(synced);
    }

    /// Compares what a mount shows with the last state.
    fn compare(&self, fs: &Ext4) -> Result<(), String> {
        let expected = &self.states[self.states.len() - 1];
        let found =
            VisibleState::read(fs, &self.base, Some(expected)).map_err(|e| e.to_string())?;
        expected.whole_difference(&found).map_or(Ok(()), Err)
    }

    /// The state that the last operation has made durable, if it was a sync.
    fn made_durable(&mut self, action: &Action, model: &Executor) -> usize {
        let (target, data_only) = match action {
            Action::Sync {} => return self.states.len() - 1,
            Action::SyncFile { target } => (target, false),
            Action::SyncData { target } => (target, true),
            _ => return 0,
        };
        let inode = match target {
            OperationTarget::Path(path) => {
                self.states[self.states.len() - 1].entries.get(&path.0).map(|entry| entry.inode)
            }
            OperationTarget::Slot(slot) => model.open_inode(*slot),
        };
        inode.map_or(0, |inode| self.synced_file(inode, data_only))
    }

    /// The same for a sync of a file or a directory.
    fn synced_file(&mut self, inode: InodeNumber, data_only: bool) -> usize {
        let now = self.states.len() - 1;
        let Some(entry) = self.states[now].entry_of(inode).cloned() else { return 0 };
        let content =
            self.unchanged_since(|state| state.entry_of(inode).map(|entry| &entry.content));
        self.file_syncs.push(FileSync { inode, returned: now, state: content });
        // After a crash, nothing shows whether a file without a name is durable.
        if self.states[now].nameless.iter().any(|nameless| nameless.inode == inode) {
            return 0;
        }
        // Content that was overwritten in place isn't journaled: a sync makes it durable, but not
        // the operations before it. Names are the data of a directory; other types have no data.
        if data_only && !entry.is_directory() {
            self.unchanged_since(|state| state.entry_of(inode).map(|entry| entry.size))
        } else {
            self.unchanged_since(|state| state.covered(inode))
        }
    }

    /// The oldest state since which `see` has returned the same.
    fn unchanged_since<'a, T: PartialEq>(&'a self, see: impl Fn(&'a VisibleState) -> T) -> usize {
        let now = see(&self.states[self.states.len() - 1]);
        let changed = self.states.iter().rposition(|state| see(state) != now);
        changed.map_or(0, |changed| changed + 1)
    }

    /// The oldest state that a file's content may have if the operation to the state `last` had begun.
    pub fn content_since(&self, inode: InodeNumber, last: usize) -> usize {
        let syncs = self.file_syncs.iter();
        let returned = syncs.filter(|sync| sync.inode == inode && sync.returned < last);
        returned.map(|sync| sync.state).max().unwrap_or(0)
    }
}

/// A sync of a file.
struct FileSync {
    /// Its number in the model.
    inode: InodeNumber,
    /// How many operations had returned then.
    returned: usize,
    /// The oldest state with that content.
    state: usize,
}

fn is_change(action: &Action) -> bool {
    !matches!(
        action,
        Action::Sync {}
            | Action::SyncFile { .. }
            | Action::SyncData { .. }
            | Action::Close { .. }
            | Action::Status { .. }
            | Action::List { .. }
    )
}

/// True if a crash may leave a part of the operation: it changes the size or the content of the file in
/// several transactions.
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
    /// How many operations found no space.
    pub fn refused(&self) -> usize {
        self.tracks.iter().map(|track| track.refused).sum()
    }

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

/// True if an operation must not fail for lack of space: space for data is reserved when it is written.
fn is_never_refused(action: &Action) -> bool {
    matches!(
        action,
        Action::Sync {}
            | Action::SyncFile { .. }
            | Action::SyncData { .. }
            | Action::Unlink { .. }
            | Action::RemoveDirectory { .. }
    )
}

/// True if an operation that finds no space has changed nothing that can be seen. The others change a
/// file in several transactions.
fn is_refused_whole(action: &Action) -> bool {
    let Action::Range { kind, .. } = action else { return true };
    *kind == RangeKind::AllocateKeep
}

/// The operation as it was done: space may run out within a write.
fn as_done(operation: &Operation, outcome: &Outcome) -> Operation {
    let mut done = operation.clone();
    if let Action::Write { data, .. } | Action::Append { data, .. } = &mut done.action
        && let Ok(text) = &outcome.0
    {
        let count: usize = text.split(' ').next().unwrap().parse().unwrap();
        let mut bytes = data.bytes();
        if count < bytes.len() {
            bytes.truncate(count);
            *data = Data::Given(Word(bytes));
        }
    }
    done
}

/// The mark after an operation that found no space, and of which a part may have been done.
const FULL: u64 = u64::MAX;

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
    MountOptions::default().commit_interval(Duration::from_millis(commit_ms))
}

/// The image after the setup of all parts, with the model of each part.
pub fn set_up(shape: &Shape, parts: &[Part]) -> Option<(MemoryDevice, Vec<MemoryFileSystem>)> {
    let device = Arc::new(shape.make()?);
    let fs = Ext4::open(Arc::clone(&device) as Arc<dyn BlockDevice>, options(5000)).unwrap();
    let mut models = Vec::new();
    for (number, part) in parts.iter().enumerate() {
        let model = MemoryFileSystem::new(shape.configuration());
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
    if let Some(left) = shape.blocks_left {
        take_space(&fs, shape, left);
    }
    limit(&fs);
    fs.close().unwrap();
    drop(fs);
    Some((device.snapshot(), models))
}

/// Leaves only so many blocks free.
fn take_space(fs: &Ext4, shape: &Shape, left: u64) {
    let context = RequestContext::superuser();
    let filler = fs.create(&context, fs.root(), b"filler", NewNode::Regular, 0o600).unwrap();
    if shape.extents {
        let taken = fs.statistics().unwrap().blocks_free - left;
        let length = taken * u64::from(shape.block_size);
        let mode = FallocateMode::Allocate { keep_size: true };
        fs.fallocate(&context, filler.inode, mode, 0, length).unwrap();
    } else {
        let block = vec![0; shape.block_size as usize];
        while fs.statistics().unwrap().blocks_free > left {
            fs.append(&context, filler.inode, &block).unwrap();
        }
    }
    fs.forget(filler.inode, 1);
}

/// Sets soft limits that all owners soon exceed, if the image counts usage. The grace period is long.
fn limit(fs: &Ext4) {
    for report in fs.quota_reports().unwrap() {
        for entry in report.entries {
            let space_soft = entry.space_bytes / SPACE_LIMIT_UNIT + 16;
            let inodes_soft = entry.inodes + 4;
            let limits = QuotaLimits { space_soft, inodes_soft, ..QuotaLimits::of(&entry) };
            fs.set_quota_limits(report.kind, entry.id, &limits).unwrap();
        }
    }
}

/// Runs all parts at once, each in a thread, and records that. The mount is closed at the end if
/// `closes`.
pub fn record(
    name: &str,
    shape: &Shape,
    parts: &[Part],
    commit_ms: u64,
    closes: bool,
) -> Option<Recorded> {
    let (base, models) = set_up(shape, parts)?;
    let device = Arc::new(Recording::new(base.snapshot()));
    let options = options(commit_ms).policy(shape.policy).delayed_allocation(shape.delayed);
    let fs = Ext4::open(Arc::clone(&device) as Arc<dyn BlockDevice>, options).unwrap();
    let mut tracks: Vec<Track> = Vec::new();
    thread::scope(|scope| {
        let threads: Vec<_> = parts
            .iter()
            .zip(&models)
            .enumerate()
            .map(|(number, (part, model))| {
                let (fs, device) = (&fs, &device);
                let is_delayed = shape.delayed;
                scope.spawn(move || run(number, part, model, fs, device, is_delayed))
            })
            .collect();
        tracks = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    });
    if closes {
        fs.close().unwrap();
        for (number, track) in tracks.iter_mut().enumerate() {
            track.close();
            device.mark((number as u64) << 32 | (track.durable.len() - 1) as u64);
        }
    }
    drop(fs);
    let mut events = device.take_events();
    if let Some(full) = events.iter().position(|event| event.kind == EventKind::Mark(FULL)) {
        let before = |event: &Event| matches!(event.kind, EventKind::Mark(_));
        let last = events[..full].iter().rposition(before).map_or(0, |last| last + 1);
        events.truncate(last);
    }
    let name = format!("{name} on {}", shape.name);
    Some(Recorded { name, base, events, tracks })
}

fn run(
    number: usize,
    part: &Part,
    model: &MemoryFileSystem,
    fs: &Ext4,
    device: &Recording<MemoryDevice>,
    is_delayed: bool,
) -> Track {
    let base = base(number);
    let mut track =
        Track::begin(&base, VisibleState::read(model, &base, None).unwrap(), is_delayed);
    let (mut on_fs, mut on_model) = (Executor::new(fs), Executor::new(model));
    for operation in &part.operations {
        let outcome = on_fs.apply(operation);
        let is_refused = outcome == Outcome(Err(Errno::ENOSPC));
        assert!(!(is_refused && is_never_refused(&operation.action)), "{operation}: {outcome}");
        if is_refused && !is_refused_whole(&operation.action) {
            // The model is never full, and how much was done isn't known: the recording ends here.
            eprintln!("full after {} operations", track.operations.len());
            device.mark(FULL);
            break;
        }
        device.mark((number as u64) << 32 | (track.operations.len() + 1) as u64);
        let done = as_done(operation, &outcome);
        if is_refused {
            track.push(&done, false, &on_model);
        } else {
            let expected = on_model.apply(&done);
            // Other tests compare error numbers and results.
            let agrees = outcome.0.is_ok() == expected.0.is_ok();
            assert!(agrees, "{operation}: {outcome} {:?}, {expected}", on_fs.last_detail());
            track.push(&done, outcome.0.is_ok(), &on_model);
        }
        if is_refused || done != *operation {
            track.refused += 1;
            track.compare(fs).unwrap_or_else(|why| panic!("{operation}: {outcome}: {why}"));
        }
    }
    track
}
