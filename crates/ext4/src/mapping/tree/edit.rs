//! Changes an extent tree: replaces neighbouring extents of a leaf by others. All changes but
//! appends to the root go through here.
//!
//! # Crash
//! All blocks that a change needs are allocated before the first node changes, so a change that
//! finds no space leaves the tree unchanged.
//!
//! # Invariants
//! - The first key of a node equals the key of its parent's entry.
//! - No node below the root becomes empty.
//! - A full node is split at the change if that is at one of the node's ends, so that files written
//!   in order, or backwards, have full nodes. Otherwise it is split in the middle.

use super::super::store::NodesMut;
use super::path::{self, ExtentPath, LEVELS_MAX};
use crate::error::{Error, Result};
use drystone_ext4_format::extent::{
    EntryBytes, Extent, ExtentIndex, ExtentNode, ExtentNodeMut, NodeExpectation, NodePlace,
    entry_logical,
};
use drystone_ext4_format::{LogicalBlock, PhysicalBlock};
use drystone_vfs::Errno;

/// Replaces `removed` extents of the path's leaf, from `position` on, by `with`.
///
/// The result must keep the leaf sorted and inside its range. The path is stale afterwards.
///
/// # Errors
/// `NoSpace` or `CommitFirst` if there is no block for a node; then the tree is unchanged.
pub(super) fn replace<S: NodesMut>(
    nodes: &mut S,
    path: &ExtentPath<S::Node>,
    position: usize,
    removed: usize,
    with: &[Extent],
    goal: PhysicalBlock,
) -> Result<()> {
    let leaf = path.leaf();
    let entries = leaf.entries - removed + with.len();
    if entries == 0 && path.depth() > 0 {
        remove_leaf(nodes, path)?;
        return shrink(nodes);
    }
    // One extent is by far the most common replacement; it is encoded without allocating memory.
    let one;
    let many;
    let bytes: &[EntryBytes] = match with {
        [extent] => {
            one = [extent.entry()];
            &one
        }
        _ => {
            many = with.iter().map(Extent::entry).collect::<Vec<_>>();
            &many
        }
    };
    if entries > leaf.room {
        let mut blocks = NewBlocks::allocate(nodes, blocks_needed(path, entries)?, goal)?;
        return replace_splitting(nodes, path, position, removed, bytes, &mut blocks);
    }
    let first = leaf.change(nodes, |node| {
        node.splice(position..position + removed, bytes);
        node.as_node().logical(0)
    })?;
    if let (0, Some(first)) = (position, first) {
        set_first_key(nodes, path, path.depth(), first)?;
    }
    if entries < leaf.entries { shrink(nodes) } else { Ok(()) }
}

/// The number of new nodes that a change needs if the leaf has `entries` entries after it.
fn blocks_needed<N: Clone>(path: &ExtentPath<N>, entries: usize) -> Result<usize> {
    let mut needed = 0;
    let mut entries = entries;
    for level in (0..=path.depth()).rev() {
        if entries <= path.level(level).room {
            return Ok(needed);
        }
        needed += 1;
        if level > 0 {
            entries = path.level(level - 1).entries + 1;
        } else if path.depth() + 1 == LEVELS_MAX {
            return Err(Error::Errno(Errno::EFBIG));
        }
    }
    Ok(needed)
}

/// Blocks allocated for the nodes of one change.
struct NewBlocks {
    blocks: [PhysicalBlock; LEVELS_MAX],
    left: usize,
}

impl NewBlocks {
    /// Allocates all or none.
    fn allocate<S: NodesMut>(nodes: &mut S, count: usize, goal: PhysicalBlock) -> Result<Self> {
        let mut blocks = [goal; LEVELS_MAX];
        for taken in 0..count {
            match nodes.allocate(goal) {
                Ok(block) => blocks[taken] = block,
                Err(error) => {
                    for block in &blocks[..taken] {
                        nodes.release(*block)?;
                    }
                    return Err(error);
                }
            }
        }
        Ok(NewBlocks { blocks, left: count })
    }

    fn take(&mut self) -> PhysicalBlock {
        assert!(self.left > 0, "a tree change needs more nodes than were counted");
        self.left -= 1;
        self.blocks[self.left]
    }
}

/// Replaces entries of the leaf if the result doesn't fit: splits nodes from the leaf upwards.
fn replace_splitting<S: NodesMut>(
    nodes: &mut S,
    path: &ExtentPath<S::Node>,
    position: usize,
    removed: usize,
    with: &[EntryBytes],
    blocks: &mut NewBlocks,
) -> Result<()> {
    let (mut position, mut removed) = (position, removed);
    let mut with = with.to_vec();
    let mut level = path.depth();
    loop {
        let here = path.level(level);
        if here.entries - removed + with.len() <= here.room {
            return here.change(nodes, |node| node.splice(position..position + removed, &with));
        }
        let mut list = here.look(nodes, |node| node.entry_bytes().to_vec())?;
        list.splice(position..position + removed, with.iter().copied());
        let depth = (path.depth() - level) as u16;
        if level == 0 {
            return grow(nodes, depth, &list, blocks.take());
        }
        let cut = if position + removed == here.entries {
            position
        } else if position == 0 {
            with.len()
        } else {
            list.len() / 2
        };
        let cut_min = list.len().saturating_sub(here.room).max(1);
        let cut = cut.clamp(cut_min, here.room.min(list.len() - 1));
        let (left, right) = list.split_at(cut);
        let right_block = blocks.take();
        create(nodes, right_block, depth, right)?;
        here.change(nodes, |node| node.splice(0..here.entries, left))?;
        set_first_key(nodes, path, level, entry_logical(&left[0]))?;

        let logical = entry_logical(&right[0]);
        with = vec![ExtentIndex { logical, child: right_block }.entry()];
        level -= 1;
        position = path.level(level).position + 1;
        removed = 0;
    }
}

/// Writes a new node.
fn create<S: NodesMut>(
    nodes: &mut S,
    block: PhysicalBlock,
    depth: u16,
    entries: &[EntryBytes],
) -> Result<()> {
    let place = NodePlace::block(nodes.inode(), block);
    nodes.create(block, |bytes| ExtentNodeMut::init(bytes, place, depth).splice(0..0, entries))
}

/// Moves `entries`, which no longer fit the root, to a new node below it.
fn grow<S: NodesMut>(
    nodes: &mut S,
    depth: u16,
    entries: &[EntryBytes],
    block: PhysicalBlock,
) -> Result<()> {
    create(nodes, block, depth, entries)?;
    let place = NodePlace::root(nodes.inode());
    let entry = ExtentIndex { logical: entry_logical(&entries[0]), child: block }.entry();
    nodes.change_root(|root| ExtentNodeMut::init(root, place, depth + 1).splice(0..0, &[entry]))
}

/// Copies a node's first key to the entries above that lead to the node.
fn set_first_key<S: NodesMut>(
    nodes: &mut S,
    path: &ExtentPath<S::Node>,
    level: usize,
    logical: LogicalBlock,
) -> Result<()> {
    for level in (0..level).rev() {
        let above = path.level(level);
        let old = above.look(nodes, |node| node.index(above.position))?;
        let Some(old) = old.filter(|old| old.logical != logical) else { return Ok(()) };
        let entry = ExtentIndex { logical, ..old }.entry();
        above.change(nodes, |node| node.splice(above.position..above.position + 1, &[entry]))?;
        if above.position > 0 {
            return Ok(());
        }
    }
    Ok(())
}

/// Removes the leaf from the tree, and the nodes above that would be empty without it.
fn remove_leaf<S: NodesMut>(nodes: &mut S, path: &ExtentPath<S::Node>) -> Result<()> {
    for level in (1..=path.depth()).rev() {
        let above = path.level(level - 1);
        if above.entries > 1 {
            let first = above.change(nodes, |node| {
                node.remove(above.position..above.position + 1);
                node.as_node().logical(0)
            })?;
            if let (0, Some(first)) = (above.position, first) {
                set_first_key(nodes, path, level - 1, first)?;
            }
        } else if level == 1 {
            let place = NodePlace::root(nodes.inode());
            nodes.change_root(|root| {
                ExtentNodeMut::init(root, place, 0);
            })?;
        }
        if let Some(block) = path.level(level).block() {
            nodes.release(block)?;
        }
        if above.entries > 1 {
            break;
        }
    }
    Ok(())
}

/// Moves the only node below the root up into the root as long as it fits.
fn shrink<S: NodesMut>(nodes: &mut S) -> Result<()> {
    let inode = nodes.inode();
    let root = NodePlace::root(inode);
    loop {
        let only = nodes.root(|bytes| {
            let node = ExtentNode::reopen(bytes, root)?;
            let index = if node.len() == 1 { node.index(0) } else { None };
            Ok::<_, Error>(index.map(|index| (index, node.depth() - 1, node.capacity())))
        })?;
        let Some((index, depth, room)) = only else { return Ok(()) };
        let place = NodePlace::block(inode, index.child);
        let limit = NodeExpectation::ROOT.logical_end();
        // A copy, as the root is locked while it changes.
        let (_, entries) = path::enter(nodes, place, index, depth, limit, |node| {
            (node.len() <= room).then(|| node.entry_bytes().to_vec())
        })?;
        let Some(entries) = entries else { return Ok(()) };
        nodes.change_root(|bytes| {
            ExtentNodeMut::init(bytes, root, depth).splice(0..0, &entries);
        })?;
        nodes.release(index.child)?;
    }
}
