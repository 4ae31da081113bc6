//! Random changes of a tree against a map of single blocks.

use super::super::memory::{FIRST_NODE, Memory};
use super::*;
use crate::error::Error;
use crate::extent_status::MappedRun;
use crate::mapping::StepProgress;
use drystone_ext4_format::extent::{ExtentIndex, ExtentNode, ExtentNodeMut, NodePlace};
use drystone_ext4_format::{InodeNumber, PhysicalBlock};
use std::collections::BTreeMap;

const ROOT: NodePlace = NodePlace::root(InodeNumber::FIRST_ORDINARY);

/// The physical block of each mapped block of the file, and whether it is unwritten.
type Model = BTreeMap<u32, (u64, bool)>;

const SEEDS: u64 = 12;
const STEPS: usize = 1500;
/// The random changes stay below this block of the file.
const SPAN: u32 = 4000;

fn map<N: Nodes>(nodes: &N, logical: u32, length_max: u32) -> Result<MappedRun> {
    Ok(look_up(nodes, logical, length_max)?.fact.mapped(logical, length_max))
}

fn at(extent: &Extent, skip: u32) -> u64 {
    extent.physical.get() + u64::from(skip)
}

fn open(bytes: &[u8]) -> ExtentNode<'_> {
    ExtentNode::reopen(bytes, ROOT).expect("a sound node")
}

/// Blocks of the tree's nodes below the root.
fn blocks<N: Nodes>(nodes: &N) -> Result<Vec<PhysicalBlock>> {
    let mut found = Vec::new();
    let mut from = 0;
    loop {
        let path = ExtentPath::find(nodes, LogicalBlock::new(from))?;
        found.extend((1..=path.depth()).filter_map(|level| path.level(level).block()));
        match u32::try_from(path.limit) {
            Ok(limit) => from = limit,
            Err(_) => break,
        }
    }
    found.sort();
    found.dedup();
    Ok(found)
}

struct Tester {
    memory: Memory,
    model: Model,
    random: fastrand::Rng,
    next_physical: u64,
}

impl Tester {
    fn new(seed: u64) -> Tester {
        let mut memory = Memory::new();
        ExtentNodeMut::init(&mut memory.root, ROOT, 0);
        let random = fastrand::Rng::with_seed(seed);
        Tester { memory, model: Model::new(), random, next_physical: 1000 }
    }

    fn hole_at(&self, logical: u32) -> u64 {
        let next = self.model.range(logical..).next().map_or(1 << 32, |(key, _)| u64::from(*key));
        next - u64::from(logical)
    }

    /// Maps up to `length` blocks; often so that they continue the block before.
    fn insert(&mut self, logical: u32, length: u32) {
        let length = self.hole_at(logical).min(u64::from(length)) as u32;
        if length == 0 {
            return;
        }
        let before = logical.checked_sub(1).and_then(|before| self.model.get(&before));
        let unwritten = self.random.u8(..4) == 0;
        let physical = match before {
            Some((physical, _)) if self.random.bool() => physical + 1,
            _ => {
                self.next_physical += u64::from(self.random.u32(1..3) * SPAN * 2);
                self.next_physical
            }
        };
        let extent = Extent {
            logical: LogicalBlock::new(logical),
            physical: PhysicalBlock::new(physical),
            length,
            unwritten,
        };
        match insert(&mut self.memory, extent) {
            Ok(()) => {
                for skip in 0..length {
                    self.model.insert(logical + skip, (physical + u64::from(skip), unwritten));
                }
            }
            Err(Error::NoSpace) => {}
            Err(error) => panic!("{error}"),
        }
    }

    fn remove(&mut self, from: u32, to: u64) {
        let mut end = to;
        loop {
            let mut budget = self.random.u32(1..20);
            let half = self.random.u8(..8) == 0;
            let mut first = true;
            let step = remove(&mut self.memory, from, end, |extent| {
                let lowest = extent.logical.get() + if half { extent.length / 2 } else { 0 };
                budget = u32::saturating_sub(budget, 1);
                (std::mem::take(&mut first) || budget > 0).then_some(LogicalBlock::new(lowest))
            });
            let step = match step {
                Ok(step) => step,
                Err(Error::NoSpace) => return,
                Err(error) => panic!("{error}"),
            };
            for piece in &step.pieces {
                for skip in 0..piece.length {
                    let was = self.model.remove(&(piece.logical.get() + skip));
                    assert_eq!(was, Some((at(piece, skip), piece.unwritten)));
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

    fn convert(&mut self, from: u32, to: u64, to_unwritten: bool) {
        let mut start = from;
        loop {
            let progress = match convert(&mut self.memory, start, to, to_unwritten) {
                Ok(progress) => progress,
                Err(Error::NoSpace) => return,
                Err(error) => panic!("{error}"),
            };
            let end = match progress {
                StepProgress::Done => to,
                StepProgress::More { next } => next,
            };
            for (_, (_, unwritten)) in self.model.range_mut(start..end as u32) {
                *unwritten = to_unwritten;
            }
            if progress == StepProgress::Done {
                return;
            }
            assert!(end > u64::from(start));
            start = end as u32;
        }
    }

    fn shift(&mut self, from: u32, delta: i64) {
        let (mut low, mut high) = (from, 1 << 32);
        if delta < 0 {
            self.remove((i64::from(from) + delta) as u32, u64::from(from));
            if self.hole_at((i64::from(from) + delta) as u32) < (-delta) as u64 {
                return;
            }
        } else if split_at(&mut self.memory, from).is_err() {
            return;
        }
        while let StepProgress::More { next } =
            shift(&mut self.memory, low, high, delta).expect("shifts need no space")
        {
            if delta < 0 {
                low = next as u32;
            } else {
                high = next;
            }
        }
        let moved = self.model.split_off(&from);
        self.model
            .extend(moved.into_iter().map(|(key, value)| ((i64::from(key) + delta) as u32, value)));
    }

    fn step(&mut self) {
        let from = self.random.u32(..SPAN);
        let length = self.random.u32(1..40);
        let to = u64::from(from + length);
        match self.random.u32(..100) {
            0..70 => self.insert(from, length.min(2)),
            70..80 => self.convert(from, to, from.is_multiple_of(2)),
            80..92 => self.remove(from, to),
            92..95 if from >= length => self.shift(from, -i64::from(length)),
            95..97 if self.model.len() < SPAN as usize => self.shift(from, i64::from(length)),
            97 => self.convert(from, u64::from(SPAN), true),
            98 => self.remove(from.max(SPAN / 8 * 7), 1 << 32),
            _ => self.memory.free = self.random.usize(..12),
        }
    }

    /// Compares the whole mapping and the shape of the tree.
    fn check(&self) {
        let mut found = Model::new();
        let mut from = 0;
        while let Some(extent) = next(&self.memory, from).expect("the tree is sound") {
            for skip in 0..extent.length {
                let value = (at(&extent, skip), extent.unwritten);
                assert!(found.insert(extent.logical.get() + skip, value).is_none());
            }
            from = extent.logical_end() as u32;
        }
        assert_eq!(found, self.model);
        assert_eq!(blocks(&self.memory).expect("the tree is sound"), self.memory.taken());
        self.check_keys(&self.memory.root);
        for block in self.memory.blocks.values() {
            self.check_keys(block);
        }
    }

    fn check_keys(&self, bytes: &[u8]) {
        for index in open(bytes).indexes() {
            assert!(index.child.get() >= FIRST_NODE);
            let child = open(&self.memory.blocks[&index.child]);
            assert_eq!(child.logical(0), Some(index.logical));
        }
    }

    fn check_map(&mut self) {
        for _ in 0..50 {
            let logical = self.random.u32(..SPAN + 100);
            let length_max = self.random.u32(1..100);
            let mapped = map(&self.memory, logical, length_max).expect("the tree is sound");
            assert!(mapped.length >= 1 && mapped.length <= length_max);
            for skip in 0..mapped.length {
                let expected = self.model.get(&(logical + skip)).copied();
                let found =
                    mapped.physical.map(|at| (at.get() + u64::from(skip), mapped.unwritten));
                assert_eq!(found, expected);
            }
            if mapped.physical.is_none() && mapped.length < length_max {
                assert!(self.model.contains_key(&(logical + mapped.length)), "hole cut short");
            }
        }
    }
}

#[test]
fn random_changes_match_a_map_of_blocks() {
    for seed in 0..SEEDS {
        let mut tester = Tester::new(seed);
        for _ in 0..SPAN / 4 {
            let logical = tester.random.u32(..SPAN);
            tester.insert(logical, 1);
        }
        let mut deepest = 0;
        for step in 0..STEPS {
            tester.step();
            deepest = deepest.max(open(&tester.memory.root).depth());
            if step % 16 == 0 {
                tester.memory.free = usize::MAX;
                tester.check();
                tester.check_map();
            }
        }
        assert!(deepest >= 2, "seed {seed}: the tree was never deep");
        tester.memory.free = usize::MAX;
        tester.remove(0, 1 << 32);
        tester.check();
        assert!(tester.memory.taken().is_empty());
        assert_eq!(open(&tester.memory.root).depth(), 0);
    }
}

#[test]
fn appends_fill_their_leaves() {
    let mut tester = Tester::new(1);
    for block in 0..5000 {
        let extent = Extent {
            logical: LogicalBlock::new(2 * block),
            physical: PhysicalBlock::new(u64::from(1000 + 2 * block)),
            length: 1,
            unwritten: false,
        };
        insert(&mut tester.memory, extent).expect("there is space");
    }
    let leaves =
        tester.memory.blocks.values().filter(|bytes| open(bytes).is_leaf()).collect::<Vec<_>>();
    let full = leaves.iter().filter(|bytes| open(bytes).len() == 84).count();
    assert!(full + 1 >= leaves.len(), "{full} of {} leaves are full", leaves.len());
}

#[test]
fn neighbours_merge_up_to_the_longest_extent() {
    for (unwritten, longest) in [(false, 32768), (true, 32767)] {
        let mut tester = Tester::new(1);
        for block in 0..40_000 {
            let extent = Extent {
                logical: LogicalBlock::new(block),
                physical: PhysicalBlock::new(u64::from(1000 + block)),
                length: 1,
                unwritten,
            };
            insert(&mut tester.memory, extent).expect("there is space");
        }
        let first = next(&tester.memory, 0).expect("sound").expect("mapped");
        assert_eq!((first.length, first.unwritten), (longest, unwritten));
        assert_eq!(open(&tester.memory.root).len(), 2);
    }
}

#[test]
fn long_written_extents_convert() {
    let mut tester = Tester::new(1);
    for number in 0..200_u32 {
        let extent = Extent {
            logical: LogicalBlock::new(number * 40_000),
            physical: PhysicalBlock::new(u64::from(1 + number) * 50_000),
            length: 32768,
            unwritten: false,
        };
        insert(&mut tester.memory, extent).expect("there is space");
    }
    for unwritten in [true, false] {
        let mut from = 1;
        while let StepProgress::More { next } =
            convert(&mut tester.memory, from, 1 << 32, unwritten).expect("there is space")
        {
            from = next as u32;
        }
        let mapped = map(&tester.memory, 40_000, u32::MAX).expect("sound");
        assert_eq!((mapped.unwritten, mapped.length), (unwritten, 32768 - u32::from(unwritten)));
        assert_eq!(
            map(&tester.memory, 0, 100).expect("sound").length,
            1 + 99 * u32::from(!unwritten)
        );
    }
    assert_eq!(blocks(&tester.memory).expect("sound"), tester.memory.taken());
}

#[test]
fn the_last_block_of_the_largest_file() {
    let mut tester = Tester::new(1);
    let extent = Extent {
        logical: LogicalBlock::new(u32::MAX - 1),
        physical: PhysicalBlock::new(7),
        length: 1,
        unwritten: false,
    };
    insert(&mut tester.memory, extent).expect("there is space");
    assert_eq!(next(&tester.memory, 0).expect("sound"), Some(extent));
    assert_eq!(map(&tester.memory, 5, u32::MAX).expect("sound").length, u32::MAX - 6);
    assert_eq!(map(&tester.memory, u32::MAX - 1, 5).expect("sound").length, 1);
    let step = remove(&mut tester.memory, 0, 1 << 32, |extent| Some(extent.logical)).expect("ok");
    assert_eq!(step.pieces, [extent]);
}

fn extent_of(logical: u32, length: u32, unwritten: bool) -> Extent {
    let (logical, physical) =
        (LogicalBlock::new(logical), PhysicalBlock::new(1000 + u64::from(logical)));
    Extent { logical, physical, length, unwritten }
}

/// Two inodes of a damaged image may share a leaf, so that one maps blocks that the other found to
/// be a hole.
#[test]
fn what_is_mapped_is_not_mapped_again() {
    let mut tester = Tester::new(1);
    tester.insert(5, 4);
    for (logical, length) in [(5, 4), (5, 1), (8, 2), (4, 2), (0, 100)] {
        let again = insert(&mut tester.memory, extent_of(logical, length, false));
        let is_told = matches!(again, Err(Error::Corrupt(Corrupt::BlockMapped { .. })));
        assert!(is_told, "{length} blocks at {logical}: {again:?}");
    }
    tester.check();
}

/// Three extents don't fit two nodes with room for one each, so the node is refused.
#[test]
fn a_leaf_without_the_room_of_its_block_is_told() {
    let mut memory = Memory::new();
    let block = PhysicalBlock::new(FIRST_NODE);
    let mut leaf = vec![0; 1024];
    let place = NodePlace::block(ROOT.inode, block);
    ExtentNodeMut::init(&mut leaf, place, 0).insert_extent(0, &extent_of(0, 10, true));
    leaf[4..6].copy_from_slice(&1_u16.to_le_bytes());
    memory.blocks.insert(block, leaf);
    let index = ExtentIndex { logical: LogicalBlock::FIRST, child: block };
    ExtentNodeMut::init(&mut memory.root, ROOT, 1).insert_index(0, &index);
    let converted = convert(&mut memory, 5, 6, false);
    assert!(matches!(converted, Err(Error::Corrupt(Corrupt::ExtentHeader { .. }))));
}

#[test]
fn flipped_bytes_are_found_or_harmless() {
    for seed in 0..400 {
        let mut tester = Tester::new(seed / 40);
        for _ in 0..400 {
            let logical = tester.random.u32(..SPAN);
            tester.insert(logical, 2);
        }
        let mut random = fastrand::Rng::with_seed(seed);
        for _ in 0..random.usize(1..4) {
            let count = tester.memory.blocks.len();
            let node = match tester.memory.blocks.values_mut().nth(random.usize(..=count)) {
                Some(node) => &mut node[..],
                None => &mut tester.memory.root[..],
            };
            // The most important bytes are near the start of a node.
            let limit = if random.bool() { 24 } else { node.len() };
            let position = random.usize(..limit);
            node[position] = random.u8(..);
        }
        let mut from = 0;
        while let Ok(Some(extent)) = next(&tester.memory, from) {
            assert!(extent.logical_end() > u64::from(from));
            let Ok(end) = u32::try_from(extent.logical_end()) else { break };
            from = end;
        }
        for _ in 0..20 {
            let _ = map(&tester.memory, random.u32(..SPAN), random.u32(1..));
        }
        let mut end = 1 << 32;
        while let Ok(step) = convert(&mut tester.memory, 0, end, random.bool()) {
            match step {
                StepProgress::More { next } if next < end => end = next,
                _ => break,
            }
        }
    }
}
