//! A panic in any call to a handle of the journal, in any operation: a half-done operation is never
//! committed, whatever callers do with the mount afterwards.

use crate::images::{self, Shape};
use crate::judge::{e2fsck, recover};
use crate::record::{Part, Possible, Track, base, options, set_up};
use crate::short::{BEFORE, OPERATIONS};
use crate::watch::watch;
use crate::{is_long, seed};
use drystone_blockdev::{BlockDevice, MemoryDevice};
use drystone_ext4::Ext4;
use drystone_jbd2::planted;
use drystone_sync::Arc;
use drystone_testkit::judges::{Scratch, have};
use drystone_testkit::model::MemoryFileSystem;
use drystone_testkit::operations::{Action, Actor, Executor, Operation};
use drystone_testkit::visible::VisibleState;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Calls of each sequence that are tried in the ordinary run.
const CALLS_MAX: u64 = 4;
/// One of so many images is checked by e2fsck in the ordinary run.
const E2FSCK_ONE_IN: u64 = 5;

/// More than any sequence makes.
const PLENTY: u64 = 1 << 40;

/// Operations beside those of the short sequences.
const MORE: [&str; 10] = [
    "mkdir @/A/bar 755; create @/A/bar/foo 644; unlink @/A/bar/foo; rmdir @/A/bar",
    "setxattr @/A/foo user.big *7:900 set; removexattr @/A/foo user.big",
    "tmpfile @/A 1 600; append #1 *1:9000; close 1",
    "append @/A/foo *8:300000; truncate @/A/foo 1000; unlink @/A/foo",
    "symlink a-target-that-is-too-long-for-the-inode-itself-and-so-needs-a-block-of-its-own @/A/bar",
    "chown @/A/foo 1001 2000",
    "chown @/A 1001 -; create @/A/bar 644; chown @/A - 1002",
    // NO_DUMP and NO_ACCESS_TIME.
    "chattr @/A/foo 192; chattr @/B 64",
    "append @/B/bar *9:100; append @/B/bar *9:5000; truncate @/B/bar 2",
    "setxattr @/B/bar user.big *7:700 set; open @/B/bar 1 write; \
     rename @/A/foo @/B/bar replace; close 1",
];

/// Names that split a leaf of a directory with blocks of 1 KiB, which has an index from the fourth on.
const NAMES: usize = 9;

/// Values with inodes of their own.
const LARGE_VALUES: &str = "setxattr @/A/foo user.big *7:3000 set; \
    setxattr @/B/bar user.big *7:3000 set; removexattr @/A/foo user.big; \
    setxattr @/B/bar user.big *8:2000 set; unlink @/B/bar";

fn parse(text: &str) -> Vec<Operation> {
    let text = text.replace('@', &base(0));
    text.split(';').map(|part| format!("u0 {}", part.trim()).parse().unwrap()).collect()
}

/// The sequences for an image.
fn sequences(shape: &Shape) -> Vec<String> {
    let long_name = |number| format!("create @/B/{}{number} 644", "x".repeat(240));
    let names: Vec<String> = (0..NAMES).map(long_name).collect();
    let mut sequences: Vec<String> =
        OPERATIONS.iter().chain(&MORE).map(|s| s.to_string()).collect();
    sequences.push(names.join("; "));
    if shape.name == images::EXTERNAL_VALUES.name {
        sequences.push(LARGE_VALUES.to_owned());
    }
    if shape.cluster_size > shape.block_size {
        // Only whole clusters can be taken out and put in.
        let whole = format!("0 {}", shape.cluster_size);
        sequences.iter_mut().for_each(|text| *text = text.replace("1024 2048", &whole));
    }
    sequences
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
        let model = MemoryFileSystem::new(shape.configuration());
        let mut executor = Executor::new(&model);
        for operation in parse(&format!("mkdir @ 777; {BEFORE}")) {
            assert!(executor.apply(&operation).0.is_ok(), "{operation}");
        }
        let state = VisibleState::read(&model, &base(0), None).unwrap();
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
        let options = options(3_600_000).delayed_allocation(self.track.is_delayed);
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
    let (mut tried, mut problems) = (0u64, Vec::new());
    for text in sequences(shape) {
        let sequence = Sequence::new(&image, shape, &text);
        let calls = sequence.calls();
        assert!(calls > 1, "{text} makes {calls} calls");
        let step = if is_long() { 1 } else { calls.div_ceil(CALLS_MAX) };
        for call in (seed() % step..calls).step_by(step as usize) {
            let what = format!("{}: {text}: call {call} of {calls} panics", shape.name);
            let _watch = watch(60, &what[..]);
            let run = sequence.run(call);
            let possible = sequence.possible(&run);
            let device: Arc<dyn BlockDevice> = Arc::new(run.device);
            let tracks = std::slice::from_ref(&sequence.track);
            recover(&device, tracks, &[possible], &what)
                .and_then(|()| match has_e2fsck && (is_long() || tried % E2FSCK_ONE_IN == 0) {
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

macro_rules! panic_tests {
    ($($test:ident: $shape:ident;)*) => {$(
        #[test]
        fn $test() {
            try_all(&images::$shape);
        }
    )*};
}

panic_tests! {
    panics_with_orphan_list: LIST;
    panics_with_orphan_file: FILE;
    panics_at_once: AT_ONCE;
    panics_with_quota: QUOTA;
    panics_with_inline_data: INLINE;
    panics_with_external_values: EXTERNAL_VALUES;
    panics_with_clusters: BIGALLOC;
}
