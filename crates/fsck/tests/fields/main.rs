//! Every field of every structure is damaged and its checksum repaired: e2fsck and the checker come to
//! the same verdict, but for the differences that `accepted.rs` lists.
//!
//! An ordinary run takes a sample of the cases. `DRYSTONE_FIELD_VALUES=n` tries so many values in
//! every field, `DRYSTONE_SEED=n` other ones; `DRYSTONE_FIELD_CASE=text` takes only the fields whose
//! set and label hold the text.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod accepted;
mod repairs;
mod targets;

use accepted::ACCEPTED;
use drystone_blockdev::{BlockDevice, FileDevice, MemoryDevice, OpenMode};
use drystone_fsck::{CheckOptions, Error, Report, check};
use drystone_testkit::environment::number;
use drystone_testkit::judges::{
    Judgement, SMALL_IMAGES, Scratch, SmallImage, e2fsck_at, have, make_small_image,
};
use drystone_testkit::metadata_map::{BlockContent, MetadataMap};
use fastrand::Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use targets::Target;

/// Cases of each structure of each set in an ordinary run.
const SAMPLE: usize = 16;
/// What time it is.
const NOW_SECONDS: u64 = 1_800_000_000;

fn options() -> CheckOptions {
    CheckOptions::default().problems_max(5).now_seconds(NOW_SECONDS)
}

/// How two verdicts differ, the most dangerous way first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Difference {
    /// Clean for the checker, not for e2fsck.
    Missed,
    /// e2fsck finds errors and goes on, the checker gives up.
    GivenUp,
    /// Clean for e2fsck, not for the checker.
    Strict,
}

/// A difference, and what each has said.
#[derive(Debug)]
struct Found {
    difference: Difference,
    ours: String,
    theirs: String,
}

fn compare(ours: &Result<Report, Error>, theirs: &Judgement) -> Option<Difference> {
    let is_clean = matches!(ours, Ok(report) if report.is_clean());
    let is_warned = ours.as_ref().is_ok_and(|report| report.warnings > 0);
    // Some problems don't change its exit code: it would repair them all the same.
    let would_repair = theirs.output.contains("? no\n");
    match (theirs.code, is_clean) {
        // Killed by a signal, or for its time.
        (..0, _) => None,
        (0, false) if !would_repair => Some(Difference::Strict),
        // What doesn't change the exit code of either is told by both.
        (0, true) if would_repair && !is_warned => Some(Difference::Missed),
        (1.., true) => Some(Difference::Missed),
        (..=4, _) if ours.is_err() => Some(Difference::GivenUp),
        _ => None,
    }
}

/// An image that is damaged and repaired again.
struct Bench {
    image: PathBuf,
    map: MetadataMap,
    device: FileDevice,
    file: File,
    descriptors: BTreeSet<u64>,
}

impl Bench {
    fn new(image: &Path) -> Self {
        let map = MetadataMap::of(MemoryDevice::from_bytes(&fs::read(image).unwrap()));
        let is_descriptors = |content: &BlockContent| *content == BlockContent::Descriptors;
        let descriptors = map.blocks.iter().filter(|(_, content)| is_descriptors(content));
        Self {
            image: image.to_owned(),
            descriptors: descriptors.map(|(block, _)| *block).collect(),
            device: FileDevice::open(image, OpenMode::ReadWrite).unwrap(),
            file: File::options().write(true).open(image).unwrap(),
            map,
        }
    }

    /// Sets a field and repairs the checksum over it; whether anything has changed.
    fn damage(&self, target: &Target, value: u64) -> bool {
        let before = self.map.block(target.block);
        let mut bytes = before.clone();
        target.write(&mut bytes, value);
        if bytes == before {
            return false;
        }
        self.map.seal(&self.device, target.block, target.content, &mut bytes);
        let size = self.map.layout().block_size() as u64;
        self.device.write_at(target.block * size, &bytes).unwrap();
        bytes != before
    }

    /// Undoes a damage, and whatever a checker that crashed has left.
    fn repair(&self, target: &Target) {
        let size = self.map.layout().block_size() as u64;
        for &block in self.descriptors.iter().chain([&target.block]) {
            self.file.write_all_at(&self.map.block(block), block * size).unwrap();
        }
    }

    /// Damages a field for as long as both verdicts take.
    fn difference(&self, target: &Target, value: u64) -> Option<Found> {
        let found = self.damage(target, value).then(|| {
            let ours = check(&self.device, &options(), &mut |_| {});
            let theirs = judge(&self.image);
            let difference = compare(&ours, &theirs)?;
            let ours = match ours {
                Ok(report) => problems(&report),
                Err(error) => format!("  {error}\n"),
            };
            let lines = theirs.output.lines().filter(|line| !line.starts_with("Pass"));
            let theirs = lines.take(6).map(|line| format!("    {line}\n")).collect();
            Some(Found { difference, ours, theirs })
        });
        self.repair(target);
        found.flatten()
    }
}

fn judge(image: &Path) -> Judgement {
    e2fsck_at(NOW_SECONDS, "-fn", image).unwrap()
}

fn problems(report: &Report) -> String {
    report.problems.iter().map(|problem| format!("  {problem}\n")).collect()
}

/// What a run found: the differences of each field, and which of the accepted ones are none.
#[derive(Default)]
struct Findings {
    cases: u64,
    differences: BTreeMap<(Difference, String), Vec<String>>,
    stale: String,
}

impl Findings {
    fn add(&mut self, found: &Found, set: &str, label: &str, value: &str) {
        if ACCEPTED.iter().any(|accepted| accepted.covers(found, set, label)) {
            return;
        }
        let Found { difference, ours, theirs } = found;
        let case = format!("{set} {label} {value}\n{ours}{theirs}");
        eprint!("{difference:?} {case}");
        self.differences.entry((*difference, kind_of(label))).or_default().push(case);
    }

    /// Tries the example of every accepted difference of a set, so that none stays in the list when
    /// the verdicts agree.
    fn try_examples(&mut self, bench: &Bench, set: &str) {
        let targets = targets::all(&bench.map);
        for accepted in ACCEPTED {
            for (_, label, value) in accepted.fields.iter().filter(|field| field.0 == set) {
                if !is_wanted(set, label) {
                    continue;
                }
                let target = targets.iter().find(|target| target.label == *label);
                let found = target.and_then(|target| bench.difference(target, *value));
                if !found.as_ref().is_some_and(|found| accepted.covers(found, set, label)) {
                    let reason = accepted.reason;
                    self.stale += &format!("{set} {label} ->{value:#x}: {reason}\n  {found:?}\n");
                }
            }
        }
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for ((difference, field), cases) in &self.differences {
            text += &format!("== {difference:?} {field}: {} cases\n{}", cases.len(), cases[0]);
            for case in cases.iter().skip(1).take(12) {
                text += &format!("  also {}\n", case.lines().next().unwrap_or_default());
            }
        }
        text
    }
}

/// The field of a label, of whichever inode, group or entry.
fn kind_of(label: &str) -> String {
    let number = |part: &str| part.parse::<u32>().map_or(part.to_owned(), |_| "N".to_owned());
    label
        .split_inclusive([' ', '/', '[', ']'])
        .map(|part| {
            let text = part.trim_end_matches([' ', '/', '[', ']']);
            number(text) + &part[text.len()..]
        })
        .collect()
}

/// Whether the fields that were asked for include one.
fn is_wanted(set: &str, label: &str) -> bool {
    let wanted = std::env::var("DRYSTONE_FIELD_CASE").unwrap_or_default();
    format!("{set} {label}").contains(&wanted)
}

/// The cases of a set: every field with as many values as asked for, or a sample of each structure.
fn cases(bench: &Bench, set: &SmallImage, seed: u64) -> Vec<(Target, u64)> {
    let mut random = Rng::with_seed(seed);
    let mut structures: BTreeMap<String, Vec<Target>> = BTreeMap::new();
    for target in targets::all(&bench.map) {
        if is_wanted(set.name, &target.label) {
            structures.entry(target.structure().to_owned()).or_default().push(target);
        }
    }
    let mut cases = Vec::new();
    for (_, targets) in structures {
        match number("DRYSTONE_FIELD_VALUES") {
            Some(count) => cases.extend(targets.into_iter().flat_map(|target| {
                let values = target.values(&bench.map, &mut random);
                values.into_iter().take(count as usize).map(move |value| (target.clone(), value))
            })),
            None => cases.extend((0..SAMPLE).filter_map(|_| {
                let target = targets[random.usize(..targets.len())].clone();
                let value = *target.values(&bench.map, &mut random).first()?;
                Some((target, value))
            })),
        }
    }
    cases
}

#[test]
fn the_checker_and_e2fsck_agree_on_damaged_fields() {
    if !have("mke2fs") {
        return;
    }
    let is_set = |name| SMALL_IMAGES.iter().any(|set| set.name == name);
    for (set, label, _) in ACCEPTED.iter().flat_map(|accepted| accepted.fields) {
        assert!(is_set(*set), "{set} {label}: no such set");
    }
    let scratch = Scratch::new("fsck-fields").unwrap();
    let seed = number("DRYSTONE_SEED").unwrap_or(1);
    let mut findings = Findings::default();
    for set in &SMALL_IMAGES {
        let image = make_small_image(&scratch, set, 0);
        let bench = Bench::new(&image);
        let sound = check(&bench.device, &options(), &mut |_| {}).unwrap();
        assert!(sound.is_clean(), "{}: {:?}", set.name, sound.problems);
        for (target, value) in cases(&bench, set, seed) {
            findings.cases += 1;
            if let Some(found) = bench.difference(&target, value) {
                let old = target.read(&bench.map.block(target.block));
                let value = format!("{old:#x}->{value:#x}");
                findings.add(&found, set.name, &target.label, &value);
            }
        }
        findings.try_examples(&bench, set.name);
    }
    eprintln!("seed {seed}: {} damaged fields", findings.cases);
    let text = findings.text();
    assert!(text.is_empty(), "DRYSTONE_SEED={seed}\n{text}");
    let stale = findings.stale;
    assert!(stale.is_empty(), "entries of accepted.rs that no longer hold:\n{stale}");
}
