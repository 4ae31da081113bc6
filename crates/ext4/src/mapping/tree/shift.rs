//! Moves extents to other blocks of the file.

use super::path::ExtentPath;
use super::{around, edit, leaf_extents, next, push_merging};
use crate::error::Result;
use crate::mapping::StepProgress;
use crate::mapping::store::{Nodes, NodesMut};
use drystone_ext4_format::LogicalBlock;
use drystone_ext4_format::extent::Extent;
use drystone_vfs::Errno;

/// Moves the extents of one leaf that start in the range by `delta` blocks of the file.
///
/// They must move over unmapped blocks only. A move down takes the first leaf of the range, a move
/// up the last one, so that extents never overlap between the steps.
pub(in crate::mapping) fn shift<N: NodesMut>(
    nodes: &mut N,
    from: u32,
    to: u64,
    delta: i64,
) -> Result<StepProgress> {
    if delta < 0 { shift_down(nodes, from, to, delta) } else { shift_up(nodes, from, to, delta) }
}

/// Where extents end that are moved up by `delta` blocks, if a part of them is after `from`.
pub(in crate::mapping) fn shifted_end<N: Nodes>(
    nodes: &N,
    from: u32,
    delta: u32,
) -> Result<Option<u64>> {
    let last = around(nodes, LogicalBlock::new(u32::MAX))?.previous;
    let end = last.map(|last| last.logical_end()).filter(|end| *end > u64::from(from));
    Ok(end.map(|end| end + u64::from(delta)))
}

/// The extent moved by `delta` blocks; `EFBIG` if a file can't have the new blocks.
fn moved(extent: &Extent, delta: i64) -> Result<Extent> {
    let logical = u32::try_from(i64::from(extent.logical.get()) + delta);
    let end = logical.ok().and_then(|logical| logical.checked_add(extent.length));
    let (Ok(logical), Some(_)) = (logical, end) else { return Err(Errno::EFBIG.into()) };
    Ok(Extent { logical: LogicalBlock::new(logical), ..*extent })
}

fn shift_down<N: NodesMut>(nodes: &mut N, from: u32, to: u64, delta: i64) -> Result<StepProgress> {
    let Some(extent) = next(nodes, from)?.filter(|extent| extent.logical.as_u64() < to) else {
        return Ok(StepProgress::Done);
    };
    let path = ExtentPath::find(nodes, extent.logical)?;
    let leaf = path.leaf();
    let first = leaf.position - 1;
    let low = first.saturating_sub(1);
    let extents = leaf_extents(nodes, &path, low, leaf.entries)?;
    let mut list = Vec::with_capacity(extents.len());
    list.extend_from_slice(&extents[..first - low]);
    let mut removed = first - low;
    for extent in extents[first - low..].iter().take_while(|extent| extent.logical.as_u64() < to) {
        push_merging(&mut list, moved(extent, delta)?);
        removed += 1;
    }
    let done = low + removed < leaf.entries || path.limit >= to;
    edit::replace(nodes, &path, low, removed, &list, list[0].physical)?;
    Ok(if done { StepProgress::Done } else { StepProgress::More { next: path.limit } })
}

fn shift_up<N: NodesMut>(nodes: &mut N, from: u32, to: u64, delta: i64) -> Result<StepProgress> {
    let mut to = to;
    loop {
        if to <= u64::from(from) {
            return Ok(StepProgress::Done);
        }
        let path = ExtentPath::find(nodes, LogicalBlock::new((to - 1) as u32))?;
        let leaf = path.leaf();
        let extents = leaf_extents(nodes, &path, 0, leaf.position)?;
        let first = extents.partition_point(|extent| extent.logical.get() < from);
        if first == leaf.position {
            if leaf.position > 0 || u64::from(path.start) >= to {
                return Ok(StepProgress::Done);
            }
            to = u64::from(path.start);
            continue;
        }
        let moved = extents[first..].iter().map(|extent| moved(extent, delta));
        let list = moved.collect::<Result<Vec<Extent>>>()?;
        let next = extents[first].logical.as_u64();
        edit::replace(nodes, &path, first, list.len(), &list, list[0].physical)?;
        let done = first > 0 || path.start <= from;
        return Ok(if done { StepProgress::Done } else { StepProgress::More { next } });
    }
}
