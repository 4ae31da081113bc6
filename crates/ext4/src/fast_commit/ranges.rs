//! Replays the changes of files' blocks: claims the new blocks, and changes the mapping.

use super::plan::RangeChange;
use super::{NumberState, Replay, wrong};
use crate::credits;
use crate::error::Result;
use crate::inode::Inode;
use crate::mapping::{self, StepProgress};
use drystone_ext4_format::error::FastCommitProblem;
use drystone_ext4_format::extent::Extent;
use drystone_ext4_format::{InodeNumber, LogicalBlock, PhysicalBlock};
use drystone_sync::Arc;
use std::collections::{BTreeMap, BTreeSet};

/// A range of a file, and its final extent, or `None` for a hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RangePiece {
    from: u64,
    to: u64,
    extent: Option<Extent>,
}

/// The result of changes, of which a later one overrides an earlier one: pieces in order that don't
/// overlap.
fn pieces(changes: &[RangeChange]) -> Vec<RangePiece> {
    let mut pieces: BTreeMap<u64, RangePiece> = BTreeMap::new();
    for change in changes {
        let new = match *change {
            RangeChange::Add(extent) => {
                let (from, to) = (extent.logical.as_u64(), extent.logical_end());
                RangePiece { from, to, extent: Some(extent) }
            }
            RangeChange::Remove { from, to } => RangePiece { from, to, extent: None },
        };
        let before = pieces.range(..new.from).next_back().map(|(from, _)| *from);
        let inside = pieces.range(new.from..new.to).map(|(from, _)| *from);
        for from in before.into_iter().chain(inside).collect::<Vec<_>>() {
            let Some(old) = pieces.remove(&from) else { continue };
            for (from, to) in [(old.from, old.to.min(new.from)), (old.from.max(new.to), old.to)] {
                if from < to {
                    pieces.insert(from, RangePiece { from, to, ..old });
                }
            }
        }
        pieces.insert(new.from, new);
    }
    pieces.into_values().collect()
}

/// The part of an extent that maps `length` blocks from `from` on.
fn part(extent: &Extent, from: u64, length: u32) -> Option<Extent> {
    extent.overlap(from, from + u64::from(length))
}

impl Replay<'_> {
    /// The pieces of a file that exists after the replay. Directories have none here: their blocks
    /// follow from their names.
    fn pieces(&self, number: InodeNumber) -> Result<Vec<RangePiece>> {
        let Some(said) = self.said.get(&number).filter(|said| !said.ranges.is_empty()) else {
            return Ok(Vec::new());
        };
        let maps_blocks = match (&said.image, self.number_state(number)) {
            _ if !self.exists(number) => false,
            (Some(image), _) => image.disk.has_block_mapping() && !image.disk.is_directory(),
            (None, NumberState::Kept) => {
                let inode = self.fs.orphan_inode(number)?;
                inode.has_mapping() && !inode.is_directory()
            }
            (None, NumberState::Replaced | NumberState::Absent) => false,
        };
        Ok(if maps_blocks { pieces(&said.ranges) } else { Vec::new() })
    }

    /// Claims all blocks that files get, before any other block is allocated.
    pub(super) fn claim_ranges(&self) -> Result<()> {
        for number in self.said.keys() {
            let pieces = self.pieces(*number)?;
            let kept = match self.number_state(*number) {
                NumberState::Kept if !pieces.is_empty() => Some(self.fs.orphan_inode(*number)?),
                _ => None,
            };
            let kept = kept.filter(|inode| inode.has_mapping());
            let mut clusters = BTreeSet::new();
            for RangePiece { from, to, extent } in pieces {
                let Some(extent) = extent else { continue };
                let mut next = from;
                while next < to {
                    // Blocks of files have numbers of 32 bits, and an extent has at most 2^15
                    // blocks.
                    let (logical, rest) = (LogicalBlock::new(next as u32), (to - next) as u32);
                    let (length, is_there) = match &kept {
                        Some(inode) => self.is_at(inode, &extent, logical, rest)?,
                        None => (rest, false),
                    };
                    if let Some(extent) = part(&extent, next, length).filter(|_| !is_there) {
                        self.claim(*number, kept.as_ref(), &extent, &mut clusters)?;
                    }
                    next += u64::from(length);
                }
            }
        }
        Ok(())
    }

    /// Whether the blocks from `logical` on are mapped as `extent` says, and for how many blocks
    /// the answer holds.
    fn is_at(
        &self,
        inode: &Inode,
        extent: &Extent,
        logical: LogicalBlock,
        length_max: u32,
    ) -> Result<(u32, bool)> {
        let mapped = mapping::map(self.fs, inode, logical, length_max)?;
        let is_there = mapped.physical.is_some() && mapped.physical == extent.physical_of(logical);
        Ok((mapped.length.min(length_max), is_there))
    }

    /// Claims the blocks of an extent; with clusters, the clusters that the file doesn't own yet.
    fn claim(
        &self,
        number: InodeNumber,
        kept: Option<&Arc<Inode>>,
        extent: &Extent,
        clusters: &mut BTreeSet<u64>,
    ) -> Result<()> {
        let ratio = u64::from(self.fs.volume.layout().blocks_per_cluster());
        if ratio == 1 {
            return self.claim_run(number, extent.physical, u64::from(extent.length));
        }
        let mut next = extent.logical.as_u64();
        if extent.physical.get() % ratio != next % ratio {
            return Err(wrong(number, FastCommitProblem::Range));
        }
        while next < extent.logical_end() {
            let end = (next / ratio + 1) * ratio;
            let Some(piece) = extent.overlap(next, end) else { break };
            let cluster = piece.physical.get() / ratio;
            let owned = match kept {
                Some(inode) => mapping::owned_cluster(self.fs, inode, piece.logical)?,
                None => None,
            };
            let is_owned = owned.is_some_and(|start| start.get() / ratio == cluster);
            if clusters.insert(cluster) && !is_owned {
                self.claim_run(number, piece.physical, u64::from(piece.length))?;
            }
            next = end;
        }
        Ok(())
    }

    fn claim_run(&self, number: InodeNumber, start: PhysicalBlock, count: u64) -> Result<()> {
        let used = self.step(credits::MAPPING_REMOVE_STEP, |handle| {
            self.fs.allocator.blocks.claim(handle, start, count)
        })?;
        match used {
            Some(block) => Err(wrong(number, FastCommitProblem::BlockInUse(block))),
            None => Ok(()),
        }
    }

    /// Maps the blocks that files get, then unmaps those that they lose.
    pub(super) fn apply_ranges(&self) -> Result<()> {
        for number in self.said.keys() {
            let pieces = self.pieces(*number)?;
            if pieces.is_empty() {
                continue;
            }
            let inode = self.fs.orphan_inode(*number)?;
            let _content = inode.content().write();
            for RangePiece { from, to, extent } in &pieces {
                if let Some(extent) = extent {
                    self.map_piece(&inode, *from, *to, extent)?;
                }
            }
            for RangePiece { from, to, extent } in &pieces {
                if extent.is_none() {
                    self.unmap(&inode, *from, *to)?;
                }
            }
        }
        Ok(())
    }

    fn map_piece(&self, inode: &Arc<Inode>, from: u64, to: u64, extent: &Extent) -> Result<()> {
        let fs = self.fs;
        let mut next = from;
        while next < to {
            // Fits, as in `claim_ranges`.
            let (logical, rest) = (LogicalBlock::new(next as u32), (to - next) as u32);
            let mapped = mapping::map(fs, inode, logical, rest)?;
            let longest = mapping::insert_length_max(fs, inode, logical);
            let longest = longest.ok_or_else(|| wrong(inode.number, FastCommitProblem::Range))?;
            let mut length = mapped.length.min(rest).min(longest);
            let Some(part) = part(extent, next, length) else { break };
            if mapped.physical == Some(part.physical) {
                if mapped.unwritten != part.unwritten {
                    length = self.step(credits::WRITE, |handle| {
                        mapping::convert(fs, handle, inode, logical, length, part.unwritten)
                    })?;
                }
            } else {
                if mapped.physical.is_some() {
                    self.unmap(inode, next, next + u64::from(length))?;
                }
                self.leave_clusters(inode, &part)?;
                self.step(credits::WRITE, |handle| mapping::insert(fs, handle, inode, part))?;
            }
            next += u64::from(length);
        }
        Ok(())
    }

    /// If the file maps a cluster of `part` to another physical cluster, unmaps the whole cluster:
    /// all blocks of a logical cluster must be in one physical cluster. Only the first and the last
    /// cluster can be partly mapped.
    fn leave_clusters(&self, inode: &Arc<Inode>, part: &Extent) -> Result<()> {
        let ratio = u64::from(self.fs.volume.layout().blocks_per_cluster());
        if ratio == 1 {
            return Ok(());
        }
        let last = LogicalBlock::new(part.logical.get() + (part.length - 1));
        for logical in [part.logical, last] {
            let owned = mapping::owned_cluster(self.fs, inode, logical)?;
            let owned = owned.map(|start| start.get() / ratio);
            let wanted = part.physical_of(logical).map(|block| block.get() / ratio);
            if owned.is_some() && owned != wanted {
                let cluster = logical.as_u64() / ratio;
                self.unmap(inode, cluster * ratio, (cluster + 1) * ratio)?;
            }
        }
        Ok(())
    }

    fn unmap(&self, inode: &Arc<Inode>, from: u64, to: u64) -> Result<()> {
        // Blocks of files have numbers of 32 bits.
        let first = LogicalBlock::new(from as u32);
        let mut end = to;
        loop {
            let step = self
                .step(credits::CUT, |handle| mapping::remove(self.fs, handle, inode, first, end))?;
            match step {
                StepProgress::Done => return Ok(()),
                StepProgress::More { next } => end = next,
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn add(logical: u32, length: u32, physical: u64) -> RangeChange {
        let physical = PhysicalBlock::new(physical);
        let logical = LogicalBlock::new(logical);
        RangeChange::Add(Extent { logical, length, physical, unwritten: false })
    }

    #[test]
    fn later_words_take_the_place_of_earlier_ones() {
        let changes = [
            add(10, 20, 1000),
            RangeChange::Remove { from: 15, to: 18 },
            add(25, 10, 2000),
            RangeChange::Remove { from: 0, to: 11 },
            add(16, 1, 3000),
        ];
        let found: Vec<_> = pieces(&changes)
            .iter()
            .map(|piece| {
                let start = LogicalBlock::new(piece.from as u32);
                let at = piece.extent.and_then(|extent| extent.physical_of(start));
                (piece.from, piece.to, at.map(PhysicalBlock::get))
            })
            .collect();
        let expected = [
            (0, 11, None),
            (11, 15, Some(1001)),
            (15, 16, None),
            (16, 17, Some(3000)),
            (17, 18, None),
            (18, 25, Some(1008)),
            (25, 35, Some(2000)),
        ];
        assert_eq!(found, expected);
    }
}
