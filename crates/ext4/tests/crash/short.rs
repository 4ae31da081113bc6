//! Short sequences of operations, each followed by one sync and a power cut when that has returned.
//!
//! A sequence is one operation of a list, or two, on a few names in two directories. Then comes a sync
//! of everything, of a directory or of a file. What the sync covers has to be there, with everything
//! that was done before. Sequences at which other file systems have failed are in a list of their own.

use crate::images::{self, Shape};
use crate::judge::{crash_images, recover};
use crate::record::{Part, Possible, base, record};
use crate::{images as image_count, is_long, seed};
use drystone_blockdev::BlockDevice;
use drystone_sync::Arc;
use drystone_testkit::model::{Configuration, MemoryFileSystem};
use drystone_testkit::operations::{Action, Actor, Executor, Operation, OperationTarget, Word};
use drystone_testkit::walk::walk;
use drystone_vfs::{FileType, RequestContext};

/// Cuts that are tried in the ordinary run.
const CUTS_DEFAULT: usize = 400;

/// Makes the durable state before each sequence. `@` stands for the directory of all this.
pub const BEFORE: &str = "mkdir @/A 755; mkdir @/B 755; mkdir @/B/empty 755; \
    create @/A/foo 644; append @/A/foo *1:9000; setxattr @/A/foo user.a =old set; \
    create @/B/bar 644; append @/B/bar =bar; sync";

/// The operations of the sequences.
pub const OPERATIONS: [&str; 41] = [
    "create @/A/bar 644",
    "create @/A/bar 644; append @/A/bar *2:5000",
    "create @/A/bar 644; write @/A/bar 9000 *2:100",
    "mkdir @/A/bar 755",
    "mkdir @/C 755; create @/C/foo 644",
    "symlink foo @/A/bar",
    "mknod @/A/bar fifo 0 0 644",
    "tmpfile @/A 1 600; link #1 @/A/bar; append #1 =x; close 1",
    "range @/A/foo allocate 5000 20000",
    "range @/A/foo allocate-keep 5000 20000",
    "range @/A/foo punch 1000 5000",
    "range @/A/foo punch 7000 5000",
    "range @/A/foo zero 7000 9000",
    "range @/A/foo zero-keep 1000 5000",
    "range @/A/foo collapse 1024 2048",
    "range @/A/foo insert 1024 2048",
    "write @/A/foo 2000 *3:3000",
    "append @/A/foo *4:3000",
    "write @/A/foo 30000 *5:100",
    "truncate @/A/foo 0",
    "truncate @/A/foo 3000",
    "truncate @/A/foo 20000",
    "link @/A/foo @/A/bar",
    "link @/A/foo @/B/foo",
    "unlink @/A/foo",
    "unlink @/B/bar",
    "rmdir @/B/empty",
    "rename @/A/foo @/A/bar replace",
    "rename @/A/foo @/B/foo replace",
    "rename @/A/foo @/B/bar replace",
    "rename @/A/foo @/B/bar exchange",
    "rename @/A/foo @/B/foo whiteout",
    "rename @/A @/C replace",
    "rename @/A @/B/empty replace",
    "rename @/A @/B exchange",
    "setxattr @/A/foo user.a =new replace",
    "setxattr @/A/foo user.b *6:200 set",
    "setxattr @/B user.b =x set",
    "removexattr @/A/foo user.a",
    "chmod @/A/foo 600",
    "chmod @/A 700",
];

/// Longer sequences, with their syncs.
const KNOWN: [&str; 30] = [
    // Several names of one file, some of them new or removed.
    "create @/f 644; sync; link @/f @/g; link @/f @/h; unlink @/g; fsync @/f",
    "create @/f 644; link @/f @/g; sync; unlink @/g; mknod @/g fifo 0 0 644; fsync @/g",
    "create @/f 644; append @/f *1:3000; fsync @/f; link @/f @/g; append @/f *2:3000; fsync @/g",
    "mkdir @/d 755; create @/f 644; fsync @/f; mkdir @/d/e 755; link @/f @/d/e/f; fsync @/d",
    "mkdir @/d 755; create @/d/f 644; link @/d/f @/d/g; sync; unlink @/d/g; fsync @/d; fsync @/d/f",
    "create @/f 644; sync; link @/f @/g; fsync @/f; unlink @/f; create @/f 644; fsync @/f",
    "create @/f 644; link @/f @/g; sync; unlink @/f; rename @/g @/f replace; create @/g 644; fsync @/g",
    "tmpfile @ 1 600; append #1 *1:4000; link #1 @/f; close 1; fsync @/f",
    // A name that another file takes over.
    "create @/f 644; append @/f =1; sync; rename @/f @/g replace; create @/f 644; append @/f =2; fsync @/f",
    "create @/f 644; append @/f =1; create @/g 644; append @/g =2; sync; rename @/f @/h replace; \
     rename @/g @/f replace; rename @/h @/g replace; fsync @/f",
    "create @/f 644; append @/f =1; fsync @/f; create @/t 644; append @/t =2; fdatasync @/t; \
     rename @/t @/f replace; fsync @",
    "create @/f 644; sync; unlink @/f; mkdir @/f 755; create @/f/g 644; fsync @/f",
    "mkdir @/d 755; sync; rmdir @/d; create @/d 644; append @/d =1; fdatasync @/d",
    "symlink a @/s; sync; unlink @/s; symlink b @/s; fsync @",
    "mkdir @/d 755; sync; create @/d/f 644; fsync @/d; symlink f @/d/s; rename @/d/s @/d/t replace; fsync @/d",
    // Directories that are new, moved or taken over.
    "mkdir @/d 755; mkdir @/e 755; create @/d/f 644; sync; rename @/d/f @/e/f replace; create @/d/g 644; fsync @/d",
    "mkdir @/d 755; mkdir @/e 755; create @/d/f 644; sync; rename @/d/f @/e/f replace; fsync @/e",
    "mkdir @/d 755; mkdir @/d/x 755; mkdir @/e 755; create @/d/x/f 644; sync; rename @/d/x @/e/x replace; \
     create @/e/x/g 644; fsync @/e/x/g",
    "mkdir @/d 755; create @/d/f 644; sync; rename @/d @/e replace; mkdir @/d 755; create @/d/g 644; fsync @/d",
    "mkdir @/d 755; mkdir @/d/e 755; create @/d/e/f 644; sync; rename @/d/e/f @/d/f replace; rmdir @/d/e; fsync @/d",
    "mkdir @/d 755; create @/d/f 644; sync; create @/d/g 644; fsync @/d/g; unlink @/d/f; unlink @/d/g; \
     rmdir @/d; fsync @",
    "mkdir @/a 755; mkdir @/a/b 755; mkdir @/a/b/c 755; create @/a/b/c/f 644; fsync @/a/b/c/f",
    // Lengths, holes and blocks past the end.
    "create @/f 644; append @/f *1:20000; sync; truncate @/f 5000; truncate @/f 20000; fsync @/f",
    "create @/f 644; append @/f *1:20000; fsync @/f; range @/f punch 3000 50; range @/f punch 8192 4096; fdatasync @/f",
    "create @/f 644; range @/f allocate-keep 0 40000; append @/f *1:5000; fdatasync @/f; append @/f *2:100; fdatasync @/f",
    "create @/f 644; append @/f *1:5000; fsync @/f; range @/f allocate 0 40000; fdatasync @/f",
    "create @/f 644; append @/f *1:5000; sync; write @/f 30000 *2:100; range @/f zero 4000 30000; fdatasync @/f",
    "create @/f 644; range @/f allocate 0 30000; sync; write @/f 10000 *1:3000; fdatasync @/f; \
     range @/f punch 0 11000; fdatasync @/f",
    // Attributes.
    "create @/f 644; setxattr @/f user.a =1 set; setxattr @/f user.b *1:90 set; fsync @/f; \
     removexattr @/f user.b; fsync @/f",
    "mkdir @/d 755; create @/d/f 644; sync; setxattr @/d user.a =1 set; chmod @/d/f 600; fsync @/d; fsync @/d/f",
];

/// Operations for a recording, each tried on a model when it is added, and where the power is cut.
struct Plan<'a> {
    model: &'a MemoryFileSystem,
    executor: Executor<'a>,
    operations: Vec<Operation>,
    /// The numbers of operations before each cut.
    cuts: Vec<usize>,
}

impl<'a> Plan<'a> {
    fn new(model: &'a MemoryFileSystem) -> Plan<'a> {
        let mut executor = Executor::new(model);
        let make = Action::MakeDirectory { path: Word::from(&base(0)[..]), mode: 0o777 };
        assert!(executor.apply(&Operation { actor: Actor(0), action: make }).0.is_ok());
        Plan { model, executor, operations: Vec::new(), cuts: Vec::new() }
    }

    fn push(&mut self, action: Action) -> bool {
        let operation = Operation { actor: Actor(0), action };
        let is_done = self.executor.apply(&operation).0.is_ok();
        self.operations.push(operation);
        is_done
    }

    /// Adds the operations of a text; false if one fails.
    fn extend(&mut self, text: &str) -> bool {
        text.replace('@', &base(0)).split(';').all(|part| {
            let operation: Operation = format!("u0 {}", part.trim()).parse().unwrap();
            self.push(operation.action)
        })
    }

    /// Everything that can be synced.
    fn syncs(&self) -> Vec<Action> {
        let found = walk(self.model, &RequestContext::superuser(), base(0).as_bytes()).unwrap();
        let mut syncs = vec![Action::Sync {}];
        for (path, attributes) in found {
            let target = OperationTarget::Path(Word(path));
            match attributes.file_type {
                FileType::Regular => {
                    syncs.push(Action::SyncFile { target: target.clone() });
                    syncs.push(Action::SyncData { target });
                }
                FileType::Directory => syncs.push(Action::SyncFile { target }),
                _ => {}
            }
        }
        syncs
    }

    /// Adds a sequence with one of the syncs that are possible then.
    fn add(&mut self, sequence: &[&str], choose: impl FnOnce(&[Action]) -> usize) {
        self.extend(BEFORE);
        if sequence.iter().all(|operation| self.extend(operation)) {
            let mut syncs = self.syncs();
            let sync = syncs.swap_remove(choose(&syncs));
            assert!(self.push(sync));
            self.cuts.push(self.operations.len());
        }
        self.clear();
    }

    /// Removes everything again.
    fn clear(&mut self) {
        let found = walk(self.model, &RequestContext::superuser(), base(0).as_bytes()).unwrap();
        for (path, attributes) in found.into_iter().skip(1).rev() {
            let path = Word(path);
            self.push(match attributes.file_type {
                FileType::Directory => Action::RemoveDirectory { path },
                _ => Action::Unlink { path },
            });
        }
    }
}

/// Records the plan on an image and cuts the power where it says.
fn check(name: &str, shape: &Shape, make: impl Fn(&mut Plan<'_>, &mut fastrand::Rng)) {
    let model = MemoryFileSystem::new(Configuration::with_block_size(shape.block_size));
    let mut plan = Plan::new(&model);
    let mut random = fastrand::Rng::with_seed(seed());
    make(&mut plan, &mut random);
    let Plan { operations, mut cuts, .. } = plan;
    let parts = [Part { setup: Vec::new(), operations }];
    // Nothing is committed without a sync.
    let Some(recorded) = record(name, shape, &parts, 3_600_000, false) else { return };
    let track = &recorded.tracks[0];
    let mut images = crash_images(&recorded.base, recorded.events.clone());
    if !is_long() {
        random.shuffle(&mut cuts);
        cuts.truncate(CUTS_DEFAULT);
    }
    eprintln!("{}: {} cuts", recorded.name, cuts.len());
    for cut in cuts {
        let Some(image) = images.behind_mark(cut as u64) else { continue };
        let image = image.unwrap();
        let what = format!("{}: {}", recorded.name, image.description);
        let possible = Possible { last: cut, ..track.possible(cut) };
        let device: Arc<dyn BlockDevice> = Arc::new(image.device);
        if let Err(problem) = recover(&device, &recorded.tracks, &[possible], &what) {
            let from = track.operations[..cut].iter().rposition(is_beginning).unwrap_or(0);
            let done: Vec<_> =
                track.operations[from..cut].iter().map(ToString::to_string).collect();
            panic!("{what}\n{}\n{problem}", done.join("\n"));
        }
    }
}

fn is_beginning(operation: &Operation) -> bool {
    operation.action == Action::Sync {}
}

/// Each operation with each sync.
fn single(plan: &mut Plan<'_>, _: &mut fastrand::Rng) {
    for operation in OPERATIONS {
        let mut count = 1;
        for number in 0.. {
            if number == count {
                break;
            }
            plan.add(&[operation], |syncs| {
                count = syncs.len();
                number
            });
        }
    }
}

/// Two random operations with a random sync.
fn pairs(plan: &mut Plan<'_>, random: &mut fastrand::Rng) {
    for _ in 0..image_count() / 11 {
        let mut choose = || OPERATIONS[random.usize(..OPERATIONS.len())];
        let pair = [choose(), choose()];
        plan.add(&pair, |syncs| random.usize(..syncs.len()));
    }
}

fn known(plan: &mut Plan<'_>, _: &mut fastrand::Rng) {
    for sequence in KNOWN {
        assert!(plan.extend(sequence), "{sequence}");
        plan.cuts.push(plan.operations.len());
        plan.clear();
        plan.extend("sync");
    }
}

#[test]
fn one_operation_and_a_sync() {
    check("one operation", &images::FILE, single);
    check("one operation", &images::AT_ONCE, single);
}

#[test]
fn two_operations_and_a_sync() {
    check("two operations", &images::FILE, pairs);
    check("two operations", &images::AT_ONCE, pairs);
}

#[test]
fn known_sequences() {
    for shape in [&images::FILE, &images::LIST, &images::AT_ONCE, &images::LARGE_BLOCKS] {
        check("known sequences", shape, known);
    }
}
