//! Damage to one place of an image.

use crate::targets::{self, Target};
use drystone_blockdev::{BlockDevice, MemoryDevice};
use drystone_testkit::damage::{self, Damage};
use drystone_testkit::metadata_map::{BlockContent, MetadataMap};
use fastrand::Rng;
use std::collections::BTreeMap;

/// Blocks that one wipe takes at most.
const WIPED_MAX: u64 = 12;

/// What a fault does to a block; a field is changed as often as everything else.
const DAMAGES: [Damage; 10] = [
    Damage::Fuzz,
    Damage::Fuzz,
    Damage::Fuzz,
    Damage::Point,
    Damage::Flip,
    Damage::Zero,
    Damage::Ones,
    Damage::Swap,
    Damage::Tear,
    Damage::Tear,
];

/// The places of an image that faults hit: each kind is as likely as the others.
pub struct Faults {
    /// The metadata blocks of each kind.
    kinds: BTreeMap<String, Vec<u64>>,
    /// The fields of each structure.
    structures: BTreeMap<String, Vec<Target>>,
}

impl Faults {
    pub fn new(map: &MetadataMap) -> Self {
        let mut kinds: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        for (block, content) in &map.blocks {
            kinds.entry(content.name()).or_default().push(*block);
        }
        let mut structures: BTreeMap<String, Vec<Target>> = BTreeMap::new();
        for target in targets::all(map) {
            structures.entry(target.structure().to_owned()).or_default().push(target);
        }
        Self { kinds, structures }
    }

    /// Damages one place; says how.
    pub fn add(&self, map: &MetadataMap, device: &MemoryDevice, random: &mut Rng) -> String {
        match random.u32(..20) {
            0 => self.wipe(map, device, random),
            1..=8 => self.change_field(map, device, random),
            _ => {
                let block = self.pick(map, random);
                let damage = DAMAGES[random.usize(..DAMAGES.len())];
                damage::apply(map, device, block, damage, random);
                format!("{damage:?} {} {block}", map.blocks[&block].name())
            }
        }
    }

    /// A block of metadata.
    fn pick(&self, map: &MetadataMap, random: &mut Rng) -> u64 {
        let kinds: Vec<&Vec<u64>> = self.kinds.values().collect();
        // Most images have one superblock in use, and it is hit less often than what they have more of.
        let pick = |random: &mut Rng| {
            let blocks = kinds[random.usize(..kinds.len())];
            let block = blocks[random.usize(..blocks.len())];
            let is_superblock = map.blocks[&block] == BlockContent::Superblock;
            (!is_superblock || random.u32(..4) == 0).then_some(block)
        };
        pick(random).or_else(|| pick(random)).unwrap_or(self.kinds["InodeTable"][0])
    }

    /// Zeros or garbage in place of a block of metadata and what follows it.
    fn wipe(&self, map: &MetadataMap, device: &MemoryDevice, random: &mut Rng) -> String {
        let block = self.pick(map, random);
        let size = map.layout().block_size() as u64;
        let count = random.u64(1..WIPED_MAX).min(map.layout().blocks_count() - block);
        let garbage: Vec<u8> = match random.bool() {
            true => vec![0; (count * size) as usize],
            false => (0..count * size).map(|_| random.u8(..)).collect(),
        };
        device.write_at(block * size, &garbage).unwrap();
        format!("{count} blocks from {} {block} wiped", map.blocks[&block].name())
    }

    /// Gives a field another value, and its structure a valid checksum.
    fn change_field(&self, map: &MetadataMap, device: &MemoryDevice, random: &mut Rng) -> String {
        let structures: Vec<&Vec<Target>> = self.structures.values().collect();
        let targets = structures[random.usize(..structures.len())];
        let target = &targets[random.usize(..targets.len())];
        let mut bytes = map.block(target.block);
        let old = target.read(&bytes);
        let Some(value) = target.values(map, random).pop() else { return String::new() };
        target.write(&mut bytes, value);
        map.seal(device, target.block, target.content, &mut bytes);
        device.write_at(target.block * bytes.len() as u64, &bytes).unwrap();
        format!("{} {old:#x}->{value:#x}", target.label)
    }
}
