//! Random changes of a block map against a map of single blocks.

use super::super::StepProgress;
use super::super::memory::{FIRST_NODE, Memory};
use super::*;
use crate::error::Error;
use drystone_ext4_format::Corrupt;
use std::collections::{BTreeMap, BTreeSet};

type Model = BTreeMap<u32, u64>;

const SEEDS: u64 = 8;
const STEPS: usize = 600;
/// Starts of the mapped ranges: direct, and in each tree with blocks of 1 KiB.
const STARTS: [u32; 6] = [0, 12, 267, 12 + 256 + 65_530, 12 + 256 + 65_536 + 300_000, 400];

fn at(extent: &Extent, skip: u32) -> u64 {
    extent.physical.get() + u64::from(skip)
}

struct Tester {
    memory: Memory,
    model: Model,
    random: fastrand::Rng,
    next_physical: u64,
}

impl Tester {
    fn new(seed: u64) -> Tester {
        Tester {
            memory: Memory::new(),
            model: Model::new(),
            random: fastrand::Rng::with_seed(seed),
            next_physical: 1000,
        }
    }

    fn insert(&mut self, logical: u32, length: u32) {
        let next = self.model.range(logical..).next().map_or(u32::MAX, |(key, _)| *key);
        let longest =
            run_length_max(&self.memory, LogicalBlock::new(logical)).expect("inside the map");
        let length = length.min(next - logical).min(longest);
        if length == 0 {
            return;
        }
        let before = logical.checked_sub(1).and_then(|before| self.model.get(&before));
        let physical = match before {
            Some(before) if self.random.bool() => before + 1,
            _ => {
                self.next_physical += 1000;
                self.next_physical
            }
        };
        let extent = Extent {
            logical: LogicalBlock::new(logical),
            physical: PhysicalBlock::new(physical),
            length,
            unwritten: false,
        };
        match insert(&mut self.memory, extent) {
            Ok(()) => self
                .model
                .extend((0..length).map(|skip| (logical + skip, physical + u64::from(skip)))),
            Err(Error::NoSpace) => {}
            Err(error) => panic!("{error}"),
        }
    }

    fn remove(&mut self, from: u32, to: u64) {
        let mut end = to;
        loop {
            let mut budget = self.random.u32(1..20);
            let step = remove(&mut self.memory, from, end, |extent| {
                let half = if budget == 1 { extent.length / 2 } else { 0 };
                budget = budget.checked_sub(1)?;
                Some(LogicalBlock::new(extent.logical.get() + half))
            });
            let step = step.expect("removal needs no space");
            for piece in &step.pieces {
                for skip in 0..piece.length {
                    let was = self.model.remove(&(piece.logical.get() + skip));
                    assert_eq!(was, Some(at(piece, skip)));
                }
            }
            match step.progress {
                StepProgress::Done => break,
                StepProgress::More { next } => {
                    assert!(next < end);
                    end = next;
                }
            }
        }
        let left = self.model.range(from..).next();
        assert!(left.is_none_or(|(key, _)| u64::from(*key) >= to), "{left:?} left in {from}..{to}");
    }

    fn check(&mut self) {
        let mut found = Model::new();
        let mut from = 0;
        while let Some(extent) = next(&self.memory, from).expect("sound") {
            for skip in 0..extent.length {
                let at = at(&extent, skip);
                assert!(found.insert(extent.logical.get() + skip, at).is_none());
            }
            from = extent.logical_end() as u32;
        }
        assert_eq!(found, self.model);
        let needed = self.model.keys().flat_map(|logical| {
            let path = MapPath::new(LogicalBlock::new(*logical), self.memory.layout());
            let path = path.expect("inside the map");
            (1..=path.levels()).map(move |level| path.indexes()[..level].to_vec())
        });
        assert_eq!(needed.collect::<BTreeSet<_>>().len(), self.memory.taken().len());
        for _ in 0..50 {
            let logical = STARTS[self.random.usize(..6)] + self.random.u32(..600);
            let length_max = self.random.u32(1..100_000);
            let mapped = map(&self.memory, logical, length_max).expect("sound");
            let first = self.model.range(logical..).next().map(|(key, _)| *key);
            match mapped.physical {
                None => {
                    let hole = first.map_or(u32::MAX, |first| first - logical);
                    assert_eq!(mapped.length, hole.min(length_max));
                }
                Some(physical) => {
                    let at = |skip: u32| self.model.get(&(logical + skip)).copied();
                    let run = (0..length_max)
                        .take_while(|skip| at(*skip) == Some(physical.get() + u64::from(*skip)));
                    assert_eq!(run.count() as u32, mapped.length);
                }
            }
        }
    }
}

#[test]
fn random_changes_match_a_map_of_blocks() {
    for seed in 0..SEEDS {
        let mut tester = Tester::new(seed);
        for step in 0..STEPS {
            let from = STARTS[tester.random.usize(..6)] + tester.random.u32(..600);
            let length = tester.random.u32(1..100);
            match tester.random.u32(..100) {
                0..60 => tester.insert(from, length),
                60..95 => tester.remove(from, u64::from(from + 3 * length)),
                95..97 => tester.remove(from, 1 << 32),
                _ => tester.memory.free = tester.random.usize(..3),
            }
            if step % 16 == 0 {
                tester.memory.free = usize::MAX;
                tester.check();
            }
        }
        tester.remove(0, 1 << 32);
        assert!(tester.memory.taken().is_empty());
        assert_eq!(tester.memory.root, [0; 60]);
    }
}

/// Directories of old systems have indirect blocks for data blocks that don't exist yet.
#[test]
fn empty_indirect_blocks_are_freed() {
    for seed in 0..SEEDS {
        let mut tester = Tester::new(seed);
        for start in STARTS {
            let logical = start + tester.random.u32(..600);
            tester.insert(logical, 30);
        }
        for node in tester.memory.blocks.values_mut() {
            let mut pointers = node
                .chunks_exact(4)
                .map(|bytes| u32::from_le_bytes(bytes.try_into().expect("chunks of four")));
            let is_last_level = pointers.all(|block| u64::from(block) < FIRST_NODE);
            if is_last_level && tester.random.bool() {
                node.fill(0);
            }
        }
        tester.model.clear();
        let mut end = 1 << 32;
        while let StepProgress::More { next } = last_step(&mut tester.memory, end).expect("sound") {
            assert!(next < end);
            end = next;
        }
        assert!(tester.memory.taken().is_empty());
        assert_eq!(tester.memory.root, [0; 60]);
    }
}

#[test]
fn flipped_bytes_are_found_or_harmless() {
    for seed in 0..200 {
        let mut tester = Tester::new(seed / 20);
        for _ in 0..40 {
            let logical = STARTS[tester.random.usize(..6)] + tester.random.u32(..600);
            tester.insert(logical, 30);
        }
        let mut random = fastrand::Rng::with_seed(seed);
        for _ in 0..3 {
            let count = tester.memory.blocks.len();
            let node = match tester.memory.blocks.values_mut().nth(random.usize(..=count)) {
                Some(node) => &mut node[..],
                None => &mut tester.memory.root[..],
            };
            let position = random.usize(..node.len());
            node[position] = random.u8(..);
        }
        let mut from = 0;
        while let Ok(Some(extent)) = next(&tester.memory, from) {
            assert!(extent.logical_end() > u64::from(from));
            let Ok(end) = u32::try_from(extent.logical_end()) else { break };
            from = end;
        }
        let mut end = 1 << 32;
        while let Ok(step) = last_step(&mut tester.memory, end) {
            match step {
                StepProgress::More { next } if next < end => end = next,
                _ => break,
            }
        }
    }
}

fn last_step(memory: &mut Memory, end: u64) -> Result<StepProgress> {
    // A damaged map may contain one block twice; then its second release finds it already released.
    memory.lenient = true;
    remove(memory, 0, end, |extent| Some(extent.logical)).map(|removed| removed.progress)
}

/// Two inodes of a damaged image may share a block of pointers, so that one maps blocks that the
/// other found to be a hole.
#[test]
fn what_is_mapped_is_not_mapped_again() {
    for start in STARTS {
        let mut tester = Tester::new(1);
        tester.insert(start, 1);
        let again = Extent {
            logical: LogicalBlock::new(start),
            physical: PhysicalBlock::new(5000),
            length: 1,
            unwritten: false,
        };
        let again = insert(&mut tester.memory, again);
        let is_told = matches!(again, Err(Error::Corrupt(Corrupt::BlockMapped { .. })));
        assert!(is_told, "block {start}: {again:?}");
        tester.check();
    }
}
