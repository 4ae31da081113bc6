//! Lists of extents.

use crate::moves::Moves;
use drystone_ext4_format::extent::{Extent, WRITTEN_BLOCKS_MAX};
use drystone_ext4_format::{LogicalBlock, PhysicalBlock};
use std::ops::Range;

/// The extents of a file whose first block is the first of these.
pub(super) fn extents_of_runs(runs: &[Range<u64>]) -> Vec<Extent> {
    let mut extents = Vec::new();
    let mut logical = 0;
    for run in runs {
        let mut start = run.start;
        while start < run.end {
            // Bounded by the length of an extent.
            let length = (run.end - start).min(u64::from(WRITTEN_BLOCKS_MAX)) as u32;
            extents.push(Extent {
                logical: LogicalBlock::new(logical),
                length,
                physical: PhysicalBlock::new(start),
                unwritten: false,
            });
            start += u64::from(length);
            logical += length;
        }
    }
    extents
}

/// The extents after the moves: cut where blocks part, joined where they meet.
pub(super) fn moved_extents(extents: &[Extent], moves: &Moves) -> Vec<Extent> {
    let mut moved: Vec<Extent> = Vec::with_capacity(extents.len());
    for extent in extents {
        let start = extent.physical.get();
        let mut logical = extent.logical.get();
        for piece in moves.pieces(start..start + u64::from(extent.length)) {
            // A piece isn't longer than the extent.
            let length = (piece.end - piece.start) as u32;
            let next = Extent {
                logical: LogicalBlock::new(logical),
                length,
                physical: PhysicalBlock::new(piece.start),
                unwritten: extent.unwritten,
            };
            next.append_to(&mut moved);
            logical += length;
        }
    }
    moved
}
