//! Extent nodes against a model, and on damaged bytes.

use super::*;
use crate::error::{ExtentEntryProblem, ExtentHeaderProblem};
use crate::ids::LogicalBlock;
use crate::layout::Layout;
use crate::testing;
use proptest::prelude::*;

const INODE: InodeNumber = InodeNumber::new(12);

fn extent(logical: u32, length: u32, physical: u64) -> Extent {
    Extent {
        logical: LogicalBlock::new(logical),
        length,
        physical: PhysicalBlock::new(physical),
        unwritten: false,
    }
}

fn layout() -> Layout {
    testing::layout()
}

fn check_root<'a>(bytes: &'a [u8], layout: &Layout) -> Result<ExtentNode<'a>, Corrupt> {
    ExtentNode::check(bytes, NodePlace::root(INODE), &NodeExpectation::ROOT, layout)
}

#[test]
fn a_root_grows_a_level_splits_and_shrinks_again() {
    let layout = layout();
    let mut root_bytes = [0; 60];
    let mut root = ExtentNodeMut::init(&mut root_bytes, NodePlace::root(INODE), 0);
    for number in 0..4 {
        root.insert_extent(number, &extent(number as u32 * 10, 5, 100 + number as u64 * 10));
    }
    assert!(root.is_full());
    let (left_block, right_block) = (PhysicalBlock::new(70), PhysicalBlock::new(71));
    let mut left_bytes = vec![0xff; layout.block_size()];
    let mut left = root.deepen(&mut left_bytes, left_block);
    assert_eq!((root.depth(), root.len(), left.len(), left.depth()), (1, 1, 4, 0));
    let mut right_bytes = vec![0xff; layout.block_size()];
    let place = NodePlace::block(INODE, right_block);
    let mut right = ExtentNodeMut::init(&mut right_bytes, place, 0);
    left.move_tail(3, &mut right);
    let index = ExtentIndex { logical: LogicalBlock::new(30), child: right_block };
    root.insert_index(1, &index);
    let seed = layout.checksum_seed().map(|seed| seed.inode(INODE, 7));
    left.seal(seed);
    right.seal(seed);

    let root = check_root(&root_bytes, &layout).unwrap();
    assert_eq!(root.position_of(LogicalBlock::new(29)), Some(0));
    assert_eq!(root.position_of(LogicalBlock::new(30)), Some(1));
    let (block, expectation) = root.child(0, &NodeExpectation::ROOT).unwrap();
    assert_eq!(block, left_block);
    check_checksum(&left_bytes, INODE, left_block, seed).unwrap();
    let place = NodePlace::block(INODE, left_block);
    let left = ExtentNode::check(&left_bytes, place, &expectation, &layout).unwrap();
    assert_eq!(left.find(LogicalBlock::new(12)).unwrap(), extent(10, 5, 110));
    assert_eq!(left.find(LogicalBlock::new(15)), None);

    let wrong = NodeExpectation::child(0, LogicalBlock::new(0), 22);
    let error = ExtentNode::check(&left_bytes, place, &wrong, &layout).unwrap_err();
    let problem = ExtentEntryProblem::OutsideParent { start: LogicalBlock::new(20), end: 25 };
    assert_eq!(
        error,
        Corrupt::ExtentEntry { inode: INODE, block: Some(left_block), entry: 2, problem }
    );
    left_bytes[20] ^= 1;
    assert!(check_checksum(&left_bytes, INODE, left_block, seed).is_err());
    left_bytes[20] ^= 1;

    let mut root = ExtentNodeMut::reopen(&mut root_bytes, NodePlace::root(INODE)).unwrap();
    root.remove(1..2);
    let left = ExtentNode::reopen(&left_bytes, place).unwrap();
    assert!(root.flatten(&left));
    assert_eq!((root.depth(), root.len()), (0, 3));
    check_root(&root_bytes, &layout).unwrap();
}

#[test]
fn lengths_and_kinds_are_encoded() {
    let mut bytes = [0; 60];
    let mut root = ExtentNodeMut::init(&mut bytes, NodePlace::root(INODE), 0);
    let written = extent(0, WRITTEN_BLOCKS_MAX, 3);
    let unwritten =
        Extent { unwritten: true, ..extent(WRITTEN_BLOCKS_MAX, UNWRITTEN_BLOCKS_MAX, 5 << 32) };
    root.insert_extent(0, &written);
    root.insert_extent(1, &unwritten);
    let all: Vec<Extent> = root.as_node().extents().collect();
    assert_eq!(all, [written, unwritten]);
}

#[test]
fn merge_and_split_are_inverse() {
    let whole = extent(10, 8, 100);
    let (head, tail) = whole.split(LogicalBlock::new(13)).unwrap();
    assert_eq!((head, tail), (extent(10, 3, 100), extent(13, 5, 103)));
    assert_eq!(head.merge(&tail), Some(whole));
    assert_eq!(tail.merge(&head), None);
    assert_eq!(head.merge(&Extent { unwritten: true, ..tail }), None);
    assert_eq!(whole.split(LogicalBlock::new(10)), None);
    assert_eq!(whole.split(LogicalBlock::new(18)), None);
    let mut list = Vec::new();
    for part in [head, tail, extent(18, 1, 200)] {
        part.append_to(&mut list);
    }
    assert_eq!(list, [whole, extent(18, 1, 200)]);
}

#[test]
#[should_panic(expected = "does not fit")]
fn overlap_is_refused() {
    let mut bytes = [0; 60];
    let mut root = ExtentNodeMut::init(&mut bytes, NodePlace::root(INODE), 0);
    root.insert_extent(0, &extent(0, 8, 100));
    root.insert_extent(1, &extent(7, 1, 200));
}

#[test]
fn bad_headers_are_named() {
    let layout = layout();
    let mut good = [0; 60];
    ExtentNodeMut::init(&mut good, NodePlace::root(INODE), 0);
    let problem_of = |change: &dyn Fn(&mut [u8; 60])| {
        let mut bytes = good;
        change(&mut bytes);
        match check_root(&bytes, &layout).unwrap_err() {
            Corrupt::ExtentHeader { problem, .. } => problem,
            other => panic!("{other}"),
        }
    };
    assert_eq!(problem_of(&|b| b[0] = 0), ExtentHeaderProblem::Magic { found: 0xf300 });
    let problem = ExtentHeaderProblem::Entries { entries: 5, max: 4 };
    assert_eq!(problem_of(&|b| b[2] = 5), problem);
    for max in [0, 1, 5] {
        assert_eq!(
            problem_of(&|b| b[4] = max),
            ExtentHeaderProblem::Max { max: max.into(), fits: 4 }
        );
    }
    assert_eq!(problem_of(&|b| b[6] = 6), ExtentHeaderProblem::Depth { found: 6, expected: 5 });
    assert_eq!(problem_of(&|b| b[6] = 1), ExtentHeaderProblem::Empty);
}

/// e2fsck accepts the same: a node with much less room than its block has was damaged, and could
/// become too full to be cut in two.
#[test]
fn the_room_of_a_node_is_that_of_its_block() {
    let place = NodePlace::block(INODE, PhysicalBlock::new(50));
    for block_size in [1024, 2048, 4096, 65536] {
        let mut bytes = vec![0; block_size];
        let node = ExtentNodeMut::init(&mut bytes, place, 0);
        let fits = entries_per_block(block_size);
        assert_eq!(node.as_node().capacity(), usize::from(fits));
        for (max, is_accepted) in
            [(1, false), (fits - 3, false), (fits - 2, true), (fits, true), (fits + 1, false)]
        {
            bytes[4..6].copy_from_slice(&max.to_le_bytes());
            let opened = ExtentNode::reopen(&bytes, place);
            assert_eq!(opened.is_ok(), is_accepted, "room for {max} of {fits}: {opened:?}");
        }
    }
}

proptest! {
    /// Random insertions, replacements and removals leave what a vector holds.
    #[test]
    fn changes_agree_with_a_vector(
        steps in prop::collection::vec((0u8..3, any::<prop::sample::Index>()), 0..60)
    ) {
        let layout = layout();
        let mut bytes = vec![0; 1024];
        let place = NodePlace::block(INODE, PhysicalBlock::new(50));
        let mut node = ExtentNodeMut::init(&mut bytes, place, 0);
        let mut model: Vec<Extent> = Vec::new();
        for (kind, index) in steps {
            match kind {
                0 => {
                    let position = index.index(model.len() + 1);
                    let low = position.checked_sub(1).map_or(0, |p| model[p].logical_end());
                    let high = model.get(position).map_or(1 << 20, |e| e.logical.as_u64());
                    if high - low < 2 || node.is_full() {
                        continue;
                    }
                    let start = (low + high) / 2;
                    let new = extent(start as u32, 1, 1000 + start % 1000);
                    node.insert_extent(position, &new);
                    model.insert(position, new);
                }
                1 if !model.is_empty() => {
                    let position = index.index(model.len());
                    let new = Extent { unwritten: true, ..model[position] };
                    node.replace_extent(position, &new);
                    model[position] = new;
                }
                2 if !model.is_empty() => {
                    let position = index.index(model.len());
                    node.remove(position..position + 1);
                    model.remove(position);
                }
                _ => {}
            }
        }
        let node = ExtentNode::check(&bytes, place, &NodeExpectation::child(
            0, model.first().map_or(LogicalBlock::FIRST, |e| e.logical), 1 << 32,
        ), &layout).unwrap();
        prop_assert_eq!(node.extents().collect::<Vec<_>>(), model);
    }

    /// Whatever the bytes are, checking and reading them never panics.
    #[test]
    fn any_bytes_are_safe(
        mut bytes in prop::collection::vec(any::<u8>(), 0..2048),
        magic: bool,
        small: bool,
        at: u32,
    ) {
        let layout = layout();
        if magic && bytes.len() >= 12 {
            bytes[..2].copy_from_slice(&0xf30au16.to_le_bytes());
            if small {
                let depth = bytes[6] & 1;
                let [low, high] = (bytes.len().saturating_sub(16) as u16 / 12).to_le_bytes();
                bytes[3..8].copy_from_slice(&[0, low, high, depth, 0]);
            }
        }
        let block = PhysicalBlock::new(50);
        let seed = layout.checksum_seed().map(|seed| seed.inode(INODE, 7));
        let _ = check_checksum(&bytes, INODE, block, seed);
        let _ = check_root(&bytes, &layout);
        let place = NodePlace::block(INODE, block);
        if let Ok(node) = ExtentNode::reopen(&bytes, place) {
            let _ = node.find(LogicalBlock::new(at));
            let _ = node.extents().map(|extent| extent.physical_end()).max();
            let _ = node.child(0, &NodeExpectation::ROOT);
        }
        if let Ok(mut node) = ExtentNodeMut::reopen(&mut bytes, place) {
            node.seal(seed);
            node.remove(0..node.len());
        }
    }
}
