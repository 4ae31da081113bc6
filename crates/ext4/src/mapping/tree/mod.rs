//! Extent trees: look-ups and changes, over [`Nodes`].
//!
//! # Invariants
//! Extents are sorted and don't overlap. A change merges the extents that it touches with their
//! neighbours in the leaf if they continue each other.
//!
//! # Crash
//! Each function is one step of one transaction and leaves a valid tree. Steps of longer work
//! return where to go on.
//!
//! # Reference
//! "Extent Tree" in the kernel's documentation of ext4.

mod convert;
mod edit;
mod insert;
mod path;
mod remove;
mod shift;

pub(super) use convert::convert;
pub(super) use insert::{append_to_root, insert, split_at};
pub(super) use remove::{RemovedExtents, remove};
pub(super) use shift::{shift, shifted_end};

use super::store::Nodes;
use crate::error::Result;
use crate::extent_status::CachedExtent;
use drystone_ext4_format::error::ExtentEntryProblem;
use drystone_ext4_format::extent::{Extent, NodeExpectation};
use drystone_ext4_format::{Corrupt, LogicalBlock};
use path::{ExtentPath, bottom};

/// One more than the highest block number of any file.
const END: u64 = NodeExpectation::ROOT.logical_end();

/// The surroundings of one block of the file.
pub(super) struct HoleBounds {
    /// The extent that starts at or before the block, if its leaf has one.
    pub previous: Option<Extent>,
    /// The first block after it that another extent may map.
    pub next_start: u64,
}

/// Looks up a block.
pub(super) fn around<N: Nodes>(nodes: &N, logical: LogicalBlock) -> Result<HoleBounds> {
    let found = bottom(nodes, logical)?;
    Ok(HoleBounds { previous: found.previous, next_start: found.next_start() })
}

/// The result of a look-up.
pub(super) struct TreeLookup {
    /// The extent or the hole that the block is in; a hole may be longer.
    pub fact: CachedExtent,
    /// The tree is a root with at most one extent: a look-up is as cheap as one in a cache.
    pub is_small: bool,
    /// The extent that starts at or before the block, if its leaf has one.
    pub previous: Option<Extent>,
}

/// Looks up a block and those after it; a hole is followed for at least `length_max` blocks.
pub(super) fn look_up<N: Nodes>(nodes: &N, logical: u32, length_max: u32) -> Result<TreeLookup> {
    let found = bottom(nodes, LogicalBlock::new(logical))?;
    let (is_small, previous) = (found.is_small, found.previous);
    let start = u64::from(logical);
    let mut hole_start = logical;
    if let Some(extent) = found.previous {
        if extent.logical_end() > start {
            return Ok(TreeLookup { fact: CachedExtent::from(extent), is_small, previous });
        }
        // Fits: at most `logical`.
        hole_start = extent.logical_end() as u32;
    }
    let mut end = found.next_start();
    // The hole may go on after the range of the leaf.
    if found.next.is_none()
        && end - start < u64::from(length_max)
        && let Ok(limit) = u32::try_from(end)
    {
        end = next(nodes, limit)?.map_or(END, |extent| extent.logical.as_u64());
    }
    Ok(TreeLookup { fact: CachedExtent::hole(hole_start, end), is_small, previous })
}

/// The first extent that ends after `from`; it may begin before.
pub(super) fn next<N: Nodes>(nodes: &N, from: u32) -> Result<Option<Extent>> {
    let mut from = from;
    loop {
        let found = bottom(nodes, LogicalBlock::new(from))?;
        if let Some(extent) = found.previous
            && extent.logical_end() > u64::from(from)
        {
            return Ok(Some(extent));
        }
        if found.next.is_some() {
            return Ok(found.next);
        }
        // Each round moves on to the next leaf.
        match u32::try_from(found.limit) {
            Ok(limit) => from = limit,
            Err(_) => return Ok(None),
        }
    }
}

/// Reads and checks the leaves from that of block `from` on, and the nodes above them.
pub(super) fn read_nodes<N: Nodes>(nodes: &N, from: u32) -> Result<()> {
    let mut from = from;
    loop {
        let found = bottom(nodes, LogicalBlock::new(from))?;
        match u32::try_from(found.limit) {
            Ok(limit) if found.limit < END => from = limit,
            _ => return Ok(()),
        }
    }
}

/// Appends an extent to a list: merges it with the last one, or splits it if it is too long.
fn push_merging(list: &mut Vec<Extent>, extent: Extent) {
    if let Some(last) = list.last_mut()
        && let Some(merged) = last.merge(&extent)
    {
        *last = merged;
        return;
    }
    let longest = u64::from(extent.length_max());
    let mut start = extent.logical.as_u64();
    while let Some(piece) = extent.overlap(start, start + longest) {
        list.push(piece);
        start += longest;
    }
}

/// The extents of the path's leaf from one position up to another.
///
/// Their order is checked again before they are changed: in a damaged image the block may have a
/// second use, and only that one may have been checked.
fn leaf_extents<N: Nodes>(
    nodes: &N,
    path: &ExtentPath<N::Node>,
    from: usize,
    to: usize,
) -> Result<Vec<Extent>> {
    let extents: Vec<Extent> = path.leaf().look(nodes, |node| {
        let to = to.min(node.len());
        (from..to).filter_map(|position| node.extent(position)).collect()
    })?;
    let mut previous_end = 0;
    for (position, extent) in extents.iter().enumerate() {
        let start = extent.logical;
        if extent.length == 0 || start.as_u64() < previous_end {
            return Err(Corrupt::ExtentEntry {
                inode: nodes.inode(),
                block: path.leaf().block(),
                // Fits: a node has fewer than 2^16 entries.
                entry: (from + position) as u16,
                problem: ExtentEntryProblem::Order { start, previous_end },
            }
            .into());
        }
        previous_end = extent.logical_end();
    }
    Ok(extents)
}

#[cfg(test)]
mod tests;
