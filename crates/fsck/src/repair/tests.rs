//! Damaged images that are repaired twice, round by round: with what rounds keep for the next, and with examinations
//! from the start. Each round finds and does the same.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use super::{Choose, Decision, ProblemLimits, ROUNDS_MAX, RepairReport, Round, Session};
use crate::check::THREAD_BYTES;
use crate::image::Error;
use crate::report::{CheckOptions, CheckProgress, Pass, Problem};
use crate::watched::WatchedDevice;
use drystone_blockdev::{BlockDevice, MemoryDevice};
use drystone_ext4_format::InodeNumber;
use drystone_ondisk::crc32c::crc32c;
use drystone_testkit::damage::{self, Damage};
use drystone_testkit::environment::number;
use drystone_testkit::judges::{SMALL_IMAGES, Scratch, SmallImage, have, make_small_image};
use drystone_testkit::metadata_map::MetadataMap;
use fastrand::Rng;

/// Images of a set in an ordinary run.
const IMAGES: u64 = 20;

/// Files of each image beside those that it has for its features.
const MORE_FILES: usize = 150;

const THREADS: usize = 2;

const NOW_SECONDS: u64 = 1_800_000_000;

fn content(device: &dyn BlockDevice) -> Vec<u8> {
    let mut bytes = vec![0; device.size_bytes() as usize];
    device.read_at(0, &mut bytes).unwrap();
    bytes
}

/// What a repair did.
#[derive(PartialEq)]
struct Done {
    /// What each round has found, and a checksum of the image that it left.
    rounds: Vec<(Vec<Problem>, u32)>,
    report: RepairReport,
}

/// Repairs a copy of an image; what was done, and whether pieces were kept to the end.
fn repaired(damaged: &[u8], memory_max: u64, keeps: bool) -> Result<(Done, bool), Error> {
    let device = MemoryDevice::from_bytes(damaged);
    let watched = WatchedDevice::new(&device);
    let choose: &mut Choose<'_> = &mut |_, _| Decision::Repair;
    let options = CheckOptions::default().threads(THREADS).memory_max(memory_max);
    let mut session = Session::new(&watched, &options, NOW_SECONDS, choose);
    session.keeps_pieces = keeps;
    let mut rounds = Vec::new();
    for round in 1..=ROUNDS_MAX {
        let mut found = Vec::new();
        let mut note = |step: CheckProgress<'_>| match step {
            // It begins again if pieces have left too little memory.
            CheckProgress::Step { pass: Pass::Groups, done: 0, .. } => found.clear(),
            CheckProgress::Problem(problem) => found.push(problem.clone()),
            CheckProgress::Step { .. } => {}
        };
        let ended = session.round(round == ROUNDS_MAX, &mut note)?;
        rounds.push((found, crc32c(0, &content(&device))));
        if matches!(ended, Round::Settled) {
            break;
        }
    }
    Ok((Done { rounds, report: session.report }, session.keeps_pieces))
}

/// An image of many groups, which have many pieces of inodes.
fn map_of(scratch: &Scratch, name: &'static str) -> MetadataMap {
    let set = SMALL_IMAGES.iter().find(|set| set.name == name).unwrap();
    let arguments = format!("{} -g 512", set.arguments.replace(",mmp", "")).leak();
    let set = SmallImage { name, arguments, size_mib: 16, names: set.names };
    let path = make_small_image(scratch, &set, MORE_FILES);
    MetadataMap::of(MemoryDevice::from_bytes(&std::fs::read(path).unwrap()))
}

/// The image with damage in some places.
fn damaged(map: &MetadataMap, random: &mut Rng) -> Vec<u8> {
    let blocks: Vec<u64> = map.blocks.keys().copied().collect();
    let device = map.device.clone();
    for _ in 0..random.usize(1..5) {
        let block = blocks[random.usize(..blocks.len())];
        let damage = Damage::ALL[random.usize(..Damage::ALL.len())];
        damage::apply(map, &device, block, damage, random);
    }
    content(&device)
}

#[test]
fn rounds_that_keep_pieces_do_the_same() {
    if !have("mke2fs") {
        return;
    }
    let scratch = Scratch::new("fsck-rounds").unwrap();
    let seed = number("DRYSTONE_SEED").unwrap_or(1);
    let images = number("DRYSTONE_DAMAGED_IMAGES").unwrap_or(IMAGES);
    let mut rounds_max = 0;
    for name in ["modern", "attribute-inodes", "inline", "ext3", "bigalloc-quota"] {
        let map = map_of(&scratch, name);
        for number in 0..images {
            let mut random = Rng::with_seed(seed.wrapping_mul(1 << 32) + number);
            let damaged = damaged(&map, &mut random);
            let Ok((whole, _)) = repaired(&damaged, u64::MAX, false) else { continue };
            let (again, keeps) = repaired(&damaged, u64::MAX, true).unwrap();
            assert!(again == whole && keeps, "{name} {number}: DRYSTONE_SEED={seed}");
            rounds_max = rounds_max.max(whole.rounds.len());
        }
    }
    assert!(rounds_max > 4, "{rounds_max}");
}

/// What is kept takes no memory that tables need.
#[test]
fn a_repair_with_little_memory_keeps_no_pieces() {
    if !have("mke2fs") {
        return;
    }
    let scratch = Scratch::new("fsck-rounds-memory").unwrap();
    let map = map_of(&scratch, "modern");
    let damaged = damaged(&map, &mut Rng::with_seed(1));
    let mut kept = Vec::new();
    for kib in 0..200 {
        let memory_max = THREADS as u64 * THREAD_BYTES + (kib << 10);
        if let Ok((whole, _)) = repaired(&damaged, memory_max, false) {
            let (again, keeps) = repaired(&damaged, memory_max, true).unwrap();
            assert!(again == whole, "{kib} KiB");
            kept.push(keeps);
        }
    }
    // With a little more than its tables need, it begins with pieces and goes on without.
    assert!(kept.contains(&false) && kept.last() == Some(&true), "{kept:?}");
}

/// With more problems than are kept, all are repaired and counted.
#[test]
fn any_number_of_problems_is_repaired() {
    if !have("mke2fs") {
        return;
    }
    let scratch = Scratch::new("fsck-rounds-many").unwrap();
    let map = map_of(&scratch, "modern");
    let device = MemoryDevice::from_bytes(&content(&map.device));
    let layout = *map.layout();
    // A bit of the second word of nanoseconds: the checksum of each is wrong.
    let mut damaged = 0;
    for number in (12..=layout.inodes_count()).map(InodeNumber::new) {
        let bytes = map.inode_bytes(number);
        if bytes.iter().any(|&byte| byte != 0) && damaged < 60 {
            let table = map.descriptor(layout.group_of_inode(number).unwrap()).inode_table;
            let (block, offset) = layout.inode_location(number, table).unwrap();
            let place = block.get() * layout.block_size() as u64 + offset as u64 + 0x8c;
            device.write_at(place, &[bytes[0x8c] ^ 4]).unwrap();
            damaged += 1;
        }
    }
    assert_eq!(damaged, 60);
    let watched = WatchedDevice::new(&device);
    let choose: &mut Choose<'_> = &mut |_, _| Decision::Repair;
    let options = CheckOptions::default().threads(THREADS);
    let mut session = Session::new(&watched, &options, NOW_SECONDS, choose);
    session.limits = ProblemLimits { round: 5, tracked: 10, reported: 15 };
    for round in 1..=ROUNDS_MAX {
        let ended = session.round(round == ROUNDS_MAX, &mut |_| {}).unwrap();
        if matches!(ended, Round::Settled) {
            break;
        }
    }
    let report = session.report;
    assert_eq!((report.errors, report.warnings, report.repaired), (0, 0, damaged));
    assert_eq!(report.problems.len(), 15);
}
