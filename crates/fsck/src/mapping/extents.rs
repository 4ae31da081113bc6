//! Extent trees: every node and every entry.

use super::{MapEvent, MapWalk};
use crate::image::Error;
use drystone_ext4_format::extent::{self, DEPTH_MAX, ExtentNode, NodePlace};
use drystone_ext4_format::{Corrupt, LogicalBlock, PhysicalBlock};
use drystone_ext4_format::{error::ExtentEntryProblem, error::ExtentHeaderProblem};

/// The deepest tree that is walked, though none may be so deep.
const DEPTH_WALKED_MAX: u16 = 2 * DEPTH_MAX;

/// What a node must be to fit under its parent.
#[derive(Clone, Copy)]
struct Expected {
    /// Nothing for the root.
    depth: Option<u16>,
    start: Option<LogicalBlock>,
    end: u64,
}

pub(crate) fn walk(walk: &mut MapWalk<'_, '_>) -> Result<(), Error> {
    let inode = walk.inode;
    let expected = Expected { depth: None, start: None, end: 1 << 32 };
    node(walk, &inode.block_area, NodePlace::root(inode.number), expected)
}

fn node(
    walk: &mut MapWalk<'_, '_>,
    bytes: &[u8],
    place: NodePlace,
    expected: Expected,
) -> Result<(), Error> {
    let (inode, block) = (place.inode, place.block);
    let node = match ExtentNode::reopen(bytes, place) {
        Ok(node) => node,
        Err(corrupt) => {
            walk.issue(corrupt);
            return Ok(());
        }
    };
    if let Some(block) = block {
        let seed = walk.inode.seed(&walk.image.layout);
        if let Err(corrupt) = extent::check_checksum(bytes, inode, block, seed) {
            walk.issue(corrupt);
        }
    }
    let header = |problem| Corrupt::ExtentHeader { inode, block, problem };
    let found = node.depth();
    let is_depth_right = expected.depth.map_or(found <= DEPTH_MAX, |depth| depth == found);
    if !is_depth_right {
        // What a root that is too deep leads to can be saved still.
        let is_walkable = expected.depth.is_none() && found <= DEPTH_WALKED_MAX;
        let expected = expected.depth.unwrap_or(DEPTH_MAX);
        walk.issue(header(ExtentHeaderProblem::Depth { found, expected }));
        if !is_walkable {
            return Ok(());
        }
    }
    // Only the root of a file without blocks is an empty leaf.
    if node.is_empty() && (block.is_some() || !node.is_leaf()) {
        walk.issue(header(ExtentHeaderProblem::Empty));
    }
    if node.is_leaf() {
        leaf(walk, &node, place, expected);
        return Ok(());
    }
    let mut previous_end = 0;
    for (position, index) in node.indexes().enumerate() {
        let start = index.logical;
        let (child, child_start) = (index.child, start.as_u64());
        let result = check_range(position, start, child_start + 1, previous_end, expected)
            .and_then(|()| check_physical(walk, child, 1));
        if let Err(problem) = result {
            walk.issue(entry_issue(place, position, problem));
            continue;
        }
        previous_end = child_start + 1;
        let end = node.logical(position + 1).map_or(expected.end, LogicalBlock::as_u64);
        // An index node's depth is at least 1.
        let below = Expected { depth: Some(found - 1), start: Some(start), end };
        if let Some(bytes) = walk.enter(child)? {
            self::node(walk, &bytes, NodePlace::block(inode, child), below)?;
        }
    }
    Ok(())
}

fn leaf(walk: &mut MapWalk<'_, '_>, node: &ExtentNode<'_>, place: NodePlace, expected: Expected) {
    let mut previous_end = 0;
    for (position, extent) in node.extents().enumerate() {
        let (start, length) = (extent.logical, extent.length);
        let end = extent.logical_end();
        let result = if length == 0 {
            Err(ExtentEntryProblem::Length)
        } else if end > u64::from(u32::MAX) {
            Err(ExtentEntryProblem::LogicalRange { start, length })
        } else {
            check_range(position, start, end, previous_end, expected)
                .and_then(|()| check_physical(walk, extent.physical, length))
        };
        match result {
            Ok(()) => {
                previous_end = end;
                (walk.event)(MapEvent::Extent(extent));
            }
            Err(problem) => {
                let is_order = matches!(problem, ExtentEntryProblem::Order { .. });
                if is_order && check_physical(walk, extent.physical, length).is_ok() {
                    (walk.event)(MapEvent::Misplaced(extent));
                }
                walk.issue(entry_issue(place, position, problem));
            }
        }
    }
}

fn check_range(
    position: usize,
    start: LogicalBlock,
    end: u64,
    previous_end: u64,
    expected: Expected,
) -> Result<(), ExtentEntryProblem> {
    if start.as_u64() < previous_end {
        return Err(ExtentEntryProblem::Order { start, previous_end });
    }
    let starts_elsewhere = position == 0 && expected.start.is_some_and(|first| first != start);
    if starts_elsewhere || end > expected.end {
        return Err(ExtentEntryProblem::OutsideParent { start, end });
    }
    Ok(())
}

fn check_physical(
    walk: &MapWalk<'_, '_>,
    start: PhysicalBlock,
    length: u32,
) -> Result<(), ExtentEntryProblem> {
    let layout = &walk.image.layout;
    let is_data = start.get() > u64::from(layout.first_data_block());
    if is_data && layout.contains_blocks(start, u64::from(length)) {
        Ok(())
    } else {
        Err(ExtentEntryProblem::PhysicalRange { start, length })
    }
}

fn entry_issue(place: NodePlace, position: usize, problem: ExtentEntryProblem) -> Corrupt {
    // A node has at most as many entries as 16 bits count.
    let entry = position as u16;
    Corrupt::ExtentEntry { inode: place.inode, block: place.block, entry, problem }
}
