//! Extent trees: lookups and changes, over [`Nodes`].
//!
//! # Invariants
//! Extents are sorted, don't overlap, and neighbours in one leaf that could be one extent are one,
//! as far as changes made here touched them.
//!
//! # Crash
//! Each function is one step of one transaction and leaves a valid tree. Steps that are part of
//! something longer say where to go on.
//!
//! # Reference
//! "Extent Tree" in the kernel's documentation of ext4.

mod edit;
mod path;

use super::Progress;
use super::store::{Nodes, NodesMut};
use crate::error::Result;
use crate::extent_status::Fact;
use drystone_ext4_format::extent::ExtentEntryProblem;
use drystone_ext4_format::extent::{Extent, ExtentNodeMut, NodeExpectation, NodePlace};
use drystone_ext4_format::{Corrupt, InodeNumber, LogicalBlock};
use drystone_vfs::Errno;
use path::{Path, bottom};

/// The number behind the last block of any file.
const END: u64 = NodeExpectation::ROOT.logical_end();

/// What surrounds one block of the file.
pub(super) struct Around {
    /// The extent that starts at or before the block, if its leaf has one.
    pub previous: Option<Extent>,
    /// First block behind the one asked for that may be mapped by another extent.
    pub next_start: u64,
}

/// Looks up a block.
pub(super) fn around<N: Nodes>(nodes: &N, logical: LogicalBlock) -> Result<Around> {
    let found = bottom(nodes, logical)?;
    Ok(Around { previous: found.previous, next_start: found.next_start() })
}

/// What a look-up found.
pub(super) struct Found {
    /// The extent or the hole that the block is in, as far as it was seen.
    pub fact: Fact,
    /// Looking again is as cheap as looking anywhere else: the root has at most one extent.
    pub is_small: bool,
    /// The extent that starts at or before the block, if its leaf has one.
    pub previous: Option<Extent>,
}

/// Looks up a block and those behind it, `length_max` blocks of them if they are a hole.
pub(super) fn look_up<N: Nodes>(nodes: &N, logical: u32, length_max: u32) -> Result<Found> {
    let found = bottom(nodes, LogicalBlock::new(logical))?;
    let (is_small, previous) = (found.is_small, found.previous);
    let start = u64::from(logical);
    let mut hole_start = logical;
    if let Some(extent) = found.previous {
        if extent.logical_end() > start {
            return Ok(Found { fact: Fact::from(extent), is_small, previous });
        }
        // At most the block asked for.
        hole_start = extent.logical_end() as u32;
    }
    let mut end = found.next_start();
    // The hole may go on behind what the leaf is responsible for.
    if found.next.is_none()
        && end - start < u64::from(length_max)
        && let Ok(limit) = u32::try_from(end)
    {
        end = next(nodes, limit)?.map_or(END, |extent| extent.logical.as_u64());
    }
    Ok(Found { fact: Fact::hole(hole_start, end), is_small, previous })
}

/// The first extent that ends behind `from`; it may begin before.
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

/// Adds an extent where nothing is mapped.
pub(super) fn insert<N: NodesMut>(nodes: &mut N, extent: Extent) -> Result<()> {
    let path = Path::find(nodes, extent.logical)?;
    let free_from = path.previous.map_or(0, |previous| previous.logical_end());
    // The caller has looked for a hole with the inode locked.
    assert!(
        free_from <= extent.logical.as_u64() && extent.logical_end() <= path.next_start(),
        "{extent:?} overlaps the mapping of {:?}",
        nodes.inode(),
    );
    let goal = path.leaf().block().unwrap_or(extent.physical);
    let mut change = Change::new(path.leaf().position, extent);
    change.merge_around(path.previous, path.next);
    edit::replace(nodes, &path, change.position, change.removed, change.with(), goal)
}

/// Adds an extent behind all others of a tree that is its root alone: what appending mostly takes.
/// Returns whether it did.
pub(super) fn append_to_root(root: &mut [u8], inode: InodeNumber, extent: &Extent) -> bool {
    // Where it can't be read, the search for the place says why.
    let Ok(mut root) = ExtentNodeMut::reopen(root, NodePlace::root(inode)) else { return false };
    let node = root.as_node();
    let (count, room) = (node.len(), node.capacity());
    if node.depth() > 0 {
        return false;
    }
    let last = count.checked_sub(1).and_then(|last| node.extent(last));
    match last {
        Some(last) if last.logical_end() > extent.logical.as_u64() => return false,
        Some(last) if let Some(merged) = last.merge(extent) => {
            root.replace_extent(count - 1, &merged);
        }
        _ if count < room => root.insert_extent(count, extent),
        _ => return false,
    }
    true
}

/// The replacement of some extents of a leaf by one, merged with its neighbours where possible.
struct Change {
    position: usize,
    removed: usize,
    extent: Extent,
}

impl Change {
    fn new(position: usize, extent: Extent) -> Change {
        Change { position, removed: 0, extent }
    }

    fn merge_around(&mut self, previous: Option<Extent>, next: Option<Extent>) {
        if let Some(merged) = previous.and_then(|previous| previous.merge(&self.extent)) {
            self.extent = merged;
            self.position -= 1;
            self.removed += 1;
        }
        if let Some(merged) = next.and_then(|next| self.extent.merge(&next)) {
            self.extent = merged;
            self.removed += 1;
        }
    }

    fn with(&self) -> &[Extent] {
        std::slice::from_ref(&self.extent)
    }
}

/// What one step of a removal took out of the mapping.
pub(super) struct Removed {
    /// The pieces, last one first.
    pub pieces: Vec<Extent>,
    /// Where the next step's range ends, if there may be more.
    pub progress: Progress,
}

/// Unmaps the last extents that overlap the range, as many of one leaf as `budget` admits.
///
/// `budget` gets each extent and says from which of its blocks on it may go in this step; `None`
/// ends the step before it.
pub(super) fn remove<N: NodesMut>(
    nodes: &mut N,
    from: u32,
    to: u64,
    mut budget: impl FnMut(&Extent) -> Option<LogicalBlock>,
) -> Result<Removed> {
    let mut to = to;
    loop {
        let nothing = Removed { pieces: Vec::new(), progress: Progress::Done };
        if to <= u64::from(from) {
            return Ok(nothing);
        }
        let last = LogicalBlock::new((to - 1) as u32);
        // Most cuts end in the last block that is mapped: there is nothing behind it.
        if let Some(extent) = bottom(nodes, last)?.previous
            && extent.logical_end() <= u64::from(from)
        {
            return Ok(nothing);
        }
        let path = Path::find(nodes, last)?;
        let end = path.leaf().position;
        if end == 0 {
            // The tree starts behind the range, or the leaf starts behind its parent's key.
            if u64::from(path.start) >= to {
                return Ok(nothing);
            }
            to = u64::from(path.start);
            continue;
        }
        let extents = leaf_extents(nodes, &path, 0, end)?;
        let mut first = end;
        let mut pieces = Vec::new();
        let mut stopped = false;
        for extent in extents.iter().rev() {
            let Some(piece) = extent.overlap(u64::from(from), to) else { break };
            let Some(lowest) = budget(&piece) else {
                stopped = true;
                break;
            };
            let Some(piece) = piece.overlap(u64::from(lowest.get()), to) else {
                stopped = true;
                break;
            };
            first -= 1;
            pieces.push(piece);
            if piece.logical > extent.logical {
                stopped = u64::from(from) < piece.logical.as_u64();
                break;
            }
        }
        let Some(lowest) = pieces.last() else {
            if stopped {
                // A budget refuses everything only where it knows no such blocks.
                return Err(Corrupt::BlockOutOfRange {
                    block: extents[end - 1].physical,
                    blocks: nodes.layout().blocks_count(),
                }
                .into());
            }
            return Ok(nothing);
        };
        let low_end = lowest.logical.as_u64();
        let mut with = Vec::with_capacity(2);
        with.extend(extents[first].overlap(0, low_end));
        with.extend(extents[end - 1].overlap(to, u64::MAX));
        let goal = path.leaf().block().unwrap_or(lowest.physical);
        edit::replace(nodes, &path, first, end - first, &with, goal)?;
        let more = stopped || (first == 0 && path.start > from && path.depth() > 0);
        let progress = if more { Progress::More { next: low_end } } else { Progress::Done };
        return Ok(Removed { pieces, progress });
    }
}

/// Marks what is mapped of a range in one leaf as written or unwritten.
pub(super) fn convert<N: NodesMut>(
    nodes: &mut N,
    from: u32,
    to: u64,
    unwritten: bool,
) -> Result<Progress> {
    let path = Path::find(nodes, LogicalBlock::new(from))?;
    let leaf = path.leaf();
    let (from, limit) = (u64::from(from), path.limit.min(to));
    // An extent may become three, and a long one four; half a leaf of them always fits two leaves.
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
    Ok(if next < to && next < END { Progress::More { next } } else { Progress::Done })
}

/// Appends an extent to a list: merged with the last one, and cut where it is too long.
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

/// Moves the extents of one leaf that start in the range by `delta` blocks of the file.
///
/// The blocks that they move over must not be mapped. Going down takes the first leaf of the range,
/// going up the last one, so that what is mapped never overlaps in between.
pub(super) fn shift<N: NodesMut>(
    nodes: &mut N,
    from: u32,
    to: u64,
    delta: i64,
) -> Result<Progress> {
    if delta < 0 { shift_down(nodes, from, to, delta) } else { shift_up(nodes, from, to, delta) }
}

/// The extent `delta` blocks on, which must be blocks that a file may have.
fn moved(extent: &Extent, delta: i64) -> Result<Extent> {
    let logical = u32::try_from(i64::from(extent.logical.get()) + delta);
    let end = logical.ok().and_then(|logical| logical.checked_add(extent.length));
    let (Ok(logical), Some(_)) = (logical, end) else { return Err(Errno::EFBIG.into()) };
    Ok(Extent { logical: LogicalBlock::new(logical), ..*extent })
}

fn shift_down<N: NodesMut>(nodes: &mut N, from: u32, to: u64, delta: i64) -> Result<Progress> {
    let Some(extent) = next(nodes, from)?.filter(|extent| extent.logical.as_u64() < to) else {
        return Ok(Progress::Done);
    };
    let path = Path::find(nodes, extent.logical)?;
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
    Ok(if done { Progress::Done } else { Progress::More { next: path.limit } })
}

fn shift_up<N: NodesMut>(nodes: &mut N, from: u32, to: u64, delta: i64) -> Result<Progress> {
    let mut to = to;
    loop {
        if to <= u64::from(from) {
            return Ok(Progress::Done);
        }
        let path = Path::find(nodes, LogicalBlock::new((to - 1) as u32))?;
        let leaf = path.leaf();
        let extents = leaf_extents(nodes, &path, 0, leaf.position)?;
        let first = extents.partition_point(|extent| extent.logical.get() < from);
        if first == leaf.position {
            if leaf.position > 0 || u64::from(path.start) >= to {
                return Ok(Progress::Done);
            }
            to = u64::from(path.start);
            continue;
        }
        let moved = extents[first..].iter().map(|extent| moved(extent, delta));
        let list = moved.collect::<Result<Vec<Extent>>>()?;
        let next = extents[first].logical.as_u64();
        edit::replace(nodes, &path, first, list.len(), &list, list[0].physical)?;
        let done = first > 0 || path.start <= from;
        return Ok(if done { Progress::Done } else { Progress::More { next } });
    }
}

/// Cuts the extent that has blocks on both sides of `at`, without merging.
pub(super) fn split_at<N: NodesMut>(nodes: &mut N, at: u32) -> Result<()> {
    let path = Path::find(nodes, LogicalBlock::new(at))?;
    let Some(extent) = path.previous else { return Ok(()) };
    let middle = u64::from(at);
    let (Some(left), Some(right)) = (extent.overlap(0, middle), extent.overlap(middle, u64::MAX))
    else {
        return Ok(());
    };
    let goal = path.leaf().block().unwrap_or(extent.physical);
    edit::replace(nodes, &path, path.leaf().position - 1, 1, &[left, right], goal)
}

/// The extents of the path's leaf from one position up to another.
///
/// They are to be changed, so their order is checked once more: a block that something else claims
/// too may have been verified as that only.
fn leaf_extents<N: Nodes>(
    nodes: &N,
    path: &Path<N::Node>,
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
                // Fewer than 2^16 fit.
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
