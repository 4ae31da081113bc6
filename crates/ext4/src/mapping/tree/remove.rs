//! Removes extents.

use super::path::{ExtentPath, bottom};
use super::{edit, leaf_extents};
use crate::error::Result;
use crate::mapping::StepProgress;
use crate::mapping::store::NodesMut;
use drystone_ext4_format::extent::Extent;
use drystone_ext4_format::{Corrupt, LogicalBlock};

/// The result of one step of a removal.
pub(in crate::mapping) struct RemovedExtents {
    /// The pieces, last one first.
    pub pieces: Vec<Extent>,
    /// Where the next step's range ends, if there may be more.
    pub progress: StepProgress,
}

/// Unmaps the last extents that overlap the range, as many of one leaf as `budget` allows.
///
/// `budget` gets each extent and returns the block from which on it may be removed in this step;
/// `None` ends the step before it.
pub(in crate::mapping) fn remove<N: NodesMut>(
    nodes: &mut N,
    from: u32,
    to: u64,
    mut budget: impl FnMut(&Extent) -> Option<LogicalBlock>,
) -> Result<RemovedExtents> {
    let mut to = to;
    loop {
        let nothing = RemovedExtents { pieces: Vec::new(), progress: StepProgress::Done };
        if to <= u64::from(from) {
            return Ok(nothing);
        }
        let last = LogicalBlock::new((to - 1) as u32);
        // Most truncations cut within the last mapped block, so that nothing is left to remove.
        if let Some(extent) = bottom(nodes, last)?.previous
            && extent.logical_end() <= u64::from(from)
        {
            return Ok(nothing);
        }
        let path = ExtentPath::find(nodes, last)?;
        let end = path.leaf().position;
        if end == 0 {
            // The tree starts after the range, or the leaf's first extent does.
            if u64::from(path.start) >= to {
                return Ok(nothing);
            }
            to = u64::from(path.start);
            continue;
        }
        let extents = leaf_extents(nodes, &path, 0, end)?;
        let RemovalStep { pieces, is_stopped } = choose_pieces(&extents, from, to, &mut budget);
        let first = end - pieces.len();
        let Some(lowest) = pieces.last() else {
            if is_stopped {
                // The first extent is refused only if its blocks are outside the image.
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
        let more = is_stopped || (first == 0 && path.start > from && path.depth() > 0);
        let progress = if more { StepProgress::More { next: low_end } } else { StepProgress::Done };
        return Ok(RemovedExtents { pieces, progress });
    }
}

/// The extents that one step removes from a leaf.
struct RemovalStep {
    /// The pieces, last one first.
    pieces: Vec<Extent>,
    /// The budget ended the step, rather than the leaf or the range.
    is_stopped: bool,
}

/// Chooses, from the end of a leaf's extents, the parts in the range that `budget` allows.
fn choose_pieces(
    extents: &[Extent],
    from: u32,
    to: u64,
    budget: &mut impl FnMut(&Extent) -> Option<LogicalBlock>,
) -> RemovalStep {
    let mut pieces = Vec::new();
    for extent in extents.iter().rev() {
        let Some(piece) = extent.overlap(u64::from(from), to) else { break };
        let admitted = budget(&piece).and_then(|lowest| piece.overlap(lowest.as_u64(), to));
        let Some(piece) = admitted else { return RemovalStep { pieces, is_stopped: true } };
        pieces.push(piece);
        if piece.logical > extent.logical {
            return RemovalStep { pieces, is_stopped: u64::from(from) < piece.logical.as_u64() };
        }
    }
    RemovalStep { pieces, is_stopped: false }
}
