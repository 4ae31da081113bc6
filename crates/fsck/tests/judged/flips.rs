//! Single bytes of metadata are changed at random: nothing panics, what e2fsck reports is reported
//! here as well, and several threads report what one does.
//!
//! `DRYSTONE_FSCK_SEED` and `DRYSTONE_FSCK_CASES` choose other cases; `DRYSTONE_FSCK_SETS=all`
//! takes all feature sets.

use crate::images;
use drystone_blockdev::{BlockDevice, DeviceResult, MemoryDevice, Overlay};
use drystone_fsck::{CheckOptions, CheckProgress, Error, Report, check};
use drystone_sync::{LockClass, Mutex};
use drystone_testkit::environment::number;
use drystone_testkit::judges::{
    FEATURE_SETS, FeatureSet, Judgement, Scratch, e2fsck_check, e2fsck_repair, have,
};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

static READS: LockClass = LockClass::new("reads of a test", 2);

/// Pieces of the device by which reads are remembered.
const PIECE_BYTES: u64 = 256;

/// A device that remembers what was read of it.
#[derive(Debug)]
struct Watched<'a> {
    below: &'a dyn BlockDevice,
    pieces: Mutex<BTreeSet<u64>>,
}

impl BlockDevice for Watched<'_> {
    fn size_bytes(&self) -> u64 {
        self.below.size_bytes()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> DeviceResult {
        let last = (offset + buffer.len() as u64).div_ceil(PIECE_BYTES);
        self.below.read_at(offset, buffer)?;
        // Long runs of zeros are free inodes, which nobody looks at.
        let pieces = (offset / PIECE_BYTES..last).filter(|piece| {
            let from = (piece * PIECE_BYTES).saturating_sub(offset) as usize;
            buffer[from..].iter().take(PIECE_BYTES as usize).any(|&byte| byte != 0)
        });
        self.pieces.lock().extend(pieces);
        Ok(())
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> DeviceResult {
        self.below.write_at(offset, data)
    }

    fn flush(&self) -> DeviceResult {
        self.below.flush()
    }
}

fn run(device: &dyn BlockDevice) -> Result<Report, Error> {
    check(device, &CheckOptions::default().problems_max(100), &mut |_| {})
}

/// An image with a little of everything, and which of its pieces a check reads.
fn prepare(scratch: &Scratch, name: &str) -> (MemoryDevice, Vec<u64>) {
    let set = FeatureSet::by_name(name).unwrap();
    let image = scratch.join(name);
    images::make(&image, set, None).expect_clean(name);
    if !images::fill_by_kernel(&image, &scratch.join("mount")) {
        let tree = scratch.join("tree");
        if !tree.exists() {
            fs::create_dir(&tree).unwrap();
            images::fill(&tree, 150);
        }
        images::make(&image, set, Some(&tree)).expect_clean(name);
        // mke2fs does not count what it copies into the quota files.
        e2fsck_repair(&image).unwrap();
    }
    let device = MemoryDevice::from_bytes(&fs::read(&image).unwrap());
    let watched = Watched { below: &device, pieces: Mutex::new(&READS, BTreeSet::new()) };
    let report = run(&watched).unwrap();
    assert!(report.is_clean(), "{name}\n{}", images::problems(&report));
    let pieces = watched.pieces.into_inner().into_iter().collect();
    (device, pieces)
}

/// A byte to change, and what it becomes.
struct Flip {
    offset: u64,
    before: u8,
    after: u8,
}

fn choose(random: &mut fastrand::Rng, device: &MemoryDevice, pieces: &[u64]) -> Flip {
    let offset = pieces[random.usize(..pieces.len())] * PIECE_BYTES + random.u64(..PIECE_BYTES);
    let mut before = [0];
    device.read_at(offset, &mut before).unwrap();
    let before = before[0];
    let after = match random.u8(..4) {
        0 => before ^ 1 << random.u8(..8),
        1 => before.wrapping_add(1),
        2 => 0xff - before,
        _ => before ^ random.u8(1..),
    };
    Flip { offset, before, after }
}

fn judge(image: &Path, flip: &Flip) -> Judgement {
    let file = File::options().write(true).open(image).unwrap();
    file.write_all_at(&[flip.after], flip.offset).unwrap();
    let judgement = e2fsck_check(image).unwrap();
    file.write_all_at(&[flip.before], flip.offset).unwrap();
    judgement
}

#[test]
fn e2fsck_and_the_checker_agree_on_flipped_bytes() {
    if !have("e2fsck") {
        return;
    }
    let _alone = images::alone();
    let seed = number("DRYSTONE_FSCK_SEED").unwrap_or(1);
    let cases = number("DRYSTONE_FSCK_CASES").unwrap_or(20);
    let mut random = fastrand::Rng::with_seed(seed);
    let scratch = Scratch::new("fsck-flips").unwrap();
    let names = [
        "default",
        "default-1k",
        "modern-1k",
        "inline-data-1k",
        "bigalloc-1k",
        "large-dir",
        "ext3-1k",
        "no-checksums",
        "group-checksums-64bit",
        "quota",
        "small-inodes-1k",
    ];
    let (mut agreed, mut missed, mut strict) = (0, 0, 0);
    let all_sets = std::env::var("DRYSTONE_FSCK_SETS").is_ok_and(|sets| sets == "all");
    let every = FEATURE_SETS.iter().filter(|set| set.size_mib_min < 256).map(|set| set.name);
    let names: Vec<&str> = if all_sets { every.collect() } else { names.to_vec() };
    for name in names {
        let (device, pieces) = prepare(&scratch, name);
        for _ in 0..cases {
            let flip = choose(&mut random, &device, &pieces);
            let changed = Overlay::new(&device);
            changed.write_at(flip.offset, &[flip.after]).unwrap();
            let ours = run(&changed);
            let found = ours.as_ref().map_or(true, |report| !report.is_clean());
            let theirs = judge(&scratch.join(name), &flip);
            let theirs_found = !theirs.is_clean();
            if found == theirs_found {
                agreed += 1;
                continue;
            }
            let Flip { offset, before, after } = flip;
            let block = offset / u64::from(FeatureSet::by_name(name).unwrap().block_size);
            eprintln!(
                "{name}: byte {offset} (block {block}) {before:#04x} -> {after:#04x}: {}",
                if found { "only the checker" } else { "only e2fsck" }
            );
            if let Ok(report) = ours {
                eprint!("{}", images::problems(&report));
            }
            if found {
                strict += 1;
            } else {
                missed += 1;
                eprintln!("{}", theirs.output);
            }
        }
    }
    let all = agreed + missed + strict;
    eprintln!("seed {seed}: {agreed} of {all} agree, {missed} missed, {strict} only ours");
    assert!(missed * 50 <= all, "missed {missed} of {all}");
    assert!(agreed * 100 >= all * 90, "{agreed} of {all} agree");
}

#[test]
fn damage_never_panics() {
    if !have("mke2fs") {
        return;
    }
    let _alone = images::alone();
    let mut random = fastrand::Rng::with_seed(number("DRYSTONE_FSCK_SEED").unwrap_or(1));
    let scratch = Scratch::new("fsck-damage").unwrap();
    for name in ["modern-1k", "inline-data-1k", "ext3-1k", "bigalloc-1k", "quota-project"] {
        let (device, pieces) = prepare(&scratch, name);
        for _ in 0..number("DRYSTONE_FSCK_CASES").unwrap_or(100) {
            let changed = Overlay::new(&device);
            // Several bytes, so that damage meets damage.
            for _ in 0..random.usize(1..20) {
                let flip = choose(&mut random, &device, &pieces);
                changed.write_at(flip.offset, &[flip.after]).unwrap();
            }
            let [one, many] = [1, 3].map(|threads| {
                let mut told = Vec::new();
                let options = CheckOptions::default().problems_max(100).threads(threads);
                let checked = check(&changed, &options, &mut |progress| {
                    if let CheckProgress::Problem(problem) = progress {
                        told.push(problem.to_string());
                    }
                });
                (checked.map_err(|error| error.to_string()), told)
            });
            assert_eq!(one, many, "{name}: one thread and three");
        }
    }
}
