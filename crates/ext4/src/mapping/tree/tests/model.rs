//! A tree in memory beside a map of its single blocks, both of which random operations change.

use super::super::super::memory::{FIRST_NODE, Memory};
use super::super::*;
use crate::error::Error;
use crate::extent_status::MappedRun;
use crate::mapping::StepProgress;
use drystone_ext4_format::extent::{ExtentNode, ExtentNodeMut, NodePlace};
use drystone_ext4_format::{InodeNumber, PhysicalBlock};
use std::collections::BTreeMap;

pub(super) const ROOT: NodePlace = NodePlace::root(InodeNumber::FIRST_ORDINARY);

/// The physical block of each mapped block of the file, and whether it is unwritten.
type Model = BTreeMap<u32, (u64, bool)>;

/// The random changes stay below this block of the file.
pub(super) const SPAN: u32 = 4000;

pub(super) fn map<N: Nodes>(nodes: &N, logical: u32, length_max: u32) -> Result<MappedRun> {
    Ok(look_up(nodes, logical, length_max)?.fact.mapped(logical, length_max))
}

pub(super) fn at(extent: &Extent, skip: u32) -> u64 {
    extent.physical.get() + u64::from(skip)
}

pub(super) fn open(bytes: &[u8]) -> ExtentNode<'_> {
    ExtentNode::reopen(bytes, ROOT).expect("a sound node")
}

/// Blocks of the tree's nodes below the root.
pub(super) fn blocks<N: Nodes>(nodes: &N) -> Result<Vec<PhysicalBlock>> {
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

pub(super) struct Tester {
    pub(super) memory: Memory,
    model: Model,
    pub(super) random: fastrand::Rng,
    next_physical: u64,
}

impl Tester {
    pub(super) fn new(seed: u64) -> Tester {
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
    pub(super) fn insert(&mut self, logical: u32, length: u32) {
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

    pub(super) fn remove(&mut self, from: u32, to: u64) {
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

    pub(super) fn step(&mut self) {
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
    pub(super) fn check(&self) {
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

    pub(super) fn check_map(&mut self) {
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
