//! Every field of every structure is damaged and all sums over it made right: the checker finds it, but
//! for what `accepted.rs` lists.
//!
//! An ordinary run tries a few values in each field; `DRYSTONE_FIELD_VALUES=n` tries so many,
//! `DRYSTONE_SEED=n` other ones, `DRYSTONE_FIELD_CASE=text` takes only fields whose label holds the text.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod accepted;
mod targets;
mod volume;

use accepted::ACCEPTED;
use drystone_blockdev::MemoryDevice;
use drystone_nilfs2_check::{Nilfs2CheckOptions, check};
use drystone_testkit::environment::number;
use drystone_testkit::judges::Scratch;
use drystone_testkit::nilfs2::{Nilfs2Guest, Nilfs2Layout, mkfs_nilfs2};
use fastrand::Rng;
use std::collections::{BTreeMap, BTreeSet};
use targets::FieldTarget;
use volume::Volume;

const LAYOUT: Nilfs2Layout =
    Nilfs2Layout { size_bytes: 4 << 20, block_size: 1024, blocks_per_segment: 64 };
/// Something in every structure, two snapshots, and blocks that only these have.
const CONTENT: &str = "cd /mnt; mkdir d d/e d/e/f
    for i in $(seq 40); do echo $i > d/a-name-that-is-long-enough-to-fill-more-than-a-block-$i; done
    dd if=/dev/urandom of=large bs=1k count=150 2> /dev/null; ln -s d/e symlink; mkfifo fifo
    mknod device c 5 300; ln large d/linked; echo one > small; sync; mkcp -s
    echo two > small; rm d/*-1*; dd if=/dev/urandom of=large bs=1k seek=20 count=9 conv=notrunc 2> /dev/null
    sync; mkcp -s; echo three > small; sync; echo four > small; dd if=/dev/zero of=sparse bs=1k seek=9000 count=1 2> /dev/null";
/// Values that an ordinary run tries in each field.
const VALUES: usize = 4;

/// The image's bytes; nothing where nobody can make it.
fn image() -> Option<Vec<u8>> {
    let scratch = Scratch::new("nilfs2-fields").unwrap();
    let image = scratch.join("image");
    if !mkfs_nilfs2(&image, &LAYOUT).unwrap() {
        return None;
    }
    Nilfs2Guest::new(&image).run(CONTENT).unwrap()?.expect_clean("content");
    Some(std::fs::read(&image).unwrap())
}

fn number_at(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Borders, neighbours, single bits, and numbers that belong to others.
fn values(target: &FieldTarget, old: u64, random: &mut Rng) -> Vec<u64> {
    let bits = 8 * target.length as u32;
    let mask = u64::MAX >> (64 - bits);
    let mut values = vec![0, 1, mask, old.wrapping_add(1), old.wrapping_sub(1), random.u64(..4096)];
    values.extend((0..bits).map(|bit| old ^ 1 << bit));
    values.iter_mut().for_each(|value| *value &= mask);
    values.retain(|value| *value != old);
    values.sort_unstable();
    values.dedup();
    random.shuffle(&mut values);
    values
}

#[test]
fn damaged_fields_are_found() {
    let Some(bytes) = image() else { return };
    let volume = Volume::new(bytes);
    let options = Nilfs2CheckOptions::default().problems_max(3);
    let sound = check(&volume.device, &options).unwrap();
    assert!(sound.is_clean() && sound.warnings == 0, "{:?}", sound.problems);
    let seed = number("DRYSTONE_SEED").unwrap_or(1);
    let mut random = Rng::with_seed(seed);
    let count = number("DRYSTONE_FIELD_VALUES").map_or(VALUES, |count| count as usize);
    let wanted = std::env::var("DRYSTONE_FIELD_CASE").unwrap_or_default();
    let mut missed: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let (mut cases, mut met) = (0, BTreeSet::new());
    for target in targets::all(&volume).iter().filter(|target| target.label.contains(&wanted)) {
        let old = number_at(&volume.bytes.borrow()[target.at..target.at + target.length]);
        for value in values(target, old, &mut random).into_iter().take(count) {
            let damaged = volume.damage(target.at, &value.to_le_bytes()[..target.length]);
            let is_found = match check(&volume.device, &options) {
                Ok(report) => !report.is_clean() || report.warnings > 0,
                Err(_) => true,
            };
            drop(damaged);
            cases += 1;
            let accepted = ACCEPTED.iter().position(|accepted| accepted.covers(&target.label));
            if !is_found {
                match accepted {
                    Some(accepted) => drop(met.insert(accepted)),
                    None => {
                        let case = format!("{old:#x}->{value:#x}");
                        missed.entry(target.label.clone()).or_default().push(case);
                    }
                }
            }
        }
    }
    eprintln!("DRYSTONE_SEED={seed}: {cases} damaged fields");
    assert!(missed.is_empty(), "DRYSTONE_SEED={seed}: not found: {missed:#?}");
    // Only a long run meets all of them.
    if wanted.is_empty() && count >= 60 {
        let unmet = (0..ACCEPTED.len()).filter(|at| !met.contains(at));
        let unmet: Vec<_> = unmet.map(|at| (ACCEPTED[at].fields, ACCEPTED[at].reason)).collect();
        assert!(unmet.is_empty(), "accepted, but found: {unmet:?}");
    }
}

/// Blocks of noise, zeros and swapped blocks anywhere, with and without sums: no panic, no hang, and
/// what is read through sums is found.
#[test]
fn damaged_blocks_are_no_panic() {
    let Some(bytes) = image() else { return };
    let volume = Volume::new(bytes);
    let options = Nilfs2CheckOptions::default().problems_max(3);
    let seed = number("DRYSTONE_SEED").unwrap_or(1);
    let mut random = Rng::with_seed(seed);
    let bs = volume.block_bytes();
    let rounds = number("DRYSTONE_FIELD_VALUES").unwrap_or(4) * 100;
    for _ in 0..rounds {
        let log = volume.logs[random.usize(..volume.logs.len())];
        let block = log.block + random.u64(..log.blocks);
        let mut noise: Vec<u8> = match random.u32(..4) {
            0 => vec![0; bs],
            1 => vec![0xff; bs],
            2 => volume.block(volume.logs[random.usize(..volume.logs.len())].block + 1),
            _ => (0..bs).map(|_| random.u8(..)).collect(),
        };
        let kept = random.usize(..bs);
        noise.truncate(bs - kept);
        let _damaged = volume.damage(block as usize * bs + kept, &noise);
        drop(check(&volume.device, &options));
    }
    // Of any size, with anything at its start.
    for _ in 0..100 {
        let size = random.usize(..40_000);
        let mut bytes = volume.bytes.borrow()[..size].to_vec();
        for _ in 0..random.u32(..10) {
            if let Some(at) = size.checked_sub(1) {
                bytes[random.usize(..=at)] = random.u8(..);
            }
        }
        drop(check(&MemoryDevice::from_bytes(&bytes), &options));
    }
}
