//! A device that fails in the middle of an operation, with nothing in memory before it.
//!
//! After a mount has worked for a while, most of what an operation needs is in memory, so few of its
//! reads reach the device. Here a workload is cut into short stages. Each stage begins with a new mount
//! with next to no memory, and is repeated with a failure of each of its reads, writes and flushes. The
//! tree has to be as before or after the operation that failed: at once if the mount goes on, and after
//! a recovery in any case.

use crate::images::{self, Shape};
use crate::judge::{check_track, e2fsck, recover};
use crate::record::{Part, Possible, Track, base, options, set_up};
use crate::watch::watch;
use crate::workloads::{self, Make};
use crate::{images as image_count, is_long, seed};
use drystone_blockdev::{
    BlockDevice, DeviceOperation, Effect, Fault, Faulty, MemoryDevice, Trigger,
};
use drystone_ext4::{Ext4, MountOptions};
use drystone_sync::Arc;
use drystone_testkit::judges::{Scratch, have};
use drystone_testkit::operations::{Action, Executor, Operation, Outcome};
use drystone_testkit::visible::VisibleState;
use drystone_vfs::FileSystem;
use std::ops::Range;

/// Operations of a workload, and of a stage.
const OPERATIONS: usize = 60;
const STAGE_LENGTH: usize = 6;
/// Failures that are tried in the ordinary run, in all tests together.
const FAILURES_DEFAULT: usize = 5_000;
/// Tests that share the number of failures.
const TESTS: usize = 11;
/// One of so many images is checked by e2fsck as well as by our checker.
const E2FSCK_ONE_IN: usize = 24;
/// Memory for a mount: a few blocks and one inode, or some tens of blocks and fewer inodes.
const MEMORY_BYTES: [usize; 2] = [8 << 10, 96 << 10];

/// Ways to fail.
const FAILURES: [(DeviceOperation, Effect); 4] = [
    (DeviceOperation::Read, Effect::InputOutputError),
    (DeviceOperation::Write, Effect::InputOutputError),
    (DeviceOperation::Write, Effect::NoSpace),
    (DeviceOperation::Flush, Effect::InputOutputError),
];

pub type Device = Faulty<MemoryDevice>;

/// A part of a workload, and the closed image that it begins with.
struct Stage {
    image: MemoryDevice,
    operations: Range<usize>,
}

/// A stage of a workload, and what fails in it.
#[derive(Clone, Debug)]
pub struct Trial {
    pub stage: usize,
    pub memory_bytes: usize,
    pub faults: Vec<Fault>,
}

/// A workload in stages, each of which can be repeated.
pub trait Staged {
    fn stages(&self) -> usize;

    /// Runs a stage on a device that fails, and judges the image that is left. Returns how many
    /// operations of each kind the device did.
    fn run(&self, trial: &Trial, with_e2fsck: bool) -> Result<Counts, String>;
}

/// A workload in stages.
struct Subject {
    stages: Vec<Stage>,
    track: Track,
    /// The model's outcome of each operation.
    outcomes: Vec<Outcome>,
    scratch: Scratch,
    has_e2fsck: bool,
    delayed: bool,
}

impl Subject {
    fn new(shape: &Shape, make: Make) -> Option<Subject> {
        let operations = make(seed(), &base(0), OPERATIONS);
        let parts = [Part { setup: Vec::new(), operations }];
        let (image, models) = set_up(shape, &parts)?;
        let model = &models[0];
        let state = VisibleState::read(model, &base(0), None).unwrap();
        let mut subject = Subject {
            stages: Vec::new(),
            track: Track::begin(&base(0), state, shape.delayed),
            outcomes: Vec::new(),
            scratch: Scratch::new("cold").unwrap(),
            has_e2fsck: have("e2fsck"),
            delayed: shape.delayed,
        };
        let device = Arc::new(image);
        for (index, operations) in parts[0].operations.chunks(STAGE_LENGTH).enumerate() {
            let first = index * STAGE_LENGTH;
            let image = device.snapshot();
            let options = subject.options(MEMORY_BYTES[index % 2]);
            let fs = Ext4::open(device.clone() as Arc<dyn BlockDevice>, options).unwrap();
            // What is open at the end of a stage is closed there.
            let (mut on_fs, mut on_model) = (Executor::new(&fs), Executor::new(model));
            for operation in operations {
                let (expected, outcome) = (on_model.apply(operation), on_fs.apply(operation));
                assert!(is_done(operation, &expected, &outcome), "{operation}: {outcome}");
                subject.track.push(operation, expected.0.is_ok(), &on_model);
                subject.outcomes.push(expected);
            }
            drop((on_fs, on_model));
            fs.close().unwrap();
            let operations = first..first + operations.len();
            subject.stages.push(Stage { image, operations });
        }
        Some(subject)
    }

    fn options(&self, memory_budget_bytes: usize) -> MountOptions {
        options(5000).memory_budget_bytes(memory_budget_bytes).delayed_allocation(self.delayed)
    }

    /// Runs the operations of a stage up to the first that fails and shouldn't. Returns the states that
    /// are possible afterwards.
    fn work(&self, fs: &Ext4, stage: &Stage) -> Result<Possible, String> {
        let mut executor = Executor::new(fs);
        let at_start = stage.operations.start;
        for number in stage.operations.clone() {
            let operation = &self.track.operations[number];
            let outcome = executor.apply(operation);
            let expected = &self.outcomes[number];
            if is_done(operation, expected, &outcome) {
                continue;
            }
            if outcome.0.is_ok() && expected.0.is_err() {
                return Err(format!("{operation} succeeds"));
            }
            return Ok(self.track.possible(number).at_least(at_start));
        }
        let end = stage.operations.end;
        let possible = self.track.possible(end).at_least(at_start);
        Ok(Possible { last: end, ..possible })
    }
}

impl Staged for Subject {
    fn stages(&self) -> usize {
        self.stages.len()
    }

    fn run(&self, trial: &Trial, with_e2fsck: bool) -> Result<Counts, String> {
        let stage = &self.stages[trial.stage];
        let device: Arc<Device> = Arc::new(Faulty::new(stage.image.snapshot()));
        let options = self.options(trial.memory_bytes);
        let fs = Ext4::open(device.clone() as Arc<dyn BlockDevice>, options).unwrap();
        let before = count(&device);
        for fault in &trial.faults {
            device.inject(fault.clone());
        }
        let mut possible = self.work(&fs, stage)?;
        // The device's operations of a sync count as well.
        let is_synced = fs.sync().is_ok();
        let counts = count(&device).since(before);
        device.repair();
        if is_synced {
            possible = possible.at_least(possible.last.saturating_sub(1).max(possible.first));
        }
        if is_synced || fs.sync().is_ok() {
            check_track(&self.track, &fs, &possible).map_err(|e| format!("while mounted: {e}"))?;
        }
        if fs.close().is_ok() {
            possible = possible.at_least(possible.last.saturating_sub(1).max(possible.first));
        }
        drop(fs);
        let left: Arc<dyn BlockDevice> = Arc::new(device.inner().snapshot());
        recover(&left, std::slice::from_ref(&self.track), &[possible], "after a failure")?;
        if self.has_e2fsck && with_e2fsck {
            e2fsck(&*left, &self.scratch)?;
        }
        Ok(counts)
    }
}

/// Whether an operation did what it should, as far as this test checks: a short write counts as failed.
fn is_done(operation: &Operation, expected: &Outcome, outcome: &Outcome) -> bool {
    let is_write = matches!(operation.action, Action::Write { .. } | Action::Append { .. });
    outcome.0.is_ok() == expected.0.is_ok() && (!is_write || outcome.0 == expected.0)
}

/// The device's operations, by number of the way to fail.
#[derive(Clone, Copy)]
pub struct Counts([u64; FAILURES.len()]);

impl Counts {
    pub fn since(self, before: Counts) -> Counts {
        Counts(std::array::from_fn(|index| self.0[index] - before.0[index]))
    }
}

pub fn count(device: &Device) -> Counts {
    Counts(FAILURES.map(|(operation, _)| device.operations(operation)))
}

fn fault(way: usize, moment: u64, lasting: bool) -> Fault {
    let (operation, effect) = FAILURES[way];
    let trigger = if lasting { Trigger::From(moment) } else { Trigger::Nth(moment) };
    Fault::of(operation, effect).when(trigger)
}

/// Tries failures of a workload's stages.
fn fail(shape: &Shape, make: Make) {
    if let Some(subject) = Subject::new(shape, make) {
        try_failures(shape.name, &subject);
    }
}

/// Tries single failures of the stages, those that last, and pairs. A long run tries every single one
/// and a random selection of the others, an ordinary run a selection of all.
pub fn try_failures(name: &str, subject: &impl Staged) {
    let mut random = fastrand::Rng::with_seed(seed());
    let (mut singles, mut others) = (Vec::new(), Vec::new());
    for (stage, memory_bytes) in
        (0..subject.stages()).flat_map(|stage| MEMORY_BYTES.map(|memory| (stage, memory)))
    {
        let whole = Trial { stage, memory_bytes, faults: Vec::new() };
        let counts = subject.run(&whole, false);
        let counts = counts.unwrap_or_else(|problem| panic!("{name}, {whole:?}: {problem}"));
        for way in 0..FAILURES.len() {
            for moment in 0..counts.0[way] {
                let other = random.usize(..FAILURES.len());
                let other = fault(other, random.u64(..counts.0[other].max(1)), random.bool());
                let single = fault(way, moment, false);
                let trial = |faults| Trial { faults, ..whole.clone() };
                singles.push(trial(vec![single.clone()]));
                others.push(trial(vec![fault(way, moment, true)]));
                others.push(trial(vec![single, other]));
            }
        }
    }
    let all = (singles.len(), others.len());
    random.shuffle(&mut singles);
    random.shuffle(&mut others);
    if is_long() {
        others.truncate(image_count().div_ceil(TESTS));
    } else {
        let share = FAILURES_DEFAULT.div_ceil(TESTS);
        singles.truncate(share / 3);
        others.truncate(share - share / 3);
    }
    eprintln!(
        "{name}: {} of {} single failures, {} of {} others",
        singles.len(),
        all.0,
        others.len(),
        all.1
    );
    for (number, trial) in singles.iter().chain(&others).enumerate() {
        let what = format!("{name}, {trial:?}, seed {}", seed());
        let _watch = watch(60, &what[..]);
        if let Err(problem) = subject.run(trial, number % E2FSCK_ONE_IN == 0) {
            panic!("{what}: {problem}");
        }
    }
}

#[test]
fn cold_names() {
    fail(&images::LIST, workloads::storm);
}

#[test]
fn cold_names_with_orphan_file() {
    fail(&images::FILE, workloads::storm);
}

#[test]
fn cold_splits() {
    fail(&images::FILE, workloads::splits);
}

#[test]
fn cold_moves() {
    fail(&images::QUOTA, workloads::moves);
}

#[test]
fn cold_ranges() {
    fail(&images::FILE, workloads::ranges);
}

#[test]
fn cold_ranges_with_block_maps() {
    fail(&images::EXT3, workloads::ranges);
}

#[test]
fn cold_turnover() {
    fail(&images::AT_ONCE, workloads::turnover);
}

#[test]
fn cold_attributes() {
    fail(&images::EXTERNAL_VALUES, workloads::xattrs);
}

#[test]
fn cold_owners_and_flags() {
    fail(&images::QUOTA, workloads::attributes);
}

#[test]
fn cold_orphans() {
    fail(&images::INLINE, workloads::orphans);
}
