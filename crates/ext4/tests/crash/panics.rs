//! A panic in any call to a handle of the journal, in any operation: a half-done operation is never
//! committed, whatever callers do with the mount afterwards.

use crate::images::{self, Shape};
use crate::judge::{e2fsck, recover};
use crate::record::{Part, Possible, Track, base, options, set_up};
use crate::short::{BEFORE, OPERATIONS};
use crate::state::State;
use crate::watch::watch;
use crate::{is_long, seed};
use drystone_blockdev::{BlockDevice, MemoryDevice};
use drystone_ext4::{Ext4, MountOptions};
use drystone_jbd2::planted;
use drystone_sync::Arc;
use drystone_testkit::judges::{Scratch, have};
use drystone_testkit::model::{Configuration, MemoryFileSystem};
use drystone_testkit::operations::{Action, Actor, Executor, Operation};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Calls of each sequence that are tried in the ordinary run.
const CALLS_MAX: u64 = 4;

/// More than any sequence makes.
const PLENTY: u64 = 1 << 40;

/// Operations beside those of the short sequences.
const MORE: [&str; 5] = [
    "mkdir @/A/bar 755; create @/A/bar/foo 644; unlink @/A/bar/foo; rmdir @/A/bar",
    "setxattr @/A/foo user.big *7:900 set; removexattr @/A/foo user.big",
    "tmpfile @/A 1 600; append #1 *1:9000; close 1",
    "append @/A/foo *8:300000; truncate @/A/foo 1000; unlink @/A/foo",
    "symlink a-target-that-is-too-long-for-the-inode-itself-and-so-needs-a-block-of-its-own @/A/bar",
];

fn parse(text: &str) -> Vec<Operation> {
    let text = text.replace('@', &base(0));
    text.split(';').map(|part| format!("u0 {}", part.trim()).parse().unwrap()).collect()
}

struct Sequence {
    image: MemoryDevice,
    track: Track,
}

/// How far a sequence got.
struct Run {
    device: MemoryDevice,
    /// Operations that returned before the panic, if there was one.
    returned: usize,
    /// The sync afterwards succeeded.
    is_synced: bool,
}

impl Sequence {
    /// Runs the operations in the model, from the state of the image with which all sequences begin.
    fn new(image: &MemoryDevice, shape: &Shape, text: &str) -> Sequence {
        let model = MemoryFileSystem::new(Configuration {
            extents: shape.extents,
            ..Configuration::with_block_size(shape.block_size)
        });
        let mut executor = Executor::new(&model);
        for operation in parse(&format!("mkdir @ 777; {BEFORE}")) {
            assert!(executor.apply(&operation).0.is_ok(), "{operation}");
        }
        let state = State::read(&model, &base(0), None).unwrap();
        let mut track = Track::begin(&base(0), state, shape.delayed);
        let sync = Operation { actor: Actor(0), action: Action::Sync {} };
        for operation in parse(text).into_iter().chain([sync]) {
            assert!(executor.apply(&operation).0.is_ok(), "{operation}");
            track.push(&operation, true, &executor);
        }
        Sequence { image: image.snapshot(), track }
    }

    /// Runs the operations, with a panic after so many calls.
    fn run(&self, calls: u64) -> Run {
        let device = Arc::new(self.image.snapshot());
        let fs = self.open(&device);
        let mut returned = 0;
        planted::plant(calls);
        let panic = catch_unwind(AssertUnwindSafe(|| {
            let mut executor = Executor::new(&fs);
            for operation in &self.track.operations {
                let outcome = executor.apply(operation);
                assert!(outcome.0.is_ok(), "{operation}: {outcome}");
                returned += 1;
            }
        }));
        let left = planted::left();
        planted::plant(u64::MAX);
        let is_planted = left == u64::MAX;
        assert_eq!(panic.is_err(), is_planted, "another panic than the one planted");
        // Commits everything, if anything can still be committed.
        let is_synced = drystone_vfs::FileSystem::sync(&fs).is_ok();
        drop(fs);
        Run { device: device.snapshot(), returned, is_synced }
    }

    /// A mount that commits only when asked.
    fn open(&self, device: &Arc<MemoryDevice>) -> Ext4 {
        let options =
            MountOptions { delayed_allocation: self.track.is_delayed, ..options(3_600_000) };
        Ext4::open(Arc::clone(device) as Arc<dyn BlockDevice>, options).unwrap()
    }

    /// How many calls all operations make.
    fn calls(&self) -> u64 {
        let device = Arc::new(self.image.snapshot());
        let fs = self.open(&device);
        planted::plant(PLENTY);
        let mut executor = Executor::new(&fs);
        for operation in &self.track.operations {
            assert!(executor.apply(operation).0.is_ok(), "{operation}");
        }
        let calls = PLENTY - planted::left();
        planted::plant(u64::MAX);
        calls
    }

    fn possible(&self, run: &Run) -> Possible {
        let last = self.track.states.len() - 1;
        let first = if run.is_synced { run.returned } else { 0 };
        let content = self.track.is_delayed.then_some(first);
        Possible { first, last: (run.returned + 1).min(last), content }
    }
}

fn try_all(shape: &Shape) {
    let setup = parse(BEFORE);
    let parts = [Part { setup, operations: Vec::new() }];
    let Some((image, _)) = set_up(shape, &parts) else { return };
    let scratch = Scratch::new("panics").unwrap();
    let has_e2fsck = have("e2fsck");
    let (mut tried, mut problems) = (0, Vec::new());
    for text in OPERATIONS.iter().chain(&MORE) {
        let sequence = Sequence::new(&image, shape, text);
        let calls = sequence.calls();
        assert!(calls > 1, "{text} makes {calls} calls");
        let step = if is_long() { 1 } else { calls.div_ceil(CALLS_MAX) };
        for (round, call) in (seed() % step..calls).step_by(step as usize).enumerate() {
            let what = format!("{}: {text}: call {call} of {calls} panics", shape.name);
            let _watch = watch(60, &what[..]);
            let run = sequence.run(call);
            let possible = sequence.possible(&run);
            let device: Arc<dyn BlockDevice> = Arc::new(run.device);
            let tracks = std::slice::from_ref(&sequence.track);
            recover(&device, tracks, &[possible], &what)
                .and_then(|()| match has_e2fsck && (is_long() || round == 0) {
                    true => e2fsck(&*device, &scratch),
                    false => Ok(()),
                })
                .unwrap_or_else(|problem| problems.push(format!("{what}: {problem}")));
            tried += 1;
        }
    }
    eprintln!("{}: {tried} panics", shape.name);
    assert!(problems.is_empty(), "{} problems\n{}", problems.len(), problems.join("\n\n"));
}

#[test]
fn panics_in_calls_to_handles() {
    for shape in [&images::AT_ONCE, &images::FILE, &images::LIST] {
        try_all(shape);
    }
}
