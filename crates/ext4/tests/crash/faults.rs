//! A device that fails: once, from some moment on, in part, or for want of space. The caller gets an
//! error. Afterwards the image is sound and holds everything that was acknowledged before, even if the
//! machine crashes then.

use crate::images::{FILE, LIST, Shape};
use crate::judge::{crash_images, e2fsck, recover};
use crate::record::{Part, Possible, Track, base, options, set_up};
use crate::watch::watch;
use crate::{is_long, seed, workloads};
use drystone_blockdev::{
    BlockDevice, DeviceOperation, DeviceResult, Effect, Event, EventKind, Fault, Faulty,
    MemoryDevice, Recording, Trigger,
};
use drystone_ext4::Ext4;
use drystone_sync::Arc;
use drystone_testkit::crash::CrashImage;
use drystone_testkit::judges::{Scratch, have};
use drystone_testkit::model::MemoryFileSystem;
use drystone_testkit::operations::{Executor, Operation};
use drystone_testkit::visible::VisibleState;
use drystone_vfs::{FileSystem, NewNode, RequestContext};

/// Operations of the workload.
const OPERATIONS: usize = 60;
/// Moments of failure that are tried in a short run, for each way to fail.
const MOMENTS_MAX: u64 = 16;
/// Crashes after each failure.
const CRASHES: usize = 1;

type Device = Faulty<Recording<MemoryDevice>>;

/// A workload, and whether each operation succeeds in the model.
struct Subject {
    image: MemoryDevice,
    track: Track,
    succeeds: Vec<bool>,
    scratch: Scratch,
    has_e2fsck: bool,
}

impl Subject {
    fn new(shape: &Shape, operations: Vec<Operation>) -> Option<Subject> {
        let parts = [Part { setup: Vec::new(), operations }];
        let (image, models) = set_up(shape, &parts)?;
        let model: &MemoryFileSystem = &models[0];
        let mut track = Track::begin(
            &base(0),
            VisibleState::read(model, &base(0), None).unwrap(),
            shape.delayed,
        );
        let mut executor = Executor::new(model);
        let mut succeeds = Vec::new();
        for operation in &parts[0].operations {
            let has_succeeded = executor.apply(operation).0.is_ok();
            track.push(operation, has_succeeded, &executor);
            succeeds.push(has_succeeded);
        }
        drop(executor);
        let scratch = Scratch::new("faults").unwrap();
        Some(Subject { image, track, succeeds, scratch, has_e2fsck: have("e2fsck") })
    }

    /// Runs the workload on a device with a fault. Returns the device and the states that are possible
    /// afterwards.
    fn run(&self, fault: Option<Fault>) -> (Arc<Device>, Possible) {
        let device = Arc::new(Faulty::new(Recording::new(self.image.snapshot())));
        if let Some(fault) = fault {
            device.inject(fault);
        }
        let fs = Ext4::open(device.clone() as Arc<dyn BlockDevice>, options(5000));
        let Ok(fs) = fs else { return (device, Possible::default()) };
        let mut possible = self.run_mounted(&fs);
        // Whatever happened, closing returns.
        if fs.close().is_ok() {
            possible = possible.at_least(possible.last.saturating_sub(1));
        }
        (device, possible)
    }

    fn run_mounted(&self, fs: &Ext4) -> Possible {
        let mut executor = Executor::new(fs);
        for (number, operation) in self.track.operations.iter().enumerate() {
            let outcome = executor.apply(operation);
            if outcome.0.is_ok() == self.succeeds[number] {
                continue;
            }
            assert!(outcome.0.is_err(), "{operation} succeeds");
            let detail = executor.last_detail().map(str::to_owned);
            // The operation that failed has begun.
            let mut possible = self.track.possible(number);
            // A sync that succeeds after an error keeps its promise.
            if fs.sync().is_ok() {
                possible = possible.at_least(number);
            }
            let context = RequestContext::superuser();
            let more = fs.create(&context, fs.root(), b"more", NewNode::Regular, 0o600);
            if let Ok(more) = more {
                let _ = fs.write(&context, more.inode, 0, &[3; 5000]);
                let _ = fs.sync_inode(more.inode, false);
                fs.forget(more.inode, 1);
            }
            drop(detail);
            return possible;
        }
        let count = self.track.operations.len();
        self.track.possible(count)
    }

    fn judge(&self, device: &Device, possible: Possible, what: &str) -> Result<(), String> {
        let tracks = std::slice::from_ref(&self.track);
        let left: Arc<dyn BlockDevice> = Arc::new(device.inner().inner().snapshot());
        recover(&left, tracks, &[possible], what)?;
        if self.has_e2fsck {
            e2fsck(&*left, &self.scratch)?;
        }
        // A crash right after: everything that was acknowledged is durable.
        let mut events = device.inner().events();
        let end = events.len();
        // Marks, so that most of the crashes fall past the end.
        events.extend(
            (0..4 * end as u64).map(|number| Event {
                sequence: end as u64 + number,
                kind: EventKind::Mark(number),
            }),
        );
        let images = crash_images(&self.image, events);
        let is_after = |image: &DeviceResult<CrashImage>| {
            image.as_ref().is_ok_and(|image| image.events_before >= end)
        };
        for image in images.filter(is_after).take(CRASHES) {
            let image = image.unwrap();
            let what = format!("{what}, {}", image.description);
            let device: Arc<dyn BlockDevice> = Arc::new(image.device);
            recover(&device, tracks, &[possible], &what)?;
        }
        Ok(())
    }

    /// Tries one way to fail, at each moment or at some.
    fn try_all(&self, operation: DeviceOperation, effect: Effect, lasting: bool) {
        let (device, _) = self.run(None);
        let count = device.operations(operation);
        let step = if is_long() { 1 } else { count.div_ceil(MOMENTS_MAX).max(1) };
        let start = if is_long() { 0 } else { seed() % step };
        for moment in (start..count).step_by(step as usize) {
            let trigger = if lasting { Trigger::From(moment) } else { Trigger::Nth(moment) };
            let what = format!("{operation:?} {moment} of {count}, {effect:?}, {lasting}");
            let _watch = watch(60, &what[..]);
            let (device, possible) = self.run(Some(Fault::of(operation, effect).when(trigger)));
            if let Err(problem) = self.judge(&device, possible, &what) {
                panic!("{what}: {problem}");
            }
        }
    }
}

/// All ways in which an operation of the device fails.
fn fail(shape: &Shape, operation: DeviceOperation, effects: &[Effect]) {
    for make in [workloads::storm, workloads::ranges, workloads::orphans] {
        let operations = make(seed(), &base(0), OPERATIONS);
        let Some(subject) = Subject::new(shape, operations) else { return };
        for &effect in effects {
            for lasting in [false, true] {
                subject.try_all(operation, effect, lasting);
            }
        }
    }
}

#[test]
fn failing_writes() {
    let effects =
        [Effect::InputOutputError, Effect::Short { bytes: 1024 }, Effect::Short { bytes: 2560 }];
    fail(&LIST, DeviceOperation::Write, &effects);
}

#[test]
fn failing_writes_with_orphan_file() {
    fail(&FILE, DeviceOperation::Write, &[Effect::InputOutputError]);
}

#[test]
fn full_host() {
    fail(&LIST, DeviceOperation::Write, &[Effect::NoSpace]);
}

#[test]
fn failing_flushes() {
    fail(&LIST, DeviceOperation::Flush, &[Effect::InputOutputError]);
}

#[test]
fn failing_reads() {
    fail(&FILE, DeviceOperation::Read, &[Effect::InputOutputError]);
}
