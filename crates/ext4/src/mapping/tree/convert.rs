//! Marks extents as written or unwritten.

use super::path::ExtentPath;
use super::{END, edit, leaf_extents, push_merging};
use crate::error::Result;
use crate::mapping::StepProgress;
use crate::mapping::store::NodesMut;
use drystone_ext4_format::LogicalBlock;
use drystone_ext4_format::extent::Extent;

/// Marks the mapped blocks of a range in one leaf as written or unwritten.
pub(in crate::mapping) fn convert<N: NodesMut>(
    nodes: &mut N,
    from: u32,
    to: u64,
    unwritten: bool,
) -> Result<StepProgress> {
    let path = ExtentPath::find(nodes, LogicalBlock::new(from))?;
    let leaf = path.leaf();
    let (from, limit) = (u64::from(from), path.limit.min(to));
    // An extent may become three, or a long one four. With at most this many extents a step needs
    // no more than two leaves.
    let count_max = (leaf.room / 2).max(4);
    let first = match path.previous {
        Some(previous) if previous.logical_end() > from => leaf.position - 1,
        _ => leaf.position,
    };
    let mut last = first;
    // One neighbour on either side, to merge with.
    let low = first.saturating_sub(1);
    let high = (first + count_max + 1).min(leaf.entries);
    let extents = leaf_extents(nodes, &path, low, high)?;
    let mut list: Vec<Extent> = Vec::with_capacity(4);
    list.extend_from_slice(&extents[..first - low]);
    let mut changed = false;
    let mut next = limit;
    for extent in &extents[first - low..] {
        if extent.logical.as_u64() >= limit {
            break;
        }
        if last - first == count_max {
            next = extent.logical.as_u64();
            break;
        }
        last += 1;
        changed |= extent.unwritten != unwritten;
        for (low, high, unwritten) in
            [(0, from, extent.unwritten), (from, to, unwritten), (to, u64::MAX, extent.unwritten)]
        {
            if let Some(piece) = extent.overlap(low, high) {
                push_merging(&mut list, Extent { unwritten, ..piece });
            }
        }
    }
    if changed {
        let neighbour = extents.get(last - low).copied();
        let removed = last - low + usize::from(neighbour.is_some());
        if let Some(neighbour) = neighbour {
            push_merging(&mut list, neighbour);
        }
        let goal = leaf.block().unwrap_or(list[0].physical);
        edit::replace(nodes, &path, low, removed, &list, goal)?;
    }
    Ok(if next < to && next < END { StepProgress::More { next } } else { StepProgress::Done })
}
