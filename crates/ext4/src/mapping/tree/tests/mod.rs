//! Random changes of a tree against a map of single blocks.

mod model;

use super::super::memory::{FIRST_NODE, Memory};
use super::*;
use crate::error::Error;
use crate::mapping::StepProgress;
use drystone_ext4_format::PhysicalBlock;
use drystone_ext4_format::extent::{ExtentIndex, ExtentNodeMut, NodePlace};
use model::{ROOT, SPAN, Tester, blocks, map, open};

const SEEDS: u64 = 12;
const STEPS: usize = 1500;

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
