//! Copies of damaged images.

use crate::image::make;
use crate::secrets::Secrets;
use crate::verdict::{bytes_of, copies, problems};
use drystone_blockdev::{BlockDevice, MemoryDevice};
use drystone_testkit::damage::{Damage, apply};
use drystone_testkit::environment::number;
use drystone_testkit::judges::{FeatureSet, Scratch, have};
use drystone_testkit::metadata_map::MetadataMap;
use std::collections::BTreeMap;

/// Damages of each image, unless `DRYSTONE_CHANGES` says how many.
const DAMAGES: u64 = 40;

const SETS: [&str; 8] = [
    "default-1k",
    "modern-1k",
    "casefold-strict",
    "large-inodes-1k",
    "ext2-1k",
    "verity-encrypt",
    "group-checksums-64bit",
    "quota-project",
];

/// So many of a hundred copies of all kinds have the same problems as the image, at least. In the others, what was
/// overwritten with something else isn't shown: of kinds without checksums, these are more.
const SAME_PERCENT_MIN: u64 = 70;

#[test]
fn no_damage_shows_secrets() {
    if !have("mke2fs") {
        return;
    }
    let seed = number("DRYSTONE_SEED").unwrap_or(1);
    let count = number("DRYSTONE_CHANGES").unwrap_or(0).max(DAMAGES);
    let (mut same_of_all, mut copies_of_all) = (0, 0);
    for name in SETS {
        eprintln!("{name}: DRYSTONE_SEED={seed}");
        let scratch = Scratch::new("scramble-damage").unwrap();
        let mut secrets = Secrets::new(seed);
        let base = make(&scratch, FeatureSet::by_name(name).unwrap(), &mut secrets);
        let map = MetadataMap::of(base.snapshot());
        let kinds = kinds_of(&map);
        let (mut same, mut all) = (0, 0);
        for change in number("DRYSTONE_CHANGE").map_or(0..count, |change| change..change + 1) {
            let mut random = fastrand::Rng::with_seed(seed << 32 | change);
            let device = base.snapshot();
            let told = damage(&map, &kinds, &device, &mut secrets, &mut random);
            let Some((plain, scrambled, _)) = copies(&device, change) else { continue };
            let leak = secrets.find_in(&bytes_of(&scrambled));
            assert_eq!(leak, None, "{name}, change {change}: {told}: a secret at {leak:x?}");
            let (before, after) = (problems(&plain), problems(&scrambled));
            all += 1;
            same += u64::from(before == after);
            if before != after {
                let first = |one: &[String], other: &[String]| {
                    one.iter().find(|problem| !other.contains(problem)).cloned()
                };
                let (lost, new) = (first(&before, &after), first(&after, &before));
                eprintln!("{name}, change {change}: {told}: lost {lost:?}, new {new:?}");
            }
        }
        eprintln!("{name}: {same} of {all} have the same problems");
        (same_of_all, copies_of_all) = (same_of_all + same, copies_of_all + all);
    }
    let is_enough = same_of_all * 100 >= copies_of_all * SAME_PERCENT_MIN;
    assert!(is_enough, "{same_of_all} of {copies_of_all} have the same problems");
}

/// The blocks of metadata by their kind, without parts of inode tables that aren't used.
fn kinds_of(map: &MetadataMap) -> Vec<Vec<u64>> {
    let mut kinds: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for (&block, content) in &map.blocks {
        if map.block(block).iter().any(|&byte| byte != 0) {
            kinds.entry(content.name()).or_default().push(block);
        }
    }
    kinds.into_values().collect()
}

/// Damages one or two blocks, or overwrites a part of one with text.
fn damage(
    map: &MetadataMap,
    kinds: &[Vec<u64>],
    device: &MemoryDevice,
    secrets: &mut Secrets,
    random: &mut fastrand::Rng,
) -> String {
    let mut told = String::new();
    for _ in 0..random.usize(1..3) {
        let kind = random.choice(kinds).unwrap();
        let block = *random.choice(kind).unwrap();
        let content = map.blocks[&block];
        if random.u8(..4) == 0 {
            let size = map.layout().block_size();
            let length = *random.choice(&[16, 32, 200, size]).unwrap();
            let at = random.usize(..=size - length) / 4 * 4;
            let text = secrets.text(length);
            device.write_at(block * size as u64 + at as u64, text.as_bytes()).unwrap();
            told += &format!("text of {length} at {block}+{at:#x} {content:?}; ");
            continue;
        }
        let kind = *random.choice(&Damage::ALL).unwrap();
        apply(map, device, block, kind, random);
        told += &format!("{kind:?} {block} {content:?}; ");
    }
    told
}
