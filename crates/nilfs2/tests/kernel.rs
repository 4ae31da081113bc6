//! The real kernel as the judge: volumes that it and the engine change in turns.
//!
//! Ordinary runs take the first layout, and compare the trees of few snapshots, which take most of the time.
//! `DRYSTONE_SEED` is the first seed, `DRYSTONE_LIVES` how many each layout gets; then all are compared. Skipped, with a line that says so, where no guest can run.
#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use drystone_blockdev::{BlockDevice, FileDevice, OpenMode};
use drystone_nilfs2::mkfs::{MakeOptions, make};
use drystone_nilfs2::{MountOptions, Nilfs2};
use drystone_sync::Arc;
use drystone_testkit::environment::number;
use drystone_testkit::judges::Scratch;
use drystone_testkit::nilfs2::{LAYOUTS, Nilfs2Guest, Nilfs2Layout, Nilfs2View};
use drystone_testkit::operations::{Executor, Profile, generate};
use drystone_testkit::tree::{TreeSnapshot, diff};
use drystone_vfs::{FileSystem, NewNode, RequestContext};
use std::path::Path;
use std::time::Duration;
use support::judge;
use uuid::Uuid;

/// What a guest prints after the first of two views.
const NEXT: &str = "== the turn of the kernel";

/// What a guest shows in an ordinary run: two snapshots.
const SHORT_VIEW: &str = "view 2";

/// A guest that may share the machine with others.
fn guest(image: &Path) -> Nilfs2Guest {
    Nilfs2Guest::new(image).limit(Duration::from_secs(600))
}

fn open(image: &Path) -> Arc<dyn BlockDevice> {
    Arc::new(FileDevice::open(image, OpenMode::ReadWrite).unwrap())
}

fn mount(image: &Path, checkpoint: Option<u64>) -> Nilfs2 {
    Nilfs2::mount(open(image), &MountOptions::default().checkpoint(checkpoint)).unwrap()
}

/// Unmounts and closes the image, which others may open then.
fn unmount(fs: Nilfs2) {
    fs.unmount().unwrap();
}

fn tree(fs: &Nilfs2) -> TreeSnapshot {
    TreeSnapshot::read(fs, "/", &Nilfs2View::tree_options()).unwrap()
}

/// What two trees differ in, but for times of access, which the format hasn't.
fn differences(kernel: &TreeSnapshot, ours: &TreeSnapshot) -> Vec<String> {
    let mut found = diff(kernel, ours);
    found.retain(|line| !line.contains(": accessed: "));
    found
}

/// Compares what the kernel and the engine see of an image, snapshots too.
fn compare(image: &Path, view: &Nilfs2View, what: &str) {
    let fs = mount(image, None);
    assert_eq!(differences(&view.current, &tree(&fs)), [""; 0], "{what}");
    let listed = fs.checkpoints().unwrap();
    let snapshots = listed.iter().filter(|found| found.is_snapshot).map(|found| found.number);
    let seen = view.checkpoints.iter().filter(|line| line.is_snapshot).map(|line| line.number);
    let seen: Vec<u64> = seen.collect();
    assert_eq!(snapshots.collect::<Vec<_>>(), seen, "{what}");
    assert_eq!(view.snapshots.is_empty(), seen.is_empty(), "{what}");
    unmount(fs);
    judge(&open(image), what);
    for (number, kernel) in &view.snapshots {
        let fs = mount(image, Some(*number));
        assert_eq!(differences(kernel, &tree(&fs)), [""; 0], "{what}, snapshot {number}");
    }
}

/// Changes an image with the engine and compares it with what the kernel sees then.
fn change(image: &Path, seed: u64, is_kept: bool, what: &str) {
    let fs = mount(image, None);
    {
        let mut executor = Executor::new(&fs);
        for operation in &generate(seed, &Profile::MIXED, "/", 800) {
            executor.apply(operation);
        }
    }
    let number = fs.make_checkpoint().unwrap();
    if is_kept {
        fs.set_snapshot(number, true).unwrap();
    }
    fs.clean(0).unwrap();
    unmount(fs);
    judge(&open(image), what);
}

/// Volumes of a layout; the seed is that of the first, unless the environment has another.
fn live(layout: &Nilfs2Layout, seed: u64) {
    let first = number("DRYSTONE_SEED").unwrap_or(seed);
    let lives = number("DRYSTONE_LIVES").unwrap_or(1);
    (first..first + lives).for_each(|seed| live_once(layout, seed));
}

fn live_once(layout: &Nilfs2Layout, seed: u64) {
    let scratch = Scratch::new("nilfs2-turns").unwrap();
    let image = scratch.join("image");
    std::fs::File::create(&image).unwrap().set_len(layout.size_bytes).unwrap();
    let options = MakeOptions::new(Uuid::from_u128(seed.into()), 77, 1_700_000_000)
        .block_bytes(layout.block_size)
        .blocks_per_segment(layout.blocks_per_segment);
    make(&*open(&image), &options).unwrap();
    let scripts = [
        "populate SEED kinds sparse large; sync; view",
        "populate SEED churn=5 delete; gc 3; sync; view",
        "populate SEED churn=3; sync; (populate SEED churn=40 large > /dev/null 2>&1 &)
            sleep 1; powercut",
        "gc 3; view",
        "",
    ];
    let name = |stage: u64| format!("{layout:?}: DRYSTONE_SEED={seed}: stage {stage}");
    for (stage, script) in (0..).zip(scripts) {
        let what = name(stage);
        let mut script = script.replace("SEED", &(seed + stage).to_string());
        // A guest takes long to start: it first shows what it sees of our last change.
        if stage > 0 {
            script = format!("view; echo '{NEXT}'; {script}");
        }
        let shows = script.ends_with("view");
        if number("DRYSTONE_LIVES").is_none() {
            script = script.replace("view", SHORT_VIEW);
        }
        let before = std::fs::read(&image).unwrap();
        let Some(result) = guest(&image).run(&script).unwrap() else { return };
        let mut output = result.expect_clean(&what);
        if let Some((changed, rest)) = output.split_once(NEXT) {
            let what = format!("{}, after a change of ours", name(stage - 1));
            let copy = scratch.join("before");
            std::fs::write(&copy, before).unwrap();
            compare(&copy, &Nilfs2View::parse(changed).unwrap(), &what);
            output = rest.to_owned();
        }
        if shows {
            compare(&image, &Nilfs2View::parse(&output).unwrap(), &what);
        }
        if stage < scripts.len() as u64 - 1 {
            change(&image, seed + stage, stage == 0, &what);
        }
    }
}

#[test]
fn small_blocks_and_segments() {
    live(&LAYOUTS[0], 1);
}

#[test]
#[ignore = "long: ./dev stress runs it"]
fn small_blocks() {
    live(&LAYOUTS[1], 2);
}

#[test]
#[ignore = "long: ./dev stress runs it"]
fn small_segments() {
    live(&LAYOUTS[2], 3);
}

#[test]
#[ignore = "long: ./dev stress runs it"]
fn defaults() {
    live(&LAYOUTS[3], 4);
}

/// The kernel salvages data that the engine has synced without a checkpoint.
#[test]
fn the_kernel_salvages_data_logs() {
    let scratch = Scratch::new("nilfs2-salvage").unwrap();
    let image = scratch.join("image");
    std::fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
    let mut options = MakeOptions::new(Uuid::from_u128(9), 78, 1_700_000_000);
    options.blocks_per_segment = 64;
    make(&*open(&image), &options).unwrap();
    let context = RequestContext::superuser();
    let before = {
        let fs = mount(&image, None);
        let file = fs.create(&context, fs.root(), b"file", NewNode::Regular, 0o644).unwrap();
        fs.write_all(&context, file.inode, 0, &[b'a'; 100_000]).unwrap();
        fs.sync().unwrap();
        for step in 0..40 {
            fs.write_all(&context, file.inode, 2000 * step, &[b'b' + step as u8 % 20; 1500])
                .unwrap();
            fs.sync_inode(file.inode, true).unwrap();
        }
        let mut content = vec![0; 100_000];
        fs.read(file.inode, 0, &mut content).unwrap();
        content
    };
    let Some(result) = guest(&image).run("cat /mnt/file").unwrap() else { return };
    assert!(result.kernel_log.contains("salvaged"), "{}", result.kernel_log);
    assert_eq!(result.expect_clean("a salvage").trim_end().as_bytes(), before);
    judge(&open(&image), "after the kernel's salvage");
}
