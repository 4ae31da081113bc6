//! Paths from the root of an extent tree to the leaf whose range has a given block.
//!
//! # State
//! An [`ExtentPath`] is a snapshot: it holds the nodes from the root to the leaf, and is stale
//! after a change of the tree. It lives on the stack.
//!
//! # Invariants
//! A node's depth is checked to be one less than its parent's, so no path is longer than the root's
//! depth, whatever the image contains.

use super::super::store::{Nodes, NodesMut};
use crate::error::Result;
use drystone_ext4_format::error::{ExtentEntryProblem, ExtentHeaderProblem};
use drystone_ext4_format::extent::{
    DEPTH_MAX, Extent, ExtentIndex, ExtentNode, ExtentNodeMut, NodeExpectation, NodePlace,
};
use drystone_ext4_format::{Corrupt, LogicalBlock, PhysicalBlock};

/// The most levels of a path.
pub(super) const LEVELS_MAX: usize = DEPTH_MAX as usize + 1;

/// One node of a path.
pub(super) struct PathLevel<N> {
    /// The node and its block; `None` is the root.
    node: Option<(N, PhysicalBlock)>,
    /// In an index node, the entry that the path follows. In a leaf, the number of extents that
    /// start at or before the path's block.
    pub position: usize,
    /// Entries of the node.
    pub entries: usize,
    /// The most entries that fit the node.
    pub room: usize,
}

impl<N> PathLevel<N> {
    /// The node's block; `None` is the root.
    pub fn block(&self) -> Option<PhysicalBlock> {
        self.node.as_ref().map(|(_, block)| *block)
    }

    /// Looks at the node.
    pub fn look<S: Nodes<Node = N>, R>(
        &self,
        nodes: &S,
        look: impl FnOnce(ExtentNode<'_>) -> R,
    ) -> Result<R> {
        let place = NodePlace { inode: nodes.inode(), block: self.block() };
        let look = |bytes: &[u8]| Ok(look(ExtentNode::reopen(bytes, place)?));
        match &self.node {
            Some((node, _)) => nodes.look(node, look),
            None => nodes.root(look),
        }
    }

    /// Changes the node.
    pub fn change<S: NodesMut<Node = N>, R>(
        &self,
        nodes: &mut S,
        change: impl FnOnce(&mut ExtentNodeMut<'_>) -> R,
    ) -> Result<R> {
        let place = NodePlace { inode: nodes.inode(), block: self.block() };
        let change = |bytes: &mut [u8]| Ok(change(&mut ExtentNodeMut::reopen(bytes, place)?));
        match &self.node {
            Some((node, _)) => nodes.change(node, change)?,
            None => nodes.change_root(change)?,
        }
    }
}

/// The path to the leaf for one block of the file.
pub(super) struct ExtentPath<N> {
    levels: [Option<PathLevel<N>>; LEVELS_MAX],
    depth: usize,
    /// The end of the leaf's range of blocks of the file.
    pub limit: u64,
    /// The start of the leaf's range, as its parent has it; 0 if the leaf is the root.
    pub start: u32,
    /// The last extent of the leaf that starts at or before the block.
    pub previous: Option<Extent>,
    /// The first extent of the leaf that starts after the block.
    pub next: Option<Extent>,
}

/// The end of a path: what the leaf says about the block.
pub(super) struct PathEnd {
    /// As in [`ExtentPath`].
    pub limit: u64,
    /// As in [`ExtentPath`].
    pub previous: Option<Extent>,
    /// As in [`ExtentPath`].
    pub next: Option<Extent>,
    /// Whether the tree is a root with at most one extent.
    pub is_small: bool,
    start: u32,
}

impl PathEnd {
    /// As in [`ExtentPath`].
    pub fn next_start(&self) -> u64 {
        self.next.map_or(self.limit, |extent| extent.logical.as_u64())
    }
}

/// What one node says about the path.
struct NodeLook {
    depth: u16,
    position: usize,
    entries: usize,
    room: usize,
    next: NextNode,
}

enum NextNode {
    Leaf { previous: Option<Extent>, next: Option<Extent> },
    Child { index: ExtentIndex, limit: u64 },
}

fn look(node: ExtentNode<'_>, logical: LogicalBlock, limit: u64) -> NodeLook {
    let (depth, entries, room) = (node.depth(), node.len(), node.capacity());
    // Appends and sequential reads mostly look for the last entry.
    let at_end = entries.checked_sub(1).filter(|last| node.logical(*last) <= Some(logical));
    let found = at_end.or_else(|| node.position_of(logical));
    if let Some(index) = node.index(found.unwrap_or(0)) {
        let position = found.unwrap_or(0);
        let limit = node.logical(position + 1).map_or(limit, LogicalBlock::as_u64);
        let next = NextNode::Child { index, limit };
        return NodeLook { depth, position, entries, room, next };
    }
    let position = found.map_or(0, |found| found + 1);
    let previous = found.and_then(|found| node.extent(found));
    let next = NextNode::Leaf { previous, next: node.extent(position) };
    NodeLook { depth, position, entries, room, next }
}

/// Goes down to the leaf for `logical`. A look-up needs no more than its result.
pub(super) fn bottom<S: Nodes>(nodes: &S, logical: LogicalBlock) -> Result<PathEnd> {
    descend(nodes, logical, |_, _| ())
}

/// Goes down to the leaf, and calls `pass` with each node and the findings in it.
#[inline]
fn descend<S: Nodes>(
    nodes: &S,
    logical: LogicalBlock,
    mut pass: impl FnMut(Option<(S::Node, PhysicalBlock)>, &NodeLook),
) -> Result<PathEnd> {
    let inode = nodes.inode();
    let (mut start, mut limit) = (0, NodeExpectation::ROOT.logical_end());
    let place = NodePlace::root(inode);
    let mut found = nodes.checked_root(
        |bytes| check_node(nodes, bytes, place, &NodeExpectation::ROOT),
        |bytes| Ok(look(ExtentNode::reopen(bytes, place)?, logical, limit)),
    )?;
    let is_small = found.depth == 0 && found.entries <= 1;
    let mut here = None;
    loop {
        pass(here, &found);
        let index = match found.next {
            NextNode::Leaf { previous, next } => {
                return Ok(PathEnd { limit, previous, next, is_small, start });
            }
            NextNode::Child { index, limit: below } => {
                limit = below;
                index
            }
        };
        start = index.logical.get();
        let place = NodePlace::block(inode, index.child);
        let (node, next) =
            enter(nodes, place, index, found.depth - 1, limit, |node| look(node, logical, limit))?;
        here = Some((node, index.child));
        found = next;
    }
}

impl<N: Clone> ExtentPath<N> {
    /// Finds the leaf for `logical`.
    pub fn find<S: Nodes<Node = N>>(nodes: &S, logical: LogicalBlock) -> Result<Self> {
        let mut levels = [const { None }; LEVELS_MAX];
        let mut length = 0;
        let bottom = descend(nodes, logical, |node, found| {
            let NodeLook { position, entries, room, .. } = *found;
            // In bounds: the root's depth is checked, and each node is checked to be one less deep
            // than its parent.
            levels[length] = Some(PathLevel { node, position, entries, room });
            length += 1;
        })?;
        let PathEnd { limit, previous, next, start, .. } = bottom;
        Ok(ExtentPath { levels, depth: length - 1, limit, start, previous, next })
    }

    /// Levels below the root.
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// The node at a level; the root is level 0.
    pub fn level(&self, level: usize) -> &PathLevel<N> {
        // `find`, which makes all paths, fills the levels up to the depth.
        self.levels[level].as_ref().unwrap_or_else(|| unreachable!("level {level} of a path"))
    }

    /// The last level.
    pub fn leaf(&self) -> &PathLevel<N> {
        self.level(self.depth)
    }

    /// The first block after the path's block that an extent other than
    /// [`previous`](Self::previous) may map.
    pub fn next_start(&self) -> u64 {
        self.next.map_or(self.limit, |extent| extent.logical.as_u64())
    }
}

/// Loads the node that an entry points to, whose range ends at `limit`, and looks at it.
pub(super) fn enter<S: Nodes, R>(
    nodes: &S,
    place: NodePlace,
    index: ExtentIndex,
    depth: u16,
    limit: u64,
    look: impl FnOnce(ExtentNode<'_>) -> R,
) -> Result<(S::Node, R)> {
    let expectation = NodeExpectation::child(depth, index.logical, limit);
    let node = nodes.load(index.child, |bytes| check_node(nodes, bytes, place, &expectation))?;
    let seen = nodes.look(&node, |bytes| {
        let node = ExtentNode::reopen(bytes, place)?;
        check_again(node, place, depth, index.logical, limit)?;
        Ok::<_, Corrupt>(look(node))
    })?;
    Ok((node, seen))
}

/// Checks a node that comes from the device, and that its extents don't map fixed metadata. Extents
/// that are added later come from the allocator, which never gives out fixed metadata.
fn check_node<S: Nodes>(
    nodes: &S,
    bytes: &[u8],
    place: NodePlace,
    expectation: &NodeExpectation,
) -> Result<()> {
    let node = ExtentNode::check(bytes, place, expectation, nodes.layout())?;
    for extent in (0..node.len()).filter_map(|position| node.extent(position)) {
        nodes.check_mapped(extent.physical, extent.length)?;
    }
    Ok(())
}

/// Checks everything that depends on the parent: if two parents point to one block, it was verified
/// only for the first of them.
fn check_again(
    node: ExtentNode<'_>,
    place: NodePlace,
    expected: u16,
    key: LogicalBlock,
    limit: u64,
) -> std::result::Result<(), Corrupt> {
    let NodePlace { inode, block } = place;
    let found = node.depth();
    if found != expected {
        let problem = ExtentHeaderProblem::Depth { found, expected };
        return Err(Corrupt::ExtentHeader { inode, block, problem });
    }
    let Some(last) = node.len().checked_sub(1) else {
        // An empty leaf is allowed; an empty index node was refused when it was loaded.
        return Ok(());
    };
    let start = node.logical(0).unwrap_or_default();
    let end = match node.extent(last) {
        Some(extent) => extent.logical_end(),
        None => node.logical(last).unwrap_or_default().as_u64() + 1,
    };
    if start != key || end > limit {
        let problem = ExtentEntryProblem::OutsideParent { start, end };
        return Err(Corrupt::ExtentEntry { inode, block, entry: 0, problem });
    }
    Ok(())
}
