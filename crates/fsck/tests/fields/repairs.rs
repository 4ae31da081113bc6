//! Damaged fields are repaired, or left if there is no rule for them yet: what the repair calls clean is clean to e2fsck, files keep their bytes, and a
//! second repair changes nothing.

use super::{Bench, NOW_SECONDS, cases, judge, problems, targets};
use drystone_blockdev::{
    BlockDevice, DeviceOperation, Effect, Fault, Faulty, MemoryDevice, Overlay, Trigger,
    UndoDevice, UndoError, roll_back,
};
use drystone_ext4_format::group::GroupFlags;
use drystone_fsck::{
    CheckOptions, Decision, Problem, RepairReport, RepairedProblem, Severity, check, repair,
};
use drystone_testkit::environment::number;
use drystone_testkit::judges::{
    Judgement, SMALL_IMAGES, Scratch, SmallImage, have, make_small_image,
};
use drystone_testkit::metadata_map::BlockContent;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::FileExt;

/// An image that is repaired in memory.
struct Patient<'a> {
    bench: &'a Bench,
    /// The bytes before any damage.
    sound: Vec<u8>,
    /// The first byte of each block that holds data of a file.
    data: Vec<u64>,
}

fn repair_all(device: &dyn BlockDevice) -> RepairReport {
    repair(device, &CheckOptions::default(), NOW_SECONDS, &mut |_, _| Decision::Repair, &mut |_| {})
        .unwrap()
}

impl Patient<'_> {
    /// Repairs the image; what is wrong with the result.
    fn treat(&self, theirs: &mut dyn FnMut() -> Judgement) -> (RepairReport, Option<String>) {
        let repaired = Overlay::new(&self.bench.device);
        let report = match repair(
            &repaired,
            &CheckOptions::default(),
            NOW_SECONDS,
            &mut |_, _| Decision::Repair,
            &mut |_| {},
        ) {
            Ok(report) => report,
            Err(error) => return (RepairReport::default(), Some(error.to_string())),
        };
        if !report.is_clean() {
            return (report, None);
        }
        let again = Overlay::new(&repaired);
        let second = repair_all(&again);
        if again.changed_bytes() > 0 {
            return (report, Some(format!("a second repair changes it: {:?}", second.problems)));
        }
        let ours = check(&repaired, &CheckOptions::default(), &mut |_| {}).unwrap();
        if !ours.is_clean() {
            return (report, Some(format!("not clean:\n{}", problems(&ours))));
        }
        let size = self.bench.map.layout().block_size();
        let mut block = vec![0; size];
        for &start in &self.data {
            repaired.read_at(start, &mut block).unwrap();
            let sound = &self.sound[start as usize..start as usize + size];
            if block != sound {
                let block = start / size as u64;
                return (report, Some(format!("data in block {block} has changed")));
            }
        }
        let ranges = repaired.changed_ranges();
        for range in &ranges {
            let mut bytes = vec![0; (range.end - range.start) as usize];
            repaired.read_at(range.start, &mut bytes).unwrap();
            self.bench.file.write_all_at(&bytes, range.start).unwrap();
        }
        let theirs = theirs();
        for range in &ranges {
            let sound = &self.sound[range.start as usize..range.end as usize];
            self.bench.file.write_all_at(sound, range.start).unwrap();
        }
        let is_clean = theirs.code == 0 && !theirs.output.contains("? no\n");
        (report, (!is_clean).then(|| format!("e2fsck:\n{}", theirs.output)))
    }
}

/// Where blocks lie that are in use and aren't metadata.
fn data_blocks(bench: &Bench) -> Vec<u64> {
    let map = &bench.map;
    let layout = map.layout();
    let mut data = Vec::new();
    for group in layout.groups() {
        let descriptor = map.descriptor(group);
        if descriptor.flags.contains(GroupFlags::BLOCK_UNINIT) {
            continue;
        }
        let bitmap = map.block(descriptor.block_bitmap.get());
        for bit in 0..layout.group_cluster_count(group) {
            let block = layout.block_of_bit(group, bit).get();
            let is_used = bitmap[bit as usize / 8] >> (bit % 8) & 1 == 1;
            let is_data = is_used && !map.blocks.contains_key(&block);
            if is_data && map.block(block).iter().any(|&byte| byte != 0) {
                data.push(block * layout.block_size() as u64);
            }
        }
    }
    data
}

#[test]
fn what_is_repaired_is_clean_to_e2fsck() {
    if !have("mke2fs") {
        return;
    }
    let scratch = Scratch::new("fsck-repairs").unwrap();
    let seed = number("DRYSTONE_SEED").unwrap_or(1);
    let (mut repaired, mut failures) = (0, Vec::new());
    let mut left: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for set in &SMALL_IMAGES {
        let image = make_small_image(&scratch, set, 0);
        let bench = Bench::new(&image);
        let sound = fs::read(&image).unwrap();
        let data = data_blocks(&bench);
        let patient = Patient { bench: &bench, sound, data };
        // An ordinary run takes a part of what is compared.
        let step = if number("DRYSTONE_FIELD_VALUES").is_some() { 1 } else { 8 };
        for (target, value) in cases(&bench, set, seed).into_iter().step_by(step) {
            if bench.damage(&target, value) {
                let case = format!("{} {} ->{value:#x}", set.name, target.label);
                let before = check(&bench.device, &CheckOptions::default(), &mut |_| {});
                if before.is_ok() {
                    let (report, failure) = patient.treat(&mut || judge(&image));
                    repaired += u32::from(report.is_clean());
                    if let Some(failure) = failure {
                        let told: String = report
                            .problems
                            .iter()
                            .take(8)
                            .map(|p| format!("  {} [{:?} {:?}]\n", p.problem, p.repair, p.done))
                            .collect();
                        eprintln!("FAILED {case}\n{told}{failure}");
                        failures.push(case);
                    } else if !report.is_clean() {
                        let is_left = |p: &&RepairedProblem| {
                            p.done.is_none() && p.problem.severity() == Severity::Error
                        };
                        let kind = report.problems.iter().find(is_left);
                        let kind = kind.map_or(String::new(), |p| p.problem.issue.code());
                        left.entry(kind).or_default().push(case);
                    }
                }
            }
            bench.repair(&target);
        }
    }
    for (kind, cases) in &left {
        eprintln!("left: {kind}: {} cases, such as {}", cases.len(), cases[0]);
    }
    let unrepaired: usize = left.values().map(Vec::len).sum();
    eprintln!("seed {seed}: {repaired} repaired, {unrepaired} left, {} failures", failures.len());
    assert!(failures.is_empty(), "DRYSTONE_SEED={seed}: {failures:#?}");
}

/// Fields whose repair once ended with something lost, or with errors for e2fsck: set, field and value.
const ONCE_WRONG: &[(&str, &str, u64)] = &[
    // Blocks of files were taken for the orphan file's.
    ("modern", "hidden-inode 12/extent[0].length", 0x420),
    ("modern", "hidden-inode 12/extent[0].start_lo", 0x41),
    ("modern", "superblock/wtime", 0x6b47_03c9),
    // A name led to the orphan file.
    ("modern", "directory 17/record[1].inode", 12),
    ("modern", "inode 17/extents.entries", 1),
    ("modern", "inode 15/extents.entries", 0),
    ("modern", "inode 17/mode", 0xc1ed),
    ("ext3", "inode 16/mode", 0xc1ed),
    ("bigalloc-quota", "inode 11/extent[0].length", 0x80c),
    ("bigalloc-quota", "hidden-inode 3/flags", 0x1000_0000),
    // Pointers mapped blocks of clusters.
    ("bigalloc-quota", "hidden-inode 12/flags", 0xb),
    ("bigalloc-quota", "hidden-inode 12/flags", 0x10),
    // The first blocks of files were taken for inodes.
    ("bigalloc-quota", "superblock/inodes_per_group", 0x2000),
    ("ext3", "superblock/inodes_per_group", 0x2000),
    // The orphan file kept its checksums when the feature was lost.
    ("modern", "superblock/feature_ro_compat", 1),
    ("inline", "superblock/feature_ro_compat", 1),
    // Flags of two kinds.
    ("bigalloc-quota", "inode 2/flags", 0x1008_0000),
    ("inline", "hidden-inode 12/flags", 0x1008_0000),
    // Names of a file that the superblock took for a quota file were removed.
    ("bigalloc-quota", "superblock/prj_quota_inum", 0xd),
    ("inline", "hidden-inode 3/flags", 0x1000_0000),
    ("inline", "hidden-inode 4/flags", 0x80000),
    ("inline", "hidden-inode 1/flags", 0x1000_0000),
    ("inline", "superblock/journal_inum", 0),
    ("inline", "superblock/wtime", 0x6b87_0417),
    ("inline", "inode 13/extra_isize", 0),
    ("inline", "inode 13/attribute[0].value_offset", 0x805c),
    ("inline", "inode 18/attribute[0].value_offset", 0x15c),
    // Pointers of a link after the one to its target.
    ("ext3", "inode 22/block[12]", 0x200),
    ("ext3", "inode 22/block[14]", 0x1000),
    ("ext3", "inode 11/block[13]", 0x46e),
    ("group-checksums", "inode 11/extent[0].start_lo", 0x2f),
    // Files were taken for reserved inodes, and emptied.
    ("ext3", "superblock/first_ino", 0x1a),
    ("ext3", "superblock/feature_compat", 8),
];

#[test]
fn what_was_repaired_wrongly_once_is_repaired_well() {
    if !have("mke2fs") {
        return;
    }
    let scratch = Scratch::new("fsck-once-wrong").unwrap();
    let mut failures = String::new();
    for set in &SMALL_IMAGES {
        let wanted: Vec<_> = ONCE_WRONG.iter().filter(|case| case.0 == set.name).collect();
        if wanted.is_empty() {
            continue;
        }
        let image = make_small_image(&scratch, set, 0);
        let bench = Bench::new(&image);
        let (sound, data) = (fs::read(&image).unwrap(), data_blocks(&bench));
        let patient = Patient { bench: &bench, sound, data };
        let targets = targets::all(&bench.map);
        for (_, label, value) in wanted {
            let target = targets.iter().find(|target| target.label == *label);
            let target = target.unwrap_or_else(|| panic!("{} has no {label}", set.name));
            assert!(bench.damage(target, *value), "{} {label} is {value:#x}", set.name);
            let (report, failure) = patient.treat(&mut || judge(&image));
            if !report.is_clean() || failure.is_some() {
                let failure = failure.unwrap_or_default();
                failures += &format!("{} {label}: {:#?}\n{failure}\n", set.name, report.problems);
            }
            bench.repair(target);
        }
    }
    assert!(failures.is_empty(), "{failures}");
}

/// Damages some fields of an image, each in another structure; the bytes then.
fn damaged(bench: &Bench, image: &std::path::Path, set: &SmallImage) -> Vec<u8> {
    let cases = cases(bench, set, number("DRYSTONE_SEED").unwrap_or(1));
    let mut blocks = BTreeSet::new();
    for (target, value) in cases {
        let is_new =
            !matches!(target.content, BlockContent::Superblock) && blocks.insert(target.block);
        if is_new && blocks.len() <= 6 {
            bench.damage(&target, value);
        }
    }
    fs::read(image).unwrap()
}

fn content(device: &dyn BlockDevice) -> Vec<u8> {
    let mut bytes = vec![0; device.size_bytes() as usize];
    device.read_at(0, &mut bytes).unwrap();
    bytes
}

/// Power is lost at each write to the image or to the log.
#[test]
fn a_repair_that_is_cut_is_rolled_back() {
    if !have("mke2fs") {
        return;
    }
    let scratch = Scratch::new("fsck-cut").unwrap();
    let set = &SMALL_IMAGES[0];
    let path = make_small_image(&scratch, set, 0);
    let before = damaged(&Bench::new(&path), &path, set);
    let (mut cuts, mut writes) = (0, [0, 0]);
    for cuts_log in [false, true] {
        for cut in 0.. {
            let image = Faulty::new(MemoryDevice::from_bytes(&before));
            let log = Faulty::new(MemoryDevice::new(4 * before.len() as u64));
            let effect = Effect::Short { bytes: cut * 512 % 5120 };
            let fault = Fault::of(DeviceOperation::Write, effect).when(Trigger::From(cut));
            if cuts_log { &log } else { &image }.inject(fault);
            let run = || -> Result<(), String> {
                let device = UndoDevice::begin(&image, &log, before.len() as u64)
                    .map_err(|error| error.to_string())?;
                // Each problem's changes are written on their own.
                let mut choose = |_: &Problem, _| match device.flush() {
                    Ok(()) => Decision::Repair,
                    Err(_) => Decision::Cancel,
                };
                let report = repair(
                    &device,
                    &CheckOptions::default(),
                    NOW_SECONDS,
                    &mut choose,
                    &mut |_| {},
                )
                .map_err(|error| error.to_string())?;
                assert!(report.is_cancelled || report.is_clean(), "{:?}", report.problems);
                device.finish().map_err(|error| error.to_string())?;
                Ok(())
            };
            if run().is_ok() {
                writes[usize::from(cuts_log)] = cut;
                break;
            }
            cuts += 1;
            match roll_back(image.inner(), log.inner()) {
                Ok(_) | Err(UndoError::NoLog) => {}
                Err(error) => panic!("cut {cut} of the log: {cuts_log}: {error}"),
            }
            assert!(content(image.inner()) == before, "cut {cut} of the log: {cuts_log}");
        }
    }
    assert!(writes.iter().all(|&count| count > 0) && cuts > 10, "{writes:?}");
}
