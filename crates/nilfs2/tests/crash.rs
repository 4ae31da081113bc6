//! Crashes at any write: what was synced is there, what wasn't is there as a whole or not at all.
//!
//! Every image is checked, mounted, compared, changed, unmounted and checked again; half of them crash
//! once more during the recovery. `DRYSTONE_CRASH_IMAGES` is how many images are made.
#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use drystone_blockdev::{BlockDevice, MemoryDevice, Recording};
use drystone_nilfs2::{MountOptions, Nilfs2};
use drystone_sync::Arc;
use drystone_testkit::crash::{CrashImage, CrashImages};
use drystone_testkit::environment::number;
use drystone_testkit::operations::{Executor, Profile, generate};
use drystone_testkit::tree::{TreeSnapshot, diff};
use drystone_vfs::{FileSystem, NewNode, RequestContext};
use std::time::Duration;
use support::{image, judge, tree};

/// The file whose data is synced without a checkpoint. It is large enough that its map is a tree.
const SYNCED: &[u8] = b"synced";
const SYNCED_BYTES: usize = 60_000;

/// Logs are written only when they are asked for, so that each state is known.
fn options() -> MountOptions {
    let commit_interval = Some(Duration::from_secs(1 << 20));
    MountOptions::default().commit_interval(commit_interval)
}

fn mount_recorded(device: &Arc<Recording<MemoryDevice>>) -> Nilfs2 {
    let device: Arc<dyn BlockDevice> = Arc::clone(device) as Arc<dyn BlockDevice>;
    Nilfs2::mount(device, &options()).unwrap()
}

/// A run and the states that it passed: mark *n* promises state *n* or a later one.
struct CrashRun {
    base: MemoryDevice,
    states: Vec<TreeSnapshot>,
    recording: Arc<Recording<MemoryDevice>>,
}

fn record(seed: u64, block_bytes: u32, blocks_per_segment: u32) -> CrashRun {
    let mut random = fastrand::Rng::with_seed(seed);
    let base = image(24, block_bytes, blocks_per_segment).snapshot();
    let recording = Arc::new(Recording::new(base.snapshot()));
    let fs = mount_recorded(&recording);
    let context = RequestContext::superuser();
    let mut states = vec![tree(&fs)];
    recording.mark(0);
    let file = fs.create(&context, fs.root(), SYNCED, NewNode::Regular, 0o600).unwrap();
    fs.write_all(&context, file.inode, 0, &[1; SYNCED_BYTES]).unwrap();
    let profile = Profile { sync: 0, ..Profile::ALL[seed as usize % Profile::ALL.len()].clone() };
    let operations = generate(seed, &profile, "/", 400);
    let mut executor = Executor::new(&fs);
    for batch in operations.chunks(50) {
        for operation in batch {
            executor.apply(operation);
        }
        match random.u8(0..4) {
            0 => {
                fs.clean(0).unwrap();
            }
            1 => drop(fs.make_checkpoint().unwrap()),
            _ => fs.sync().unwrap(),
        }
        states.push(tree(&fs));
        recording.mark(states.len() as u64 - 1);
        for _ in 0..random.u8(0..3) {
            // The random operations may have removed it, or given it another size.
            let Ok(found) = fs.lookup(&context, fs.root(), SYNCED) else { break };
            let start = random.u64(0..SYNCED_BYTES as u64 / 2);
            if found.size == SYNCED_BYTES as u64 {
                let data = vec![random.u8(..); random.usize(1..9000)];
                fs.write_all(&context, found.inode, start, &data).unwrap();
                fs.sync_inode(found.inode, true).unwrap();
                states.push(tree(&fs));
                recording.mark(states.len() as u64 - 1);
            }
            fs.forget(found.inode, 1);
        }
    }
    drop(executor);
    fs.forget(file.inode, 1);
    fs.sync().unwrap();
    states.push(tree(&fs));
    recording.mark(states.len() as u64 - 1);
    fs.unmount().unwrap();
    CrashRun { base, states, recording }
}

/// Recovers a crashed image and returns the number of the state that it has.
fn recover(run: &CrashRun, crash: &CrashImage, device: Arc<dyn BlockDevice>) -> usize {
    let what = &crash.description;
    judge(&*device, &format!("{what}, as it crashed"));
    let fs = Nilfs2::mount(Arc::clone(&device), &options())
        .unwrap_or_else(|error| panic!("{what}: {error}"));
    let found = tree(&fs);
    let least = crash.last_mark.unwrap_or(0) as usize;
    let state =
        (least..run.states.len()).find(|state| diff(&run.states[*state], &found).is_empty());
    let Some(state) = state else {
        let expected = run.states.get(least).map(|state| diff(state, &found));
        panic!("{what}: state {least} or a later one isn't there: {expected:#?}");
    };
    let context = RequestContext::superuser();
    let made = fs.create(&context, fs.root(), b"after the crash", NewNode::Directory, 0o700);
    assert!(made.is_ok(), "{what}: {made:?}");
    fs.unmount().unwrap();
    judge(&*device, &format!("{what}, after recovery"));
    state
}

/// Sizes of blocks and segments.
const SHAPES: [(u32, u32); 4] = [(4096, 64), (1024, 16), (1024, 256), (4096, 16)];

fn crashes(seed: u64, block_bytes: u32, blocks_per_segment: u32) {
    let run = record(seed, block_bytes, blocks_per_segment);
    let images = CrashImages::new(&run.base, run.recording.events(), seed).unwrap();
    let count = number("DRYSTONE_CRASH_IMAGES").unwrap_or(1_000) as usize;
    for (index, crash) in images.take(count / SHAPES.len()).enumerate() {
        let mut crash = crash.unwrap();
        // A disk writes a superblock's sectors, of which it has two, at once or not.
        let held = MemoryDevice::new(crash.device.size_bytes());
        let mut bytes = vec![0; crash.device.size_bytes() as usize];
        crash.device.read_at(0, &mut bytes).unwrap();
        held.write_at(0, &bytes).unwrap();
        if index % 2 == 0 {
            recover(&run, &crash, Arc::new(held));
            continue;
        }
        let again = Arc::new(Recording::new(held.snapshot()));
        recover(&run, &crash, Arc::clone(&again) as Arc<dyn BlockDevice>);
        for second in CrashImages::new(&held, again.events(), seed).unwrap().take(4) {
            let second = second.unwrap();
            crash.description = format!("{}, then {}", crash.description, second.description);
            let device: Arc<dyn BlockDevice> = Arc::new(second.device);
            judge(&*device, &crash.description);
            Nilfs2::mount(device, &options())
                .unwrap_or_else(|error| panic!("{}: {error}", crash.description));
        }
    }
}

#[test]
fn what_was_synced_survives() {
    let first = number("DRYSTONE_SEED").unwrap_or(0);
    for (seed, (block_bytes, blocks_per_segment)) in (first..).zip(SHAPES) {
        crashes(seed, block_bytes, blocks_per_segment);
    }
}
